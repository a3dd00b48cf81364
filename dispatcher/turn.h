/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns: a slice is one turn, whatever comes in between.
 *
 * Who wakes and is owed much takes the pCPU at once, often for a moment only. By fair order whoever
 * is owed most would be next then, and after some of a slice that is never who was interrupted:
 * with a wake-up every 5 ms, slices of 90 ms would last for 5. So who loses its pCPU in the middle
 * of its turn is queued where the turn began in the order, and has the rest of it. What it ran is
 * charged as ever: its next turn comes no sooner for that.
 *
 * Nor does a turn that goes on keep out those who would interrupt it: they go first who have not
 * run since they woke and are owed so much more (fair_preempts()), wherever in the queue they are.
 * Who gives its pCPU up by itself (sched_yield()) has ended its turn.
 *
 * Gangs and SMT cores have orders of their own (gang_pick.h, core.h), without this.
 */
#ifndef CORUN_TURN_H
#define CORUN_TURN_H

#include "fair.h"
#include "micro.h"
#include "platform/platform.h"
#include "slice.h"

/* Most that is left of a turn, ns: slices last a second at most. */
#define REST_MAX 1000000000u
/* How far into a queue move_fresh() looks for one that has just woken (assumed). */
#define TURN_LOOK 32u

/* `t`, which wants to run on, loses `c` or may have to: what is left of its turn? */
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

/* The slice that `t` has next: what is left of its turn, or a new one. */
static inline u64 turn_slice(struct task_struct *p, struct task_ctx *t)
{
	u64 slice = slice_of(p);

	return t->rest && t->rest < slice ? t->rest : slice;
}

/*
 * The turn of `t` on `c` was interrupted: it has the rest of `*slice`, and is queued at `*vtime` in
 * the order, before its equals when its turn began.
 */
static inline void turn_rest(struct task_ctx *t, struct cpu_ctx *c, u64 *slice, u64 *vtime)
{
	if (t->rest < *slice)
		*slice = t->rest;
	*vtime = shared(c->turn_vtime) - 1;
}

/* `t` has `c`: its turn begins. */
static inline void turn_starts(struct task_ctx *t, struct cpu_ctx *c)
{
	store(c->turn_vtime, t->vtime);
	t->over = 0;
}

/*
 * `p`, which was queued, goes on with its turn. Interrupted again it is queued before where it was,
 * by 1 ns: several turns may have begun at the same place, and each has its pCPU to the end.
 */
static inline void turn_goes_on(struct task_struct *p, struct cpu_ctx *c)
{
	store(c->turn_vtime, queued_vtime(p));
	store(c->cut, 0);
}

/* A waiting task as turns look at it. */
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

/* Was `p`, which waits, interrupted, and is one at `vtime` owed so much more that it has to wait
 * on?
 */
static inline bool waits_on(struct task_struct *p, u64 vtime)
{
	struct waiting w = {};

	return look_at_waiting(p, &w) && w.rest && before(vtime + knobs.wakeup_gran, w.vtime);
}

/*
 * Is the running task still ahead of everybody who waits for its pCPU, so far that a turn is worth
 * it? Of equals, who waits goes first: with slices that are always as long, two would have two
 * turns each else.
 */
static inline bool still_first(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 mine = fair_current(c, now);
	bool cut = shared(c->cut);
	struct task_struct *p;
	bool first = true;

	for_each_queued (p, cpu) {
		if (cut && waits_on(p, mine))
			continue;
		first = before(mine + SLICE_MIN, queued_vtime(p));
		break;
	}
	return first;
}

/* Of those that wait for `cpu`, one that woke and interrupts a turn at `vtime` runs there next. */
CALLED u32 move_fresh(s32 cpu, u64 vtime)
{
	struct task_struct *p;
	u32 looked = 0;
	u32 moved = 0;

	for_each_queued (p, cpu) {
		struct waiting w = {};

		if (looked++ == TURN_LOOK || !before(queued_vtime(p) + knobs.wakeup_gran, vtime) ||
		    !look_at_waiting(p, &w))
			break;
		if (w.fresh != FRESH || !before(w.vtime + knobs.wakeup_gran, vtime))
			continue;
		moved = move_queued(p, cpu);
		break;
	}
	return moved;
}

/* The virtual time of who is first for `cpu`, if its turn was interrupted; else 0. */
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

/* Somebody who waits for `cpu` was perhaps interrupted: does one who woke run there next? */
RARE bool move_before_cut(s32 cpu, struct cpu_ctx *c)
{
	u64 vtime = interrupted_vtime(cpu);

	if (vtime)
		return move_fresh(cpu, vtime);
	store(c->cut, 0);
	return false;
}

/* The next of those that wait for `cpu` runs there: who is due, whose turn goes on, or whose it is.
 */
static inline bool move_next(s32 cpu, struct cpu_ctx *c)
{
	if (with_micro() && move_due(cpu, shared(c->vnow), now_ns()))
		return true;
	return (shared(c->cut) && move_before_cut(cpu, c)) || move_first(cpu);
}

#endif
