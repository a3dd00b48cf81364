/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nobody waits for long where pCPUs idle.
 *
 * A pCPU that has nothing to run looks at what waits elsewhere (pull.h), and then sleeps: of what
 * is queued after that it knows nothing until somebody calls it. Who wakes finds it by placement
 * (placement.h). Two others do not, and have it called:
 *
 *   - who is pushed aside, perhaps by a task that may run there only, or by one of a higher class
 *     (put_in_reach() in platform/bpf.h), is queued again where it was. As often as busy pCPUs look
 *     for busier ones, one that idles is called for it: at once if its turn is over, and if it was
 *     interrupted when it has waited for longer than caches are worth. Most of those who interrupt
 *     run for some microseconds (kworkers, interrupt threads);
 *   - who woke on a pCPU that seemed to idle and does not answer, since a task of a higher class
 *     (SCHED_FIFO, SCHED_DEADLINE) has it, of which nobody tells a sched_ext scheduler.
 */
#ifndef CORUN_IDLE_H
#define CORUN_IDLE_H

#include "occupancy.h"
#include "platform/platform.h"
#include "timer.h"

/* How long who was interrupted waits before another pCPU is called, ns: so long the kernel takes
 * the caches of a task for warm (sysctl_sched_migration_cost). */
#define OFFER_AFTER 500000ull

/* Calls a pCPU other than `cpu` that idles, if `p` may run on any: one with the same last-level
 * cache, if there is one, and of these one of a core that idles. */
RARE void call_other(struct task_struct *p, s32 cpu)
{
	s32 best = NO_PCPU;
	u32 best_rank = 4;
	s32 i;

	for_each_allowed (i, p) {
		struct cpu_ctx *c = cpu_at(i);
		u32 rank;

		if (!c || i == cpu || !shared(c->idle))
			continue;
		rank = 2 * (llc_of(i) != llc_of(cpu)) + shares_core(i);
		if (rank < best_rank) {
			best_rank = rank;
			best = i;
		}
		if (!rank)
			break;
	}
	if (best != NO_PCPU)
		kick(best, KICK_IDLE);
}

/* `p` was queued on `cpu`: that one is called if it idles, else another one. */
static inline void call_idle(struct task_struct *p, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	/* See idles(). */
	if (!c || shared_after(c->idle))
		kick(cpu, KICK_IDLE);
	else
		call_other(p, cpu);
}

/* `t`, which lost `cpu`, was queued there again: is it time to call for it? Who may run there only
 * does not use up the time of others. */
RARE void offer(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (now - shared(c->offered_at) < knobs.balance_interval || is_bound(p))
		return;
	store(c->offered_at, now);
	if (t->rest) {
		store(c->offer_due, now + OFFER_AFTER);
		look_in(c, cpu, OFFER_AFTER, now);
	} else {
		call_other(p, cpu);
	}
}

/* Another pCPU is called for the first of those queued on `cpu` who may run there. Not CALLED: see
 * release_one() in quota.h. */
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

/* The timer of `cpu` fired; true if it was about one who was interrupted. */
static inline bool offer_timer(struct cpu_ctx *c, s32 cpu)
{
	u64 due = shared(c->offer_due);
	u64 now;

	if (!due)
		return false;
	now = now_ns();
	if (before(now, due)) {
		look_in(c, cpu, due - now, now);
		return false;
	}
	store(c->offer_due, 0);
	if (queue_length(cpu))
		call_for_queue(cpu);
	return true;
}

#endif
