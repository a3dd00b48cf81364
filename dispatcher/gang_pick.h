/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which of those who wait for a pCPU starts next, where gangs have a say: the best by rank. The
 * modes' own rules are in their headers (gang.h).
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

#endif
