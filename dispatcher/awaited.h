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
 */
#ifndef CORUN_AWAITED_H
#define CORUN_AWAITED_H

#include "types.h"

/* A sibling waits for `t`. Is that news, and is `t` ready? Then its pCPU is to pick again. */
static inline bool note_awaited(struct task_ctx *t, u64 now)
{
	if (t->state != TASK_READY || t->awaited)
		return false;
	t->awaited = now;
	return true;
}

#endif
