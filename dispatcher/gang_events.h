/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens to a vCPU, told to its gang: it wakes, is queued, starts, stops. The gang answers
 * whether it may preempt, for how long it may run, and when to look at it again.
 *
 * The callbacks ask here; each mode's own rules are in its header (gang.h). While no plan asks for
 * gangs (with_gangs()), all modes are GANG_NONE; what is left of the last plan's gangs is put away
 * as each vCPU comes by.
 */
#ifndef CORUN_GANG_EVENTS_H
#define CORUN_GANG_EVENTS_H

#include "gang.h"
#include "gang_asymmetric.h"
#include "gang_demand.h"
#include "gang_dynamic.h"
#include "gang_pick.h"
#include "gang_relaxed.h"
#include "gang_strict.h"
#include "platform/platform.h"

/* `t` wants to run: where progress is compared, its own is from now on; what it may claim is known.
 */
RARE void gang_join_one(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	if (g.conf && g.mode == GANG_ASYMMETRIC)
		asymmetric_claim(p, t, &g, t->state == TASK_WAITING, now);
	else if (t->claims)
		asymmetric_leave(p, t);
	if (g.ctx && !t->member && is_relaxed(&g))
		relaxed_join(&g, t, id_of(p), now);
}

static inline void gang_join(struct task_struct *p, struct task_ctx *t, u64 now)
{
	if (t->vm != NO_VM && (t->claims || with_gangs()))
		gang_join_one(p, t, now);
}

/* `t`, of a gang, has a pCPU from now on, or keeps it: because a sibling waits for it? */
RARE void gang_awaited_one(struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	if (g.conf && g.mode == GANG_DEMAND)
		demand_awaited(t, &g, now);
}

static inline void gang_awaited(struct task_ctx *t, u64 now)
{
	if (has_gang(t))
		gang_awaited_one(t, now);
}

/* `t`, of a gang, was given `cpu`; its slice has begun. */
RARE void gang_started(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
		       u64 now)
{
	struct gang g = gang_of(t);
	u32 id;

	if (g.vm && g.ctx && g.mode == GANG_DYNAMIC) {
		/* One tap per expression: compilers evaluate arguments in different orders. */
		id = id_of(p);
		dynamic_started(&g, cpu, id, shared(c->slice_end), now);
	}
	if (g.vm && g.conf && g.ctx && is_relaxed(&g)) {
		id = id_of(p);
		relaxed_started(&g, t->member, cpu, id, shared(c->slice_end), now);
	}
}

/* `t`, of a gang, began on `cpu`: may it still? */
RARE void gang_stays(struct task_ctx *t, struct cpu_ctx *c, s32 cpu)
{
	struct gang g = gang_of(t);

	if (g.vm && g.conf && g.mode == GANG_STRICT)
		strict_began(&g, c, cpu);
}

/* How long `t`, of a gang, may have of `slice` ns. */
RARE u64 gang_slice_one(struct task_ctx *t, u64 slice, u64 now)
{
	struct gang g = gang_of(t);
	u64 end;

	if (g.mode == GANG_STRICT) {
		end = shared(slots.end);
		slice = before(now, end) ? end - now : slice;
	}
	return slice;
}

/* `t`, a vCPU, has a pCPU from now on, or keeps it: for how long of `slice` ns? */
static inline u64 gang_turn_vcpu(struct task_struct *p, struct task_ctx *t, u64 slice, u64 now)
{
	bool gang = t->claims || with_gangs();

	if (gang)
		gang_join_one(p, t, now);
	if (t->claims)
		asymmetric_turn(t, now);
	if (t->urgent_since) {
		t->urgent_from = now;
		if (t->urgent < slice)
			slice = t->urgent;
	}
	if (gang)
		slice = gang_slice_one(t, slice, now);
	return slice < SLICE_MIN ? SLICE_MIN : slice;
}

/* `t` has `c` from now on, or keeps it: for how long of `slice` ns? */
static inline u64 gang_turn(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 slice,
			    u64 now)
{
	if (t->vm != NO_VM)
		slice = gang_turn_vcpu(p, t, slice, now);
	store(c->cur_vm, t->vm);
	store(c->cur_member, t->member);
	return slice;
}

/* In how many ns at most shall be looked at who runs on `c`, perhaps of a gang? */
RARE u64 gang_timer_one(u64 left, struct cpu_ctx *c)
{
	struct gang g = gang_in(shared(c->cur_vm));
	u64 sample;

	if (!is_relaxed(&g))
		return left;
	sample = shared(g.conf->sample);
	return sample < left ? sample : left;
}

/* In how many ns at most shall be looked at who runs on `cpu`, in a slice that has `left`? */
static inline u64 gang_timer(u64 left, struct cpu_ctx *c)
{
	return with_gangs() ? gang_timer_one(left, c) : left;
}

/* The timer of the busy pCPU `cpu` fired: must who runs there give it up? */
static inline bool gang_sample(struct cpu_ctx *c, s32 cpu, u64 now)
{
	struct gang g = gang_in(shared(c->cur_vm));

	if (!g.vm || !g.conf || !g.ctx)
		return false;
	switch (g.mode) {
	case GANG_STRICT:
		return !slot_is_open(now);
	case GANG_RELAXED:
		return relaxed_sample(&g, shared(c->cur_member), now);
	case GANG_RELAXED_ALL:
		return relaxed_all_sample(&g, shared(c->cur_member), cpu, now);
	default:
		return false;
	}
}

/* `t`, whose progress is compared, is about to enter `state`. */
RARE void gang_state(struct task_ctx *t, u32 state, u64 now)
{
	struct gang g = gang_of(t);

	/* Progress made under another mode is not to be held against anybody if this one comes
	 * back. */
	if (!is_relaxed(&g))
		relaxed_leave(t);
	else if (g.vm && g.conf && g.ctx)
		relaxed_state(&g, t, state, now);
}

/* `t`, of a gang, gives up its pCPU; does it want to run on? */
RARE void gang_stopped_one(struct task_struct *p, struct task_ctx *t, bool runnable, u64 now)
{
	struct gang g = gang_of(t);

	/* Who has yielded takes its place in fair order. Where gangs are, nothing else ends a turn
	 * before its slice. */
	if (g.conf && g.mode == GANG_ASYMMETRIC)
		asymmetric_claim(p, t, &g,
				 runnable && !(t->over & TURN_OVER) && asymmetric_cut_short(t, now),
				 now);
	if (g.ctx && (g.mode == GANG_DYNAMIC || is_relaxed(&g)))
		dynamic_stopped(&g, id_of(p), now);
	if (g.mode == GANG_DEMAND && !runnable)
		store(t->awaited, 0);
}

/* `t` gives up its pCPU; does it want to run on? */
static inline void gang_stopped(struct task_struct *p, struct task_ctx *t, bool runnable, u64 now)
{
	if (t->vm == NO_VM)
		return;
	demand_stopped(t, !runnable, now);
	if (with_gangs())
		gang_stopped_one(p, t, runnable, now);
}

/*
 * `t`, which has gone, was the last of its VM: nobody is stopped or called any more. A sibling that
 * shows up meanwhile is, like any other, better off for it.
 */
static inline void gang_ends(struct task_ctx *t)
{
	struct gang_ctx *ctx = t->vm == NO_VM ? NULL : gang_at(t->vm);

	if (!ctx)
		return;
	store(ctx->stopped, 0);
	store(ctx->until, 0);
}

/* How far ahead of the clock of a pCPU may `t` be queued there, ns of virtual time? */
static inline u64 gang_ahead(struct task_ctx *t)
{
	struct gang g;

	if (!has_gang(t))
		return knobs.max_lead;
	g = gang_of(t);
	return g.conf && g.mode == GANG_DEMAND ? demand_ahead(&g) : knobs.max_lead;
}

/* `t`, of a gang, woke up. */
RARE void gang_woken_one(struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	if (g.conf && g.mode == GANG_DEMAND)
		demand_woken(t, &g, now);
	if (g.mode == GANG_ASYMMETRIC)
		asymmetric_woken(t, now);
}

/* `t`, of a gang, which was ready elsewhere with the virtual time `was`, is on `c` now. */
RARE void gang_moved_one(struct task_ctx *t, struct cpu_ctx *c, u64 was)
{
	struct gang g = gang_of(t);

	if (g.mode == GANG_RELAXED)
		relaxed_moved(t, c, was);
}

static inline void gang_moved(struct task_ctx *t, struct cpu_ctx *c, u64 was)
{
	if (t->member && has_gang(t))
		gang_moved_one(t, c, was);
}

/* `t` woke up: on the pCPU where this is, who wakes it runs. Inlined, as arrive(). */
INLINED void gang_woken(struct task_ctx *t, u64 now)
{
	if (has_gang(t))
		gang_woken_one(t, now);
}

/* Had `t` better be elsewhere than where it is queued or runs? */
static inline bool gang_moves(struct task_struct *p, struct task_ctx *t)
{
	return t->claims && asymmetric_goes_home(p, t);
}

/* Shall `t`, of a gang, just queued on `cpu`, which is busy, have it at once? */
RARE bool gang_preempts_one(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now, bool fair)
{
	struct gang g = gang_of(t);
	struct ranked r = ranked(t, cpu, false, now);
	u32 rank, runs;

	if (g.mode == GANG_NONE)
		return fair;
	if (g.mode == GANG_ASYMMETRIC)
		return asymmetric_preempts(t, c) || fair;
	if (g.mode == GANG_DEMAND)
		r.awaited = shared(t->awaited); /* it was being placed: awaited.h */
	rank = rank_of(&r);
	if (g.vm && g.conf && g.mode == GANG_STRICT) {
		runs = shared(c->cur_vm);
		/* Whose slot it is takes it back from who fills it. */
		if (rank == RANK_ORDINARY && runs != NO_VM && runs != t->vm)
			return true;
		if (rank != RANK_ORDINARY)
			strict_call_owned(&g);
	}
	return rank > RANK_ORDINARY || (rank == RANK_ORDINARY && fair);
}

/* Shall `t`, just queued on `cpu`, which is busy, have it at once? `fair`: by fair order. */
static inline bool gang_preempts(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now, bool fair)
{
	return has_gang(t) ? gang_preempts_one(t, c, cpu, now, fair) : fair;
}

#endif
