// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads the dispatcher's state of many tasks at once, for crates/linux/src/books.rs.
 *
 * Problem: under some policies the daemon looks at every vCPU of the host ten times a second, and a
 * system call for each was a third of the daemon's cost. How: it lists the threads in `asked` and
 * runs this program, which copies their state to `told`; both maps are mapped into the daemon.
 */
#include "threads.h"

#include "../../../dispatcher/platform/task_ctxs.h"

/* Tasks asked for at a time. */
#define MOST_ASKED 512

struct told {
	u64 known; /* is it there, and has the dispatcher seen it? */
	struct task_ctx ctx;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_ASKED);
	__type(key, u32);
	__type(value, struct thread_key);
} asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MOST_ASKED);
	__type(key, u32);
	__type(value, struct told);
} told SEC(".maps");

static void tell(u32 at)
{
	struct thread_key *key = bpf_map_lookup_elem(&asked, &at);
	struct told *entry = bpf_map_lookup_elem(&told, &at);
	struct task_struct *p;
	struct task_ctx *ctx;

	if (!key || !entry)
		return;
	entry->known = 0;
	p = bpf_task_from_pid((s32)key->tid);
	if (!p)
		return;
	if (is_meant(p, key)) {
		ctx = bpf_task_storage_get(&task_ctxs, p, NULL, 0);
		if (ctx) {
			entry->ctx = *ctx;
			entry->known = 1;
		}
	}
	bpf_task_release(p);
}

struct count {
	u64 tasks; /* how many of `asked` count */
};

SEC("syscall")
int books(struct count *count)
{
	u32 at;

	bpf_for (at, 0, count->tasks)
		tell(at);
	return 0;
}

char _license[] SEC("license") = "GPL";
