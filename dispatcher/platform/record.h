/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Recording in the kernel: what passes the tap (tap.h) goes into a ring buffer, a record per
 * callback, for crates/dispatcher/src/lockstep to replay.
 *
 * Only one of the two builds records (see bpf.h). Each tap is a call, which takes registers from
 * the code around it, even where the verifier has removed the call (docs/cost.md). Both builds have
 * the maps, so that what loads one loads the other.
 */
#ifndef CORUN_RECORD_H
#define CORUN_RECORD_H

/* The most entries a callback may have; a longer one is cut, and the recording says so. */
#define RECORD_ENTRIES 512

struct record_entry {
	u64 value;
	u32 kind;
	u32 pad;
};

struct record {
	u32 op;
	s32 cpu;
	u32 task;
	u32 entries;
	u64 seq;
	u64 arg;
	struct record_entry entry[RECORD_ENTRIES];
};

u64 records_lost;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} records SEC(".maps");

/*
 * Callbacks for tasks run with interrupts off, but the timer's does not: an interrupt that wakes a
 * task may call select_cpu and enqueue in the middle of it. So there is a record for each level.
 */
#define RECORD_LEVELS 2

struct record_stack {
	u32 depth; /* callbacks begun and not ended on this CPU */
	u32 pad;
	struct record level[RECORD_LEVELS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct record_stack);
} record_now SEC(".maps");

#ifdef UNTAPPED
#define tap_in(kind, value) ((u64)(value))
#define tap_if(kind, value) ((u64)(value))
#define tap_out(kind, value) ((void)(value))
#define record_begin(op, task, seq, arg) ((void)0)
#define record_end() ((void)0)
#else
static inline struct record_stack *record_stack(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&record_now, &zero);
}

/* The record of the callback that began last. */
static inline struct record *record_here(void)
{
	struct record_stack *stack = record_stack();

	return stack ? &stack->level[(stack->depth - 1) % RECORD_LEVELS] : NULL;
}

static inline void record_begin(enum tap_op op, u32 task, u64 seq, u64 arg)
{
	struct record_stack *stack = record_stack();
	struct record *r;

	if (!stack)
		return;
	/* A callback that interrupts this one has restored the depth when it returns. */
	stack->depth++;
	r = record_here();
	if (!r)
		return;
	r->op = op;
	r->cpu = (s32)bpf_get_smp_processor_id();
	r->task = task;
	r->entries = 0;
	r->seq = seq;
	r->arg = arg;
}

/* A function of its own: with each tap inlined, callbacks would need more stack than BPF has. */
static __attribute__((noinline)) void record_add(enum tap_kind kind, u64 value)
{
	struct record *r = record_here();
	u32 n;

	if (!r)
		return;
	n = r->entries++;
	if (n >= RECORD_ENTRIES)
		return;
	r->entry[n].kind = kind;
	r->entry[n].value = value;
}

static inline void record_end(void)
{
	struct record_stack *stack = record_stack();
	struct record *r = record_here();
	u32 n;

	if (!stack || !r)
		return;
	n = r->entries;
	if (n > RECORD_ENTRIES)
		n = RECORD_ENTRIES;
	/* The recorder polls: waking it would be a scheduling event per record. */
	if (bpf_ringbuf_output(&records, r,
			       __builtin_offsetof(struct record, entry) + n * sizeof(r->entry[0]),
			       BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&records_lost, 1);
	stack->depth--;
}

static inline u64 tap_in(enum tap_kind kind, u64 value)
{
	record_add(kind, value);
	return value;
}

/* An input that is recorded only if it is not 0. */
static inline u64 tap_if(enum tap_kind kind, u64 value)
{
	if (value)
		record_add(kind, value);
	return value;
}

static inline void tap_out(enum tap_kind kind, u64 value)
{
	record_add(kind, value);
}
#endif

#endif
