/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task a pCPU runs next on a host with gangs: the one with the best rank; among equal ranks,
 * the one that is owed most (gang_pick.h). If no task may start, the pCPU idles, and looks again
 * before any task starves.
 */
#ifndef CORUN_DISPATCH_GANGS_H
#define CORUN_DISPATCH_GANGS_H

#include "dispatch.h"
#include "gang_pick.h"
#include "platform/platform.h"
#include "pull.h"
#include "starve.h"
#include "timer.h"

/*
 * The rank of `prev`, which runs on `cpu`; RANK_NOT if no task runs there or `prev` may not stay.
 */
RARE u32 rank_of_current(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t,
			 u64 now)
{
	struct ranked r;

	if (!t || !may_go_on(prev, t, now))
		return RANK_NOT;
	gang_compared(prev, t, now);
	r = ranked(t, cpu, true, now);
	return rank_of(&r);
}

/* The value of gang_choice.stays if `t` runs with this rank; `t` is NULL if no task runs. */
static inline u16 stays_as(u32 rank, struct task_ctx *t)
{
	if (!t || rank == RANK_NOT)
		return 0;
	return t->fresh == FRESH_BACK ? STAYS_WOKEN : STAYS;
}

/*
 * Does `t`, which runs, let the best waiting task of its rank go first? If `t` yielded, it does,
 * however much it is owed. Otherwise fair order decides; of equals, the waiting one goes first
 * (still_first()).
 */
static inline bool lets_first(struct task_ctx *t, struct gang_choice *best, struct cpu_ctx *c)
{
	if (t && t->over & TURN_OVER)
		return true;
	return !before(best->bound + fair_span(c, NO_LOAD, SLICE_MIN), best->vtime);
}

/*
 * The `rank` of `t`, which runs, given the tasks that wait: a vCPU whose deadline would come in the
 * next slice does not go on before one that woke and would preempt it by fair order
 * (gang_asymmetric.h).
 */
static inline u32 rank_beside_woken(u32 rank, struct task_ctx *t, struct gang_choice *best,
				    struct cpu_ctx *c)
{
	u64 gran = fair_span(c, NO_LOAD, knobs.wakeup_gran);
	bool late = best->is_woken && before(best->woken + gran, best->bound);

	return t && t->claims && rank == RANK_URGENT && late ? RANK_ORDINARY : rank;
}

/*
 * Does the best waiting task, of the same `rank` as `t`, which runs, go first? If both are urgent,
 * `t` goes on, but a vCPU with a deadline (gang_asymmetric.h) lets one with an earlier deadline go
 * first.
 */
static inline bool equal_goes_first(struct task_ctx *t, u32 rank, struct gang_choice *best,
				    struct cpu_ctx *c)
{
	if (rank == RANK_URGENT)
		return t && t->claims && before(best->urgent_at, t->urgent_at);
	return lets_first(t, best, c);
}

/* Is `t` a vCPU of a strict VM whose time slot has ended? */
static inline bool slot_is_over(struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	return g.mode == GANG_STRICT && !slot_is_open(now);
}

/* `cpu` is to idle: tasks that may not start now are checked again before they starve. */
RARE void idle_for_now(s32 cpu, struct cpu_ctx *c, u64 again, u64 now)
{
	struct gang_choice best = {.again = again, .now = now};

	/* As in idles(). */
	exchange(c->idle, 1);
	if (queue_length(cpu))
		best_waiting(cpu, &best);
	if (best.spare && !best.id)
		spare_for_stopped(cpu, now);
	if (best.id && take(cpu, best.id))
		store(c->idle, 0);
	else if (best.again)
		timer_within(c, cpu, best.again < STARVE_LOOK ? best.again : STARVE_LOOK, now);
}

/*
 * On a host with gangs: chooses the next task of `cpu`, which may be `prev` if that wants to run
 * on.
 */
RARE void dispatch_gangs(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	u64 now = now_ns();
	struct gang_choice best = {.bound = t ? fair_current(c, now) : 0, .now = now};
	bool better, looks;
	u32 rank;

	if (t)
		demand_charge(t, now);
	rank = rank_of_current(cpu, c, prev, t, now);
	best.stays = stays_as(rank, t);
	best_waiting(cpu, &best);
	if (best.slot_over || (t && slot_is_over(t, now))) {
		strict_open_slot(cpu, now);
		rank = rank_of_current(cpu, c, prev, t, now);
		best.stays = stays_as(rank, t);
		best_waiting(cpu, &best);
	}
	rank = rank_beside(rank, best.bound, &best, cpu, t ? compared(t->member, t->vm) : NO_VM);
	rank = rank_beside_woken(rank, t, &best, c);
	looks = rank >= RANK_ORDINARY && best.rank <= rank && balance_is_due(c, now);
	if (looks && pull_busy(cpu, best.awake, knobs.slice, now))
		return;
	if (rank < RANK_ORDINARY && best.rank < RANK_ORDINARY && pull_owner(cpu))
		return;
	better = best.rank > rank || (best.rank == rank && equal_goes_first(t, rank, &best, c));
	if (better && best.id && take(cpu, best.id)) {
		store(c->brief, t && interrupts_woken(t, &best, c));
		return;
	}
	if (t && looks && finds_idle_core(cpu, c, prev, t)) {
		t->over = TURN_MOVES;
		idle_for_now(cpu, c, best.again, now);
	} else if (t && rank != RANK_NOT) {
		if (t->fresh && !before(now, shared(c->slice_end)))
			t->fresh = 0;
		keep(cpu, prev, t, now);
	} else {
		if (best.spare && !best.id)
			spare_for_stopped(cpu, now);
		if (!pull_idle(cpu))
			idle_for_now(cpu, c, best.again, now);
	}
}

#endif
