/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No task waits for long where pCPUs idle.
 *
 * A pCPU that has nothing to run looks at what waits elsewhere (pull.h), and then sleeps: it does
 * not see tasks that are queued after that, until it is called. A task that wakes finds an idle
 * pCPU by placement (placement.h). For two kinds of tasks that do not, one has to be called:
 *
 *   - a task that is preempted, perhaps by a task that may run only there, or by one of a higher
 *     class (put_in_reach() in platform/bpf.h), is queued again where it was. An idle pCPU is
 *     called for it, no more often than busy pCPUs look for busier ones: at once if its turn is
 *     over; if it was interrupted, when it has waited for longer than its warm caches are worth.
 *     Most tasks that interrupt run for some microseconds (kworkers, interrupt threads);
 *   - a task that woke on a pCPU where nothing seemed to run, but which does not answer because a
 *     task of a higher class (SCHED_FIFO, SCHED_DEADLINE) has it. A sched_ext scheduler is not told
 *     of that: the other task took the pCPU while it idled, or from a task that has been pulled
 *     away since.
 */
#ifndef CORUN_IDLE_H
#define CORUN_IDLE_H

#include "occupancy.h"
#include "placement.h"
#include "platform/platform.h"
#include "pool.h"
#include "timer.h"

/*
 * How long an interrupted task waits before another pCPU is called, ns: as long as the kernel takes
 * a task's caches to be warm (sysctl_sched_migration_cost).
 */
#define OFFER_AFTER 500000ull

/* Does `p` stay where it was queued, wherever else pCPUs idle? As may_pull() has it. */
static inline bool stays_put(struct task_struct *p)
{
	struct task_ctx *t = raw_task_ctx(p);
	u32 slot = t ? shared(t->vm) : NO_VM;
	struct vm_ctx *vm = slot == NO_VM ? NULL : vm_at(slot);

	return vm && placement_in(slot, vm) == PLACE_FIXED;
}

/* Calls any pCPU other than `cpu` that `p` may run on and that answers. */
RARE void call_any(struct task_struct *p, s32 cpu)
{
	s32 i;

	for_each_allowed (i, p) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c || i == cpu || !shared(c->idle) || !pool_admits(p, i) || !answers(i))
			continue;
		kick(i, KICK_IDLE);
		break;
	}
}

/*
 * Calls an idle pCPU other than `cpu` that may pull `p` from there: preferably with the same
 * last-level cache, and among those one on an idle core. If a task of a higher class has that pCPU,
 * calls any other. Returns whether there is one.
 */
RARE bool call_other(struct task_struct *p, s32 cpu)
{
	s32 best = NO_PCPU;
	u32 best_rank = 4;
	s32 i;

	if (stays_put(p))
		return false;
	for_each_allowed (i, p) {
		struct cpu_ctx *c = cpu_at(i);
		u32 rank;

		if (!c || i == cpu || !shared(c->idle) || !pool_admits(p, i))
			continue;
		rank = 2 * (llc_of(i) != llc_of(cpu)) + shares_core(i);
		if (rank < best_rank) {
			best_rank = rank;
			best = i;
		}
		if (!rank)
			break;
	}
	if (best == NO_PCPU)
		return false;
	/* A pCPU that is about to idle does not answer yet, but will look at the queues. */
	kick(best, KICK_IDLE);
	if (!answers(best))
		call_any(p, cpu);
	return true;
}

/*
 * `p` was queued on `cpu`: calls `cpu` if it idles, else another idle pCPU. Returns whether there
 * is one.
 */
static inline bool call_idle(struct task_struct *p, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	/* See idles(). */
	if (c && !shared_after(c->idle))
		return call_other(p, cpu);
	kick(cpu, KICK_IDLE);
	return true;
}

/*
 * `t`, which lost `cpu`, was queued there again: is it time to call another pCPU for it? A task
 * that may run on `cpu` only must not use up the chance of other tasks (offered_at).
 */
RARE void offer(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (now - shared(c->offered_at) < knobs.balance_interval || is_bound(p))
		return;
	store(c->offered_at, now);
	if (t->rest) {
		store(c->offer_due, now + OFFER_AFTER);
		timer_within(c, cpu, OFFER_AFTER, now);
	} else {
		call_other(p, cpu);
	}
}

/*
 * Calls another pCPU for the first task queued on `cpu` that may run elsewhere. Not CALLED: see
 * release_one() in quota.h.
 */
static inline void call_for_queue(s32 cpu)
{
	struct task_struct *p;

	for_each_queued (p, cpu) {
		if (is_bound(p))
			continue;
		call_other(p, cpu);
		break;
	}
}

/* The timer of `cpu` fired; returns true if that was for an interrupted task. */
static inline bool offer_timer(struct cpu_ctx *c, s32 cpu)
{
	u64 due = shared(c->offer_due);
	u64 now;

	if (!due)
		return false;
	now = now_ns();
	if (before(now, due)) {
		timer_within(c, cpu, due - now, now);
		return false;
	}
	store(c->offer_due, 0);
	if (queue_length(cpu))
		call_for_queue(cpu);
	return true;
}

#endif
