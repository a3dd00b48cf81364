/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Yielding: who spins lets a sibling go first.
 *
 * A vCPU that spins in its kernel waits for what a sibling does: it releases a lock, or answers an
 * interrupt. If that one was preempted, the spinner burns its slice. Where the CPU notices (a
 * pause-loop exit), KVM looks for siblings that want to run and do not, and asks the scheduler to
 * let one go first (kvm_vcpu_on_spin(), yield_to()). A scheduler that has no ear for that, as
 * sched_ext's without this callback, lets it spin.
 *
 * Who is favoured goes next where it waits, at once, unless that would be unfair: it may get ahead
 * of who runs there by what a slice costs that one, as whoever runs is ahead of others when its
 * turn ends, but no further. It has no more of a turn than that leaves it, and is not let in for
 * less than a granularity: the neighbour would only be interrupted. Both are charged as ever.
 *
 * Does the spinner's own turn end with that? It pays for its turn, and what it saves by giving that
 * up, its neighbours pay for in switches. So it does
 *
 * - if a sibling is next on its pCPU, within the same bound: that is between the two of them;
 * - if nobody is let in who may be the one that it waits for, and who is next on its pCPU is owed
 * as much as itself. Who spun and gave its pCPU up mostly is not that one, but another spinner.
 *
 * Else it keeps its pCPU: whom it waits for is running by now, and soon done. Without this, two
 * that wait for each other take turns with a neighbour every few microseconds, each favouring the
 * other, and the neighbour has its share, but loses a sixth of its work to switches. CFS is spared
 * that by heeding yields only within a granularity of virtual time (pick_next_entity()). For the
 * same reason who spun is let in again only with two granularities to go: if others have caught up.
 *
 * Where siblings run together or stop for each other, who may run when is the gang's affair: there
 * nobody yields to anybody, and nobody yields to one who waits for such a vCPU's pCPU. VMs without
 * a gang, on the same host, are not concerned, nor are those in mode asymmetric (Jupiter's), which
 * leaves fair order as it is: by run time it tells how well a VM gets on, since vCPUs that spin
 * lose their pCPUs soon (dissertation, §4.4.1).
 */
#ifndef CORUN_YIELD_H
#define CORUN_YIELD_H

#include "fair.h"
#include "gang_pick.h"
#include "platform/platform.h"
#include "timer.h"

/* `cpu_ctx.favoured` while who was favoured runs: of no thread it is the id. */
#define RUNS_FAVOURED (~0u)

/* `t`, which runs, has had its turn: those who wait for its pCPU go first. */
static inline bool end_turn(struct task_struct *p, struct task_ctx *t, u16 over)
{
	t->over = over;
	set_slice(p, 0);
	return true;
}

/* Up to which virtual time one may be favoured on the pCPU of `c`. */
static inline u64 favour_bound(struct cpu_ctx *c, u64 now)
{
	u64 slice = fair_cost(knobs.slice, shared(c->cur_rate));

	return fair_current(c, now) + slice;
}

/* For less virtual time than this nobody is let in. Short slices have room for it, too. */
static inline u64 favour_least(struct favoured *to)
{
	u64 third = knobs.slice / 3;
	u64 least = knobs.wakeup_gran < third ? knobs.wakeup_gran : third;

	return to->over & TURN_SPUN ? 2 * least : least;
}

/* May `to`, which waits for the pCPU of `c`, go before everybody there? */
static inline bool may_favour(struct favoured *to, struct cpu_ctx *c, u64 now)
{
	u64 bound = favour_bound(c, now);

	return to->state == TASK_READY && !before(bound, to->vtime + favour_least(to));
}

/* Do vCPUs of the VM in `slot` give way to whoever somebody waits for? */
static inline bool gives_way(u32 slot)
{
	struct gang g = gang_in(slot);

	return g.mode == GANG_NONE || g.mode == GANG_ASYMMETRIC;
}

/* May `to` go next on `c` for all that gangs care: its own, and that of who runs there? */
RARE bool gangs_give_way(struct favoured *to, struct cpu_ctx *c)
{
	return gives_way(to->vm) && (shared(c->idle) || gives_way(shared(c->cur_vm)));
}

/* Has `p`, of which `to` tells, go next where it waits; false if it may not. */
static inline bool favour(struct task_struct *p, struct favoured *to, u64 now)
{
	struct cpu_ctx *c = cpu_at(to->cpu);

	if (!c || !may_favour(to, c, now))
		return false;
	if (with_gangs() && !gangs_give_way(to, c))
		return false;
	store(c->favoured, id_of(p));
	if (to->cpu != this_cpu())
		kick(to->cpu, KICK_PREEMPT);
	return true;
}

/*
 * Does `t`, which spins, give up its pCPU? To a sibling as it would favour one, to anybody else if
 * it `waits_long`: nobody is let in that it may wait for.
 */
static inline bool gives_up(struct task_ctx *t, bool waits_long, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);
	struct task_struct *p;
	bool gives = false;

	if (!c)
		return false;
	for_each_queued (p, t->cpu) {
		struct favoured next = {};

		if (!look_at_favoured(p, &next))
			break;
		if (next.vm == t->vm)
			gives = !before(favour_bound(c, now), next.vtime);
		else
			gives = waits_long && !before(fair_current(c, now), next.vtime);
		break;
	}
	return gives;
}

/* `p`, which spins, lets `other` go first; false if that may not, and `p` goes on. */
static inline bool yield_to(struct task_struct *p, struct task_ctx *t, struct task_struct *other)
{
	struct favoured to = {};
	bool goes;
	u64 now;

	if (!look_at_favoured(other, &to))
		return false;
	if (with_gangs() && !gives_way(t->vm))
		return false;
	now = now_ns();
	goes = favour(other, &to, now);
	if ((goes && to.cpu == t->cpu) || gives_up(t, !goes || to.over & TURN_SPUN, now))
		return end_turn(p, t, TURN_OVER | TURN_SPUN);
	return goes;
}

/* Somebody was favoured on `cpu`: it runs there next, if it still waits for it. */
RARE bool move_favoured(s32 cpu, struct cpu_ctx *c)
{
	u32 id = shared(c->favoured);
	u64 bound, now;

	store(c->favoured, 0);
	if (id == RUNS_FAVOURED)
		return false;
	now = now_ns();
	bound = favour_bound(c, now);
	if (!take(cpu, id))
		return false;
	store(c->favoured, RUNS_FAVOURED);
	store(c->favour_end, bound);
	look_in(c, cpu, SLICE_MIN, now);
	return true;
}

/* Has who was favoured, and runs on `cpu`, got as far ahead of others as it may? */
RARE bool favour_is_over(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 mine = fair_current(c, now);
	u64 bound = shared(c->favour_end);
	u64 rate;

	if (!before(mine, bound))
		return true;
	rate = shared(c->cur_rate);
	look_in(c, cpu, (bound - mine) * RATE_ONE / rate + 1, now);
	return false;
}

#endif
