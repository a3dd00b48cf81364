/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pulling: a pCPU with little to do takes a waiting task from one with much.
 *
 * An idle pCPU takes a task that waits elsewhere (work conservation). A busy one looks at others
 * between turns, after 75 to 100 % of knobs.balance_interval plus up to a slice (looked_at()). It
 * looks for a pCPU with so much more load that moving a task makes the two more alike; or else for
 * one whose clock is behind, so that its tasks are owed more time than those here (fairness: five
 * tasks on four pCPUs take turns at being alone). "Owed more" means by at least half the interval
 * and a slice, so that tasks do not swing back and forth: within a turn, every waiting task falls
 * behind by a part of it.
 *
 * If no task waits there is nothing to pull, but SMT cores may be shared while other cores idle. So
 * a task that runs beside a busy SMT sibling leaves for an idle core, at the end of a turn and as
 * often as busy pCPUs look.
 *
 * A busy pCPU acts only on load that was also there at its last look: a daemon that runs for a
 * moment, perhaps with the weight of dozens of vCPUs, is no lasting load. Nor does it take a task
 * whose turn was interrupted (turn.h): that task will have its pCPU back in a moment.
 *
 * Nothing is pulled that a placement mode forbids: pulling does not stack siblings either.
 */
#ifndef CORUN_PULL_H
#define CORUN_PULL_H

#include "fair.h"
#include "gang_pick.h"
#include "occupancy.h"
#include "placement.h"
#include "platform/platform.h"
#include "pool.h"
#include "slice.h"

/*
 * How many tasks in another queue are looked at before giving up on it (assumed: with fewer, vCPUs
 * of one VM that may not come hide what is behind them; each one more adds to the cost of every
 * look).
 */
#define PULL_LOOK 8
/*
 * A multiplier that scatters numbers: a prime near 2^32 divided by the golden ratio (Knuth, The Art
 * of Computer Programming 3, 6.4).
 */
#define SCATTER 2654435761u

/*
 * A VM with more vCPUs than pCPUs that they may use cannot always be balanced. Its vCPUs may be
 * moved where that makes stacking no worse.
 */
static inline bool stacking_no_worse(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct vm_ctx *vm = vm_of(t);
	u32 room = vm ? room_of(p) : 0;
	u32 there;

	if (!vm || shared(vm->vcpus) <= room)
		return false;
	there = siblings_at(t, cpu);
	return there <= siblings_at(t, t->cpu);
}

/* Does placement keep siblings apart? */
static inline bool is_apart(u32 mode)
{
	return mode == PLACE_BALANCE || mode == PLACE_LOAD_CONSCIOUS;
}

/*
 * If `cpu` would `idle` otherwise: may `t` go there although siblings are there? In the relaxed
 * modes, those siblings wait because they are ahead, perhaps of `t`: if they kept `t` away, all of
 * them would wait while pCPUs idle. Once they may go on, siblings that meet are moved apart as
 * usual: one that is queued again goes where no sibling is, and one that waits may be pulled there.
 */
static inline bool joins_stopped(struct task_ctx *t, bool idle)
{
	struct gang g;

	if (!idle || !has_gang(t))
		return false;
	g = gang_of(t);
	return is_relaxed(&g);
}

/*
 * May `p`, which waits elsewhere, be moved to `cpu`? `idle`: `cpu` would idle otherwise. Counts in
 * `*fixed` the tasks that may not be moved at all.
 */
RARE bool may_pull(struct task_struct *p, struct task_ctx *t, s32 cpu, bool idle, u32 *fixed)
{
	u32 mode = placement_of(p, t);

	*fixed += mode == PLACE_FIXED;
	return mode != PLACE_FIXED && allowed(p, cpu) &&
	       (mode == PLACE_CORE || mode_admits(p, t, mode, cpu) ||
		(is_apart(mode) && (stacking_no_worse(p, t, cpu) || joins_stopped(t, idle))));
}

/* `t` is about to be pulled to `cpu`: it occupies `cpu` before it moves, see occupancy.h. */
RARE void announce(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u32 id)
{
	occupancy_add(t, c, cpu);
	store(c->incoming, id);
	store(c->incoming_vm, t->vm);
	store(c->incoming_load, t->load);
}

/* Which of the tasks that wait on another pCPU may be pulled. */
struct pull_rule {
	u64 lighter_than; /* only tasks with less load; 0: any */
	u64 before; /* only tasks that are still at an earlier virtual time after a turn; 0: any */
	u32 only;   /* only vCPUs of the VM in this slot of the table, plus 1; 0: any */
	u32 id;	    /* only this task; 0: any */
	bool due;   /* `before`: only tasks that are less than a turn ahead of it */
	bool idle;  /* the pCPU would idle otherwise: no task here may start */
	bool slowest; /* only the slowest vCPU of a VM (gang_relaxed.h) */
	bool fill;    /* also tasks that may start only on a pCPU that would idle otherwise */
	bool between; /* only tasks between turns, not interrupted ones (turn.h) */
	bool apart;   /* only tasks whose cookie the core admits (cookie.h) */
};

/*
 * May `p`, which waits elsewhere, start on `cpu` at once, as far as its gang is concerned?
 * `slowest`: only if it is the slowest of its gang.
 */
CALLED u32 rank_admits(struct task_struct *p TRUSTED, s32 cpu, u32 fill, u32 slowest)
{
	struct ranked r = {.cpu = cpu};

	if (!with_gangs())
		return true;
	r.now = now_ns();
	look_at_ranked(p, &r);
	if (slowest && !relaxed_is_slowest(r.vm, r.member, r.now))
		return false;
	return rank_of(&r) >= (fill ? RANK_FILL : RANK_ORDINARY);
}

/*
 * The virtual time of `p`, which is queued. If its turn was interrupted, that differs from its
 * place in the queue (turn.h).
 */
CALLED u64 vtime_of(struct task_struct *p TRUSTED)
{
	struct task_ctx *t = raw_task_ctx(p);

	return t ? shared(t->vtime) : queued_vtime(p);
}

/* Is `p`, which is queued and has this `load`, far enough behind for the rule? */
static inline bool is_owed(struct task_struct *p TRUSTED, u32 load, volatile struct pull_rule *rule)
{
	u64 turn = fair_turn(load, slice_of(p));
	u64 vtime = vtime_of(p);

	return before(vtime, rule->due ? rule->before + turn : rule->before - turn);
}

/* Pulls from the queue of `from` the first task that may move and that matches the rule. */
CALLED u32 pull_from(s32 from, s32 cpu, struct pull_rule *given)
{
	struct cpu_ctx *c = cpu_at(cpu);
	/*
	 * Each word of the rule is read where it is needed, and to the verifier the counts may have
	 * any value: otherwise it would follow each rule and each count separately (unranged()).
	 */
	volatile struct pull_rule *rule = given;
	u32 looked = (u32)unknown_zero();
	u32 fixed = (u32)unknown_zero();
	ROOM_FOR_COPY(t, cpu);
	struct task_struct *p;
	bool pulled = false;

	if (!c || !rule)
		return 0;
	for_each_queued (p, from) {
		/* A rule for a certain VM or task looks further. */
		if (looked < PULL_LOOK)
			looked++;
		else if (!rule->only && !rule->id)
			break;
		look_at(p, t);
		if (rule->only && t->vm + 1 != rule->only)
			continue;
		if (rule->id && id_of(p) != rule->id)
			continue;
		if (rule->before && !rule->due && !before(queued_vtime(p), rule->before))
			break;
		if (rule->before && !is_owed(p, t->load, rule))
			continue;
		if (rule->between && t->rest)
			continue;
		if (rule->apart && !cookie_admits(p, t->vm, cpu))
			continue;
		if ((rule->lighter_than && t->load >= rule->lighter_than) ||
		    !may_pull(p, t, cpu, rule->idle, &fixed) ||
		    !rank_admits(p, cpu, rule->fill, rule->slowest))
			continue;
		announce(t, c, cpu, id_of(p));
		pulled = move_queued(p, cpu);
		if (!pulled)
			forget_incoming(c, cpu);
		break;
	}
	/*
	 * None of the tasks seen may move anywhere: no pCPU can pull them, until a task comes or
	 * leaves. With a rule for a certain VM or task that is not known, since the others were
	 * skipped.
	 */
	if (!rule->only && !rule->id && (fixed == looked || fixed == PULL_LOOK))
		queue_is_fixed(from);
	return pulled;
}

/* The pCPU with the most load above `least` among those with waiting tasks. */
#ifdef INDEXED
static inline s32 busiest(s32 cpu, u64 least)
{
	struct candidate best = {.key = -(s64)least, .cpu = NO_PCPU, .rank = -1};
	u64 others[MASK_WORDS];
	s32 i;

	repeat (i, words_in_use())
		others[i] = in_use((u32)i, corun_context->index.waiting[i]);
	others[(u32)cpu / 64] &= ~(1ull << ((u32)cpu % 64));
	tree_search(&corun_context->index.crowded, others, &best, i, true);
	return best.cpu;
}
#else
static inline s32 busiest(s32 cpu, u64 least)
{
	s32 found = NO_PCPU;
	u64 most = least;
	s32 i;

	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);
		u64 load = c && i != cpu ? shared(c->load) : 0;

		if (load > most && queue_length(i)) {
			most = load;
			found = i;
		}
	}
	return found;
}
#endif

/*
 * Does a task wait on `from` that may run on `cpu`? If not, `from` must not hide other pCPUs with
 * such tasks.
 */
CALLED u32 some_may_run(s32 from, s32 cpu)
{
	u32 looked = (u32)unknown_zero();
	struct task_struct *p;
	u32 may = 0;

	for_each_queued (p, from) {
		may = allowed(p, cpu) && pool_admits(p, cpu);
		if (may || ++looked >= PULL_LOOK)
			break;
	}
	return may;
}

/*
 * The pCPU whose tasks are furthest behind among those with more than this `load` and with tasks
 * that wait and may run on `cpu`.
 */
CALLED s32 furthest_behind(s32 cpu, u64 load)
{
	s32 found = NO_PCPU;
	u64 behind = 0;
	s32 i;

	for_each_queue (i) {
		struct cpu_ctx *c = cpu_at(i);
		u64 vtime;

		if (!c || i == cpu || shared(c->load) <= load || !queue_length(i))
			continue;
		/* The running task's virtual time is close to that of the waiting ones. */
		vtime = shared(c->cur_vtime);
		if ((found == NO_PCPU || before(vtime, behind)) && some_may_run(i, cpu)) {
			behind = vtime;
			found = i;
		}
	}
	return found;
}

/* Is the vCPU that ran on `cpu` last, or the first task that waits there, in mode relaxed? */
CALLED u32 relaxed_here(s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);
	struct gang g = gang_in(c ? shared(c->cur_vm) : NO_VM);
	struct ranked r = {.cpu = cpu, .vm = NO_VM};
	struct task_struct *p;

	if (g.mode == GANG_RELAXED)
		return true;
	for_each_queued (p, cpu) {
		look_at_ranked(p, &r);
		break;
	}
	g = gang_in(r.vm);
	return g.mode == GANG_RELAXED;
}

/*
 * Pulls any task that waits elsewhere, from the busiest pCPU first. If a vCPU in mode relaxed ran
 * last on `cpu` or waits there, the first go takes only a vCPU that siblings may have to wait for,
 * the second any. The two goes are a loop, since one more call between here and lag_most() is too
 * deep for Linux 6.12.
 */
CALLED u32 pull_any(s32 cpu, struct pull_rule *any)
{
	s32 from = busiest(cpu, 0);
	u32 go;
	s32 i;

	if (from == NO_PCPU || !any)
		return false;
	any->slowest = with_gangs() && !any->fill && relaxed_here(cpu);
	repeat (go, 2) {
		if (pull_from(from, cpu, any))
			return true;
		for_each_movable_queue (i) {
			if (i != cpu && i != from && queue_length(i) && pull_from(i, cpu, any))
				return true;
		}
		if (!any->slowest)
			break;
		any->slowest = false;
	}
	return false;
}

/* `cpu` has an owner (gang_strict.h) none of whose vCPUs is here: pulls one of them. */
CALLED u32 pull_owner(s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);
	struct pull_rule rule = {.only = c ? shared(c->owner) : 0};
	struct gang g = rule.only ? gang_in(rule.only - 1) : (struct gang){};
	s32 i;

	if (!g.vm || g.mode != GANG_STRICT)
		return false;
	for_each_queue (i) {
		struct cpu_ctx *other = cpu_at(i);
		u32 here = gang_here(&g, i);

		/*
		 * A vCPU on a pCPU that its VM owns stays there, unless it shares that pCPU with a
		 * sibling.
		 */
		if (i == cpu || !other || here < (strict_owns(&g, other) ? 2u : 1u))
			continue;
		if (pull_from(i, cpu, &rule))
			return true;
	}
	return false;
}

/*
 * `cpu` has nothing to run: pulls a vCPU of its owner, else any task, else a vCPU that may fill it.
 */
INLINED bool pull_idle(s32 cpu)
{
	struct pull_rule any = {.idle = true};
	struct pull_rule fill = {.idle = true, .fill = true};

	if (with_gangs() && pull_owner(cpu))
		return true;
	return pull_any(cpu, &any) || (with_gangs() && pull_any(cpu, &fill));
}

/*
 * Pulls a task from the busiest pCPU that makes the loads of both more alike, as they are now and
 * as they were at the last look. A pulled task runs at once. So it must be about to have its turn
 * where it waits, no more than a turn of its own ahead: otherwise tasks that weigh little, one of
 * which always fits, would gain a turn by each move.
 */
static inline bool pull_load(s32 cpu, struct cpu_ctx *c, struct pull_rule *rule)
{
	u64 mine = shared(c->load);
	u64 last = shared(c->busier_by);
	struct cpu_ctx *busier;
	u64 more;
	s32 from;

	from = busiest(cpu, mine);
	busier = cpu_at(from);
	more = busier ? shared(busier->load) - mine : 0;
	store(c->busier_by, more < ~0u ? (u32)more : ~0u);
	rule->lighter_than = more < last ? more : last;
	/* A clock may be at 0, which would mean any task. */
	rule->before = busier ? shared(busier->vnow) + 1 : 0;
	rule->due = true;
	return rule->lighter_than && pull_from(from, cpu, rule);
}

/*
 * Pulls a task from a pCPU with more load whose clock is behind, if one was at the last look, too:
 * tasks there are owed more. `awake`: number of tasks here that are known to have just woken, and
 * may stay for a moment only.
 */
static inline bool pull_owed(s32 cpu, struct cpu_ctx *c, struct pull_rule *rule, u32 awake, u64 now)
{
	u64 load = shared(c->load);
	u32 nr = shared(c->nr);
	s32 from = furthest_behind(cpu, nr ? load - load * awake / nr : load);
	struct cpu_ctx *other = cpu_at(from);
	u32 was = shared(c->behind);
	bool behind;

	rule->lighter_than = 0;
	rule->due = false;
	rule->before = fair_current(c, now) - fair_span(c, NO_LOAD, knobs.balance_interval / 2);
	behind = other && before(shared(other->cur_vtime), rule->before);
	store(c->behind, behind);
	return behind && was && pull_from(from, cpu, rule);
}

/*
 * `t` runs on `cpu`: is it alone there, but shares the core, while another core idles? A vCPU that
 * has a home at the moment (gang_asymmetric.h) stays, since it would come back.
 */
RARE bool finds_idle_core(s32 cpu, struct cpu_ctx *c, struct task_struct *p, struct task_ctx *t)
{
	if (!shares_core(cpu) || shared(c->nr) > 1 || (t->claims && t->home) || is_bound(p) ||
	    gang_of(t).mode == GANG_STRICT)
		return false;
	return least_loaded(p, t, placement_of(p, t), cpu, 0) != cpu;
}

/*
 * `t` runs on `cpu` and goes before all that wait there: should it continue on an idle pCPU, to
 * leave `cpu` to them? (They may not go there themselves, or they would have been pulled.)
 */
RARE bool makes_room(s32 cpu, struct task_struct *p, struct task_ctx *t)
{
	struct cpu_ctx *there;
	s32 idle;

	if (is_bound(p) || !queue_length(cpu))
		return false;
	idle = least_loaded(p, t, placement_of(p, t), cpu, 0);
	there = cpu_at(idle);
	return idle != cpu && there && shared(there->idle) && !shared(there->nr) && answers(idle);
}

/*
 * When the interval begins after which `cpu`, where turns of `slice` ns end, looks next: up to a
 * quarter of the interval sooner than now (assumed), without a pattern, because turns have one. If
 * looks always came at the same place in that pattern, each would see the same task wait. Looks
 * come at ends of turns; if turns are longer than that quarter, a look is put off by up to a slice,
 * or it would always come at the same one.
 */
static inline u64 looked_at(s32 cpu, u64 slice, u64 now)
{
	u32 sooner = ((u32)(now >> 10) + (u32)cpu) * SCATTER >> 16;
	u32 after = (sooner + 1) * SCATTER >> 16;
	u64 quarter = knobs.balance_interval >> 2;
	u64 from = now - (quarter * sooner >> 16);

	return slice > quarter ? from + (slice * after >> 16) : from;
}

/*
 * A busy pCPU looks at others: it evens out loads first, and then what tasks are owed. `awake`:
 * number of tasks that have just woken here. `slice`: of the task whose turn is over, ns.
 */
CALLED u32 pull_busy(s32 cpu, u32 awake, u64 slice, u64 now)
{
	struct cpu_ctx *c = cpu_at(cpu);
	struct pull_rule rule = {.between = true};

	if (!c)
		return false;
	store(c->balanced_at, looked_at(cpu, slice, now));
	if (!pull_load(cpu, c, &rule))
		return pull_owed(cpu, c, &rule, awake, now);
	store(c->behind, 0); /* what the last look found about clocks is void now */
	return true;
}

#endif
