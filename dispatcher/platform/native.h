/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The native build: the simulator, and the replay of a recording.
 *
 * All state belongs to one context, reached through a thread-local pointer, so that simulations can
 * run side by side. The program that hosts the dispatcher fills in `struct native_host`
 * (crates/dispatcher/src/native/context.rs mirrors these structs; a test compares each field's
 * place).
 *
 * It is compiled three times. In the build for replays, everything that passes the tap goes through
 * the host's tap_in() and tap_out(). UNTAPPED, for the simulator, which needs fast calls, has no
 * tap, and finds pCPUs by an index. A test runs both side by side. PLAIN has neither: it goes
 * through pCPUs one by one as the kernel's build does, for counting the instructions of that build.
 */
#ifndef CORUN_NATIVE_H
#define CORUN_NATIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef uint8_t u8;
typedef uint16_t u16;
typedef int32_t s32;

/* All builds are linked into one program: nothing global. */
#define CALLED static __attribute__((noinline))
#define TRUSTED

#include "../crowding.h"
#include "../types.h"
#include "index.h"
#include "tap.h"

#ifdef PLAIN
#define NAME(name) plain_##name
#elif defined(UNTAPPED)
#define NAME(name) untapped_##name
#else
#define NAME(name) name
#endif

/* A host task, as far as the dispatcher looks at it. */
struct task_struct {
	u32 id;	     /* never 0 */
	u32 vcpu_of; /* id of its VM if it is a vCPU, else 0 */
	u32 weight;
	s32 cpu;
	u64 queued_vtime;
	u64 allowed[MASK_WORDS];
	u32 group;  /* its cgroup's place in the table, plus 1; 0: none */
	u32 pinned; /* 1: if it is interrupted it is not queued, see kernel_keeps() */
	struct task_conf conf;
	struct task_ctx ctx;
};

struct scx_init_task_args {
	bool fork;
};

struct scx_exit_task_args;

/* What the program that hosts the dispatcher does for it. `self` is native_context.self. */
struct native_host {
	bool (*claim_idle)(void *self, s32 cpu);
	u32 (*queue_length)(void *self, u64 queue);
	bool (*move_first)(void *self, u64 queue);
	struct task_struct *(*next_queued)(void *self, u64 queue, struct task_struct *after);
	bool (*move_queued)(void *self, struct task_struct *p, s32 cpu);
	bool (*requeue)(void *self, struct task_struct *p, u64 queue, u64 vtime);
	void (*insert)(void *self, struct task_struct *p, u64 queue, u64 slice, u64 vtime,
		       u64 flags);
	void (*insert_next)(void *self, struct task_struct *p, s32 cpu, u64 slice);
	void (*insert_local)(void *self, struct task_struct *p, u64 slice);
	void (*kick)(void *self, s32 cpu, u32 how);
	void (*set_slice)(void *self, struct task_struct *p, u64 slice);
	/* From MAX_PCPUS on, timers are release timers. */
	void (*start_timer)(void *self, s32 timer, u64 delay);
	/* Not called by the untapped build. */
	u64 (*tap_in)(void *self, u32 kind, u64 value);
	void (*tap_out)(void *self, u32 kind, u64 value);
};

struct native_context {
	void *self;
	const struct native_host *host;
	struct cpu_ctx *cpus;		/* MAX_PCPUS */
	struct vm_ctx *vms;		/* MAX_VMS */
	struct vm_conf *vm_confs;	/* MAX_VMS */
	struct gang_ctx *gangs;		/* MAX_VMS, or NULL if no plan asked for gangs */
	struct pool_conf *pools;	/* MAX_POOLS */
	struct pcpu_conf *pcpu_confs;	/* MAX_PCPUS */
	struct group_conf *group_confs; /* MAX_GROUPS, or NULL without knobs.groups */
	struct group_ctx *groups;
	struct task_struct *current; /* the task that runs on `cpu`, if the callback is a wake-up */
	struct knobs knobs;
	struct gang_slots slots;
	u64 now;
	s32 cpu; /* the pCPU the callback runs on */
	u32 vms_seen;
	u64 vms_ended;
	u64 interrupt;		 /* 1: the callback is a wake-up by a device's interrupt */
	struct pcpu_index index; /* kept by the untapped build */
};

/* ROOM_FOR_COPY(t, cpu): a task_ctx for look_at(). */
#define ROOM_FOR_COPY(t, cpu)                                                                      \
	struct task_ctx t##_copy = {};                                                             \
	struct task_ctx *t = &t##_copy

/*
 * The offsets of the fields of structs that only native builds have, and that BTF does not
 * describe. The names of some fields are macros from here on.
 */
#define PLACE(of, field) offsetof(struct of, field)
extern const size_t NAME(corun_places)[];
const size_t NAME(corun_places)[] = {
    PLACE(task_struct, id),
    PLACE(task_struct, vcpu_of),
    PLACE(task_struct, weight),
    PLACE(task_struct, cpu),
    PLACE(task_struct, queued_vtime),
    PLACE(task_struct, allowed),
    PLACE(task_struct, group),
    PLACE(task_struct, pinned),
    PLACE(task_struct, conf),
    PLACE(task_struct, ctx),
    PLACE(native_host, claim_idle),
    PLACE(native_host, queue_length),
    PLACE(native_host, move_first),
    PLACE(native_host, next_queued),
    PLACE(native_host, move_queued),
    PLACE(native_host, requeue),
    PLACE(native_host, insert),
    PLACE(native_host, insert_next),
    PLACE(native_host, insert_local),
    PLACE(native_host, kick),
    PLACE(native_host, set_slice),
    PLACE(native_host, start_timer),
    PLACE(native_host, tap_in),
    PLACE(native_host, tap_out),
    PLACE(native_context, self),
    PLACE(native_context, host),
    PLACE(native_context, cpus),
    PLACE(native_context, vms),
    PLACE(native_context, vm_confs),
    PLACE(native_context, gangs),
    PLACE(native_context, pools),
    PLACE(native_context, pcpu_confs),
    PLACE(native_context, group_confs),
    PLACE(native_context, groups),
    PLACE(native_context, current),
    PLACE(native_context, knobs),
    PLACE(native_context, slots),
    PLACE(native_context, now),
    PLACE(native_context, cpu),
    PLACE(native_context, vms_seen),
    PLACE(native_context, vms_ended),
    PLACE(native_context, interrupt),
    PLACE(native_context, index),
    PLACE(gang_slots, end),
    PLACE(gang_slots, opening),
    PLACE(gang_slots, first),
    PLACE(gang_slots, number),
    PLACE(gang_slots, round),
    PLACE(gang_slots, spare),
    PLACE(pcpu_index, light),
    PLACE(pcpu_index, waiting),
    PLACE(pcpu_index, fixed),
    PLACE(pcpu_index, llc),
    PLACE(pcpu_index, llcs_known),
};
#undef PLACE

#define corun_context NAME(corun_context)
extern __thread struct native_context *corun_context;

#define knobs (corun_context->knobs)
#define slots (corun_context->slots)
#define vms_seen (corun_context->vms_seen)
#define vms_ended (corun_context->vms_ended)
#define host_do(what, ...) corun_context->host->what(corun_context->self, ##__VA_ARGS__)
#define repeat(i, n) for ((i) = 0; (i) < (typeof(i))(n); (i)++)

#ifdef UNTAPPED
#define tap_in(kind, value) ((u64)(value))
#define tap_if(kind, value) ((u64)(value))
#define tap_out(kind, value) ((void)(value))
#else
static inline u64 tap_in(enum tap_kind kind, u64 value)
{
	return host_do(tap_in, kind, value);
}

/* An input that is recorded only if it is not 0; the replay knows this by its kind. */
static inline u64 tap_if(enum tap_kind kind, u64 value)
{
	return host_do(tap_in, kind, value);
}

static inline void tap_out(enum tap_kind kind, u64 value)
{
	host_do(tap_out, kind, value);
}
#endif

/* There is no verifier here. */
static inline u32 opaque(u32 value)
{
	return value;
}

static inline u64 unknown_zero(void)
{
	return 0;
}

static inline u64 unranged(u64 value, u64 unknown)
{
	return value + unknown;
}

/* A context belongs to one thread: no atomics are needed. */
#define raw_exchange(lvalue, value)                                                                \
	({                                                                                         \
		typeof(lvalue) was = (lvalue);                                                     \
		(lvalue) = (value);                                                                \
		was;                                                                               \
	})
#define raw_fetch_add(lvalue, delta) raw_exchange(lvalue, was + (typeof(lvalue))(delta))
#define raw_fetch_or(lvalue, bits) raw_exchange(lvalue, was | (bits))
#define raw_fetch_and(lvalue, bits) raw_exchange(lvalue, was &(bits))
#define raw_exchange_if_zero(lvalue, value) raw_exchange(lvalue, was ? was : (value))
#define raw_exchange_if(lvalue, old, value) raw_exchange(lvalue, was == (old) ? (value) : was)

static inline s32 nr_pcpus(void)
{
	return (s32)knobs.pcpus;
}

static inline struct cpu_ctx *cpu_at(s32 cpu)
{
	return (u32)cpu < MAX_PCPUS ? &corun_context->cpus[cpu] : NULL;
}

static inline struct vm_ctx *vm_at(u32 slot)
{
	return slot < MAX_VMS ? &corun_context->vms[slot] : NULL;
}

static inline u32 raw_count_in(struct vm_ctx *vm, u32 id)
{
	return vm->id == id ? vm->vcpus++ : NOT_COUNTED;
}

static inline bool raw_free_slot(struct vm_ctx *vm, u32 id)
{
	bool empty = vm->id == id && !vm->vcpus;

	if (empty) {
		vm->id = 0;
		vms_ended++;
	}
	return empty;
}

static inline struct vm_conf *vm_conf_at(u32 slot)
{
	return slot < MAX_VMS ? &corun_context->vm_confs[slot] : NULL;
}

static inline struct gang_ctx *gang_at(u32 slot)
{
	struct gang_ctx *gangs = corun_context->gangs;

	return gangs && slot < MAX_VMS ? &gangs[slot] : NULL;
}

static inline struct pool_conf *pool_at(u32 pool)
{
	return pool < MAX_POOLS ? &corun_context->pools[pool] : NULL;
}

static inline struct pcpu_conf *pcpu_conf_at(s32 cpu)
{
	return (u32)cpu < MAX_PCPUS ? &corun_context->pcpu_confs[cpu] : NULL;
}

static inline struct group_conf *group_conf_at(u32 place)
{
	return knobs.groups && place < MAX_GROUPS ? &corun_context->group_confs[place] : NULL;
}

static inline struct group_ctx *group_at(u32 place)
{
	return knobs.groups && place < MAX_GROUPS ? &corun_context->groups[place] : NULL;
}

/* Here time stands still during a callback, and reading it costs nothing. */
static inline u32 raw_tick(void)
{
	return (u32)corun_context->now;
}

static inline u64 raw_now(void)
{
	return corun_context->now;
}

static inline s32 raw_this_cpu(void)
{
	return corun_context->cpu;
}

static inline bool raw_in_interrupt(void)
{
	return corun_context->interrupt;
}

/* How many words of a mask have pCPUs of this host. */
static inline u32 words_in_use(void)
{
	return (knobs.pcpus + 63) / 64;
}

static inline bool raw_allowed(struct task_struct *p, s32 cpu)
{
	return p->allowed[(u32)cpu / 64] >> ((u32)cpu % 64) & 1;
}

#if defined(UNTAPPED) && !defined(PLAIN)
#define INDEXED

/* The bits of a mask's word that are below nr_pcpus(). */
static inline u64 in_use(u32 word, u64 bits)
{
	u32 first = word * 64;

	if (knobs.pcpus >= first + 64)
		return bits;
	return knobs.pcpus > first ? bits & ((1ull << (knobs.pcpus - first)) - 1) : 0;
}

/* Updates the key of `cpu` in the tree `light`: it follows its load and its SMT sibling's. */
static inline void index_light(u32 cpu)
{
	const struct cpu_ctx *cpus = corun_context->cpus;
	u32 sibling = knobs.sibling[cpu];

	tree_set(&corun_context->index.light, cpu,
		 (s64)crowding(cpus[cpu].load, sibling && cpus[sibling - 1].load));
}

/* Updates the key of `cpu` in the tree `crowded`: it follows its load and its queue. */
static inline void index_crowded(u32 cpu)
{
	struct pcpu_index *index = &corun_context->index;
	bool waiting = index->waiting[cpu / 64] >> (cpu % 64) & 1;

	tree_set(&index->crowded, cpu, waiting ? -(s64)corun_context->cpus[cpu].load : 0);
}

static inline void load_changed(struct cpu_ctx *c)
{
	u32 cpu = (u32)(c - corun_context->cpus);

	index_light(cpu);
	index_crowded(cpu);
	if (knobs.sibling[cpu])
		index_light(knobs.sibling[cpu] - 1u);
}

/* The pCPUs of a last-level cache. */
static inline const u64 *llc_pcpus(u32 llc)
{
	struct pcpu_index *index = &corun_context->index;

	if (!index->llcs_known) {
		for (u32 cpu = 0; cpu < knobs.pcpus; cpu++)
			index->llc[knobs.llc[cpu] % MAX_LLCS][cpu / 64] |= 1ull << (cpu % 64);
		index->llcs_known = 1;
	}
	return index->llc[llc % MAX_LLCS];
}

/* A task came to a queue, or left it. */
static inline void queue_changed(u64 queue)
{
	u64 *word = &corun_context->index.waiting[queue / 64 % MASK_WORDS];
	u64 bit = 1ull << (queue % 64);
	bool waiting;

	/* The index does not include queues of parked tasks. */
	if (queue >= MAX_PCPUS)
		return;
	waiting = host_do(queue_length, queue) != 0;

	corun_context->index.fixed[queue / 64 % MASK_WORDS] &= ~bit;
	if (waiting == !!(*word & bit))
		return;
	*word ^= bit;
	index_crowded((u32)queue % MAX_PCPUS);
}

static inline void queue_is_fixed(s32 cpu)
{
	corun_context->index.fixed[(u32)cpu / 64] |= 1ull << ((u32)cpu % 64);
}

/* The first pCPU from `cpu` on with tasks in its queue that is not in `but`; or NO_PCPU. */
static inline s32 next_queue(u32 cpu, const u64 *but)
{
	u64 from_here = ~0ull << (cpu % 64);

	for (u32 word = cpu / 64; word < words_in_use(); word++) {
		u64 bits = in_use(word, corun_context->index.waiting[word]) & from_here;

		bits &= but ? ~but[word] : ~0ull;
		if (bits)
			return (s32)(word * 64) + __builtin_ctzll(bits);
		from_here = ~0ull;
	}
	return NO_PCPU;
}

#define for_each_queue_but(cpu, but)                                                               \
	for ((cpu) = next_queue(0, but); (cpu) != NO_PCPU; (cpu) = next_queue((u32)(cpu) + 1, but))
#define for_each_queue(cpu) for_each_queue_but (cpu, NULL)
#define for_each_movable_queue(cpu) for_each_queue_but (cpu, corun_context->index.fixed)
#else
static inline void queue_changed(u64 queue)
{
	(void)queue;
}
#endif

static inline u32 raw_room(struct task_struct *p)
{
	u32 pcpus = 0;

	for (u32 i = 0; i < words_in_use(); i++)
		pcpus += (u32)__builtin_popcountll(p->allowed[i]);
	return pcpus;
}

static inline bool raw_is_bound(struct task_struct *p)
{
	return raw_room(p) == 1;
}

static inline bool raw_kernel_keeps(struct task_struct *p)
{
	return p->pinned;
}

static inline u32 raw_weight(struct task_struct *p)
{
	return p->weight;
}

static inline u32 raw_group_of(struct task_struct *p)
{
	return p->group;
}

static inline s32 raw_task_cpu(struct task_struct *p)
{
	return p->cpu;
}

/* Here, a vCPU that has not run yet is new. */
static inline bool raw_was_vcpu(void)
{
	return false;
}

static inline u32 raw_waker_slot(void)
{
	return corun_context->current ? corun_context->current->ctx.vm : NO_VM;
}

static inline u32 raw_waker_id(void)
{
	return corun_context->current ? corun_context->current->id : 0;
}

static inline u32 raw_task_id(struct task_struct *p)
{
	return p->id;
}

static inline u32 raw_vcpu_of(struct task_struct *p)
{
	return p->vcpu_of;
}

static inline u64 raw_queued_vtime(struct task_struct *p)
{
	return p->queued_vtime;
}

static inline struct task_ctx *raw_task_ctx(struct task_struct *p)
{
	return &p->ctx;
}

static inline struct task_ctx *raw_new_task_ctx(struct task_struct *p)
{
	p->ctx = (struct task_ctx){};
	return &p->ctx;
}

static inline struct task_conf *raw_task_conf(struct task_struct *p)
{
	return &p->conf;
}

#define raw_claim_idle(cpu) host_do(claim_idle, cpu)
#define raw_queue_length(queue) host_do(queue_length, queue)
/* As in the kernel, a task is moved by the walk that has reached it. */
#define raw_for_each_queued(p, queue)                                                              \
	for (u64 walked = ((p) = host_do(next_queued, queue, NULL), (queue)); (p);                 \
	     (p) = host_do(next_queued, walked, p))
#define raw_move_queued(p, cpu)                                                                    \
	({                                                                                         \
		bool moved = host_do(move_queued, p, cpu);                                         \
		queue_changed(walked);                                                             \
		moved;                                                                             \
	})

#define raw_requeue(p, queue, vtime)                                                               \
	({                                                                                         \
		bool moved = host_do(requeue, p, queue, vtime);                                    \
		queue_changed(queue);                                                              \
		moved;                                                                             \
	})

static inline bool raw_move_first(u64 queue)
{
	bool moved = host_do(move_first, queue);

	if (moved)
		queue_changed(queue);
	return moved;
}

static inline void raw_insert(struct task_struct *p, u64 queue, u64 slice, u64 vtime, u64 flags)
{
	host_do(insert, p, queue, slice, vtime, flags);
	queue_changed(queue);
}

#define raw_insert_next(p, cpu, slice, flags) host_do(insert_next, p, cpu, slice)
#define raw_insert_local(p, slice) host_do(insert_local, p, slice)
#define raw_kick(cpu, how) host_do(kick, cpu, how)
#define raw_set_slice(p, slice) host_do(set_slice, p, slice)
#define raw_start_timer(timer, delay) host_do(start_timer, timer, delay)

/* Here, any interrupted task is queued. */
static inline void put_in_reach(struct task_struct *p)
{
	(void)p;
}

/* Only in the kernel can memory for a task_ctx be missing. */
static inline void insert_unknown(struct task_struct *p, u64 flags)
{
	(void)p;
	(void)flags;
}

static inline struct task_ctx *callback_begin(enum tap_op op, struct task_struct *p, u64 arg)
{
	(void)op;
	(void)arg;
	p->ctx.seq++;
	return &p->ctx;
}

static inline struct task_ctx *dispatch_begin(s32 cpu, struct task_struct *prev)
{
	(void)cpu;
	return prev ? callback_begin(OP_DISPATCH, prev, 0) : NULL;
}

static inline void timer_begin(s32 cpu)
{
	(void)cpu;
}

static inline void release_begin(s32 cpu)
{
	(void)cpu;
}

static inline void callback_end(s32 result)
{
	tap_out(OUT_RETURN, (u32)result);
}

#define CALLBACK(type, name, ...)                                                                  \
	type NAME(name)(__VA_ARGS__);                                                              \
	type NAME(name)(__VA_ARGS__)
#define CALLBACK_SLEEPABLE CALLBACK
#define TIMER_CALLBACK(name, arg) CALLBACK(void, name, arg)
#define SIMULATED_CALLBACK TIMER_CALLBACK
/* For callbacks that only the kernel has. */
#define KERNEL_CALLBACK(name, arg) static inline __attribute__((unused)) void name(arg)

/* Registers nothing here; the context is what the native build needs instead. */
#define SCHEDULER(name, timeout_ms)                                                                \
	__thread struct native_context *corun_context;                                             \
	void NAME(name##_enter)(struct native_context * context);                                  \
	void NAME(name##_enter)(struct native_context * context)                                   \
	{                                                                                          \
		corun_context = context;                                                           \
	}                                                                                          \
	const size_t NAME(name##_sizes)[] = {                                                      \
	    sizeof(struct task_struct), sizeof(struct task_ctx),      sizeof(struct cpu_ctx),      \
	    sizeof(struct vm_ctx),	sizeof(struct vm_conf),	      sizeof(struct gang_ctx),     \
	    sizeof(struct pool_conf),	sizeof(struct pcpu_conf),     sizeof(struct group_conf),   \
	    sizeof(struct group_ctx),	sizeof(struct native_context)};                            \
	const u32 NAME(name##_gang_modes)[] = {GANG_NONE,      GANG_DYNAMIC, GANG_STRICT,          \
					       GANG_DEMAND,    GANG_RELAXED, GANG_RELAXED_ALL,     \
					       GANG_ASYMMETRIC};

#endif
