/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Yielding: a vCPU that spins lets a sibling go first.
 *
 * A vCPU that spins in its kernel waits for something that a sibling is to do: to release a lock,
 * or to answer an interrupt. If that sibling was preempted, the spinner wastes its slice. If the
 * CPU notices that (a pause-loop exit), KVM looks for siblings that want to run and do not, and
 * asks the scheduler to let one go first (kvm_vcpu_on_spin(), yield_to()). A sched_ext scheduler
 * without this callback lets the vCPU spin on.
 *
 * The favoured vCPU runs at once on the pCPU for which it waits, unless that would be unfair. It
 * may get ahead of the task that runs there by the virtual time of one of that task's slices, but
 * no further: any task is that far ahead of others when its turn ends. Its turn is no longer than
 * this bound allows, and if that is less than a granularity it is not let in: it would only
 * interrupt the running task. Both are charged as usual.
 *
 * Does the spinner's own turn end with that? If it spins on, it pays for that itself; if its turn
 * ends, its neighbours pay, in switches. So its turn ends only
 *
 * - if a sibling is next on its pCPU, within the same bound: that concerns only these two;
 * - if no vCPU can be let in for which it may be waiting, and the next one on its pCPU is within
 *   that bound, too. A sibling that spun and gave up its pCPU is mostly not the one that is waited
 *   for, but another spinner.
 *
 * Otherwise the spinner keeps its pCPU: the vCPU for which it waits is running by now, and soon
 * done.
 *
 * A spinner whose turn ends keeps what it is owed, and others get ahead of it by a slice at most:
 * its VM gets its share in the end, and spins less of it away. KVM does not always know which
 * sibling is waited for. It recognises a vCPU that was preempted in user mode, with an interrupt to
 * take, only since Linux 5.13, and only if the CPU delivers interrupts to guests itself (APICv).
 * Without that, KVM names one spinner to another, and the vCPU for which both wait has its turn the
 * sooner, the sooner they give up theirs.
 *
 * But two such spinners would take turns with a neighbour every few microseconds; the neighbour
 * gets its share, but loses a sixth of its work to switches. CFS avoids that by heeding yields only
 * within a granularity of virtual time (pick_next_entity()). For the same reason a vCPU that spun
 * is let in again only when others have caught up, with two granularities to go; and after GRACE at
 * the soonest (grace.h), since each time costs the neighbour two switches.
 *
 * Where siblings run together or stop for each other, the gang decides which vCPU runs when: no
 * vCPU of such a VM yields to a sibling, and no vCPU is let in on a pCPU that one of such a VM has.
 * Other VMs yield: those without a gang on the same host; those in mode demand, which lets single
 * vCPUs run sooner, as a yield does; and those in mode asymmetric (Jupiter's), which leaves fair
 * order as it is: Jupiter judges by run time how well a VM gets on, since vCPUs that spin lose
 * their pCPUs soon (dissertation, §4.4.1).
 */
#ifndef CORUN_YIELD_H
#define CORUN_YIELD_H

#include "fair.h"
#include "gang_pick.h"
#include "grace.h"
#include "platform/platform.h"
#include "timer.h"

/* `cpu_ctx.favoured` while the favoured task runs: not the id of any thread. */
#define RUNS_FAVOURED (~0u)

/* Ends the turn of `t`, which runs: the tasks that wait for its pCPU go first. */
static inline bool end_turn(struct task_struct *p, struct task_ctx *t, u16 over)
{
	t->over = over;
	set_slice(p, 0);
	return true;
}

/* The virtual time up to which a task may be favoured on the pCPU of `c`. */
static inline u64 favour_bound(struct cpu_ctx *c, u64 now)
{
	u64 slice = fair_cost(knobs.slice, shared(c->cur_rate));

	return fair_current(c, now) + slice;
}

/* A task is let in only if the bound allows it this much virtual time; short slices do, too. */
static inline u64 favour_least(struct favoured *to)
{
	u64 third = knobs.slice / 3;
	u64 least = knobs.wakeup_gran < third ? knobs.wakeup_gran : third;

	return to->over & TURN_SPUN ? 2 * least : least;
}

/* Did `to` spin a moment ago, and give up its pCPU for that? */
static inline bool spun_lately(struct favoured *to, u64 now)
{
	return to->over & TURN_SPUN && before(now, to->since + GRACE);
}

/* May `to`, which waits for the pCPU of `c`, go before all tasks there? */
static inline bool may_favour(struct favoured *to, struct cpu_ctx *c, u64 now)
{
	u64 bound = favour_bound(c, now);

	if (to->state != TASK_READY || spun_lately(to, now))
		return false;
	return !before(bound, to->vtime + favour_least(to));
}

/* Do vCPUs of the VM in `slot` give way to a task that another one yields to? */
static inline bool gives_way(u32 slot)
{
	struct gang g = gang_in(slot);

	return g.mode == GANG_NONE || g.mode == GANG_ASYMMETRIC || g.mode == GANG_DEMAND;
}

/*
 * May `to` go next on `c` as far as gangs are concerned: its own, and that of the task that runs
 * there?
 */
RARE bool gangs_give_way(struct favoured *to, struct cpu_ctx *c)
{
	return gives_way(to->vm) && (shared(c->idle) || gives_way(shared(c->cur_vm)));
}

/* Makes `p`, described by `to`, go next where it waits; false if it may not. */
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
 * Does `t`, which spins, give up its pCPU? To a sibling if that could be favoured; to any other
 * task only if `waits_long`: no vCPU for which it may be waiting can be let in.
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
		if (next.vm == t->vm || waits_long)
			gives = !before(favour_bound(c, now), next.vtime);
		break;
	}
	return gives;
}

/* `p`, which spins, lets `other` go first; false if `other` may not, and `p` goes on. */
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

/* A task was favoured on `cpu`: it runs there next, if it still waits for it. */
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
	timer_within(c, cpu, SLICE_MIN, now);
	return true;
}

/* Has the favoured task, which runs on `cpu`, got as far ahead of others as it may? */
RARE bool favour_is_over(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 mine = fair_current(c, now);
	u64 bound = shared(c->favour_end);
	u64 rate;

	if (!before(mine, bound))
		return true;
	rate = shared(c->cur_rate);
	timer_within(c, cpu, (bound - mine) * RATE_ONE / rate + 1, now);
	return false;
}

#endif
