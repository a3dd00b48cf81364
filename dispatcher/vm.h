/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which VM a task belongs to.
 *
 * A thread that has been inside KVM_RUN is a vCPU from then on; its process is its VM. VMs live in
 * a table of slots, claimed by the first vCPU that shows up and freed when the last one exits.
 *
 * The last one may exit on one CPU while another vCPU of the same VM shows up elsewhere, or one of
 * another VM that looks for a free slot. So whose a slot is and how many it counts is one word: a
 * vCPU is counted only in its own VM's slot, and a slot is freed only while it counts nobody. Who
 * comes too late is told so, not counted in the slot that was.
 */
#ifndef CORUN_VM_H
#define CORUN_VM_H

#include "platform/platform.h"

/* The VM of `t`, or NULL for a host task. */
static inline struct vm_ctx *vm_of(struct task_ctx *t)
{
	return t->vm == NO_VM ? NULL : vm_at(t->vm);
}

/* What the policy wants for the VM of `t`; NULL: nothing said, the host's defaults hold. */
static inline struct vm_conf *vm_conf_of(struct task_ctx *t, struct vm_ctx *vm)
{
	struct vm_conf *conf = vm_conf_at(t->vm);

	return conf && shared(conf->id) == shared(vm->id) ? conf : NULL;
}

/* Others may take the same free slot first; so often is another one looked for. */
#define SLOT_TRIES 8

/* VMs begin at last-level caches by turns. */
static inline void vm_begins(struct vm_ctx *vm)
{
	u32 number = fetch_add(vms_seen, 1);

	if (knobs.llcs > 1)
		store(vm->llc, number % knobs.llcs);
}

/* The slot of VM `id`, claimed if it is new; NO_VM if the table is full. */
static inline u32 vm_slot(u32 id)
{
	/* Look for it first: a hole left by another VM must not give it a second slot. */
	u32 slot = find_slot(id, false);
	u32 try;

	if (slot != NO_VM)
		return slot;
	repeat (try, SLOT_TRIES) {
		struct vm_ctx *vm;
		u32 seen;

		/* A sibling that comes up at the same time may have claimed one by now. */
		slot = find_slot(id, true);
		vm = slot == NO_VM ? NULL : vm_at(slot);
		if (!vm)
			break;
		seen = exchange_if_zero(vm->id, id);
		if (seen == 0)
			vm_begins(vm);
		if (seen == 0 || seen == id)
			return slot;
	}
	return NO_VM;
}

/*
 * `t` has become a vCPU of VM `id`: it is counted in that VM's slot, if there is one. If the slot
 * was freed since it was found, it is nobody's vCPU yet, and is asked again when it is queued next.
 */
static inline bool vm_notice(struct task_ctx *t, u32 id)
{
	u32 slot = vm_slot(id);
	struct vm_ctx *vm = slot == NO_VM ? NULL : vm_at(slot);

	if (!vm || count_in(vm, id) == NOT_COUNTED)
		return false;
	t->vm = slot;
	return true;
}

/* `t`, which has gone, was the last vCPU of VM `id`: what is to be known of that ends here. */
static inline void vm_ends(struct task_ctx *t, u32 id)
{
	struct vm_ctx *vm = vm_of(t);

	if (vm)
		free_slot(vm, id);
}

/* A vCPU thread has gone, and is not counted any more; returns its VM if it was the last, else 0.
 */
static inline u32 vm_leave(struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);
	u32 id;

	if (!vm)
		return 0;
	/* Who is counted keeps the slot its VM's: afterwards it may be another one's. */
	id = shared(vm->id);
	return fetch_add(vm->vcpus, -1) == 1 ? id : 0;
}

#endif
