/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers: each pCPU has one timer, for many reasons to look at the clock again.
 *
 * Starting a timer takes the kernel some hundreds of instructions, and tasks that run for
 * microseconds would have one started at every switch (docs/cost.md). So a timer that fires early
 * enough is left alone: the code that it runs finds out that it is too early (slice.h, retention.h)
 * and asks again. Where pCPUs switch before slices end, that is one early look per length of a
 * slice, however often they switch.
 */
#ifndef CORUN_TIMER_H
#define CORUN_TIMER_H

#include "fair.h"
#include "platform/platform.h"

/* The timer of `cpu` fires in `delay` ns at the latest. */
static inline void timer_within(struct cpu_ctx *c, s32 cpu, u64 delay, u64 now)
{
	u64 due = now + delay;
	u64 fires = shared(c->timer_at);

	if (before(now, fires) && !before(due, fires))
		return;
	store(c->timer_at, due);
	start_timer(cpu, delay);
}

/* The timer of `c` fired. */
static inline void looked(struct cpu_ctx *c)
{
	store(c->timer_at, 0);
}

#endif
