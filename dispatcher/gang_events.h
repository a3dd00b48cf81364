/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tells a gang what happens to its vCPUs: that one wakes, is queued, starts or stops. The gang
 * answers whether the vCPU may preempt, for how long it may run, and when to check on it again.
 *
 * The callbacks call these functions; the rules of each mode are in its header (gang.h). While no
 * plan asks for gangs (with_gangs()), all modes are GANG_NONE, and the state of an earlier plan's
 * gangs is cleared for each vCPU when its next callback comes.
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

/*
 * `t` becomes ready or runs: its claims are read (mode asymmetric), and its progress is compared
 * with its siblings' (modes relaxed and relaxed-all).
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

/*
 * `t`, a vCPU of a gang, gets a pCPU or keeps it: in mode demand, it is urgent if a sibling waits
 * for it.
 */
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

/* `t`, a vCPU of a gang, was given `cpu`; its slice has begun. */
RARE void gang_started(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
		       u64 now)
{
	struct gang g = gang_of(t);
	u32 id;

	if (g.vm && g.ctx && g.mode == GANG_DYNAMIC) {
		/*
		 * One recorded input per statement: compilers evaluate arguments in different
		 * orders.
		 */
		id = id_of(p);
		dynamic_started(&g, cpu, id, shared(c->slice_end), now);
	}
	if (g.vm && g.conf && g.ctx && is_relaxed(&g)) {
		id = id_of(p);
		relaxed_started(&g, t->member, cpu, id, shared(c->slice_end), now);
	}
}

/*
 * `t`, a vCPU of a gang, began to run on `cpu`: in mode strict, checks that it is still allowed to.
 */
RARE void gang_stays(struct task_ctx *t, struct cpu_ctx *c, s32 cpu)
{
	struct gang g = gang_of(t);

	if (g.vm && g.conf && g.mode == GANG_STRICT)
		strict_began(&g, c, cpu);
}

/*
 * The slice of `t`, a vCPU of a gang: `slice` ns, or in mode strict what is left of the time slot.
 */
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

/*
 * `t`, a vCPU, gets a pCPU or keeps it. Returns its slice: `slice` ns, or what its gang makes of
 * that.
 */
static inline u64 gang_turn_vcpu(struct task_struct *p, struct task_ctx *t, u64 slice, u64 now)
{
	bool gang = t->claims || with_gangs();

	if (gang) {
		gang_join_one(p, t, now);
		slice = gang_slice_one(t, slice, now);
	}
	if (t->claims)
		asymmetric_turn(t, now);
	if (t->urgent_at) {
		t->urgent_from = now;
		if (t->urgent < slice)
			slice = t->urgent;
	}
	return slice < SLICE_MIN ? SLICE_MIN : slice;
}

/* `t` gets `c` or keeps it. Returns its slice: `slice` ns, or what its gang makes of that. */
static inline u64 gang_turn(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, u64 slice,
			    u64 now)
{
	if (t->vm != NO_VM)
		slice = gang_turn_vcpu(p, t, slice, now);
	store(c->cur_vm, t->vm);
	store(c->cur_member, t->member);
	return slice;
}

/*
 * In how many ns the timer of `c` must fire at the latest: `left`, or sooner if the leads of the
 * vCPU that runs there are sampled.
 */
RARE u64 gang_timer_one(u64 left, struct cpu_ctx *c)
{
	struct gang g = gang_in(shared(c->cur_vm));
	u64 sample;

	if (!is_relaxed(&g))
		return left;
	sample = shared(g.conf->sample);
	return sample < left ? sample : left;
}

/* In how many ns the timer of `c` must fire at the latest, if `left` ns of the slice are left. */
static inline u64 gang_timer(u64 left, struct cpu_ctx *c)
{
	return with_gangs() ? gang_timer_one(left, c) : left;
}

/* The timer of the busy pCPU `cpu` fired: must the vCPU that runs there give the pCPU up? */
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

	/*
	 * The VM is in another mode now: progress made in that mode must not count if this one
	 * comes back.
	 */
	if (!is_relaxed(&g))
		relaxed_leave(t);
	else if (g.vm && g.conf && g.ctx)
		relaxed_state(&g, t, state, now);
}

/* `t`, which runs on a host with gangs and wants to go on, is compared with waiting tasks. */
static inline void gang_compared(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct gang g;

	if (!t->claims)
		return;
	g = gang_of(t);
	if (g.conf && g.mode == GANG_ASYMMETRIC)
		asymmetric_slice_over(p, t, &g, now);
}

/* `t`, a vCPU of a gang, gives up its pCPU; `runnable`: it wants to run on. */
RARE void gang_stopped_one(struct task_struct *p, struct task_ctx *t, bool runnable, u64 now)
{
	struct gang g = gang_of(t);

	/*
	 * A vCPU that has yielded gets no deadline: it takes its place in fair order. With gangs,
	 * nothing else ends a turn before its slice is over.
	 */
	if (g.conf && g.mode == GANG_ASYMMETRIC)
		asymmetric_claim(p, t, &g, runnable && !(t->over & TURN_OVER), now);
	if (g.ctx && (g.mode == GANG_DYNAMIC || is_relaxed(&g)))
		dynamic_stopped(&g, id_of(p), now);
	if (g.mode == GANG_DEMAND && !runnable)
		store(t->awaited, 0);
}

/* `t` gives up its pCPU; `runnable`: it wants to run on. */
static inline void gang_stopped(struct task_struct *p, struct task_ctx *t, bool runnable, u64 now)
{
	if (t->vm == NO_VM)
		return;
	demand_stopped(t, !runnable, now);
	if (with_gangs())
		gang_stopped_one(p, t, runnable, now);
}

/*
 * `t`, which has exited, was the last vCPU of its VM: its gang is neither stopped nor called any
 * more. A sibling that appears at the same time can only gain by this.
 */
static inline void gang_ends(struct task_ctx *t)
{
	struct gang_ctx *ctx = t->vm == NO_VM ? NULL : gang_at(t->vm);

	if (!ctx)
		return;
	store(ctx->stopped, 0);
	store(ctx->until, 0);
}

/* How far ahead of a pCPU's clock may `t` be queued there, ns of virtual time? */
static inline u64 gang_ahead(struct task_ctx *t)
{
	struct gang g;

	if (!has_gang(t))
		return knobs.max_lead;
	g = gang_of(t);
	return g.conf && g.mode == GANG_DEMAND ? demand_ahead(&g) : knobs.max_lead;
}

/* `t`, a vCPU of a gang, woke up. */
RARE void gang_woken_one(struct task_ctx *t, u64 now)
{
	struct gang g = gang_of(t);

	if (g.conf && g.mode == GANG_DEMAND)
		demand_woken(t, &g, now);
	if (g.mode == GANG_ASYMMETRIC)
		asymmetric_woken(t, now);
}

/* `t`, a vCPU of a gang, was ready on another pCPU with virtual time `was`, and is on `c` now. */
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

/* `t` woke up. This runs on the pCPU of the task that wakes it. Inlined, as arrive() is. */
INLINED void gang_woken(struct task_ctx *t, u64 now)
{
	if (has_gang(t))
		gang_woken_one(t, now);
}

/* Should `t` move away from the pCPU where it is queued or runs? */
static inline bool gang_moves(struct task_struct *p, struct task_ctx *t)
{
	return t->claims && asymmetric_goes_home(p, t);
}

/*
 * Should `t`, a vCPU of a gang that was just queued on the busy pCPU `cpu`, preempt the task that
 * runs there? `fair`: the answer of fair order.
 */
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
		r.awaited = shared(t->awaited); /* may be set while `t` is placed: awaited.h */
	rank = rank_of(&r);
	if (g.vm && g.conf && g.mode == GANG_STRICT) {
		runs = shared(c->cur_vm);
		/* The VM that owns the pCPU takes it back from a vCPU that fills it. */
		if (rank == RANK_ORDINARY && runs != NO_VM && runs != t->vm)
			return true;
		if (rank != RANK_ORDINARY)
			strict_call_owned(&g);
	}
	return rank > RANK_ORDINARY || (rank == RANK_ORDINARY && fair);
}

/*
 * Should `t`, just queued on the busy pCPU `cpu`, preempt the task that runs there? `fair`: the
 * answer of fair order.
 */
static inline bool gang_preempts(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now, bool fair)
{
	return has_gang(t) ? gang_preempts_one(t, c, cpu, now, fair) : fair;
}

#endif
