/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which VM a task belongs to.
 *
 * A thread that has been inside KVM_RUN is a vCPU from then on; its process is its VM. VMs live in
 * a table of slots, claimed by the first vCPU that appears and freed when the last one exits.
 *
 * The last vCPU may exit on one CPU while another vCPU of the same VM appears elsewhere, or one of
 * another VM that looks for a free slot. So a slot's owner and its number of vCPUs are one word: a
 * vCPU is counted only in its own VM's slot, and a slot is freed only while it counts none. A vCPU
 * that comes too late finds that out, and is not counted in the former slot.
 */
#ifndef CORUN_VM_H
#define CORUN_VM_H

#include "platform/platform.h"

/* The VM of `t`, or NULL for a host task. */
static inline struct vm_ctx *vm_of(struct task_ctx *t)
{
	return t->vm == NO_VM ? NULL : vm_at(t->vm);
}

/* What the policy wants for `vm`, in a slot of the table; NULL: nothing, so the defaults hold. */
static inline struct vm_conf *vm_conf_in(u32 slot, struct vm_ctx *vm)
{
	struct vm_conf *conf = vm_conf_at(slot);

	return conf && shared(conf->id) == shared(vm->id) ? conf : NULL;
}

/* The same for `vm`, the VM of `t`. */
static inline struct vm_conf *vm_conf_of(struct task_ctx *t, struct vm_ctx *vm)
{
	return vm_conf_in(t->vm, vm);
}

/* How many times a free slot is tried for: other CPUs may take the same one first. */
#define SLOT_TRIES 8

/* VMs begin at last-level caches by turns. */
static inline void vm_begins(struct vm_ctx *vm)
{
	u32 number = fetch_add(vms_seen, 1);

	if (knobs.llcs > 1)
		store(vm->llc, number % knobs.llcs);
}

/*
 * A vCPU of VM `id` has just claimed `slot`. A sibling that appeared at the same time may have
 * claimed another one, if an earlier slot became free in between. Then this vCPU gives its slot up,
 * unless a sibling is counted in it by now. The one that claims last sees the other's claim. If
 * both see it, both may give up: no vCPU is counted in either slot then, and both look again when
 * they are queued next. Both cannot keep theirs: each is counted only after it has tried to give
 * its own up.
 */
static inline u32 only_slot(struct vm_ctx *vm, u32 slot, u32 id)
{
	u32 twin = find_twin(id, slot);

	return twin != NO_VM && free_slot(vm, id) ? twin : slot;
}

/* The slot of VM `id`, claimed if it is new; NO_VM if the table is full. */
static inline u32 vm_slot(u32 id)
{
	/* First look for its slot: a hole left by another VM must not give it a second one. */
	u32 slot = find_slot(id, false);
	u32 try;

	if (slot != NO_VM)
		return slot;
	repeat (try, SLOT_TRIES) {
		struct vm_ctx *vm;
		u32 seen;

		/* A sibling that appears at the same time may have claimed one by now. */
		slot = find_slot(id, true);
		vm = slot == NO_VM ? NULL : vm_at(slot);
		if (!vm)
			break;
		seen = exchange_if_zero(vm->id, id);
		if (seen == 0) {
			vm_begins(vm);
			return only_slot(vm, slot, id);
		}
		if (seen == id)
			return slot;
	}
	return NO_VM;
}

/*
 * task_ctx.beyond. BEYOND_FIRST: the table was full at the first look. From BEYOND on: the number
 * of VMs that had ended when the table was last full, plus BEYOND. 0: it was not full.
 */
#define BEYOND_FIRST 1
#define BEYOND 2

/*
 * `t` has become a vCPU of VM `id`: counts it in that VM's slot, if there is one. If the slot was
 * freed since it was found, `t` is not a vCPU yet (false), and is checked again when it is queued
 * next.
 *
 * With a full table that would mean two looks through all of it at each wake-up. Its slots stay
 * taken until a VM ends: so `t` remembers how many VMs had ended when the table was full. That
 * number is read before the look, since a VM may end during it; and only once a look was in vain,
 * so that VMs with a slot are spared the read.
 */
static inline bool vm_notice(struct task_ctx *t, u32 id)
{
	u64 beyond = t->beyond ? shared(vms_ended) + BEYOND : BEYOND_FIRST;
	struct vm_ctx *vm;
	u32 slot;

	if (t->beyond == beyond)
		return false;
	slot = vm_slot(id);
	vm = slot == NO_VM ? NULL : vm_at(slot);
	t->beyond = vm ? 0 : beyond;
	if (!vm || count_in(vm, id) == NOT_COUNTED)
		return false;
	t->vm = slot;
	return true;
}

/* `t`, which has exited, was the last vCPU of VM `id`: frees its slot. */
static inline void vm_ends(struct task_ctx *t, u32 id)
{
	struct vm_ctx *vm = vm_of(t);

	if (vm)
		free_slot(vm, id);
}

/* Counts out `t`, a thread that has exited. Returns its VM's id if it was the last vCPU, else 0. */
static inline u32 vm_leave(struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);
	u32 id;

	if (!vm)
		return 0;
	/* A counted vCPU keeps its slot with its VM: afterwards it may be another VM's. */
	id = shared(vm->id);
	return fetch_add(vm->vcpus, -1) == 1 ? id : 0;
}

#endif
