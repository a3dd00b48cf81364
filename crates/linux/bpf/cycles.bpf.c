// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the cycles of vCPUs divide while no task runs on the SMT sibling, for
 * crates/linux/src/cycles/ (vSMT-IO, dissertation §3.4.3: symbiosis by cycle accounting).
 *
 * Problem: what a vCPU's cycles are spent on shows only while its SMT sibling idles, or is held for
 * a vCPU that has halted, and so idles, too; and counters can be read only on the pCPU that they
 * count. How: every switch notes whether the pCPU idles, and how often it has switched. A vCPU's
 * turn that begins beside an idle pCPU, and ends before that pCPU has switched, had the core to
 * itself: what the counters count between the two switches of the turn is added to the vCPU's
 * counts.
 *
 * A turn in which another event took a counter's place is left out: what the counter would have
 * counted is a guess, and there are enough turns. Interrupts that an idle sibling serves are not
 * seen.
 *
 * The daemon attaches this only while a policy wants to know, and sets everything up before that.
 */
#include "threads.h"

#define ENOENT 2
/* vCPUs that may be watched; each takes memory only while it is. */
#define MOST_WATCHED (1 << 16)

/* The counters of each pCPU; the daemon has the same order (cycles/mod.rs). */
enum event {
	CYCLES, /* all */
	STALLS, /* of these, those in which nothing went on */
	MISSES, /* of these, those on misses; may be missing */
	EVENTS,
};

struct counted {
	u64 count[EVENTS];
	u64 missed[EVENTS]; /* ns in which it had no counter */
};

/* The daemon has the same struct. */
struct pcpu {
	/* Switches here, doubled; odd: it has idled since the last. 0: none was seen. */
	u64 seen;
	u64 beside; /* the partner's as the turn began */
	u32 partner;
	u32 tid; /* thread whose turn may count; 0: none's */
	struct counted begun;
};

/* The daemon has the same struct. */
struct watched {
	u64 start; /* ticks since boot: numbers of threads are used again */
	u64 cycles;
	u64 base;
	u64 miss;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the daemon sets it */
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus SEC(".maps");

/* EVENTS of each pCPU, one after the other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, EVENTS); /* the daemon sets it */
	__type(key, u32);
	__type(value, u32);
} events SEC(".maps");

/* By thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_WATCHED);
	__type(key, u32);
	__type(value, struct watched);
} vcpus SEC(".maps");

static __always_inline bool read_one(u32 cpu, enum event event, struct counted *now)
{
	struct bpf_perf_event_value value = {};
	long error;

	error = bpf_perf_event_read_value(&events, cpu * EVENTS + event, &value, sizeof(value));
	if (error && !(event == MISSES && error == -ENOENT))
		return false;
	now->count[event] = value.counter;
	now->missed[event] = value.enabled - value.running;
	return true;
}

static __always_inline bool read_all(u32 cpu, struct counted *now)
{
	return read_one(cpu, CYCLES, now) && read_one(cpu, STALLS, now) &&
	       read_one(cpu, MISSES, now);
}

static __always_inline struct watched *watched(struct task_struct *p)
{
	u32 tid = p->pid;
	struct watched *known = bpf_map_lookup_elem(&vcpus, &tid);
	u64 start;

	if (!known)
		return NULL;
	start = BPF_CORE_READ((const struct task_struct___start *)p, start_boottime);
	return start / TICK == known->start ? known : NULL;
}

static __always_inline u64 seen_of(const struct pcpu *pcpu)
{
	return *(const volatile u64 *)&pcpu->seen;
}

/* A turn of `next` begins. */
static __always_inline void begin(u32 cpu, struct pcpu *own, const struct pcpu *other,
				  struct task_struct *next)
{
	own->beside = seen_of(other);
	if ((own->beside & 1) && watched(next) && read_all(cpu, &own->begun))
		own->tid = next->pid;
}

static __always_inline bool counted_all(const struct counted *then, const struct counted *now)
{
	return then->missed[CYCLES] == now->missed[CYCLES] &&
	       then->missed[STALLS] == now->missed[STALLS] &&
	       then->missed[MISSES] == now->missed[MISSES];
}

static __always_inline u64 at_most(u64 value, u64 most)
{
	return value < most ? value : most;
}

/* The turn of `prev` is over. Counters are read one after the other: a part is taken to be no more
 * than the whole. */
static __always_inline void end(u32 cpu, const struct pcpu *own, const struct pcpu *other,
				struct task_struct *prev)
{
	const struct counted *then = &own->begun;
	struct counted now = {};
	struct watched *known;
	u64 cycles, stalls;

	if (own->tid != (u32)prev->pid || !read_all(cpu, &now) || seen_of(other) != own->beside ||
	    !counted_all(then, &now))
		return;
	known = watched(prev);
	if (!known)
		return;
	cycles = now.count[CYCLES] - then->count[CYCLES];
	stalls = at_most(now.count[STALLS] - then->count[STALLS], cycles);
	known->cycles += cycles;
	known->base += cycles - stalls;
	known->miss += at_most(now.count[MISSES] - then->count[MISSES], stalls);
}

SEC("tp_btf/sched_switch")
int cycles(u64 *args)
{
	struct task_struct *prev = (void *)args[1], *next = (void *)args[2];
	u32 cpu = bpf_get_smp_processor_id(), partner;
	struct pcpu *own = bpf_map_lookup_elem(&pcpus, &cpu), *other;

	if (!own)
		return 0;
	partner = own->partner;
	other = bpf_map_lookup_elem(&pcpus, &partner);
	if (own->tid && other)
		end(cpu, own, other, prev);
	own->tid = 0;
	*(volatile u64 *)&own->seen = ((own->seen >> 1) + 1) << 1 | (next->pid == 0);
	if (next->pid && other)
		begin(cpu, own, other, next);
	return 0;
}

char _license[] SEC("license") = "GPL";
