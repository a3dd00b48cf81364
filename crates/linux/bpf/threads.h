/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads as the daemon names them to its BPF programs: by ids and start time, so that a thread
 * that reuses an id is not taken for the earlier one. The ids are those of the first PID namespace,
 * as everywhere in the dispatcher.
 */
#ifndef CORUN_THREADS_H
#define CORUN_THREADS_H

#include "../../../dispatcher/platform/kernel_types.h"

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* /proc gives start times in ticks of a hundredth of a second (USER_HZ). */
#define TICK 10000000

/* What kernel_types.h leaves out. */
struct task_struct___start {
	u64 start_boottime;
} CORE;

struct thread_key {
	u32 tgid;
	u32 tid;
	u64 start; /* ticks since boot */
};

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

static inline bool is_meant(const struct task_struct *p, const struct thread_key *key)
{
	u64 start = BPF_CORE_READ((const struct task_struct___start *)p, start_boottime);

	return (u32)p->tgid == key->tgid && start / TICK == key->start;
}

#endif
