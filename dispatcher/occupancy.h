/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task occupies which pCPU: a task occupies the one it is queued or running on.
 *
 * Placement looks at the counts (tasks, their load, and sibling vCPUs per pCPU). They change before
 * the task itself moves, so that two CPUs placing siblings at the same time see each other.
 */
#ifndef CORUN_OCCUPANCY_H
#define CORUN_OCCUPANCY_H

#include "platform/platform.h"
#include "vm.h"

/*
 * The counter of the vCPUs on `cpu` of the VM in a slot of the table; NULL if there is no VM
 * (NO_VM).
 */
static inline u32 *siblings_counter(u32 slot, s32 cpu)
{
	struct vm_ctx *vm = slot == NO_VM ? NULL : vm_at(slot);

	return vm && (u32)cpu < MAX_PCPUS ? &vm->here[opaque((u32)cpu) % MAX_PCPUS] : NULL;
}

/*
 * Counts one more vCPU of the VM in a slot of the table on `cpu`; returns how many siblings were
 * there. Takes a slot rather than a task_ctx, since callbacks for other tasks call it, too.
 */
RARE u32 siblings_add(u32 slot, s32 cpu)
{
	struct vm_ctx *vm = vm_at(slot);
	u32 *here = siblings_counter(slot, cpu);
	u32 were;

	if (!vm || !here)
		return 0;
	were = fetch_add(*here, 1);
	if (!were)
		set_bit_of(vm->where, cpu);
	return were;
}

/*
 * Counts one vCPU less there. A vCPU that comes at the same time may set the bit before it is
 * cleared here: hence the second look.
 */
RARE void siblings_sub(u32 slot, s32 cpu)
{
	struct vm_ctx *vm = vm_at(slot);
	u32 *here = siblings_counter(slot, cpu);

	if (!vm || !here || fetch_add(*here, -1) != 1)
		return;
	clear_bit_of(vm->where, cpu);
	if (shared(*here))
		set_bit_of(vm->where, cpu);
}

static inline void add_load(struct cpu_ctx *c, s64 load)
{
	fetch_add(c->load, load);
	load_changed(c);
}

/* Counts `t` on `cpu`, whose struct is `c`; returns how many siblings were there. */
static inline u32 occupancy_add(struct task_ctx *t, struct cpu_ctx *c, s32 cpu)
{
	if (c) {
		fetch_add(c->nr, 1);
		add_load(c, t->load);
	}
	return t->vm == NO_VM ? 0 : siblings_add(t->vm, cpu);
}

static inline void occupancy_sub(struct task_ctx *t, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	if (c) {
		fetch_add(c->nr, -1);
		add_load(c, -(s64)t->load);
	}
	if (t->vm != NO_VM)
		siblings_sub(t->vm, cpu);
}

/*
 * The load of `t`, on `c`, is `load` now: the vCPUs that share its VM's weight may have changed.
 */
static inline void occupancy_reload(struct task_ctx *t, struct cpu_ctx *c, u32 load)
{
	if (load == t->load)
		return;
	add_load(c, (s64)load - (s64)t->load);
	t->load = load;
}

/* `t` gives up the pCPU it occupies, if any. */
static inline void occupancy_leave(struct task_ctx *t)
{
	if (t->cpu == NO_PCPU)
		return;
	occupancy_sub(t, t->cpu);
	t->cpu = NO_PCPU;
}

/* `t` occupies `cpu` from now on; returns how many siblings were there. */
static inline u32 occupancy_move(struct task_ctx *t, s32 cpu)
{
	u32 siblings = occupancy_add(t, cpu_at(cpu), cpu);

	occupancy_leave(t);
	t->cpu = cpu;
	return siblings;
}

/* A task that was announced for `cpu` does not come: it is not counted there any more. */
RARE void forget_incoming(struct cpu_ctx *c, s32 cpu)
{
	struct task_ctx gone = {
	    .vm = shared(c->incoming_vm),
	    .load = shared(c->incoming_load),
	    .cpu = NO_PCPU,
	};

	store(c->incoming, 0);
	occupancy_sub(&gone, cpu);
}

/* `t` starts on `cpu`, where it was `announced` (pull.h), or without that from another queue. */
RARE bool occupancy_start_moved(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, bool announced)
{
	if (announced)
		store(c->incoming, 0);
	if (t->cpu == cpu)
		return false;
	if (announced)
		occupancy_leave(t);
	else
		occupancy_move(t, cpu);
	t->cpu = cpu;
	return true;
}

/* `t` starts on `cpu`, wherever it was queued. Returns true if that was elsewhere. */
static inline bool occupancy_start(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u32 id)
{
	bool announced = shared(c->incoming) == id;

	/* The usual case: it starts where it was queued. */
	if (!announced && t->cpu == cpu)
		return false;
	return occupancy_start_moved(t, c, cpu, announced);
}

/* Number of sibling vCPUs of `t` on `cpu`, `t` itself not counted. */
static inline u32 siblings_at(struct task_ctx *t, s32 cpu)
{
	u32 *here = siblings_counter(t->vm, cpu);
	u32 count = here ? shared(*here) : 0;

	return count - (t->cpu == cpu && count ? 1 : 0);
}

/* Does `cpu` share its core with a pCPU that has something to do? */
static inline bool shares_core(s32 cpu)
{
	struct cpu_ctx *beside = cpu_at(smt_sibling_of(cpu));

	return beside && shared(beside->load);
}

#endif
