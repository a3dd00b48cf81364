/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where gangs have a say: who starts, who may stay, for how long, and when to look again.
 *
 * corun.bpf.c and placement.h ask here; the modes' own rules are in their headers (gang.h). While
 * no plan asks for gangs (with_gangs()), all modes are GANG_NONE; what is left of the last plan's
 * gangs is put away as each vCPU comes by.
 */
#ifndef CORUN_GANG_PICK_H
#define CORUN_GANG_PICK_H

#include "cookie.h"
#include "gang.h"
#include "gang_asymmetric.h"
#include "gang_demand.h"
#include "gang_dynamic.h"
#include "gang_relaxed.h"
#include "gang_strict.h"

/* What the gang of `r` says of it: an enum gang_rank. */
CALLED u32 rank_of(struct ranked *r)
{
	struct cpu_ctx *c = r ? cpu_at(r->cpu) : NULL;
	struct gang g = gang_in(r ? r->vm : NO_VM);

	if (!r || !g.vm || !g.conf || !g.ctx || !c)
		return RANK_ORDINARY;
	switch (g.mode) {
	case GANG_DYNAMIC:
		return dynamic_rank(&g, r->cpu, r->runs, r->now);
	case GANG_STRICT:
		return strict_rank(&g, c);
	case GANG_DEMAND:
		return demand_rank(r, &g, c);
	case GANG_RELAXED:
		return relaxed_rank(&g, r);
	case GANG_RELAXED_ALL:
		return relaxed_all_rank(&g, r);
	case GANG_ASYMMETRIC:
		return asymmetric_rank(r);
	default:
		return RANK_ORDINARY;
	}
}

/* May `t`, just woken, start on `cpu` at once, if that idles? In a slot that is over, nobody may.
 */
static inline bool may_start(struct task_ctx *t, s32 cpu, u64 now)
{
	struct gang g = gang_of(t);
	struct ranked r = ranked(t, cpu, false, now);

	if (g.mode == GANG_NONE)
		return true;
	if (g.mode == GANG_STRICT && !slot_is_open(now))
		return false;
	return rank_of(&r) >= RANK_ORDINARY;
}

#define STAYS 1u
#define STAYS_WOKEN 2u

/* The best of those who wait for a pCPU. */
struct gang_choice {
	u64 bound; /* asked: the virtual time of who runs there, if it may stay; else 0 */
	u64 now;   /* asked: the time */
	u64 vtime;
	u64 since; /* RANK_URGENT: since when it is */
	u64 first; /* the virtual time of who is owed most, may it start or not */
	u64 woken; /* the same of those who woke, and have not had a slice since */
	u64 again; /* ns until those who may not start now are to be looked at again; 0: never */
	u32 id;	   /* 0: nobody may start */
	u16 rank;
	u16 slot_over; /* a vCPU waits for a time slot, and the last one has ended */
	u16 stays; /* asked: may who runs there stay? STAYS_WOKEN: back in the turn that it woke for
		    */
	u16 known; /* somebody waits, or stays: `first` is said */
	u16 awake; /* so many have not run since they woke */
	u16 is_woken; /* `woken` is said */
};

/* Is somebody of `rank`, urgent since `since` if so, better than the best of those before it? */
static inline bool ranks_before(u32 rank, u64 since, struct gang_choice *best)
{
	if (rank == RANK_URGENT && best->rank == RANK_URGENT)
		return before(since, best->since);
	return rank > best->rank;
}

/* When shall be looked again at a vCPU of `g` that may not start now? */
static inline u64 look_again(struct gang *g, u64 now)
{
	u64 end;

	if (g->mode != GANG_STRICT)
		return shared(g->conf->sample);
	end = shared(slots.end);
	return before(now, end) ? end - now : 0;
}

/*
 * The task behind `r`, which waits, has no leave to start. Was it what is missing for a stopped
 * gang to start? It is next on its pCPU if nobody before it may start.
 */
CALLED u32 rank_of_stopped(struct ranked *r, struct gang_choice *best)
{
	struct gang g = gang_in(r ? r->vm : NO_VM);
	bool next;

	if (!r || !best || !g.vm || !g.conf || !g.ctx)
		return RANK_NOT;
	next = best->rank == RANK_NOT && (!best->stays || before(r->vtime, best->bound));
	if (g.mode == GANG_RELAXED_ALL && relaxed_all_willing(&g, r, next))
		return RANK_TARGET;
	if (g.mode == GANG_STRICT && !slot_is_open(r->now))
		best->slot_over = 1;
	best->again = look_again(&g, r->now);
	return RANK_NOT;
}

/* So many slices of virtual time ahead a sibling is called in vain: any bound keeps shares in the
 * long run, and this one hardly ever keeps a gang from starting together (assumed). */
#define CALL_LEAD 32

/* Whose progress is compared: the slot of its VM. */
static inline u32 compared(u32 member, u32 slot)
{
	return member ? slot : NO_VM;
}

/* How far ahead a call counts on `cpu`: not at all where progress is compared in `slot`, and who is
 * stopped is called back (gang_relaxed.h). */
static inline u64 call_lead(s32 cpu, u32 slot)
{
	struct gang g = gang_in(slot);
	struct cpu_ctx *c = cpu_at(cpu);
	u64 turn = c ? fair_cost(knobs.slice, shared(c->cur_rate)) : 0;

	return (g.mode == GANG_RELAXED ? 0 : CALL_LEAD * turn) + knobs.wakeup_gran;
}

/*
 * `rank` of one with this virtual time, `slot` being compared() of it, beside who waits for `cpu`
 * and who runs there. A call by siblings does not count for one that is too far ahead of who is
 * owed most there, nor beside one that woke, has not had a slice since, and would interrupt it by
 * fair order (gang_dynamic.h). A function of its own: those around have no stack left.
 */
RARE u32 rank_beside(u32 rank, u64 vtime, struct gang_choice *best, s32 cpu, u32 slot)
{
	bool ahead = best->known && before(best->first + call_lead(cpu, slot), vtime);
	bool late = best->is_woken && before(best->woken + knobs.wakeup_gran, vtime);

	return rank == RANK_TARGET && (ahead || late) ? RANK_ORDINARY : rank;
}

/* Is `best`, called by siblings, put before `t`, which runs in the turn that it woke for and would
 * interrupt it by fair order? */
static inline u16 interrupts_woken(struct task_ctx *t, struct gang_choice *best)
{
	return best->rank == RANK_TARGET && best->stays && t->fresh &&
	       before(best->bound + knobs.wakeup_gran, best->vtime);
}

/* Who of those who wait for `cpu` shall run next? Returns best->id. */
CALLED u32 best_waiting(s32 cpu, struct gang_choice *best)
{
	struct task_struct *p;

	if (!best)
		return 0;
	best->id = 0;
	best->rank = RANK_NOT;
	best->again = 0;
	best->slot_over = 0;
	best->first = best->bound;
	best->known = best->stays;
	best->awake = 0;
	best->is_woken = best->stays == STAYS_WOKEN;
	best->woken = best->bound;
	for_each_queued (p, cpu) {
		struct ranked r = {.cpu = cpu, .now = best->now};
		u32 rank;

		look_at_ranked(p, &r);
		if (!best->known || before(r.vtime, best->first))
			best->first = r.vtime;
		best->known = 1;
		best->awake += r.fresh == FRESH;
		if (r.fresh && (!best->is_woken || before(r.vtime, best->woken))) {
			best->woken = r.vtime;
			best->is_woken = 1;
		}
		rank = rank_beside(rank_of(&r), r.vtime, best, cpu, compared(r.member, r.vm));
		if (rank == RANK_NOT)
			rank = rank_of_stopped(&r, best);
		if (!ranks_before(rank, r.urgent_since, best))
			continue;
		best->rank = rank;
		best->id = id_of(p);
		best->vtime = r.vtime;
		best->since = r.urgent_since;
	}
	return best->id;
}

/* Moves the task `id` from the queue of `cpu` to run next. */
CALLED u32 take(s32 cpu, u32 id)
{
	struct task_struct *p;
	u32 taken = 0;

	for_each_queued (p, cpu) {
		if (id_of(p) != id)
			continue;
		if (cookie_admits_queued(p, cpu))
			taken = move_queued(p, cpu);
		break;
	}
	return taken;
}

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
