/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Gangs: the vCPUs of a VM, as far as when one of them runs depends on the others.
 *
 * Each VM has a mode (enum gang_mode), each mode a header:
 *
 *   dynamic      gang_dynamic.h   siblings are called when the first of them gets its turn
 *   strict       gang_strict.h    siblings start together in time slots, or not at all
 *   demand       gang_demand.h    who is woken by a sibling runs at once, for a short while
 *   relaxed, relaxed-all
 *                gang_relaxed.h   who is ahead of its siblings is stopped until they catch up
 *   asymmetric   gang_asymmetric.h   each has a weight and a rescheduling latency of its own
 *
 * A mode speaks by ranks: what it thinks of a vCPU on a pCPU at a moment. gang_pick.h puts the best
 * rank first, and within a rank fair order decides. Time is charged as ever, so that what a gang
 * gets out of turn it pays for later.
 *
 * However a mode ranks them, tasks that have been ready for STARVE_LIMIT run (starve.h).
 */
#ifndef CORUN_GANG_H
#define CORUN_GANG_H

#include "fair.h"
#include "occupancy.h"
#include "platform/platform.h"
#include "vm.h"

/* May a task start on a pCPU? From no to at once. */
enum gang_rank {
	RANK_NOT = 0,	   /* it may not */
	RANK_FILL = 1,	   /* if the pCPU would idle otherwise */
	RANK_ORDINARY = 2, /* when it is its turn in fair order */
	RANK_TARGET = 3,   /* before those: its gang was called here */
	RANK_URGENT = 4,   /* before all: a sibling waits for it */
};

/* A task's VM with its gang; mode GANG_NONE if it has none, and then the rest is not to be used. */
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
 * May `t` have a gang? Asked first: on most hosts nobody has one. What gangs know of a task
 * (urgent, member, claims and what comes with them) only vCPUs have.
 */
static inline bool has_gang(struct task_ctx *t)
{
	return t->vm != NO_VM && with_gangs();
}

/* `t`, of whose own callback this is, on `cpu`. */
INLINED struct ranked ranked(struct task_ctx *t, s32 cpu, bool runs, u64 now)
{
	return (struct ranked){
	    .vtime = t->vtime,
	    .urgent_since = t->urgent_since,
	    .now = now,
	    .vm = t->vm,
	    .member = t->member,
	    .cpu = cpu,
	    .runs = runs,
	};
}

/* Ready or running vCPUs of the gang on `cpu`. */
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
