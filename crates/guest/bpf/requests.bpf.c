// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which threads wait for a disk, and for how long: the kernel's half of corun's I/O detector in a
 * guest.
 *
 * A request belongs to the thread that runs when it begins. For threads that the daemon watches,
 * the time with at least one request under way is added up in a book, which the daemon maps. For
 * other threads, a sum over a short window is kept; when it is large, the thread is reported to the
 * daemon, at most once a second. Also reported is any thread that a watched thread, or one that has
 * inherited its mask, creates, since it inherits that mask in turn.
 *
 * Requests begin and end with block_io_start and block_io_done (Linux 6.5 and newer) or, before,
 * with block_rq_issue and block_rq_complete; the daemon loads one pair. One that an elevator merges
 * with another has begun, and is never done (block_rq_merge). Only names of fields count: CO-RE
 * finds them in the running kernel.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u32 __u32;
typedef u64 __u64;

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define CORE __attribute__((preserve_access_index))

struct task_struct {
	int pid;
	unsigned int flags;
	int nr_cpus_allowed;
	const void *cpus_ptr;
} CORE;

/* enum cpu_usage_stat (include/linux/kernel_stat.h): it only ever grew at its end. */
enum cpu_usage_stat {
	CPUTIME_STEAL = 7,
};

struct kernel_cpustat {
	u64 cpustat[16];
} CORE;

/* PF_KTHREAD (include/linux/sched.h). */
#define KERNEL_THREAD 0x00200000
/* The state with which cpu_idle reports the end of idling (include/trace/events/power.h). */
#define PWR_EVENT_EXIT 0xffffffffu
/* vCPUs whose idling is watched: those with higher numbers count as never idle. */
#define MOST_VCPUS 512
/* Threads watched at a time. */
#define MOST_BOOKS 1024
/* Words of a mask that are reported: its first ones. */
#define WORDS 8
/* How often to try to change a number of requests that other CPUs change, too. */
#define COUNT_TRIES 8
/* A thread is reported at most once in this time. */
#define SECOND 1000000000ULL

/* What is known of a watched thread; the daemon has the same struct (detector/bpf.rs). */
struct book {
	u64 busy;  /* with a request under way, ns, up to `since` */
	u64 since; /* when the first of those under way began */
	u32 under_way;
	u32 vcpu; /* on which the last one began */
	u32 tid;
	u32 unused;
};

struct stranger {
	u64 window; /* began */
	u64 busy;   /* since then, ns */
	u64 told;
};

struct request_of {
	u64 began;
	u32 tid;
	u32 book; /* or MOST_BOOKS: of a thread that is not watched */
};

enum kind {
	CANDIDATE,
	HEIR,
};

/* The daemon reads it (detector/bpf.rs). */
struct sighting {
	u32 kind;
	u32 tid;
	u32 root; /* of an heir: whose mask it has */
	u32 unused;
	u64 allowed[WORDS]; /* of an heir: that mask, a single vCPU */
};

/* A thread that has inherited a watched thread's mask. */
struct heir {
	u32 root;
	u32 judged; /* the daemon has dealt with it */
};

/* The detector's window and how much of it must be I/O, ns. */
const volatile u64 window = 5000000;
const volatile u64 enough = 1500000;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_BOOKS);
	__type(key, u32);
	__type(value, struct book);
} books SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_BOOKS);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct stranger);
} strangers SEC(".maps");

/* Requests that never end (a disk that was pulled) are forgotten in time, and with
 * them the books that they are in (detector/bpf.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct request_of);
} requests SEC(".maps");

/* Heirs are reported, and put here, before they run for the first time. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct heir);
} heirs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} sightings SEC(".maps");

static void tell(u32 kind, u32 tid, u32 root, const void *allowed)
{
	struct sighting *it = bpf_ringbuf_reserve(&sightings, sizeof(*it), 0);

	if (!it)
		return;
	it->kind = kind;
	it->tid = tid;
	it->root = root;
	it->unused = 0;
	__builtin_memset(it->allowed, 0, sizeof(it->allowed));
	if (allowed)
		bpf_probe_read_kernel(it->allowed, sizeof(it->allowed), allowed);
	bpf_ringbuf_submit(it, 0);
}

/*
 * One request fewer is under way: was it the last? At any moment the daemon may forget those under
 * way, taking them for ones that never end, and ends on other CPUs may come first. Whoever finds
 * none left subtracts none: the count would wrap to 2^32 - 1. An end that has lost COUNT_TRIES
 * times leaves one too many, which the daemon forgets in time.
 */
static int was_last(struct book *book)
{
	u32 count = book->under_way;
	u32 i;

	for (i = 0; i < COUNT_TRIES && count; i++) {
		u32 seen = __sync_val_compare_and_swap(&book->under_way, count, count - 1);

		if (seen == count)
			return count == 1;
		count = seen;
	}
	return 0;
}

/* A request is no longer under way. */
static void leaves_book(struct request_of *it, u64 now)
{
	u32 slot = it->book;
	struct book *book = bpf_map_lookup_elem(&books, &slot);
	u64 since;

	if (!book || book->tid != it->tid)
		return;
	/* Once this one no longer counts, another may begin. */
	since = *(volatile u64 *)&book->since;
	if (was_last(book) && since < now)
		__sync_fetch_and_add(&book->busy, now - since);
}

static int begins(u64 request)
{
	struct task_struct *current = (void *)bpf_get_current_task_btf();
	u32 tid = current->pid;
	struct request_of it = {.began = bpf_ktime_get_ns(), .tid = tid, .book = MOST_BOOKS};
	struct request_of *before;
	u32 *slot;

	if (current->flags & KERNEL_THREAD || !tid)
		return 0;
	/* The same request, issued anew, or one that did not end and whose place this takes. */
	before = bpf_map_lookup_elem(&requests, &request);
	if (before)
		leaves_book(before, it.began);
	slot = bpf_map_lookup_elem(&watched, &tid);
	if (slot) {
		struct book *book = bpf_map_lookup_elem(&books, slot);

		if (book) {
			it.book = *slot;
			book->vcpu = bpf_get_smp_processor_id();
			/* The daemon may look at any moment. */
			if (!book->under_way)
				book->since = it.began;
			if (__sync_fetch_and_add(&book->under_way, 1) == 0)
				book->since = it.began;
		}
	}
	bpf_map_update_elem(&requests, &request, &it, BPF_ANY);
	return 0;
}

/*
 * `tid`, which nobody watches, had a request for `took` ns. Two requests that end at once on two
 * CPUs may lose one of each other, or, at the end of a window, both report the thread: a candidate
 * is watched before anything is done to it, and reporting it twice is harmless (detector/).
 */
static void add(u32 tid, u64 took, u64 now)
{
	struct stranger *known = bpf_map_lookup_elem(&strangers, &tid);
	struct stranger first = {.window = now - took, .busy = took};

	if (!known) {
		bpf_map_update_elem(&strangers, &tid, &first, BPF_ANY);
		known = bpf_map_lookup_elem(&strangers, &tid);
		if (!known)
			return;
	} else if (now - known->window > window) {
		known->window = now - took;
		known->busy = took;
	} else {
		known->busy += took;
	}
	if (known->busy >= enough && now - known->told > SECOND) {
		known->told = now;
		tell(CANDIDATE, tid, 0, 0);
	}
}

static int ends(u64 request)
{
	struct request_of *it = bpf_map_lookup_elem(&requests, &request);
	u64 now = bpf_ktime_get_ns();

	if (!it)
		return 0;
	if (it->book == MOST_BOOKS)
		add(it->tid, now - it->began, now);
	else
		leaves_book(it, now);
	bpf_map_delete_elem(&requests, &request);
	return 0;
}

SEC("tp_btf/block_io_start")
int io_start(u64 *args)
{
	return begins(args[0]);
}

SEC("tp_btf/block_io_done")
int io_done(u64 *args)
{
	return ends(args[0]);
}

SEC("tp_btf/block_rq_merge")
int rq_merge(u64 *args)
{
	return ends(args[0]);
}

SEC("tp_btf/block_rq_issue")
int rq_issue(u64 *args)
{
	return begins(args[0]);
}

SEC("tp_btf/block_rq_complete")
int rq_complete(u64 *args)
{
	return ends(args[0]);
}

SEC("tp_btf/sched_process_fork")
int fork(u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	u32 tid = parent->pid, created = child->pid;
	struct heir it = {.root = tid};

	if (child->nr_cpus_allowed != 1)
		return 0;
	if (!bpf_map_lookup_elem(&watched, &tid)) {
		struct heir *known = bpf_map_lookup_elem(&heirs, &tid);

		if (!known)
			return 0;
		/* A judged heir is pinned on purpose, unless it was freed after the copy. */
		if (known->judged && parent->nr_cpus_allowed == 1)
			return 0;
		it.root = known->root;
	}
	bpf_map_update_elem(&heirs, &created, &it, BPF_ANY);
	tell(HEIR, created, it.root, child->cpus_ptr);
	return 0;
}

/* When each vCPU last began to run something, after idling, ns. The daemon maps it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_VCPUS);
	__type(key, u32);
	__type(value, u64);
} awake SEC(".maps");

SEC("tp_btf/cpu_idle")
int idle(u64 *args)
{
	u32 state = (u32)args[0], vcpu = (u32)args[1];
	u64 *since;

	if (state != PWR_EVENT_EXIT)
		return 0;
	since = bpf_map_lookup_elem(&awake, &vcpu);
	if (since)
		*since = bpf_ktime_get_ns();
	return 0;
}

extern struct kernel_cpustat kernel_cpustat __ksym;

/* What the daemon asks about a vCPU, and the answer. */
struct stolen {
	u32 vcpu;
	u32 known;
	u64 time; /* stolen since boot, ns */
};

/* Called by the daemon, unlike the others. */
SEC("syscall")
int stolen(struct stolen *asked)
{
	struct kernel_cpustat *of = bpf_per_cpu_ptr(&kernel_cpustat, asked->vcpu);

	asked->known = of != 0;
	if (of)
		asked->time = of->cpustat[CPUTIME_STEAL];
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
