/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Strict co-scheduling with static time slots: Ousterhout, "Scheduling techniques for concurrent
 * systems", 1982, as in Algorithm 1 of Sukwong & Kim, EuroSys 2011.
 *
 * Time is cut into slots, the same on all pCPUs. When one begins, VMs with a ready vCPU are taken
 * in turn: each that finds as many pCPUs without an owner as it has vCPUs gets them for the slot;
 * one that does not waits for a later slot, as Algorithm 1 looks for the first with enough
 * available pCPUs. The first that found too few is served first in the next slot, when all pCPUs
 * are available: so every VM gets a slot within as many slots as there are VMs.
 *
 * Nobody else's vCPU runs on a pCPU that has an owner, and none on a pCPU that has not: pCPUs stay
 * idle while vCPUs wait (fragmentation), and one that wakes up waits for the next slot (priority
 * inversion), as the paper's Figure 3 shows. With vm_conf.fill, vCPUs run on pCPUs that would idle,
 * until the owner wants them. Tasks of the host that are no vCPUs run in fair order with whoever
 * owns the pCPU.
 *
 * Where affinity leaves a VM no pCPUs that it could own, a part of it starts. Order by turns does
 * not look at weights: strict VMs get slots alike.
 */
#ifndef CORUN_GANG_STRICT_H
#define CORUN_GANG_STRICT_H

#include "gang.h"

/* What a slot lasts when no VM asks for one any more, ns. */
#define SLOT_DEFAULT 10000000ull

static inline bool slot_is_open(u64 now)
{
	return before(now, shared(slots.end));
}

static inline bool strict_owns(struct gang *g, struct cpu_ctx *c)
{
	return shared(c->owner) == g->slot + 1;
}

static inline u32 strict_rank(struct gang *g, struct cpu_ctx *c)
{
	if (strict_owns(g, c))
		return RANK_ORDINARY;
	return shared(g->conf->fill) ? RANK_FILL : RANK_NOT;
}

/* Can `cpu` be owned, and is it not yet? */
static inline bool strict_available(struct cpu_ctx *c, s32 cpu)
{
	return c && is_online(cpu) && !shared(c->owner);
}

/*
 * How many pCPUs the VM in a slot of the table wants: one per vCPU, those that wait at the moment
 * included, since it is in the slot that they will be woken by their siblings.
 */
static inline u32 strict_wanted(u32 slot)
{
	struct gang g = gang_in(slot);

	return g.vm ? shared(g.vm->vcpus) : 0;
}

/* How many pCPUs are available. */
CALLED u32 strict_count(void)
{
	u32 count = 0;
	s32 i;

	repeat (i, nr_pcpus())
		count += strict_available(cpu_at(i), i);
	return count;
}

/*
 * Gives the VM in a slot of the table at most `wanted` pCPUs, of those where its vCPUs are (`here`)
 * or of all; returns how many it did not get.
 */
CALLED u32 strict_take(u32 slot, u32 wanted, u32 here)
{
	struct gang g = gang_in(slot);
	s32 i;

	if (!g.vm)
		return 0;
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (!wanted)
			break;
		if (!c || !strict_available(c, i) || (here && !gang_here(&g, i)))
			continue;
		store(c->owner, slot + 1);
		wanted--;
	}
	return wanted;
}

/*
 * Gives the VM in a slot of the table pCPUs for the time slot: one per vCPU, or none, and then
 * false; `first`: what there is.
 */
static inline bool strict_assign(u32 slot, bool first)
{
	u32 wanted = strict_wanted(slot);

	if (!first && strict_count() < wanted)
		return false;
	strict_take(slot, strict_take(slot, wanted, 1), 0);
	return true;
}

/* The VM of the table's slot that is served after `slot`, having begun with `first`; or NO_VM. */
static inline u32 strict_next(u32 slot, u32 first)
{
	u32 next = active_slot((slot + 1) % MAX_VMS);

	if (next == NO_VM || (next - first) % MAX_VMS <= (slot - first) % MAX_VMS)
		return NO_VM;
	return next;
}

/* Assigns all pCPUs for a slot that begins now. */
static inline void strict_assign_all(u64 now)
{
	u32 first = active_slot(shared(slots.first) % MAX_VMS);
	u32 slot = first;
	u32 missed = NO_VM;
	u64 length = 0;
	u32 turn;

	repeat (turn, MAX_VMS) {
		struct gang g;

		if (slot == NO_VM)
			break;
		g = gang_in(slot);
		if (g.mode == GANG_STRICT) {
			bool fits = strict_assign(slot, !length);

			if (!length)
				length = shared(g.conf->slot);
			if (!fits && missed == NO_VM)
				missed = slot;
		}
		slot = strict_next(slot, first);
	}
	store(slots.first, missed != NO_VM ? missed : first + 1);
	store(slots.end, now + (length ? length : SLOT_DEFAULT));
}

/* Makes every pCPU but `cpu` run its owner, or nobody's vCPU. */
static inline void strict_enforce(s32 cpu)
{
	s32 i;

	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);
		u32 owner, runs;

		if (!c || i == cpu)
			continue;
		owner = shared(c->owner);
		runs = shared(c->idle) ? 0 : shared(c->cur_vm) + 1;
		if (owner != runs)
			kick(i, KICK_PREEMPT);
	}
}

/* A slot is over, `cpu` noticed: the next one begins, unless another pCPU is at that. */
CALLED u32 strict_open_slot(s32 cpu, u64 now)
{
	s32 i;

	if (exchange(slots.opening, 1))
		return 0;
	if (!slot_is_open(now)) {
		repeat (i, nr_pcpus()) {
			struct cpu_ctx *c = cpu_at(i);

			if (c)
				store(c->owner, 0);
		}
		strict_assign_all(now);
		strict_enforce(cpu);
	}
	exchange(slots.opening, 0);
	return 1;
}

/* A pCPU for `p`, which occupies none, that its VM owns and has no vCPU on; NO_PCPU: none. */
CALLED s32 strict_place(struct task_struct *p TRUSTED, u32 slot, s32 prev)
{
	struct gang g = gang_in(slot);
	s32 found = NO_PCPU;
	s32 i;

	if (!g.vm)
		return NO_PCPU;
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c || !strict_owns(&g, c) || gang_here(&g, i) || !allowed(p, i))
			continue;
		if (found == NO_PCPU || i == prev)
			found = i;
	}
	return found;
}

/* A vCPU of `g` waits where it may not run: pCPUs that idle for its VM shall look for it. */
static inline void strict_call_owned(struct gang *g)
{
	s32 i;

	repeat (i, nr_pcpus()) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && strict_owns(g, c) && shared(c->idle))
			kick(i, KICK_IDLE);
	}
}

#endif
