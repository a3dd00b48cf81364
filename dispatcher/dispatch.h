/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task a pCPU runs next, in fair order.
 *
 * A pCPU whose task has left takes the next one of its own queue, else pulls one that waits
 * elsewhere (pull.h), else idles. If its task wants to go on, two more questions decide: is its
 * turn over (turn.h), and is it owed less than the first waiting task?
 *
 * Gangs and SMT cores choose otherwise: dispatch_gangs.h, dispatch_core.h.
 */
#ifndef CORUN_DISPATCH_H
#define CORUN_DISPATCH_H

#include "core.h"
#include "fair.h"
#include "gang_events.h"
#include "micro.h"
#include "occupancy.h"
#include "placement.h"
#include "platform/platform.h"
#include "pull.h"
#include "quota.h"
#include "slice.h"
#include "turn.h"
#include "yield.h"

/*
 * The rate at which the virtual time of `t`, of a VM or a cgroup, grows on `c`, which it gets or
 * keeps. It changes when the weights of other tasks do.
 */
RARE u64 turn_rate(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 now)
{
	u64 rate;

	/* Before fair_clock(): a pCPU's clock does not advance with a task that is urgent. */
	gang_awaited(t, now);
	rate = fair_rate(p, t);
	occupancy_reload(t, c, fair_load_at(rate));
	return rate;
}

/*
 * May `t` have its pCPU before it is the first in fair order? With gangs it may, because tasks that
 * are owed more are stopped, or because siblings have called it; and with micro slices, when it is
 * due.
 */
static inline bool comes_early(struct task_ctx *t)
{
	return with_gangs() || (t->due && with_micro());
}

/*
 * How far does the clock of `cpu` advance when a task at `vtime` gets it, perhaps early? No further
 * than to the first waiting task: otherwise the waiting tasks, and all that wake, would lose what
 * they are owed. (A task of little weight that starts early is far ahead.)
 */
CALLED u64 clock_reaches(s32 cpu, u64 vtime)
{
	struct task_struct *p;

	for_each_queued (p, cpu) {
		u64 first = queued_vtime(p);

		if (before(first, vtime))
			vtime = first;
		break;
	}
	return vtime;
}

/*
 * `t` gets `cpu`, for a slice or for the rest of its turn: the pCPU's clock advances, and the slice
 * begins.
 */
INLINED void turn_begins(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			 u64 now)
{
	u64 slice = turn_slice(p, t);
	bool goes_on = t->rest != 0;
	u64 rate = fair_alone(t) ? fair_own_rate(weight_of(p)) : turn_rate(p, t, c, now);
	u64 reached = comes_early(t) ? clock_reaches(cpu, t->vtime) : t->vtime;

	fair_clock(t, c, rate, goes_on || quota_out(t, now), reached, now);
	if (goes_on)
		t->rest = 0;
	else
		turn_starts(t, c);
	slice = gang_turn(p, t, c, slice, now);
	core_turn(p, t, c, cpu, now);
	slice_begin(c, cpu, quota_turn(t, c, slice, now), now);
	if (!t->due && with_micro())
		micro_look(c, cpu, now);
}

/* May `prev`, whose turn is over, have another one? */
static inline bool may_go_on(struct task_struct *prev, struct task_ctx *t, u64 now)
{
	return is_settled(t) && still_admitted(prev, t, true) && !quota_out(t, now);
}

/*
 * `prev` keeps `cpu` for another slice, or for the rest of this one, and is charged up to now. If
 * dispatch tried to move a task from a queue before, the kernel unlocked the runqueue for that:
 * `prev` may be in another scheduling class by now, and counted nowhere. Hence the checks.
 */
CALLED u32 keep(s32 cpu, struct task_struct *prev TRUSTED, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c || !t || t->cpu != cpu)
		return 0;
	set_slice(prev, kernel_slice(turn_slice(prev, t)));
	quota_settle(t, now);
	fair_charge(prev, t, now);
	turn_begins(prev, t, c, cpu, now);
	return 0;
}

/*
 * `cpu` idles, unless a task has just been queued here. A callback that queues a task queues it
 * first and reads `idle` afterwards; here `idle` is written first and the queue read afterwards: at
 * least one of the two sees the other's write.
 */
static inline void idles(s32 cpu, struct cpu_ctx *c)
{
	exchange(c->idle, 1);
	if (queue_length(cpu) && move_first(cpu))
		store(c->idle, 0);
}

/* No task waits for `cpu`: it pulls one that waits elsewhere, or idles. */
RARE void dispatch_idle(s32 cpu, struct cpu_ctx *c)
{
	if (!pull_idle(cpu))
		idles(cpu, c);
}

/*
 * `prev` still wants `cpu`: it goes on, unless its turn is over or a task that woke interrupts it.
 * In this order:
 *
 * 1. what is left of its turn is noted (turn.h);
 * 2. between turns, if a look at other pCPUs is due, a task pulled from a busier one takes over;
 * 3. in the midst of a turn, a task that woke and is owed so much more takes over;
 * 4. in the midst of a turn, with micro slices, a task that is due takes over unless `prev` has
 *    micro slices itself; else `prev` goes on;
 * 5. the next in the queue takes over, unless `prev` may go on, does not let others go first, and
 *    is still the first;
 * 6. `prev` may not go on: as if it had left;
 * 7. between turns, if a look is due, `prev` leaves for an idle core if there is one, or for an
 *    idle pCPU if others wait here, the next of which takes over;
 * 8. else `prev` goes on.
 */
RARE void dispatch_or_keep(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	u64 now = now_ns();
	bool stays = may_go_on(prev, t, now);
	bool looks, ran;

	turn_cut(t, c, now);
	looks = !t->rest && balance_is_due(c, now);
	ran = looks && shared(c->runs);
	if (looks && pull_busy(cpu, 0, slice_of(prev), now))
		return;
	/*
	 * During a move that fails, the kernel unlocks the runqueue: a task that woke may have been
	 * given this pCPU meanwhile (may_hand_over()). If that task is taken away again before it
	 * runs, this pCPU idles, and `idle` must say so: `prev`, which is queued again, has it
	 * called.
	 */
	if (ran && !shared(c->runs)) {
		exchange(c->idle, 1);
		t->over |= TURN_OVER;
		return;
	}
	if (stays && t->rest && move_fresh(cpu, fair_current(c, now)))
		return;
	if (stays && t->rest && with_micro()) {
		if (t->due || !move_due(cpu, shared(c->vnow), now))
			keep(cpu, prev, t, now);
		return;
	}
	if (!(stays && !lets_others(t) && still_first(c, cpu, now)) && move_next(cpu, c)) {
		t->over |= TURN_OVER;
		return;
	}
	if (!stays) {
		dispatch_idle(cpu, c);
	} else if (looks && (finds_idle_core(cpu, c, prev, t) || makes_room(cpu, prev, t))) {
		t->over = TURN_MOVES;
		if (!move_next(cpu, c))
			idles(cpu, c);
	} else {
		keep(cpu, prev, t, now);
	}
}

/* No task runs on `cpu`: it takes one that waits for it, else one that waits elsewhere. */
static inline void dispatch_next(s32 cpu, struct cpu_ctx *c)
{
	if (!move_next(cpu, c))
		dispatch_idle(cpu, c);
}

#endif
