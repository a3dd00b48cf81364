/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sibling waits for a vCPU that is ready, but has no pCPU: for cosched-demand (gang_demand.h).
 *
 * A vCPU that changes a page table has its siblings flush their TLBs, by an interrupt, and spins
 * until all have answered. Who was preempted answers when its turn comes. KVM sees the interrupt as
 * it delivers it, in the sender's thread (crates/linux/bpf/awaited.bpf.c): beside the callbacks,
 * which may be under way for the same vCPU on another pCPU. So nothing is decided there. A mark is
 * left, which whoever picks for that pCPU looks at, and it is made to pick; the time that the vCPU
 * is urgent for is granted as it starts.
 *
 * The callback under way may be the one that looks for a pCPU: then the vCPU is ready, and has none
 * yet. Nobody is to be made to pick; whoever queues it looks for the mark (gang_preempts_one()).
 */
#ifndef CORUN_AWAITED_H
#define CORUN_AWAITED_H

#include "types.h"

/* A sibling waits for `t`. Is that news, and is `t` ready? Then its pCPU is to pick again. */
static inline bool note_awaited(struct task_ctx *t, u64 now)
{
	if (*(volatile u32 *)&t->state != TASK_READY)
		return false;
	/* A full barrier: the mark is there before it is read where `t` is. */
	return !__sync_val_compare_and_swap(&t->awaited, 0, now);
}

/* The pCPU of `t`, of which others change where it is. NO_PCPU: none just now, and the kernel ends
 * a scheduler that names such a one to it. */
static inline s32 awaited_at(struct task_ctx *t)
{
	s32 cpu = *(volatile s32 *)&t->cpu;

	return cpu >= 0 && cpu < (s32)MAX_PCPUS ? cpu : NO_PCPU;
}

#endif
