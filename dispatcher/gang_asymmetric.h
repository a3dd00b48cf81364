/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asymmetric co-scheduling: Jupiter's control over vCPUs (dissertation, §4.4.1). Each vCPU of a VM
 * has a weight among its siblings and a rescheduling latency of its own, since not all of them need
 * the same priority for the VM to make progress. The policy finds out which they need, period by
 * period; this file enforces it.
 *
 * The weight scales the vCPU's share of the VM's weight (fair.h). The latency is a bound: a vCPU
 * that has been ready for this long is next, before all tasks whose deadline has not come; among
 * several, the one with the earliest deadline is. The latency counts from a wake-up, or from when
 * the vCPU lost its pCPU, or could have lost it because its slice was over. The bound holds for as
 * much run time in a period as the policy has allotted to the vCPU, its entitlement. So a vCPU that
 * has used it up out of turn waits like any other task, until its next period begins. Only a
 * latency below the neutral one is a promise: not every vCPU can be next within a latency that all
 * have, and in fair order each has its turn anyway.
 *
 * A pCPU picks again when a slice ends. So a vCPU is next if its deadline comes before the end of
 * one more slice; if it is the one whose slice has ended, it goes on. Otherwise a vCPU that
 * computes without a pause would have no more than fair order gives it, however low its latency is.
 * But it does not keep out tasks that woke and would preempt it by fair order.
 *
 * A vCPU that wakes preempts the running task if its deadline comes before that task's slice ends,
 * since the timer of another pCPU cannot be set from here; otherwise it waits. The latency also
 * scales the lead in virtual time that a waking vCPU needs to preempt at once (in Linux that lead,
 * sched_wakeup_granularity, determines the latency, and is one for all tasks).
 *
 * The deadline is in t->urgent_at, by which gang_pick.h orders urgent tasks of all modes.
 *
 * Two things are counted for the policy: starts after the latency has passed, and the siblings that
 * woke a vCPU. The waker is the task that runs on the pCPU that the wake-up comes from: the sibling
 * itself if its IPI causes an exit, but if hardware delivers IPIs, whichever task was interrupted.
 */
#ifndef CORUN_GANG_ASYMMETRIC_H
#define CORUN_GANG_ASYMMETRIC_H

#include "gang.h"

/* Bounds of shares: from SHARE_ONE divided by this to SHARE_ONE times this. */
#define SHARE_RANGE 64u

/* Sets the share of `t`; the active weight of its VM follows. */
static inline void asymmetric_weigh(struct task_struct *p, struct task_ctx *t, struct vm_ctx *vm,
				    u32 share)
{
	u32 weight;

	if (share == t->share)
		return;
	t->share = share;
	if (!t->active_weight)
		return;
	weight = fair_weight(p, t);
	fetch_add(vm->active_weight, (s64)weight - (s64)t->active_weight);
	t->active_weight = weight;
}

/*
 * How long `t` may still run in its period under the promise of its latency. If it runs, its run
 * time since it was last charged counts too, all of it in the present period.
 */
static inline u64 asymmetric_left(struct task_ctx *t, u64 allotment, u64 period, u64 now)
{
	u64 used;

	if (!before(now, t->allot_end)) {
		t->allot_end = now + period;
		t->allot_run = t->sum.run;
	}
	used = t->sum.run - t->allot_run;
	if (t->state == TASK_RUNNING && before(t->charged, now))
		used += now - t->charged;
	return used < allotment ? allotment - used : 0;
}

/* Reads what the policy wants for `t`; if `t` becomes `ready`, sets its deadline. */
static inline void asymmetric_claim(struct task_struct *p, struct task_ctx *t, struct gang *g,
				    bool ready, u64 now)
{
	struct task_conf *conf = task_conf_of(p);
	u64 latency, left, neutral, allotment, period;
	u32 share;

	t->claims = 1;
	t->gran = knobs.wakeup_gran;
	t->home = conf ? (s32)shared(conf->home) : 0;
	share = conf ? shared(conf->share) : 0;
	if (share && share < SHARE_ONE / SHARE_RANGE)
		share = SHARE_ONE / SHARE_RANGE;
	if (share > SHARE_ONE * SHARE_RANGE)
		share = SHARE_ONE * SHARE_RANGE;
	asymmetric_weigh(p, t, g->vm, share);
	latency = conf ? shared(conf->latency) : 0;
	if (!latency) {
		t->urgent_at = 0;
		return;
	}
	neutral = shared(g->conf->neutral);
	if (latency > CHARGE_MAX)
		latency = CHARGE_MAX;
	t->gran = knobs.wakeup_gran * latency / (neutral ? neutral : 1);
	if (!ready)
		return;
	if (latency >= neutral) {
		t->urgent_at = 0;
		return;
	}
	/* One recorded input per statement: compilers evaluate arguments in different orders. */
	allotment = shared(conf->allotment);
	period = shared(g->conf->period);
	left = asymmetric_left(t, allotment, period, now);
	t->urgent_at = (left ? now : t->allot_end) + latency;
	if (!allotment)
		t->urgent_at = 0;
}

/*
 * The slice of `t`, which runs and wants to go on, may be over: then `t` gets a deadline as if it
 * lost its pCPU now. It gets none if it yielded: then it takes its place in fair order.
 */
static inline void asymmetric_slice_over(struct task_struct *p, struct task_ctx *t, struct gang *g,
					 u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);

	if (c && !(t->over & TURN_OVER) && !before(now, shared(c->slice_end)))
		asymmetric_claim(p, t, g, true, now);
}

/* The VM of `t` is in another mode now: ends its claims. */
static inline void asymmetric_leave(struct task_struct *p, struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (vm)
		asymmetric_weigh(p, t, vm, 0);
	t->share = 0;
	t->home = 0;
	t->claims = 0;
	t->urgent_at = 0;
}

/* `t` got a pCPU: it has met its deadline, or is late. */
static inline void asymmetric_turn(struct task_ctx *t, u64 now)
{
	if (t->urgent_at && before(t->urgent_at, now))
		t->sum.late++;
	t->urgent_at = 0;
}

/* Does the deadline of `t`, which has just been queued on `c`, come before `c` picks again? */
static inline bool asymmetric_preempts(struct task_ctx *t, struct cpu_ctx *c)
{
	return t->woken && t->urgent_at && before(t->urgent_at, shared(c->slice_end));
}

static inline u32 asymmetric_rank(struct ranked *r)
{
	if (r->urgent_at && before(r->urgent_at, r->now + knobs.slice))
		return RANK_URGENT;
	return RANK_ORDINARY;
}

/* `t` woke up: if a sibling woke it, remembers that sibling. */
static inline void asymmetric_woken(struct task_ctx *t, u64 now)
{
	u64 oldest = ~0ull;
	u32 place = 0;
	u32 id;
	u32 i;

	if (waker_slot() != t->vm)
		return;
	id = waker_id();
	repeat (i, WAKERS) {
		u64 at = t->woken_at[opaque(i) % WAKERS];

		if (t->wakers[opaque(i) % WAKERS] == id) {
			place = i;
			break;
		}
		if (at < oldest) {
			oldest = at;
			place = i;
		}
	}
	t->wakers[opaque(place) % WAKERS] = id;
	t->woken_at[opaque(place) % WAKERS] = now;
}

/*
 * Should `t`, which is ready, be queued at its home rather than where it is? Not if a sibling is
 * already at the home, or if the load there is higher.
 */
static inline bool asymmetric_goes_home(struct task_struct *p, struct task_ctx *t)
{
	s32 home = t->home - 1;
	struct cpu_ctx *there = t->claims && t->home ? cpu_at(home) : NULL;
	struct cpu_ctx *here = cpu_at(t->cpu);
	u64 load;

	if (!there || !here || home == t->cpu || !allowed(p, home) || siblings_at(t, home))
		return false;
	load = shared(there->load);
	return load <= shared(here->load);
}

#endif
