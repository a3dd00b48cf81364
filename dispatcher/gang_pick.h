/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which of the tasks that wait for a pCPU starts next if gangs have a say: the one with the best
 * rank. The rules of each mode are in its header (gang.h).
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

/* The rank (enum gang_rank) that the gang of `r` gives it. */
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

/*
 * May `t`, which just woke, start at once on `cpu` if that is idle? Once a time slot is over, no
 * vCPU of a strict VM may.
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

/* gang_choice.stays: the running task may stay; it may, and is back in the turn it woke for. */
#define STAYS 1u
#define STAYS_WOKEN 2u

/* The best of the tasks that wait for a pCPU. */
struct gang_choice {
	u64 bound; /* input: virtual time of the running task if it may stay, else 0 */
	u64 now;   /* input: the time */
	u64 vtime;
	u64 urgent_at; /* RANK_URGENT: as in task_ctx */
	u64 first;     /* virtual time of the task that is owed most, whether it may start or not */
	u64 woken;     /* the same among tasks that woke and have not had a slice since */
	u64 again;     /* ns until tasks that may not start now are checked again; 0: never */
	u32 id;	       /* 0: no task may start */
	u16 rank;
	u16 slot_over; /* a vCPU waits for a time slot, and the last one has ended */
	u16 stays;     /* input: may the running task stay? STAYS, STAYS_WOKEN; 0: it may not */
	u8 known;      /* a task waits, or the running one stays: `first` is valid */
	u8 spare;      /* a vCPU of a gang that is stopped as a whole waits, and may not start */
	u16 awake;     /* number of waiting tasks that have not run since they woke */
	u16 is_woken;  /* `woken` is valid */
};

/*
 * Is a task of this `rank` better than the best one found so far? Of two urgent tasks the one with
 * the earlier `urgent_at` is: it has been urgent for longer, or has the earlier deadline. (These
 * two are compared with each other only on a pCPU with VMs of both modes.)
 */
static inline bool ranks_before(u32 rank, u64 urgent_at, struct gang_choice *best)
{
	if (rank == RANK_URGENT && best->rank == RANK_URGENT)
		return before(urgent_at, best->urgent_at);
	return rank > best->rank;
}

/* In how many ns must a vCPU of `g` that may not start now be checked again? 0: never. */
static inline u64 look_again(struct gang *g, u64 now)
{
	u64 end;

	if (g->mode != GANG_STRICT)
		return shared(g->conf->sample);
	end = shared(slots.end);
	/* Another pCPU is just opening the next slot (strict_open_slot()): its end is not known
	 * yet. */
	return before(now, end) ? end - now : SLICE_MIN;
}

/*
 * The waiting task behind `r` may not start (RANK_NOT). Returns RANK_TARGET if it was the last one
 * missing for its stopped gang to resume. It counts as next on its pCPU if no task before it may
 * start.
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
	if (g.mode == GANG_RELAXED_ALL)
		best->spare = 1;
	if (g.mode == GANG_STRICT && !slot_is_open(r->now))
		best->slot_over = 1;
	best->again = look_again(&g, r->now);
	return RANK_NOT;
}

/*
 * A call does not count for a sibling that is this many slices of virtual time ahead (assumed). As
 * long as calls count, called siblings keep other VMs' vCPUs waiting. With two gangs and 32 slices
 * they waited for 0.2 s; one that was then moved was owed a slice only (bound_lag()), and waited as
 * long again. With few slices, gangs start together all the same: siblings that are ahead wait for
 * a moment.
 */
#define CALL_LEAD 4

/* The slot of a vCPU's VM if the vCPU's progress is compared (it is a `member`), else NO_VM. */
static inline u32 compared(u32 member, u32 slot)
{
	return member ? slot : NO_VM;
}

/*
 * How far ahead in virtual time a vCPU may be for a call to count on pCPU `c`. In mode relaxed
 * (`slot` is a VM with compared progress), in which calls bring stopped siblings back, that is only
 * the wake-up granularity, `gran` there (gang_relaxed.h).
 */
static inline u64 call_lead(struct cpu_ctx *c, u32 slot, u64 gran)
{
	struct gang g = gang_in(slot);

	if (g.mode == GANG_RELAXED)
		return gran;
	return CALL_LEAD * fair_cost(knobs.slice, shared(c->cur_rate)) + gran;
}

/*
 * The `rank` of a vCPU with this virtual time, given the tasks that wait for `cpu` and the one that
 * runs there; `slot` is what compared() says of it. A call by siblings does not count for a vCPU
 * that is too far ahead of the task that is owed most there, nor if there is a task that woke, has
 * not had a slice since, and would preempt the vCPU by fair order (gang_dynamic.h). A function of
 * its own because its callers have no stack left.
 */
RARE u32 rank_beside(u32 rank, u64 vtime, struct gang_choice *best, s32 cpu, u32 slot)
{
	struct cpu_ctx *c = cpu_at(cpu);
	u64 gran = c ? fair_span(c, NO_LOAD, knobs.wakeup_gran) : 0;
	bool ahead = c && best->known && before(best->first + call_lead(c, slot, gran), vtime);
	bool late = best->is_woken && before(best->woken + gran, vtime);

	return rank == RANK_TARGET && (ahead || late) ? RANK_ORDINARY : rank;
}

/*
 * Does `best`, called by its siblings, preempt `t`, which runs in the turn that it woke for and
 * would preempt `best` by fair order?
 */
static inline u16 interrupts_woken(struct task_ctx *t, struct gang_choice *best, struct cpu_ctx *c)
{
	return best->rank == RANK_TARGET && best->stays && t->fresh &&
	       before(best->bound + fair_span(c, NO_LOAD, knobs.wakeup_gran), best->vtime);
}

/*
 * No task that waits for `cpu` may start, so `cpu` would idle. It offers itself to each gang whose
 * stopped members wait there (gang_relaxed.h), until one gang goes on. vCPUs of other stopped gangs
 * do not count: otherwise two gangs would keep each other waiting. Returns 1 if a gang goes on.
 */
CALLED u32 spare_for_stopped(s32 cpu, u64 now)
{
	struct task_struct *p;
	u32 goes_on = 0;

	for_each_queued (p, cpu) {
		struct ranked r = {.cpu = cpu, .now = now};
		struct gang g;

		look_at_ranked(p, &r);
		g = gang_in(r.vm);
		if (!g.vm || !g.conf || !g.ctx || g.mode != GANG_RELAXED_ALL)
			continue;
		goes_on = relaxed_all_spares(&g, &r);
		if (goes_on)
			break;
	}
	return goes_on;
}

/* Which of the tasks that wait for `cpu` should run next? Returns best->id. */
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
	best->spare = 0;
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
		if (!ranks_before(rank, r.urgent_at, best))
			continue;
		best->rank = rank;
		best->id = id_of(p);
		best->vtime = r.vtime;
		best->urgent_at = r.urgent_at;
	}
	return best->id;
}

/* Moves the task `id` from the queue of `cpu` to run next there. */
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
