/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Grace: a task that goes on with its turn is not interrupted at once by tasks that it wakes
 * itself.
 *
 * Where one task sends and others receive, the receivers are mostly owed more: they sleep until
 * there is something for them to do, and do it briefly. By fair order each would interrupt the
 * sender for each message: two switches, of some microseconds each, for one microsecond of work
 * (docs/cost.md, messages). So once a turn has been interrupted, tasks that its own task wakes on
 * its pCPU wait for GRACE, until the timer has the pCPU look at its queue: meanwhile more work
 * comes in for them. A task that is woken in an interrupt, or by a task on another pCPU, does not
 * wait: the task that it interrupts has mostly nothing to do with it. What the network delivers
 * comes in interrupts, even over loopback.
 *
 * Xen's credit scheduler makes all tasks that wake wait like this, for a millisecond
 * (sched_ratelimit_us).
 */
#ifndef CORUN_GRACE_H
#define CORUN_GRACE_H

#include "platform/platform.h"
#include "timer.h"

/* ns: of this time, two switches of 2.5 us each (docs/parameters.md) are a twentieth. */
#define GRACE 100000ull

/* A turn on `c` begins. */
static inline void grace_none(struct cpu_ctx *c)
{
	store(c->grace_end, 0);
	store(c->put_off, 0);
}

/* A turn on `c` that was interrupted goes on. */
static inline void grace_begins(struct cpu_ctx *c, u64 now)
{
	store(c->grace_end, now + GRACE);
	store(c->put_off, 0);
}

/*
 * By fair order, a task that has woken would interrupt the one that runs on `cpu`: does it wait
 * until the latter's grace ends?
 */
static inline bool grace_puts_off(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 end = shared(c->grace_end);

	if (!before(now, end) || this_cpu() != cpu || in_interrupt())
		return false;
	store(c->put_off, 1);
	timer_within(c, cpu, end - now, now);
	return true;
}

/* Is the grace on `c` over, and did a task wait for that? */
static inline bool grace_is_over(struct cpu_ctx *c, u64 now)
{
	if (!shared(c->put_off) || before(now, shared(c->grace_end)))
		return false;
	store(c->put_off, 0);
	return true;
}

/* In how many ns the timer of `c` must fire at the latest, if `left` ns of the slice are left. */
static inline u64 grace_timer(u64 left, struct cpu_ctx *c, u64 now)
{
	u64 end;

	if (!shared(c->put_off))
		return left;
	end = shared(c->grace_end);
	return before(now, end) && end - now < left ? end - now : left;
}

#endif
