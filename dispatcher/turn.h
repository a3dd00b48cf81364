/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: a slice is one turn, even if it is interrupted.
 *
 * A task that wakes and is owed much takes the pCPU at once, often for a moment only. By fair order
 * the task that is owed most would be next then, which after part of a slice is never the
 * interrupted one: with a wake-up every 5 ms, slices of 90 ms would last for 5 ms. So a task that
 * loses its pCPU in the middle of its turn is queued at the place in the order where the turn
 * began, and gets the rest of the turn. What it ran is charged as usual, so its next turn comes no
 * sooner.
 *
 * Nor does a turn that is to go on keep out tasks that would interrupt it: tasks that have not run
 * since they woke and are owed so much more (fair_preempts()) go first, wherever in the queue they
 * are. A task that gives its pCPU up by itself (sched_yield()) has ended its turn.
 *
 * Gangs and SMT cores have orders of their own (gang_pick.h, core.h), without this.
 */
#ifndef CORUN_TURN_H
#define CORUN_TURN_H

#include "fair.h"
#include "grace.h"
#include "micro.h"
#include "platform/platform.h"
#include "slice.h"

/* Bound of what is left of a turn, ns: slices last a second at most. */
#define REST_MAX 1000000000u
/* At how many tasks in a queue move_fresh() looks for one that has just woken (assumed). */
#define TURN_LOOK 32u

/* `t`, which wants to run on, loses `c` or may have to: notes what is left of its turn. */
static inline void turn_cut(struct task_ctx *t, struct cpu_ctx *c, u64 now)
{
	u64 end;

	t->rest = 0;
	if (t->over || with_gangs() || with_cores())
		return;
	end = shared(c->slice_end);
	if (!before(now + SLICE_MIN, end))
		return;
	t->rest = end - now < REST_MAX ? (u32)(end - now) : REST_MAX;
	store(c->cut, 1);
}

/* The slice that `t` gets next: what is left of its turn, or a new one. */
static inline u64 turn_slice(struct task_struct *p, struct task_ctx *t)
{
	u64 slice = slice_of(p);

	return t->rest && t->rest < slice ? t->rest : slice;
}

/*
 * The turn of `t` on `c` was interrupted: it gets the rest of `*slice`, and is queued at `*vtime`,
 * before the tasks that were its equals when its turn began.
 */
static inline void turn_rest(struct task_ctx *t, struct cpu_ctx *c, u64 *slice, u64 *vtime)
{
	if (t->rest < *slice)
		*slice = t->rest;
	*vtime = shared(c->turn_vtime) - 1;
}

/* `t` gets `c`: its turn begins. */
static inline void turn_starts(struct task_ctx *t, struct cpu_ctx *c)
{
	store(c->turn_vtime, t->vtime);
	t->over = 0;
	grace_none(c);
}

/*
 * `p`, which was queued, goes on with its turn. If it is interrupted again it is queued 1 ns before
 * its last place: several turns may have begun at the same place, and each keeps its pCPU to the
 * end.
 */
static inline void turn_goes_on(struct task_struct *p, struct cpu_ctx *c, u64 now)
{
	grace_begins(c, now);
	store(c->turn_vtime, queued_vtime(p));
	store(c->cut, 0);
}

/* What turns look at in a waiting task. */
struct waiting {
	u64 vtime;
	u32 rest;
	u16 fresh;
};

static inline bool look_at_waiting(struct task_struct *p, struct waiting *w)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (!t)
		return false;
	w->vtime = shared(t->vtime);
	w->rest = shared(t->rest);
	w->fresh = shared(t->fresh);
	return true;
}

/*
 * Was `p`, which waits, interrupted, and is a task at `vtime` owed so much more that `p` has to go
 * on waiting?
 */
static inline bool waits_on(struct task_struct *p, struct cpu_ctx *c, u64 vtime)
{
	u64 gran = fair_span(c, NO_LOAD, knobs.wakeup_gran);
	struct waiting w = {};

	return look_at_waiting(p, &w) && w.rest && before(vtime + gran, w.vtime);
}

/*
 * Is the running task owed more than every task that waits for its pCPU, by so much that a turn is
 * worth it? Of equals, the waiting one goes first: with slices of equal length, two equal tasks
 * would otherwise have two turns each.
 */
static inline bool still_first(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 mine = fair_current(c, now);
	u64 worth = fair_span(c, NO_LOAD, SLICE_MIN);
	bool cut = shared(c->cut);
	struct task_struct *p;
	bool first = true;

	for_each_queued (p, cpu) {
		if (cut && waits_on(p, c, mine))
			continue;
		first = before(mine + worth, queued_vtime(p));
		break;
	}
	return first;
}

/* Runs next on `cpu` a waiting task that woke and interrupts a turn at `vtime`. */
CALLED u32 move_fresh(s32 cpu, u64 vtime)
{
	struct cpu_ctx *c = cpu_at(cpu);
	u64 gran = c ? fair_span(c, NO_LOAD, knobs.wakeup_gran) : 0;
	struct task_struct *p;
	u32 looked = 0;
	u32 moved = 0;

	for_each_queued (p, cpu) {
		struct waiting w = {};

		if (looked++ == TURN_LOOK || !before(queued_vtime(p) + gran, vtime) ||
		    !look_at_waiting(p, &w))
			break;
		if (w.fresh != FRESH || !before(w.vtime + gran, vtime))
			continue;
		moved = move_queued(p, cpu);
		break;
	}
	return moved;
}

/* The virtual time of the first task in the queue of `cpu`, if its turn was interrupted; else 0. */
static inline u64 interrupted_vtime(s32 cpu)
{
	struct waiting w = {};
	struct task_struct *p;

	for_each_queued (p, cpu) {
		look_at_waiting(p, &w);
		break;
	}
	return w.rest ? w.vtime : 0;
}

/* A task that waits for `cpu` may have been interrupted: does one that woke run there next? */
RARE bool move_before_cut(s32 cpu, struct cpu_ctx *c)
{
	u64 vtime = interrupted_vtime(cpu);

	if (vtime)
		return move_fresh(cpu, vtime);
	store(c->cut, 0);
	return false;
}

/*
 * Runs the next waiting task on `cpu`: one that is due (micro.h), else one that interrupts a turn,
 * else the first in order.
 */
static inline bool move_next(s32 cpu, struct cpu_ctx *c)
{
	if (with_micro() && move_due(cpu, shared(c->vnow), now_ns()))
		return true;
	return (shared(c->cut) && move_before_cut(cpu, c)) || move_first(cpu);
}

#endif
