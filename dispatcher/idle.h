/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nobody waits for long where pCPUs idle.
 *
 * A pCPU that has nothing to run looks at what waits elsewhere (pull.h), and then sleeps: of what
 * is queued after that it knows nothing until somebody calls it. Who wakes finds it by placement
 * (placement.h). Two others do not, and have it called:
 *
 *   - who is pushed aside, perhaps by a task that may run there only, or by one of a higher class
 *     (put_in_reach() in platform/bpf.h), is queued again where it was. As often as busy pCPUs look
 *     for busier ones, one that idles is called for it;
 *   - who woke on a pCPU that seemed to idle and does not answer, since a task of a higher class
 *     (SCHED_FIFO, SCHED_DEADLINE) has it, of which nobody tells a sched_ext scheduler.
 */
#ifndef CORUN_IDLE_H
#define CORUN_IDLE_H

#include "platform/platform.h"

/* Calls a pCPU other than `cpu` that idles, if `p` may run on any. */
RARE void call_other(struct task_struct *p, s32 cpu)
{
	s32 i;

	for_each_allowed (i, p) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c || i == cpu || !shared(c->idle))
			continue;
		kick(i, KICK_IDLE);
		break;
	}
}

/* `p` was queued on `cpu`: that one is called if it idles, else another one. */
static inline void call_idle(struct task_struct *p, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c || shared(c->idle))
		kick(cpu, KICK_IDLE);
	else
		call_other(p, cpu);
}

/* `p`, which lost `cpu`, was queued there again: is it time to call for it? Who may run there only
 * does not use up the time of others. */
RARE void offer(struct task_struct *p, struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (now - shared(c->offered_at) < knobs.balance_interval || is_bound(p))
		return;
	store(c->offered_at, now);
	call_other(p, cpu);
}

#endif
