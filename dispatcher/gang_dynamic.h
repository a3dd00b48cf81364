/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dynamic time-slice (DT) co-scheduling: Sukwong & Kim, "Is Co-scheduling Too Expensive for SMP
 * VMs?", EuroSys 2011, §5.2.2 and Algorithm 3.
 *
 * When a vCPU gets its turn in fair order while no vCPU of its VM leads, it becomes the leader:
 * each pCPU where a sibling waits is interrupted and runs that sibling next, whichever task is
 * first there. Siblings that run already are not called (Algorithm 3 calls those that are "not
 * currently scheduled"). Slices differ, pCPUs are not reserved, and no task is kept waiting on
 * purpose: so there is no fragmentation.
 *
 * A call holds until the leader's turn is over; each sibling answers it once. If two gangs are
 * called to one pCPU, fair order decides and the other call stays. A sibling that was called is
 * charged like any other task: if gangs run out of turn, other tasks go before them later.
 *
 * How far out of turn may they run? Algorithm 3 switches in every sibling that is runnable; and the
 * paper has it that "this step only occurs when the scheduler normally selects the first vCPU
 * sibling", that "as a result, we still preserve fairness among VMs", and that no execution is
 * delayed (§5.2.2). To satisfy both, calls have bounds (rank_beside(), interrupts_woken()):
 *
 *   - A call does not count for a sibling that is CALL_LEAD slices ahead of the task that is owed
 *     most on its pCPU.
 *   - A task that woke, has not had a slice since, and would preempt the sibling by fair order, is
 *     interrupted once only, and for the shortest turn (SLICE_MIN). While it waits to go on, and
 *     once it is back, calls on its pCPU do not count. What such a task is owed is bounded
 *     (limit_lag()), so it would lose for good the time that it waits for called siblings. Example:
 *     a vCPU wakes its siblings and halts; a VM that computes takes its pCPU back, calls its own
 *     siblings, and each time those that had been woken would wait for a slice.
 */
#ifndef CORUN_GANG_DYNAMIC_H
#define CORUN_GANG_DYNAMIC_H

#include "gang.h"

/* The epoch of the call by which the gang was last called to `cpu`. */
static inline u32 *gang_target(struct gang *g, s32 cpu)
{
	return &g->ctx->target[opaque((u32)cpu) % MAX_PCPUS];
}

/* Was the gang started together, and does that call still hold? */
static inline bool gang_together(struct gang *g, u64 now)
{
	return before(now, shared(g->ctx->until));
}

/*
 * A vCPU of the VM in `slot` runs on `cpu`: does another one wait on a pCPU that runs none of this
 * VM?
 */
CALLED u32 gang_waits_elsewhere(u32 slot, s32 cpu)
{
	struct gang g = gang_in(slot);
	u32 waits = 0;
	s32 i;

	if (!g.vm)
		return 0;
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (i == cpu || !c || !gang_here(&g, i))
			continue;
		waits = !gang_runs_on(&g, c);
		if (waits)
			break;
	}
	return waits;
}

/*
 * Calls the siblings that wait on pCPUs other than `cpu`: they are to run together until `until`.
 * The call is marked by a new epoch, which is returned.
 */
CALLED u32 gang_call(u32 slot, s32 cpu, u32 leader, u64 until)
{
	struct gang g = gang_in(slot);
	u32 epoch;
	s32 i;

	if (!g.vm || !g.ctx)
		return 0;
	epoch = fetch_add(g.ctx->epoch, 1) + 1;
	store(g.ctx->leader, leader);
	store(g.ctx->until, until);
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (i == cpu || !c || !gang_here(&g, i) || gang_runs_on(&g, c))
			continue;
		store(*gang_target(&g, i), epoch);
		kick(i, KICK_PREEMPT);
	}
	return epoch;
}

/* The rank of a sibling that runs on `cpu` (`runs`) or waits there. */
static inline u32 dynamic_rank(struct gang *g, s32 cpu, bool runs, u64 now)
{
	if (!gang_together(g, now))
		return RANK_ORDINARY;
	if (runs || shared(*gang_target(g, cpu)) == shared(g->ctx->epoch))
		return RANK_TARGET;
	return RANK_ORDINARY;
}

/* The sibling with task id `id` was given `cpu` and has it until `slice_end`. */
static inline void dynamic_started(struct gang *g, s32 cpu, u32 id, u64 slice_end, u64 now)
{
	if (gang_together(g, now))
		store(*gang_target(g, cpu), 0);
	else if (gang_waits_elsewhere(g->slot, cpu))
		gang_call(g->slot, cpu, id, slice_end);
}

/*
 * The sibling with task id `id` gives up its pCPU: if it was the leader, calls not answered yet
 * become void.
 */
static inline void dynamic_stopped(struct gang *g, u32 id, u64 now)
{
	if (shared(g->ctx->leader) == id && gang_together(g, now))
		store(g->ctx->until, now);
}

#endif
