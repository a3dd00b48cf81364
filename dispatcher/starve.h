/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nobody starves: a task that has been ready for too long runs next, whatever it is owed.
 *
 * Extreme weights (1 against 10000) would make fair order keep a task waiting for longer than
 * sched_ext's watchdog allows. Such a task gets one slice per limit, which also bounds what the
 * rest loses.
 */
#ifndef CORUN_STARVE_H
#define CORUN_STARVE_H

#include "fair.h"
#include "platform/platform.h"

/* How long a task may stay ready, ns; a fifth of the watchdog's timeout. */
#define STARVE_LIMIT 1000000000ull
/* How often a pCPU looks, ns. */
#define STARVE_LOOK 100000000ull

/* Dispatches on `cpu` the first of its queue that has been ready for too long. */
static inline bool rescue_starving(s32 cpu, struct cpu_ctx *c, u64 now)
{
	struct task_struct *p;
	bool rescued = false;

	if (now - shared(c->rescued_at) < STARVE_LOOK)
		return false;
	store(c->rescued_at, now);
	for_each_queued (p, cpu) {
		struct task_ctx t = {};

		if (look_at(p, &t) && before(t.since + STARVE_LIMIT, now) && move_queued(p, cpu)) {
			rescued = true;
			break;
		}
	}
	return rescued;
}

#endif
