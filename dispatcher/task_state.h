/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The states of a task, and what follows from them.
 *
 * A task is waiting, ready, running, or throttled by a quota (enum task_state). Each change of
 * state adds the time spent in the old one to the task's sums. A task that wants to run, ready or
 * running, is active: it counts in its VM's weight (fair.h) and in those of its cgroups (group.h).
 * This is also where a task becomes a vCPU: when it wants to run, and has been inside KVM_RUN
 * (vm.h).
 */
#ifndef CORUN_TASK_STATE_H
#define CORUN_TASK_STATE_H

#include "fair.h"
#include "gang_events.h"
#include "group.h"
#include "occupancy.h"
#include "platform/platform.h"
#include "quota.h"
#include "vm.h"

/* `t` changes its state. Run time is not added up here, but where it is charged (fair.h). */
static inline void set_state(struct task_ctx *t, enum task_state state, u64 now)
{
	if (t->member)
		gang_state(t, state, now);
	t->state = state;
	t->since = now;
}

/* `t`, which does not run, enters `state`: the time spent in the state that it leaves is added up.
 */
static inline void enter(struct task_ctx *t, enum task_state state, u64 now)
{
	u64 spent = t->since && before(t->since, now) ? now - t->since : 0;

	if (t->state == TASK_READY)
		t->sum.ready += spent;
	else if (t->state == TASK_WAITING)
		t->sum.wait += spent;
	else if (t->state == TASK_THROTTLED)
		quota_waited(t, spent, now);
	set_state(t, state, now);
}

/* The VM of `t` has one more vCPU that wants to run. */
RARE void activate_in_vm(struct task_struct *p, struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (!vm)
		return;
	t->active_weight = fair_weight(p, t);
	fetch_add(vm->active_weight, t->active_weight);
}

/* `t` wants to run from now on: the weight of its VM or its cgroup is shared by one more task. */
INLINED void activate(struct task_struct *p, struct task_ctx *t)
{
	if (!t->group_weight && knobs.groups)
		group_enter(p, t);
	if (t->vm != NO_VM && !t->active_weight)
		activate_in_vm(p, t);
}

/* The VM of `t` has one vCPU less that wants to run. */
RARE void deactivate_in_vm(struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (vm)
		fetch_add(vm->active_weight, -(s64)t->active_weight);
	t->active_weight = 0;
}

static inline void deactivate(struct task_ctx *t)
{
	group_leave(t);
	if (t->active_weight)
		deactivate_in_vm(t);
}

/* `t` does not want to run any more, for whatever reason: it stops being counted anywhere. */
static inline void leave(struct task_ctx *t)
{
	occupancy_leave(t);
	deactivate(t);
	t->rest = 0;
	t->woken = 0;
	t->queued = 0;
}

/* The dispatcher does not schedule `t` any more, whatever state it was in. */
static inline void give_up_place(struct task_ctx *t)
{
	if (t->state == TASK_THROTTLED)
		quota_returns(t);
	leave(t);
}

/* `t`, which wants to run, has become a vCPU of VM `id`: from now on it counts there. */
RARE void notice_new_vcpu(struct task_struct *p, struct task_ctx *t, u32 id)
{
	if (!vm_notice(t, id))
		return;
	/* The pCPU where it last ran as a vCPU is worth staying on; one where it ran before it was
	 * a vCPU is not. */
	t->last_cpu = NO_PCPU;
	if (!t->sum.switches && was_vcpu())
		t->last_cpu = task_cpu_of(p);
	siblings_add(t->vm, t->cpu);
	activate(p, t);
}

/* Has a task that wants to run become a vCPU? */
static inline void notice_vcpu(struct task_struct *p, struct task_ctx *t)
{
	u32 id = t->vm == NO_VM ? vcpu_of(p) : 0;

	if (id)
		notice_new_vcpu(p, t, id);
}

/* `t`, which was throttled, becomes ready: it woke, or is queued anew since it was changed. */
RARE void unpark(struct task_struct *p, struct task_ctx *t, u64 now)
{
	starts_again(p, t);
	quota_returns(t);
	enter(t, TASK_READY, now);
}

/* `t` begins to run though enqueue did not queue it: it was released from a quota, or is back from
 * another scheduling class. */
RARE void activate_late(struct task_struct *p, struct task_ctx *t)
{
	if (t->state == TASK_THROTTLED)
		quota_returns(t);
	activate(p, t);
}

#endif
