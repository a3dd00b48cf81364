/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel build: maps for state, sched_ext's kfuncs for actions.
 *
 * crates/linux loads this, sets `knobs` before, and reads the maps by name. It is compiled twice:
 * with a tap (record.h), for recording decisions, and without one (UNTAPPED), for all other runs.
 */
#ifndef CORUN_BPF_H
#define CORUN_BPF_H

#include "kernel_types.h"

/* What libbpf's headers expect of the kernel's. */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Global functions are verified on their own. */
#define CALLED __attribute__((noinline))
/* A task that such a function is handed. */
#define TRUSTED __arg_trusted

#include "../types.h"
#include "kfuncs.h"
#include "tap.h"
#include "task_ctxs.h"

/* BPF_F_TIMER_CPU_PIN, which older uapi headers lack. */
#define TIMER_CPU_PIN 2

/*
 * `value`, about which the compiler forgets what it knew: so it can neither drop nor move a mask
 * that follows. The verifier must see every index bounded.
 */
static inline u32 opaque(u32 value)
{
	__asm__("" : "+r"(value));
	return value;
}

/* Zero, which the verifier does not know. */
volatile u64 zero;

static inline u64 unknown_zero(void)
{
	return zero;
}

/*
 * `value`; `unknown` is unknown_zero(). To the verifier the result may be anything. In a loop, the
 * verifier goes on separately with each range that a value may have: if such values are compared,
 * it goes through all combinations of their ranges, for seconds.
 */
static inline u64 unranged(u64 value, u64 unknown)
{
	value += unknown;
	/* Otherwise the compiler compares with -unknown, and then that has a range. */
	__asm__("" : "+r"(value));
	return value;
}

/* All of these are full barriers. */
#define raw_exchange(lvalue, value) __sync_lock_test_and_set(&(lvalue), (value))
#define raw_fetch_add(lvalue, delta) __sync_fetch_and_add(&(lvalue), (typeof(lvalue))(delta))
#define raw_fetch_or(lvalue, bits) __sync_fetch_and_or(&(lvalue), (bits))
#define raw_fetch_and(lvalue, bits) __sync_fetch_and_and(&(lvalue), (bits))
#define raw_exchange_if_zero(lvalue, value) __sync_val_compare_and_swap(&(lvalue), 0, (value))
#define raw_exchange_if(lvalue, old, value) __sync_val_compare_and_swap(&(lvalue), (old), (value))

/* --- state --- */

volatile struct knobs knobs;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_conf);
} task_confs SEC(".maps");

/* Not a map, which needs a call for each access: they are used several times in each callback. */
struct cpu_ctx cpu_ctxs[MAX_PCPUS];

/*
 * ROOM_FOR_COPY(t, cpu): a task_ctx for look_at() on `cpu`, whose runqueue the kernel has locked,
 * so that no other callback uses it meanwhile. It is not on the stack, which has 512 bytes for all
 * calls together under Linux 6.12.
 */
struct task_ctx copies[MAX_PCPUS];
#define ROOM_FOR_COPY(t, cpu) struct task_ctx *t = &copies[opaque((u32)(cpu)) % MAX_PCPUS]

/* Mapped, since the daemon reads it all the time: no system calls. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct vm_ctx);
} vm_ctxs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct vm_conf);
} vm_confs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct gang_ctx);
} gang_ctxs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_POOLS);
	__type(key, u32);
	__type(value, struct pool_conf);
} pool_confs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PCPUS);
	__type(key, u32);
	__type(value, struct pcpu_conf);
} pcpu_confs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct group_conf);
} group_confs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct group_ctx);
} group_ctxs SEC(".maps");

struct gang_slots slots;
u32 vms_seen;
u64 vms_ended;

struct pcpu_timer {
	struct bpf_timer timer;
};

/* Per pCPU, one that ends slices, and from MAX_PCPUS on one that releases parked tasks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_PCPUS);
	__type(key, u32);
	__type(value, struct pcpu_timer);
} timers SEC(".maps");

static inline s32 nr_pcpus(void)
{
	return (s32)knobs.pcpus;
}

/* How many words of a mask have pCPUs of this host. */
static inline u32 words_in_use(void)
{
	u32 words = (knobs.pcpus + 63) / 64;

	return words < MASK_WORDS ? words : MASK_WORDS;
}

static inline struct cpu_ctx *cpu_at(s32 cpu)
{
	return (u32)cpu < MAX_PCPUS ? &cpu_ctxs[opaque((u32)cpu) % MAX_PCPUS] : NULL;
}

static inline struct vm_ctx *vm_at(u32 slot)
{
	return bpf_map_lookup_elem(&vm_ctxs, &slot);
}

static inline struct vm_conf *vm_conf_at(u32 slot)
{
	return bpf_map_lookup_elem(&vm_confs, &slot);
}

static inline struct gang_ctx *gang_at(u32 slot)
{
	return bpf_map_lookup_elem(&gang_ctxs, &slot);
}

static inline struct pool_conf *pool_at(u32 pool)
{
	return bpf_map_lookup_elem(&pool_confs, &pool);
}

static inline struct pcpu_conf *pcpu_conf_at(s32 cpu)
{
	u32 key = (u32)cpu;

	return bpf_map_lookup_elem(&pcpu_confs, &key);
}

static inline struct group_conf *group_conf_at(u32 place)
{
	return bpf_map_lookup_elem(&group_confs, &place);
}

static inline struct group_ctx *group_at(u32 place)
{
	return bpf_map_lookup_elem(&group_ctxs, &place);
}

static inline struct task_ctx *raw_task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

static inline struct task_ctx *raw_new_task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static inline struct task_conf *raw_task_conf(struct task_struct *p)
{
	return knobs.tasks ? bpf_task_storage_get(&task_confs, p, NULL, 0) : NULL;
}

#include "record.h"

/* --- where callbacks begin and end --- */

static inline struct task_ctx *callback_begin(enum tap_op op, struct task_struct *p, u64 arg)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (t)
		record_begin(op, p->pid, ++t->seq, arg);
	return t;
}

/* A `prev` that does not want to run on does not belong to the dispatcher any more. */
static inline struct task_ctx *dispatch_begin(s32 cpu, struct task_struct *prev)
{
	u64 queued = bpf_core_enum_value(enum scx_ent_flags, SCX_TASK_QUEUED);
	struct task_ctx *t = NULL;

	if (prev && (prev->scx.flags & queued))
		t = callback_begin(OP_DISPATCH, prev, (u32)cpu);
	if (!t)
		record_begin(OP_DISPATCH, 0, 0, (u32)cpu);
	return t;
}

static inline void timer_begin(s32 cpu)
{
	record_begin(OP_TIMER, 0, 0, (u32)cpu);
}

static inline void release_begin(s32 cpu)
{
	record_begin(OP_RELEASE, 0, 0, (u32)cpu);
}

static inline void callback_end(s32 result)
{
	tap_out(OUT_RETURN, (u32)result);
	record_end();
}

/* --- facts --- */

#define repeat(i, n) bpf_for (i, 0, n)

#include "cgroup.h"

/*
 * The part of a slot of the VM table that says which VM owns it and how many vCPUs it counts: one
 * word.
 */
union seats {
	struct {
		u32 id;
		u32 vcpus;
	};
	u64 word;
};

typedef u64 __attribute__((may_alias)) seats_word;

static inline volatile seats_word *seats_of(struct vm_ctx *vm)
{
	_Static_assert(__builtin_offsetof(struct vm_ctx, id) == 0 &&
			   __builtin_offsetof(struct vm_ctx, vcpus) == sizeof(u32),
		       "as in union seats");
	return (volatile seats_word *)vm;
}

/*
 * How many siblings may come or go between the read and the swap; if more do, the vCPU is counted
 * when it is queued next.
 */
#define SEAT_TRIES 16

static inline u32 raw_count_in(struct vm_ctx *vm, u32 id)
{
	volatile seats_word *seats = seats_of(vm);
	u32 counted = NOT_COUNTED;
	u32 try;

	repeat (try, SEAT_TRIES) {
		union seats was = {.word = *seats};
		union seats more = was;

		if (was.id != id)
			break;
		more.vcpus++;
		if (__sync_bool_compare_and_swap(seats, was.word, more.word)) {
			counted = was.vcpus;
			break;
		}
	}
	return counted;
}

static inline bool raw_free_slot(struct vm_ctx *vm, u32 id)
{
	union seats empty = {.id = id};
	bool freed = __sync_bool_compare_and_swap(seats_of(vm), empty.word, 0);

	if (freed)
		__sync_fetch_and_add(&vms_ended, 1);
	return freed;
}

static inline u64 raw_now(void)
{
	return bpf_ktime_get_ns();
}

static inline u32 raw_tick(void)
{
	return (u32)bpf_jiffies64();
}

static inline s32 raw_this_cpu(void)
{
	return (s32)bpf_get_smp_processor_id();
}

/*
 * This pCPU's preempt count, on x86: a variable of its own since Linux 6.15, before that a field.
 * Other architectures have neither.
 */
extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/*
 * Above the lowest byte are counts of interrupts, and of sections that keep these away, in an order
 * that depends on the kernel's version; the highest bit is not a count. Where the count cannot be
 * read, an interrupt is assumed.
 */
#define COUNTS_OF_INTERRUPTS 0x7fffff00

static inline bool raw_in_interrupt(void)
{
	int count = COUNTS_OF_INTERRUPTS;

	if (bpf_ksym_exists(&__preempt_count))
		count = *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	else if (bpf_ksym_exists(&pcpu_hot))
		count = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	return count & COUNTS_OF_INTERRUPTS;
}

static inline s32 raw_task_cpu(struct task_struct *p)
{
	/* Read at each wake-up of a bound task: cheaper where it is a field of the task itself. */
	return bpf_core_field_exists(p->thread_info.cpu) ? (s32)p->thread_info.cpu
							 : scx_bpf_task_cpu(p);
}

/*
 * Must `p` stay where it is for a moment (migrate_disable()), whatever its affinity says? That ends
 * only after it has been queued, and moving it before then is an error that ends the scheduler
 * (task_can_run_on_remote_rq() in Linux 6.12's ext.c). Since 6.14 the kernel does not queue such a
 * task here, unless asked to by the flag.
 *
 * This very program counts once towards the pinning of the task that runs on this pCPU. If another
 * BPF program runs in the context of `p` elsewhere, `p` is passed over once though it could move.
 */
static inline bool is_pinned(struct task_struct *p)
{
	u32 times;

	if (bpf_core_enum_value_exists(enum scx_ops_flags, SCX_OPS_ENQ_MIGRATION_DISABLED) ||
	    !bpf_core_field_exists(p->migration_disabled))
		return false;
	times = p->migration_disabled;
	return times > 1 || (times && p != bpf_get_current_task_btf());
}

static inline bool raw_allowed(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu((u32)cpu, p->cpus_ptr) &&
	       (!is_pinned(p) || cpu == raw_task_cpu(p));
}

/* Offline pCPUs may be among these. */
static inline u32 raw_room(struct task_struct *p)
{
	return (u32)p->nr_cpus_allowed;
}

static inline bool raw_is_bound(struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || is_pinned(p);
}

/*
 * From Linux 6.14 on, a task that must stay where it is goes to the local queue of its pCPU
 * (SCX_OPS_ENQ_MIGRATION_DISABLED in do_enqueue_task()). `p` runs here, and is pinned once by this
 * very program; where it is not (kernels without CONFIG_PREEMPT_RCU, from 6.18 on), nobody is
 * interrupted in between.
 */
static inline bool raw_kernel_keeps(struct task_struct *p)
{
	return bpf_core_enum_value_exists(enum scx_ops_flags, SCX_OPS_ENQ_MIGRATION_DISABLED) &&
	       bpf_core_field_exists(p->migration_disabled) && p->migration_disabled > 1;
}

static inline u32 raw_weight(struct task_struct *p)
{
	return p->scx.weight;
}

/*
 * A thread becomes a vCPU only after it has run. A vCPU for which no run was counted here must have
 * been one before the dispatcher was loaded.
 */
static inline bool raw_was_vcpu(void)
{
	return true;
}

static inline u32 raw_waker_slot(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *t = p ? raw_task_ctx(p) : NULL;

	return t ? t->vm : NO_VM;
}

static inline u32 raw_waker_id(void)
{
	return (u32)bpf_get_current_pid_tgid();
}

#define raw_task_id(p) ((u32)(p)->pid)
#define raw_queued_vtime(p) ((p)->scx.dsq_vtime)

static inline bool raw_claim_idle(s32 cpu)
{
	return scx_bpf_test_and_clear_cpu_idle(cpu);
}

static inline u32 raw_queue_length(u64 queue)
{
	s32 length = scx_bpf_dsq_nr_queued(queue);

	return length < 0 ? 0 : (u32)length;
}

/*
 * A thread inside KVM_RUN has KVM's preempt notifier; `wants_to_run` tells KVM_RUN from other vCPU
 * ioctls, which VMMs also call from their main thread.
 */
static inline u32 raw_vcpu_of(struct task_struct *p)
{
	struct hlist_node *notifier;
	struct kvm_vcpu *vcpu;

	if (!bpf_core_field_exists(p->preempt_notifiers))
		return 0;
	notifier = p->preempt_notifiers.first;
	if (!notifier || !bpf_core_type_exists(struct kvm_vcpu))
		return 0;
	vcpu = (void *)notifier - bpf_core_field_offset(struct kvm_vcpu, preempt_notifier.link);
	if (bpf_core_field_exists(vcpu->wants_to_run) && !BPF_CORE_READ(vcpu, wants_to_run))
		return 0;
	return (u32)p->tgid;
}

/* --- deeds --- */

#define raw_for_each_queued(p, queue) bpf_for_each (scx_dsq, p, queue, 0)

#define raw_move_queued(p, cpu)                                                                    \
	dsq_move(BPF_FOR_EACH_ITER, p,                                                             \
		 bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | (u32)(cpu), 0)
#define BPF_FOR_EACH_ITER (&___it)

#define raw_requeue(p, queue, vtime)                                                               \
	({                                                                                         \
		dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime);                                      \
		dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);                                    \
	})

static inline bool raw_move_first(u64 queue)
{
	return dsq_move_to_local(queue);
}

static inline void raw_insert(struct task_struct *p, u64 queue, u64 slice, u64 vtime, u64 flags)
{
	dsq_insert_vtime(p, queue, slice, vtime, flags);
}

static inline void raw_insert_next(struct task_struct *p, s32 cpu, u64 slice, u64 flags)
{
	flags |= bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_PREEMPT);
	dsq_insert(p, bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL), slice, flags);
}

static inline void raw_insert_local(struct task_struct *p, u64 slice)
{
	dsq_insert(p, bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL), slice, 0);
}

/*
 * How far ahead of a pCPU's clock tasks without a task_ctx may be queued: by what this many ns cost
 * there. They are charged a slice each time, which is far too much for tasks that often run for a
 * moment.
 */
#define UNKNOWN_LEAD (WATCHDOG / 5)

/*
 * A task without a task_ctx still runs: in the queue of the pCPU where it is, where all such tasks
 * together have the turns of one task with a neutral weight. In the kernel's global queue it would
 * always go before all others, and starve them. The kernel has locked the pCPU's runqueue, so no
 * other callback does this for the same pCPU meanwhile.
 */
RARE void insert_unknown(struct task_struct *p, u64 flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *c = cpu_at(cpu);
	u64 now, vtime, rate, lead;

	if (!c || cpu >= nr_pcpus()) {
		dsq_insert(p, bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_GLOBAL),
			   knobs.slice, flags);
		return;
	}
	/* Virtual time goes there as fast as for the task that has the pCPU: far slower than time
	 * where few tasks share many pCPUs (group.h). */
	rate = *(volatile u64 *)&c->cur_rate;
	if (rate > RATE_ONE)
		rate = RATE_ONE;
	lead = UNKNOWN_LEAD * rate / RATE_ONE;
	now = *(volatile u64 *)&c->vnow;
	vtime = (s64)(c->unknown - now) < 0 ? now : c->unknown;
	vtime += knobs.slice * rate / RATE_ONE;
	if ((s64)(vtime - now) > (s64)lead)
		vtime = now + lead;
	c->unknown = vtime;
	dsq_insert_vtime(p, (u32)cpu, knobs.slice, vtime, flags);
	scx_bpf_kick_cpu(cpu, bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_IDLE));
}

/* `how` is an enum kick, whose values are the kernel's. */
static inline void raw_kick(s32 cpu, u32 how)
{
	scx_bpf_kick_cpu(cpu, how);
}

static inline void raw_set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/*
 * `p`, which wants to run on, is taken off its pCPU. If `p` has some of its slice left, a task of a
 * higher class (SCHED_FIFO, ...) has preempted it: then the kernel would keep `p` at the head of
 * that pCPU's local queue, out of reach of all other pCPUs for as long as that task runs. With
 * nothing left, enqueue queues it like any interrupted task; the dispatcher itself knows what is
 * left of its turn (turn.h).
 */
static inline void put_in_reach(struct task_struct *p)
{
	if (p->scx.slice)
		raw_set_slice(p, 0);
}

/*
 * A timer fires on the pCPU that has started it. That may not be the pCPU it is for, but that of a
 * task that changes a running one (corun_running()). Then `timer_at` is cleared, so that the pCPU
 * it is for starts it anew when it next asks for a timer (timer.h). The same holds if the kernel
 * cannot start a timer, for which it may need memory while interrupts are off. release_overdue()
 * then takes care of parked tasks.
 */
static inline void raw_start_timer(s32 timer, u64 delay)
{
	u32 key = (u32)timer;
	struct pcpu_timer *t = bpf_map_lookup_elem(&timers, &key);
	struct cpu_ctx *c = cpu_at(timer);
	u64 elsewhere = (u32)(timer ^ raw_this_cpu());
	s64 failed = 0;

	if (t)
		failed = bpf_timer_start(&t->timer, delay, TIMER_CPU_PIN);
	/* Masks instead of branches: the verifier would follow the rest once for each outcome. */
	if (c)
		*(volatile u64 *)&c->timer_at &=
		    (u64)((s64)(elsewhere - 1) >> 63) & ~(failed >> 63);
}

/* --- callbacks --- */

#define CALLBACK(type, name, ...) SEC("struct_ops/" #name) type BPF_PROG(name, ##__VA_ARGS__)
#define CALLBACK_SLEEPABLE(type, name, ...)                                                        \
	SEC("struct_ops.s/" #name) type BPF_PROG(name, ##__VA_ARGS__)
#define TIMER_CALLBACK(name, arg) static inline void name(arg)
#define KERNEL_CALLBACK(name, arg) CALLBACK(void, name, arg)
/* For callbacks that only the simulator has. */
#define SIMULATED_CALLBACK(name, arg) static inline __attribute__((unused)) void name(arg)

static inline void corun_timer(s32 cpu);
static inline void corun_release(s32 cpu);

/*
 * The timers are set up by a callback that may sleep, and the verifier of older kernels assumes
 * that they may, too.
 */
static int timer_fired(void *map, u32 *cpu, struct bpf_timer *timer)
{
	bpf_rcu_read_lock();
	corun_timer((s32)*cpu);
	bpf_rcu_read_unlock();
	return 0;
}

static int release_fired(void *map, u32 *key, struct bpf_timer *timer)
{
	bpf_rcu_read_lock();
	corun_release((s32)(*key - MAX_PCPUS));
	bpf_rcu_read_unlock();
	return 0;
}

/* Why the scheduler was unloaded, for the daemon to read. */
struct {
	u32 kind;
	u32 pad;
	s64 code;
	char reason[128];
	char message[1024];
} exit_seen;

#include "lease.h"

/*
 * Creates the queue of a pCPU, or that of the tasks parked there, with the timer that belongs to
 * it.
 */
#define SET_UP_QUEUE(number, callback)                                                             \
	({                                                                                         \
		u32 key = (number);                                                                \
		struct pcpu_timer *t = bpf_map_lookup_elem(&timers, &key);                         \
		s32 failed = scx_bpf_create_dsq(key, -1);                                          \
                                                                                                   \
		if (!failed)                                                                       \
			failed =                                                                   \
			    t ? (s32)bpf_timer_init(&t->timer, &timers, 1 /* CLOCK_MONOTONIC */)   \
			      : -ENOMEM;                                                           \
		if (!failed)                                                                       \
			failed = (s32)bpf_timer_set_callback(&t->timer, callback);                 \
		failed;                                                                            \
	})

/* Two queues and two timers per pCPU, and two timers for all. */
static inline s32 set_up(void)
{
	s32 err;
	u32 i;

	bpf_for (i, 0, knobs.pcpus) {
		err = SET_UP_QUEUE(i, timer_fired);
		if (!err)
			err = SET_UP_QUEUE(i + MAX_PCPUS, release_fired);
		if (err)
			return err;
	}
	err = group_begin();
	return err ? err : lease_begin();
}

static inline void note_exit(struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_seen.reason, sizeof(exit_seen.reason), info->reason);
	bpf_probe_read_kernel_str(exit_seen.message, sizeof(exit_seen.message), info->msg);
	exit_seen.code = info->exit_code;
	__sync_lock_test_and_set(&exit_seen.kind, info->kind);
}

/*
 * A task that exits is queued like others: giving back a VM's memory takes long, and its cgroup is
 * to be charged for that. By default the kernel lets such a task run next each time, for schedulers
 * that find tasks by their pids.
 */
#define SCHEDULER(scheduler, timeout)                                                              \
	CALLBACK_SLEEPABLE(s32, scheduler##_init)                                                  \
	{                                                                                          \
		return set_up();                                                                   \
	}                                                                                          \
	CALLBACK(void, scheduler##_exit, struct scx_exit_info *info)                               \
	{                                                                                          \
		note_exit(info);                                                                   \
	}                                                                                          \
	SEC(".struct_ops.link")                                                                    \
	struct sched_ext_ops scheduler = {                                                         \
	    .select_cpu = (void *)scheduler##_select_cpu,                                          \
	    .enqueue = (void *)scheduler##_enqueue,                                                \
	    .dispatch = (void *)scheduler##_dispatch,                                              \
	    .running = (void *)scheduler##_running,                                                \
	    .stopping = (void *)scheduler##_stopping,                                              \
	    .yield = (void *)scheduler##_yield,                                                    \
	    .init_task = (void *)scheduler##_init_task,                                            \
	    .disable = (void *)scheduler##_disable,                                                \
	    .exit_task = (void *)scheduler##_exit_task,                                            \
	    .init = (void *)scheduler##_init,                                                      \
	    .exit = (void *)scheduler##_exit,                                                      \
	    .flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,                                       \
	    .timeout_ms = timeout,                                                                 \
	    .name = #scheduler,                                                                    \
	};                                                                                         \
	char LICENSE[] SEC("license") = "GPL";

#endif
