/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sibling waits for a vCPU that is ready, but has no pCPU: for cosched-demand (gang_demand.h).
 *
 * A vCPU that changes a page table has its siblings flush their TLBs, by an interrupt, and spins
 * until all have answered. A preempted sibling answers when its turn comes. A BPF program sees the
 * interrupt when KVM delivers it, in the sender's thread (crates/linux/bpf/awaited.bpf.c). It is
 * concurrent with the callbacks, one of which may be under way for the same vCPU on another pCPU.
 * So it decides nothing: it only leaves a mark and makes the vCPU's pCPU pick again, which looks at
 * the mark. The urgent time is granted when the vCPU starts.
 *
 * The callback under way may be the one that looks for a pCPU: then the vCPU is ready, but has none
 * yet, and no pCPU is made to pick. The callback that queues the vCPU looks for the mark
 * (gang_preempts_one()).
 */
#ifndef CORUN_AWAITED_H
#define CORUN_AWAITED_H

#include "types.h"

/*
 * A sibling waits for `t`. Returns true if `t` is ready and was not marked before: then its pCPU
 * must pick again.
 */
static inline bool note_awaited(struct task_ctx *t, u64 now)
{
	if (*(volatile u32 *)&t->state != TASK_READY)
		return false;
	/* A full barrier: the mark is set before it is read on which pCPU `t` is. */
	return !__sync_val_compare_and_swap(&t->awaited, 0, now);
}

/*
 * The pCPU of `t`, which other CPUs may change meanwhile. NO_PCPU if it has none just now: the
 * kernel ends a scheduler that passes such a number to it.
 */
static inline s32 awaited_at(struct task_ctx *t)
{
	s32 cpu = *(volatile s32 *)&t->cpu;

	return cpu >= 0 && cpu < (s32)MAX_PCPUS ? cpu : NO_PCPU;
}

#endif
