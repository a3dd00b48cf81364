/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slices: how long a task may run while others wait for its pCPU.
 *
 * sched_ext ends slices at the tick (4 ms apart at HZ=250). With knobs.slice_timer a timer per pCPU
 * ends them on time; the kernel's own slice is then a little longer and only a safety net.
 */
#ifndef CORUN_SLICE_H
#define CORUN_SLICE_H

#include "platform/platform.h"

/* What the kernel is told beyond the slice when the timer ends it, ns: above one tick at HZ=100. */
#define SLICE_NET 12000000ull
/* Shorter slices would only switch. */
#define SLICE_MIN 50000ull

static inline u64 slice_of(struct task_struct *p)
{
	struct task_conf *conf = task_conf_of(p);
	u64 slice = conf ? shared(conf->slice) : 0;

	if (!slice)
		slice = knobs.slice;
	return slice < SLICE_MIN ? SLICE_MIN : slice;
}

/* The slice the kernel is told. */
static inline u64 kernel_slice(u64 slice)
{
	return knobs.slice_timer ? slice + SLICE_NET : slice;
}

/* A slice begins on `cpu`. */
static inline void slice_begin(struct task_struct *p, struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 slice = slice_of(p);

	store(c->slice_end, now + slice);
	if (knobs.slice_timer)
		start_timer(cpu, slice);
}

/* The timer of `cpu` fired: is the slice over, and does somebody wait? */
static inline void slice_timer(struct cpu_ctx *c, s32 cpu)
{
	u64 now = now_ns();
	u64 end = shared(c->slice_end);

	if (shared(c->idle))
		return;
	if (now < end) {
		start_timer(cpu, end - now); /* it belonged to an earlier slice */
		return;
	}
	if (queue_length(cpu))
		kick(cpu, KICK_PREEMPT);
	else
		start_timer(cpu, knobs.slice);
}

#endif
