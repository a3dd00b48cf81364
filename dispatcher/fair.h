/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair order: which task is owed pCPU time, by weighted virtual time.
 *
 * A task's virtual time grows while it runs, the slower the more weight it has. The queue of a pCPU
 * is ordered by it, so that the virtual time of all tasks advances alike and pCPU time is shared by
 * weight. A VM with a weight of its own shares that among its vCPUs that want to run, in proportion
 * to their weights: the total is fixed, however many vCPUs the VM has. If tasks' cgroups are known,
 * the cgroups share (group.h), to any depth.
 *
 * Each pCPU has a clock: the highest virtual time of a task that has started there in its turn, or
 * of the last task when it left the pCPU idle. What a task may carry to another pCPU, or through a
 * wait, is clamped around that clock on both sides (enqueue.h). No task hoards time by waiting,
 * though it keeps what it is owed for having been ready. A task that comes with a lead is not
 * locked out for longer than two of its turns cost, nor does it push the clock so far that tasks
 * which wake after it are locked out.
 */
#ifndef CORUN_FAIR_H
#define CORUN_FAIR_H

#include "group.h"
#include "platform/platform.h"
#include "vm.h"

/* No more is charged at once than this, ns: keeps products below 2^63. */
#define CHARGE_MAX 10000000000ull

static inline bool before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static inline u64 later(u64 a, u64 b)
{
	return before(a, b) ? b : a;
}

/* `weight`, scaled by the share of `t` among its siblings. */
static inline u32 fair_shared(struct task_ctx *t, u64 weight)
{
	if (t->share)
		weight = weight * t->share / SHARE_ONE;
	return weight ? (u32)weight : 1;
}

/* What `t` adds to its VM's active weight while it is ready or running. */
static inline u32 fair_weight(struct task_struct *p, struct task_ctx *t)
{
	return fair_shared(t, weight_of(p));
}

/* How fast the virtual time of a task with this weight grows; far from any bound. */
static inline u64 fair_own_rate(u64 weight)
{
	/* The usual case; a division costs more. */
	if (weight == WEIGHT_NEUTRAL)
		return RATE_ONE;
	return (u64)WEIGHT_NEUTRAL * RATE_ONE / (weight ? weight : 1);
}

/* The same for a vCPU: by its VM's weight, if the VM has one. */
RARE u64 fair_vm_rate(struct task_ctx *t, u64 weight)
{
	u64 rate = (u64)WEIGHT_NEUTRAL * RATE_ONE;
	struct vm_ctx *vm = vm_of(t);
	struct vm_conf *conf = vm ? vm_conf_of(t, vm) : NULL;
	u32 vm_weight = conf ? shared(conf->weight) : 0;

	if (vm_weight) {
		u64 active = shared(vm->active_weight);

		if (active < fair_shared(t, weight))
			active = fair_shared(t, weight);
		rate = rate * active / vm_weight;
	}
	return rate / (weight ? weight : 1);
}

/*
 * How fast the virtual time of `t` grows while it runs. With cgroups, a share among siblings scales
 * what the vCPU has in its cgroup: the shares add up to that of the VM if all siblings want to run.
 * `mean`: see group_rate().
 */
static inline u64 fair_rate_by(struct task_struct *p, struct task_ctx *t, u64 mean)
{
	u64 weight = weight_of(p);
	u64 rate;

	if (t->group) {
		rate = fair_own_rate(weight);
		rate = group_rate(t->group, t->group_weight, rate, mean);
	} else if (t->vm != NO_VM) {
		rate = fair_vm_rate(t, weight);
	} else {
		return fair_own_rate(weight);
	}
	if (t->share)
		rate = rate * SHARE_ONE / t->share;
	if (rate > RATE_MAX)
		rate = RATE_MAX;
	return rate ? rate : 1;
}

/* The same at this moment. */
static inline u64 fair_rate(struct task_struct *p, struct task_ctx *t)
{
	return fair_rate_by(p, t, 0);
}

/* The load of a task with this rate on a pCPU: its share of its VM's weight. */
static inline u32 fair_load_at(u64 rate)
{
	u64 load = (u64)WEIGHT_NEUTRAL * RATE_ONE / rate;

	return load ? (u32)load : 1;
}

/* Does only its own weight count for `t`, not that of a VM or a cgroup? */
static inline bool fair_alone(struct task_ctx *t)
{
	return t->vm == NO_VM && !t->group;
}

/* The load of `t` on a pCPU. */
static inline u32 fair_load(struct task_struct *p, struct task_ctx *t)
{
	return fair_alone(t) ? weight_of(p) : fair_load_at(fair_rate(p, t));
}

/* What `delta` ns on a pCPU cost in virtual time. */
static inline u64 fair_cost(u64 delta, u64 rate)
{
	if (delta > CHARGE_MAX)
		delta = CHARGE_MAX;
	/* In two parts, since the product of both may have more than 64 bits. */
	return (delta >> 10) * rate / (RATE_ONE >> 10) + (delta & 1023) * rate / RATE_ONE;
}

/*
 * Charges `t`, which is running, for what it ran since it was last charged. If the clock of its
 * pCPU has advanced with it since (fair_clock_alone()), that has charged it up to cur_since
 * already.
 */
static inline void fair_charge(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);
	u64 delta = now - t->charged;
	u64 since = c ? shared(c->cur_since) : 0;
	u64 rate;

	if (before(now, t->charged))
		return;
	rate = fair_rate_by(p, t, group_mean(t, delta, now));
	t->sum.run += delta;
	if (c && before(t->charged, since) && !before(now, since)) {
		t->vtime = shared(c->cur_vtime);
		delta = now - since;
	}
	t->vtime += fair_cost(delta, rate);
	t->charged = now;
}

/*
 * `t` joins `cpu`: its virtual time is converted to the clock there, which is returned. It stays as
 * far behind or ahead as it was by the clock it comes from.
 */
static inline u64 fair_arrive(struct task_ctx *t, struct cpu_ctx *c, s32 cpu)
{
	u64 here = shared(c->vnow);

	if (t->clock_cpu != cpu) {
		struct cpu_ctx *from = cpu_at(t->clock_cpu);
		u64 there = from ? shared(from->vnow) : t->vtime;

		t->vtime = here + (t->vtime - there);
		t->clock_cpu = cpu;
	}
	return here;
}

/*
 * The clock of `cpu`, `here`, or the running task's virtual time if that has passed it: with gangs
 * the clock stands still while a task that is owed more is stopped (clock_reaches()). A lead is
 * reckoned from where others are by now: otherwise a task that halts for a moment would always go
 * before them.
 */
static inline u64 gang_clock(struct cpu_ctx *cpu, u64 here)
{
	return with_gangs() ? later(here, shared(cpu->cur_vtime)) : here;
}

/*
 * `t`, charged up to now, goes on running on `cpu` or begins to, at `rate`: the clock advances, to
 * `reached` at most. It does not while other tasks are there and `t` may run out of turn, being
 * urgent (gang_demand.h) or having a deadline (gang_asymmetric.h), whether or not that got it the
 * pCPU. Nor if the clock `stands`: `t` goes on with its turn (turn.h), or has the last one that its
 * quota allows, ahead of parked tasks (quota.h). The clock tells where turns begin. Otherwise each
 * part of a turn would advance it, and a task that wakes would be queued behind others that were
 * there before it.
 */
static inline void fair_clock(struct task_ctx *t, struct cpu_ctx *cpu, u64 rate, bool stands,
			      u64 reached, u64 now)
{
	if (!stands && (!t->urgent_at || shared(cpu->nr) == 1))
		store(cpu->vnow, later(shared(cpu->vnow), reached));
	store(cpu->cur_vtime, t->vtime);
	store(cpu->cur_since, now);
	store(cpu->cur_rate, rate);
}

/*
 * `t`, charged up to now, was the last task of `cpu`, and leaves: the clock catches up with it. It
 * took nothing from others by running alone, so it owes nothing when it comes back, however soon.
 */
static inline void fair_clock_idles(struct task_ctx *t, struct cpu_ctx *cpu)
{
	store(cpu->vnow, later(shared(cpu->vnow), t->vtime));
}

/*
 * `ns` of pCPU time as virtual time: what they cost a task of this `load` (NO_LOAD: none in
 * particular), or the one that runs on `cpu`, whichever is more; and `ns` at most. Where VMs share
 * many pCPUs, virtual time goes far slower than time (group.h): without this, a bound meant as
 * milliseconds would come out as tenths of a second.
 */
#define NO_LOAD ~0u
static inline u64 fair_span(struct cpu_ctx *cpu, u32 load, u64 ns)
{
	u64 rate;

	if (load <= WEIGHT_NEUTRAL)
		return ns;
	rate = shared(cpu->runs) ? shared(cpu->cur_rate) : 0;
	if (rate >= RATE_ONE)
		return ns;
	if (rate < fair_own_rate(load))
		rate = fair_own_rate(load);
	return ns * rate / RATE_ONE;
}

/* `ns` of the pCPU time of a task of this `load` as virtual time, `ns` at most. */
static inline u64 fair_turn(u32 load, u64 ns)
{
	return load <= WEIGHT_NEUTRAL ? ns : fair_cost(ns, fair_own_rate(load));
}

/* The virtual time of the task that runs on `cpu`, at `now`. */
static inline u64 fair_current(struct cpu_ctx *cpu, u64 now)
{
	u64 since = shared(cpu->cur_since);
	u64 ran = before(since, now) ? now - since : 0;
	u64 began = shared(cpu->cur_vtime);

	return began + fair_cost(ran, shared(cpu->cur_rate));
}

/*
 * The task that runs on `cpu` has been alone there for a slice: the clock advances with it, as at
 * the start of each turn. What the task ran is charged at the rate by which the clock went, once
 * and for all (fair_charge()): at the rate of the moment at which it is interrupted, it would be
 * far ahead of the clock, or behind it, and so would be every task that wakes here.
 */
static inline void fair_clock_alone(struct cpu_ctx *cpu, u64 now)
{
	u64 vtime = fair_current(cpu, now);

	store(cpu->vnow, later(shared(cpu->vnow), vtime));
	store(cpu->cur_vtime, vtime);
	store(cpu->cur_since, now);
}

/* Is `t`, which just woke, owed so much more than the running task that it should not wait? */
static inline bool fair_preempts(struct task_ctx *t, struct cpu_ctx *cpu, u64 now)
{
	u64 gran = t->claims ? t->gran : knobs.wakeup_gran;

	u64 reached;

	gran = fair_span(cpu, t->load, gran);
	reached = fair_current(cpu, now);
	return before(t->vtime + gran, reached);
}

#endif
