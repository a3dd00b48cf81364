/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens to a task from becoming ready to being queued.
 *
 * make_ready() gives a task a place (placement.h) and a virtual time by the clock there.
 * enqueue_at() queues it in fair order (fair.h), or with the rest of its turn (turn.h), and
 * interrupts its pCPU if the task should not wait for the next switch. park() queues it apart if
 * its quota is used up (quota.h).
 */
#ifndef CORUN_ENQUEUE_H
#define CORUN_ENQUEUE_H

#include "core.h"
#include "cookie.h"
#include "fair.h"
#include "gang_events.h"
#include "idle.h"
#include "micro.h"
#include "placement.h"
#include "platform/platform.h"
#include "quota.h"
#include "retention.h"
#include "slice.h"
#include "task_state.h"
#include "turn.h"

/*
 * `t`, which has waited, is more than `ahead` ahead of `here`, the clock of its pCPU. It may keep
 * that lead up to the cost of two of its turns: for a task that weighs little, or shares its VM's
 * weight with many, a single turn costs much. If that were forgiven, the task would get several
 * times its share by halting for a moment after each turn. A task with micro slices may have run as
 * far ahead as they allow (micro.h).
 */
RARE void limit_lead(struct task_struct *p, struct task_ctx *t, u64 here, u64 ahead)
{
	u64 rate = fair_rate(p, t);
	u64 turns = fair_cost(2 * slice_of(p), rate);

	if (ahead < turns)
		ahead = turns;
	if (t->due && with_micro() && ahead < MICRO_LEAD)
		ahead = MICRO_LEAD;
	if (before(here + ahead, t->vtime))
		t->vtime = here + ahead;
}

/*
 * `t`, which did not want to run for `away` ns, is behind `here`, the clock of `c`, by more than a
 * credit. If it was away for no longer than two of its turns, it keeps what it is owed for having
 * been ready, up to what two turns cost: with long slices it was ready for long, and would wait for
 * as long again if that were forgotten whenever it halts for a moment. It is not owed what others
 * ran while it was away: the clock advanced by that (assumed: as fast as with the load that is
 * there now).
 */
RARE void limit_lag(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 here,
		    u64 away)
{
	u64 credit = fair_span(c, t->load, knobs.sleeper_credit);
	u64 others = shared(c->load) - t->load;
	u64 lag = here - t->vtime;
	u64 turns = 2 * slice_of(p);
	u64 owed = 0;

	if (away <= turns && others && others < ~0u && lag > away * WEIGHT_NEUTRAL / others)
		owed = lag - away * WEIGHT_NEUTRAL / others;
	turns = fair_cost(turns, fair_rate(p, t));
	if (owed > turns)
		owed = turns;
	t->vtime = here - (owed < credit ? credit : owed);
}

/*
 * `t`, which was ready all the time, has come from another pCPU to one whose clock is `here`. It
 * may be a slice behind that clock at most: otherwise it would run for long before any task that
 * wakes. A task that a quota kept waiting is owed no more than one that slept.
 */
static inline void bound_lag(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 here)
{
	u64 slice = t->state == TASK_THROTTLED ? 0 : slice_of(p);

	if (slice < knobs.sleeper_credit)
		slice = knobs.sleeper_credit;
	t->vtime = later(t->vtime, here - fair_span(c, t->load, slice));
}

/*
 * `t`, placed on the pCPU of `c`, gets a virtual time by the clock there. Either it was `away` for
 * so many ns; or it was `ready` before and had to leave its pCPU: then all of its lead still
 * counts, or it would get more than its share by moving. Inlined, since a call would add to the
 * cost of each wake-up (docs/cost.md).
 */
INLINED void arrive(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, bool ready,
		    u64 away)
{
	u64 was = t->vtime;
	u64 here, ahead;

	if (ready && t->clock_cpu == t->cpu)
		return;
	here = fair_arrive(t, c, t->cpu);
	t->rest = 0;
	if (ready) {
		bound_lag(p, t, c, here);
		gang_moved(t, c, was);
		return;
	}
	if (before(t->vtime + fair_span(c, t->load, knobs.sleeper_credit), here))
		limit_lag(p, t, c, here, away);
	ahead = gang_ahead(t);
	here = gang_clock(c, here);
	if (before(here + ahead, t->vtime))
		limit_lead(p, t, here, ahead);
}

/* Chooses a pCPU for `t`, which becomes ready or has to leave its pCPU. Returns it. */
INLINED struct cpu_ctx *make_ready(struct task_struct *p, struct task_ctx *t, s32 prev, u64 now)
{
	bool ready = t->state == TASK_READY;
	u64 away = ready || before(now, t->since) ? 0 : now - t->since;
	struct cpu_ctx *c;

	gang_join(p, t, now);
	if (t->state == TASK_WAITING) {
		t->sum.wakeups++;
		enter(t, TASK_READY, now);
	} else if (t->state == TASK_THROTTLED) {
		unpark(p, t, now);
	}
	if (!ready) {
		t->woken = 1;
		t->fresh = FRESH;
		t->rest = 0;
	}
	activate(p, t);
	/*
	 * The hold is charged by the weights that want to run, this task's included: after
	 * activate().
	 */
	if (!ready && t->held_since)
		hold_end(p, t, now);
	c = place(p, t, prev);
	if (c)
		arrive(p, t, c, ready, away);
	return c;
}

/*
 * wake_pcpu() for a hardware thread with a partner: if `t` does not preempt the task that runs
 * there, another hardware thread that idles is called for it.
 */
RARE void wake_core(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u32 how, u64 now)
{
	s32 cpu = t->cpu;

	if (core_preempts(p, t, c, cpu, how, now)) {
		kick(cpu, KICK_PREEMPT);
		return;
	}
	/*
	 * If no task of this scheduler runs there, `cpu` may idle without dispatch having been
	 * called since, so that its `idle` is 0.
	 */
	if (with_cookies(cpu) && !shared(c->runs))
		kick(cpu, KICK_IDLE);
	core_call(p, t, cpu, now);
}

/*
 * Makes `cpu` look at its queue if `t`, just put there, should not wait for the next switch.
 * `fair`: fair order says that it should not, since it is owed so much.
 */
static inline void wake_pcpu(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			     bool fair, u64 now)
{
	u32 how = fair ? WAKE_FAIR : 0;

	/* See idles(). */
	if (shared_after(c->idle)) {
		kick(cpu, KICK_IDLE);
		if (t->woken == WOKEN_UNANSWERED)
			call_other(p, cpu);
		return;
	}
	/* A task of a higher class may have taken it from one that has been pulled away. */
	if (t->woken == WOKEN_UNANSWERED && runs_nothing(c))
		call_other(p, cpu);
	/* Where `cpu` is not the pCPU of its runqueue, the kernel inserts `p` only after this
	 * callback: `cpu` may go idle in between, whatever was read above. */
	if (task_cpu_of(p) != cpu) {
		kick(cpu, KICK_IDLE);
		how |= WAKE_AFAR;
	}
	if (partner_of(cpu) != NO_PCPU)
		wake_core(p, t, c, how, now);
	else if (gang_preempts(t, c, cpu, now, fair))
		kick(cpu, KICK_PREEMPT);
}

/*
 * `t`, which woke, is owed more than the task that runs on its pCPU: may it be given that pCPU at
 * once, without going through the queue? Not if another task was just given the pCPU (`runs` is 0
 * then): these two go in fair order. Nor if no task of this class runs there: other pCPUs cannot
 * pull a task that was handed over, and a task of a higher class may run for long.
 */
static inline bool may_hand_over(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c)
{
	return !with_gangs() && !with_cores() && shared(c->runs) && task_cpu_of(p) == t->cpu;
}

/* `t`, placed on the pCPU of `c`, is queued there, or runs there next. */
static inline void enqueue_at(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 now,
			      u64 enq_flags)
{
	u64 slice = slice_of(p), vtime = t->vtime;
	bool fair = t->woken && fair_preempts(t, c, now);

	if (fair && grace_puts_off(c, t->cpu, now))
		fair = false;

	if (t->rest)
		turn_rest(t, c, &slice, &vtime);
	slice = kernel_slice(slice);
	if (fair && may_hand_over(p, t, c)) {
		store(c->runs, 0);
		insert_next(p, t->cpu, slice, enq_flags);
	} else {
		insert(p, t->cpu, slice, vtime, enq_flags);
		wake_pcpu(p, t, c, t->cpu, fair, now);
		if (!t->woken)
			offer(p, t, c, t->cpu, now);
		if (t->due && with_micro())
			micro_waits(t, c, t->cpu, now);
	}
	t->woken = 0;
	t->queued = 1;
}

/* May `t`, queued again, wait where it was? */
static inline bool may_stay(struct task_struct *p, struct task_ctx *t)
{
	return is_settled(t) && still_admitted(p, t, false);
}

/*
 * A quota of `t` is used up for another `wait` ns: until then `t` counts as not wanting to run. If
 * the kernel only took it out of the queue to change it, which a user may cause any number of
 * times, the time since it was first parked goes on.
 */
RARE void park(struct task_struct *p, struct task_ctx *t, u64 wait, u64 now, u64 enq_flags)
{
	s32 here = this_cpu();
	struct cpu_ctx *c = cpu_at(here);

	t->parked_for = t->cpu;
	t->parked_active = t->active_weight;
	t->parked_weight = t->group_weight;
	/* When it is queued again it is owed as much as one that woke. */
	t->fresh = FRESH;
	t->parked_clock = clock_of(t);
	leave(t);
	enter(t, TASK_THROTTLED, now);
	if (!t->parked_since)
		t->parked_since = now;
	if (before(t->parked_since + PARK_MAX, now + wait))
		wait = t->parked_since + PARK_MAX - now;
	/* The parked are in order of when they are looked at next. */
	insert(p, parking_of(here), kernel_slice(slice_of(p)), now + wait, enq_flags);
	if (c)
		release_in(c, here, wait, now);
}

#endif
