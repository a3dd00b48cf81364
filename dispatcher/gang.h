/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gangs: the vCPUs of a VM, where it depends on the others when one of them runs.
 *
 * Each VM has a mode (enum gang_mode), each mode a header:
 *
 *   dynamic      gang_dynamic.h   siblings are called when the first of them gets its turn
 *   strict       gang_strict.h    siblings start together in time slots, or not at all
 *   demand       gang_demand.h    a vCPU woken by a sibling runs at once, for a short while
 *   relaxed, relaxed-all
 *                gang_relaxed.h   a vCPU ahead of its siblings is stopped until they catch up
 *   asymmetric   gang_asymmetric.h   each vCPU has its own weight and rescheduling latency
 *
 * A mode decides by ranks: how much it wants a vCPU to run on a pCPU at a moment. gang_pick.h
 * chooses the best rank, and within a rank fair order decides. Run time is charged as usual, so a
 * gang pays later for what it gets out of turn.
 *
 * Whatever the ranks, tasks that have been ready for STARVE_LIMIT run (starve.h).
 */
#ifndef CORUN_GANG_H
#define CORUN_GANG_H

#include "fair.h"
#include "occupancy.h"
#include "platform/platform.h"
#include "vm.h"

/* May a task start on a pCPU? From "no" to "at once". */
enum gang_rank {
	RANK_NOT = 0,	   /* it may not */
	RANK_FILL = 1,	   /* if the pCPU would idle otherwise */
	RANK_ORDINARY = 2, /* in its turn of fair order */
	RANK_TARGET = 3,   /* before ordinary ones: its gang was called here */
	RANK_URGENT = 4,   /* before all others: a sibling waits for it */
};

/*
 * A task's VM with its gang. In mode GANG_NONE there is no gang, and the other fields must not be
 * used.
 */
struct gang {
	struct vm_ctx *vm;
	struct vm_conf *conf;
	struct gang_ctx *ctx;
	u32 mode;
	u32 slot;
};

/* The gang of the VM in a slot of the table; NO_VM: none. */
INLINED struct gang gang_in(u32 slot)
{
	struct gang g = {.slot = slot};

	if (slot == NO_VM || !with_gangs())
		return g;
	g.vm = vm_at(slot);
	g.conf = g.vm ? vm_conf_at(slot) : NULL;
	if (g.conf && shared(g.conf->id) != shared(g.vm->id))
		g.conf = NULL;
	g.ctx = g.conf ? gang_at(slot) : NULL;
	g.mode = g.ctx ? shared(g.conf->gang) : GANG_NONE;
	return g;
}

INLINED struct gang gang_of(struct task_ctx *t)
{
	return gang_in(t->vm);
}

/*
 * May `t` have a gang? Checked first, since most hosts have no gangs. Only vCPUs use the fields
 * that gangs keep in a task (urgent, member, claims and those that belong to them).
 */
static inline bool has_gang(struct task_ctx *t)
{
	return t->vm != NO_VM && with_gangs();
}

/* `t`, to be ranked on `cpu`; to be used in callbacks of `t` itself only. */
INLINED struct ranked ranked(struct task_ctx *t, s32 cpu, bool runs, u64 now)
{
	return (struct ranked){
	    .vtime = t->vtime,
	    .urgent_at = t->urgent_at,
	    .now = now,
	    .vm = t->vm,
	    .member = t->member,
	    .cpu = cpu,
	    .runs = runs,
	};
}

/* Number of the gang's vCPUs that are ready or running on `cpu`. */
static inline u32 gang_here(struct gang *g, s32 cpu)
{
	return shared(g->vm->here[opaque((u32)cpu) % MAX_PCPUS]);
}

/* Does a vCPU of the gang run on `cpu`? */
static inline bool gang_runs_on(struct gang *g, struct cpu_ctx *c)
{
	return !shared(c->idle) && shared(c->cur_vm) == g->slot;
}

#endif
