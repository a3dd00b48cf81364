/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everything that the dispatcher may ask of or do to the world: one tapped function per primitive.
 *
 * The raw_* functions behind them are supplied by bpf.h (kernel) or native.h (simulator, replay);
 * these two and this file are the only places that know where the dispatcher runs, except for
 * placement.h and pull.h, which search by the index of index.h where there is one (INDEXED).
 */
#ifndef CORUN_PLATFORM_H
#define CORUN_PLATFORM_H

#ifdef __BPF__
#include "bpf.h"
#else
#include "native.h"
#endif

#include "counted.h"

/* The queue (dispatch queue, DSQ) of a pCPU: one each, ordered by virtual time. */
static inline u64 queue_of(s32 cpu)
{
	return (u64)(u32)cpu;
}

/* How a pCPU is asked to schedule. */
enum kick {
	KICK_IDLE = 1,	  /* only if it idles */
	KICK_PREEMPT = 2, /* the running task's slice is over */
};

/* A value that other CPUs may change. */
#define shared(lvalue) tap_in(IN_SHARED, *(volatile typeof(lvalue) *)&(lvalue))

/* a == b and a < b, from which the verifier learns nothing about either; see unranged(). */
static inline bool same(u64 a, u64 b, u64 unknown)
{
	return !unranged(a ^ b, unknown);
}

static inline bool below(u64 a, u64 b, u64 unknown)
{
	return unranged(a, unknown) < unranged(b, unknown);
}

/* --- inputs --- */

/* Do any VMs have gang modes? Under most policies none has. */
static inline bool with_gangs(void)
{
	return shared(knobs.gangs);
}

/* Does a plan treat pCPUs as the hardware threads of SMT cores? */
static inline bool with_cores(void)
{
	return shared(knobs.cores);
}

/* Do any tasks have micro slices (micro.h)? Recorded only if they do. */
static inline bool with_micro(void)
{
	return tap_if(IN_MICRO, *(volatile u16 *)&knobs.micro);
}

/* Monotonic time, ns. */
static inline u64 now_ns(void)
{
	return tap_in(IN_NOW, raw_now());
}

/* Changes some hundred times a second: cheaper than the time, for what runs rarely. */
static inline u32 tick(void)
{
	return (u32)tap_in(IN_TICK, raw_tick());
}

/* The pCPU this callback runs on. */
static inline s32 this_cpu(void)
{
	return (s32)tap_in(IN_THIS_CPU, (u32)raw_this_cpu());
}

/* Does this callback run in an interrupt, whichever task was interrupted? */
static inline bool in_interrupt(void)
{
	return tap_if(IN_INTERRUPT, raw_in_interrupt());
}

/* May `cpu` be used? */
static inline bool is_online(s32 cpu)
{
	u32 word = opaque((u32)cpu / 64) % MASK_WORDS;

	return (u32)cpu < knobs.pcpus && (u32)cpu < MAX_PCPUS &&
	       knobs.online[word] >> (u32)cpu % 64 & 1;
}

/* May `p` run on `cpu`: online, in its affinity and cpuset? */
static inline bool allowed(struct task_struct *p, s32 cpu)
{
	return is_online(cpu) && tap_in(IN_ALLOWED, raw_allowed(p, cpu));
}

/* May `p` run on one pCPU only? */
static inline bool is_bound(struct task_struct *p)
{
	return tap_in(IN_BOUND, raw_is_bound(p));
}

/* How many pCPUs may `p` run on, at most? */
static inline u32 room_of(struct task_struct *p)
{
	u32 room = (u32)tap_in(IN_ROOM, raw_room(p));

	return room < knobs.online_pcpus ? room : knobs.online_pcpus;
}

/*
 * `p`, which runs, loses its pCPU and wants to run on: does the kernel keep it for that pCPU
 * instead of having it queued? Recorded only if so.
 */
static inline bool kernel_keeps(struct task_struct *p)
{
	return tap_if(IN_KEPT, raw_kernel_keeps(p));
}

/* The last-level cache of `cpu`. */
static inline u32 llc_of(s32 cpu)
{
	return knobs.llc[opaque((u32)cpu) % MAX_PCPUS];
}

/* The other hardware thread of the core of `cpu`; NO_PCPU: it has none. */
static inline s32 smt_sibling_of(s32 cpu)
{
	return (s32)knobs.sibling[opaque((u32)cpu) % MAX_PCPUS] - 1;
}

/* for_each_allowed(cpu, p): the pCPUs below nr_pcpus() that `p` may run on, in order. */
#ifndef for_each_allowed
#define for_each_allowed(cpu, p)                                                                   \
	repeat (cpu, nr_pcpus())                                                                   \
		if (allowed(p, cpu))
#endif

/*
 * for_each_queue(cpu): the pCPUs below nr_pcpus(), in order; those with an empty queue may be
 * passed over.
 */
#ifndef for_each_queue
#define for_each_queue(cpu) repeat (cpu, nr_pcpus())
#endif

/*
 * The same, but those whose queues are marked as fixed may be passed over as well: nothing can be
 * pulled from them.
 */
#ifndef for_each_movable_queue
#define for_each_movable_queue for_each_queue
#endif

/* Hooks for a build that finds pCPUs by an index (index.h). */
#ifndef INDEXED
/* The load of `c` was changed. */
static inline void load_changed(struct cpu_ctx *c)
{
	(void)c;
}

/* A pull can move none of the tasks that it would look at in the queue of `cpu`. */
static inline void queue_is_fixed(s32 cpu)
{
	(void)cpu;
}
#endif

/* The task's own weight (nice, or cpu.weight of its cgroup), 1-10000. */
static inline u32 weight_of(struct task_struct *p)
{
	return (u32)tap_in(IN_WEIGHT, raw_weight(p));
}

/*
 * The place of the task's cgroup in the table of cgroups with running tasks, plus 1; 0: none.
 */
static inline u32 group_of(struct task_struct *p)
{
	return (u32)tap_in(IN_GROUP, raw_group_of(p));
}

/* The pCPU whose runqueue the kernel accounts `p` to. */
static inline s32 task_cpu_of(struct task_struct *p)
{
	return (s32)tap_in(IN_TASK_CPU, (u32)raw_task_cpu(p));
}

/* Was a vCPU for which no run is known yet a vCPU already before the dispatcher was loaded? */
static inline bool was_vcpu(void)
{
	return tap_in(IN_WAS_VCPU, raw_was_vcpu());
}

/* What the policy wants for `p`; NULL: it has not said. */
static inline struct task_conf *task_conf_of(struct task_struct *p)
{
	struct task_conf *conf = raw_task_conf(p);
	bool present = tap_in(IN_PRESENT, conf != NULL);

	return present ? conf : NULL;
}

/* Claims `cpu` if it is idle; false if it is not, or another callback was first. */
static inline bool claim_idle(s32 cpu)
{
	return tap_in(IN_CLAIM_IDLE, raw_claim_idle(cpu));
}

/*
 * Claims `cpu`, which idles as far as is known here; false if a task of a higher class has it, or
 * another callback was first. Recorded only if false.
 */
static inline bool answers(s32 cpu)
{
	return !tap_if(IN_NO_ANSWER, !raw_claim_idle(cpu));
}

/* Does no task of this scheduler run on the pCPU of `c`? Recorded only if none does. */
static inline bool runs_nothing(struct cpu_ctx *c)
{
	return tap_if(IN_RUNS_NOTHING, !*(volatile u16 *)&c->runs);
}

/* Number of tasks in the queue of `cpu`. */
static inline u32 queue_length(s32 cpu)
{
	return (u32)tap_in(IN_QUEUE_LENGTH, raw_queue_length(queue_of(cpu)));
}

/* The task's id, never 0. */
static inline u32 id_of(struct task_struct *p)
{
	return (u32)tap_in(IN_TASK_ID, raw_task_id(p));
}

/* The VM's process id if `p` is a vCPU thread, else 0. */
static inline u32 vcpu_of(struct task_struct *p)
{
	return (u32)tap_in(IN_VCPU_OF, raw_vcpu_of(p));
}

static inline u32 raw_find_slot(u32 id, bool or_free, u32 except)
{
	u32 found = NO_VM;
	u32 i;

	repeat (i, MAX_VMS) {
		u32 slot = (id + i) % MAX_VMS;
		struct vm_ctx *vm = vm_at(slot);
		u32 holds = vm ? *(volatile u32 *)&vm->id : 0;

		if (vm && slot != except && (holds == id || (or_free && !holds))) {
			found = slot;
			break;
		}
	}
	return found;
}

/*
 * The first slot of the VM table that holds VM `id`, or that is free if `or_free`; NO_VM if there
 * is none. The search begins at slot `id` % MAX_VMS. One input, not one per slot: a record has no
 * room for a look through the whole table.
 */
static inline u32 find_slot(u32 id, bool or_free)
{
	return (u32)tap_in(IN_VM_SLOT, raw_find_slot(id, or_free, NO_VM));
}

/*
 * A slot other than `own` that holds VM `id`, too; NO_VM if there is none. One input, as
 * find_slot().
 */
static inline u32 find_twin(u32 id, u32 own)
{
	return (u32)tap_in(IN_VM_SLOT, raw_find_slot(id, false, own));
}

static inline u32 raw_active_slot(u32 from)
{
	u32 found = NO_VM;
	u32 i;

	repeat (i, MAX_VMS) {
		u32 slot = (from + i) % MAX_VMS;
		struct vm_ctx *vm = vm_at(slot);

		if (vm && *(volatile u32 *)&vm->id && *(volatile u64 *)&vm->active_weight) {
			found = slot;
			break;
		}
	}
	return found;
}

/*
 * The first slot of the VM table, from `from` on and around, whose VM has a ready or running vCPU;
 * NO_VM if there is none. One input, as find_slot().
 */
static inline u32 active_slot(u32 from)
{
	return (u32)tap_in(IN_ACTIVE_SLOT, raw_active_slot(from));
}

/*
 * Counts one more vCPU in a slot of the VM table, if VM `id` owns that slot; returns how many it
 * counted before, or NOT_COUNTED. Check and count are one step, and so one input.
 */
static inline u32 count_in(struct vm_ctx *vm, u32 id)
{
	tap_out(OUT_ADD, 1);
	return (u32)tap_in(IN_FETCHED, raw_count_in(vm, id));
}

/*
 * Frees the slot of VM `id` if it counts no vCPU, and counts the VM in vms_ended; false: a vCPU has
 * appeared, or the slot is free already.
 */
static inline bool free_slot(struct vm_ctx *vm, u32 id)
{
	tap_out(OUT_STORE, 0);
	return tap_in(IN_FETCHED, raw_free_slot(vm, id));
}

/*
 * The slot of the VM whose vCPU this pCPU runs at the moment: in select_cpu, the waker's. NO_VM if
 * it runs another task, or none. If an interrupt wakes a task, the task that was interrupted counts
 * as the waker.
 */
static inline u32 waker_slot(void)
{
	return (u32)tap_in(IN_WAKER_SLOT, raw_waker_slot());
}

/* The id of the task that this pCPU runs at the moment, as waker_slot(); 0: none. */
static inline u32 waker_id(void)
{
	return (u32)tap_in(IN_WAKER_ID, raw_waker_id());
}

/*
 * for_each_queued(p, cpu): walks the queue of `cpu` from its head. In the body queued_vtime(p) is
 * the task's place in the order, and move_queued(p, cpu) takes it to a pCPU's local queue.
 */
#define for_each_queued(p, cpu)                                                                    \
	tap_out(OUT_WALK, queue_of(cpu));                                                          \
	raw_for_each_queued (p, queue_of(cpu))                                                     \
		if (tap_in(IN_NEXT_QUEUED, raw_task_id(p)))

#define queued_vtime(p) tap_in(IN_QUEUED_VTIME, raw_queued_vtime(p))

#define move_queued(p, cpu)                                                                        \
	({                                                                                         \
		tap_out(OUT_MOVE, (u32)(cpu));                                                     \
		tap_in(IN_MOVED, raw_move_queued(p, cpu));                                         \
	})

/* In such a walk: moves the task to the queue of `cpu`, in order of `vtime`. */
#define requeue(p, cpu, vtime)                                                                     \
	({                                                                                         \
		u64 ordered = (vtime);                                                             \
		tap_out(OUT_REQUEUE, queue_of(cpu));                                               \
		tap_out(OUT_INSERT_VTIME, ordered);                                                \
		tap_in(IN_MOVED, raw_requeue(p, queue_of(cpu), ordered));                          \
	})

/*
 * Copies what may be known of a task that another CPU may be changing; false: it has no task_ctx.
 * Such a task has the usual weight.
 */
static inline bool look_at(struct task_struct *p, struct task_ctx *copy)
{
	struct task_ctx *t = raw_task_ctx(p);

	copy->vm = t ? shared(t->vm) : NO_VM;
	copy->cpu = t ? (s32)shared(t->cpu) : NO_PCPU;
	copy->load = t ? shared(t->load) : WEIGHT_NEUTRAL;
	copy->since = t ? shared(t->since) : 0;
	copy->rest = t ? shared(t->rest) : 0;
	return t;
}

/* Copies what gangs may know of `p`, which is in a queue. A task without a task_ctx has no gang. */
static inline void look_at_ranked(struct task_struct *p, struct ranked *r)
{
	struct task_ctx *t = raw_task_ctx(p);

	r->vm = NO_VM;
	if (t) {
		r->fresh = shared(t->fresh);
		r->vm = shared(t->vm);
		r->member = shared(t->member);
		r->urgent_at = shared(t->urgent_at);
		r->awaited = shared(t->awaited);
	}
	r->vtime = queued_vtime(p);
}

/* Copies what may be known of a task that waits, and to which another one yields. */
static inline bool look_at_favoured(struct task_struct *p, struct favoured *to)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (!t)
		return false;
	to->vtime = shared(t->vtime);
	to->state = shared(t->state);
	to->cpu = shared(t->cpu);
	to->vm = shared(t->vm);
	to->over = shared(t->over);
	to->since = shared(t->since);
	return true;
}

/* --- decisions --- */

/* Queues `p` on `cpu` in order of `vtime`. */
static inline void insert(struct task_struct *p, s32 cpu, u64 slice, u64 vtime, u64 flags)
{
	tap_out(OUT_INSERT_QUEUE, queue_of(cpu));
	tap_out(OUT_INSERT_SLICE, slice);
	tap_out(OUT_INSERT_VTIME, vtime);
	raw_insert(p, queue_of(cpu), slice, vtime, flags);
}

/*
 * `p`, whose runqueue is that of `cpu`, runs there next: the task that runs there now loses its
 * pCPU.
 */
static inline void insert_next(struct task_struct *p, s32 cpu, u64 slice, u64 flags)
{
	tap_out(OUT_INSERT_NEXT, queue_of(cpu));
	tap_out(OUT_INSERT_SLICE, slice);
	raw_insert_next(p, cpu, slice, flags);
}

/* From select_cpu: `p` starts on the idle pCPU that select_cpu returns. */
static inline void insert_local(struct task_struct *p, u64 slice)
{
	tap_out(OUT_INSERT_SLICE, slice);
	raw_insert_local(p, slice);
}

/* Moves the first task of the queue of `cpu` to the dispatching pCPU; false if there is none. */
static inline bool move_first(s32 cpu)
{
	tap_out(OUT_MOVE, queue_of(cpu));
	return tap_in(IN_MOVED, raw_move_first(queue_of(cpu)));
}

/* Asks `cpu` to schedule. */
static inline void kick(s32 cpu, enum kick how)
{
	tap_out(OUT_KICK, (u64)(u32)cpu << 8 | how);
	raw_kick(cpu, how);
}

/* Gives `p`, which keeps its pCPU, another slice. */
static inline void set_slice(struct task_struct *p, u64 slice)
{
	tap_out(OUT_SLICE, slice);
	raw_set_slice(p, slice);
}

/* Calls corun_timer for `cpu`, usually the pCPU this callback runs on, after `delay` ns. */
static inline void start_timer(s32 cpu, u64 delay)
{
	tap_out(OUT_TIMER, delay);
	raw_start_timer(cpu, delay);
}

/* Calls corun_release for `cpu`, the pCPU this callback runs on, after `delay` ns. */
static inline void start_release_timer(s32 cpu, u64 delay)
{
	tap_out(OUT_RELEASE_TIMER, delay);
	raw_start_timer(cpu + (s32)MAX_PCPUS, delay);
}

/* Writes a value that other CPUs read. */
#define store(lvalue, value)                                                                       \
	do {                                                                                       \
		typeof(lvalue) stored = (value);                                                   \
		tap_out(OUT_STORE, stored);                                                        \
		*(volatile typeof(lvalue) *)&(lvalue) = stored;                                    \
	} while (0)

/* Writes a value that must be seen before anything read later (a full barrier). */
#define exchange(lvalue, value)                                                                    \
	({                                                                                         \
		tap_out(OUT_STORE, (value));                                                       \
		tap_in(IN_FETCHED, raw_exchange(lvalue, value));                                   \
	})

/* Adds to a value that other CPUs change, too; returns what it was before. */
#define fetch_add(lvalue, delta)                                                                   \
	({                                                                                         \
		tap_out(OUT_ADD, (u64)(delta));                                                    \
		tap_in(IN_FETCHED, raw_fetch_add(lvalue, delta));                                  \
	})

/* Sets the bit of `cpu` in an array of MASK_WORDS that other CPUs change, too (a full barrier). */
#define set_bit_of(words, cpu) change_bit_of(words, cpu, raw_fetch_or, bit)

/* Clears the bit of `cpu`, likewise. */
#define clear_bit_of(words, cpu) change_bit_of(words, cpu, raw_fetch_and, ~bit)

#define change_bit_of(words, cpu, raw_change, operand)                                             \
	({                                                                                         \
		u64 bit = 1ull << ((u32)(cpu) % 64);                                               \
		tap_out(OUT_BITS, operand);                                                        \
		tap_in(IN_FETCHED,                                                                 \
		       raw_change((words)[opaque((u32)(cpu) / 64) % MASK_WORDS], operand));        \
	})

/* Reads a value that other CPUs change, not before all earlier writes are done (a full barrier). */
#define shared_after(lvalue)                                                                       \
	({                                                                                         \
		u64 nothing = 0;                                                                   \
		__asm__ volatile("" : "+r"(nothing)); /* or it becomes a compare loop */           \
		fetch_add(lvalue, nothing);                                                        \
	})

/* Sets a shared value if it is `old`; returns what it was. */
#define exchange_if(lvalue, old, value)                                                            \
	({                                                                                         \
		tap_out(OUT_STORE, (value));                                                       \
		tap_in(IN_FETCHED, raw_exchange_if(lvalue, old, value));                           \
	})

/* Sets a shared value if it is 0; returns what it was. */
#define exchange_if_zero(lvalue, value)                                                            \
	({                                                                                         \
		tap_out(OUT_STORE, (value));                                                       \
		tap_in(IN_FETCHED, raw_exchange_if_zero(lvalue, value));                           \
	})

/*
 * A cgroup that weighs `weight` begins to want to run, or ceases to (`gone`): by how much does what
 * it counts in the cgroup around it change? Usually by its weight. Only a difference from that is
 * recorded: its weight has changed since, or another callback counts it at the same time.
 */
static inline s64 recounted(struct group_ctx *g, u32 weight, bool gone)
{
	s64 usual = gone ? -(s64)weight : (s64)weight;

	return usual + (s64)tap_if(IN_RECOUNTED, (u64)(group_recounted(g, weight) - usual));
}

#endif
