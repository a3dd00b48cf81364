/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Demand-based co-scheduling: Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS
 * 2013, and its published kernel (CONFIG_BALANCE_SCHED).
 *
 * In space, vCPUs are placed load-consciously (placement.h). In time, urgent vCPUs come first: one
 * that a sibling sends an interrupt to, since the sibling may be waiting for it. It preempts
 * whoever runs, for a short time; several on one pCPU take turns in the order of their becoming
 * urgent, each for as long as it is (should_delay_resched() there). The time adds up to a limit,
 * and one that has run far ahead of those who take turns is urgent no more: so nobody else waits
 * for long. That lead outlasts its waiting, and its pCPU's clock does not go on with it: or it
 * would be lost at each wake-up, and whose siblings wake each other all the time would have the
 * pCPU to themselves. Who is alone there keeps nobody waiting, and has no lead for it.
 *
 * What counts as such an interrupt is what can be seen. A wake-up, while a sibling runs on the pCPU
 * that it comes from, the kernel tells of by itself. An interrupt to a vCPU that is ready, such as
 * a TLB shootdown's, shows in KVM only (awaited.h).
 */
#ifndef CORUN_GANG_DEMAND_H
#define CORUN_GANG_DEMAND_H

#include "awaited.h"
#include "gang.h"

/* `t` is urgent from now on, or for `grant` ns longer. */
static inline void demand_boost(struct task_ctx *t, struct gang *g, u64 grant, u64 now)
{
	u64 limit = shared(g->conf->boost_limit);

	t->urgent += grant;
	if (t->urgent > limit)
		t->urgent = limit;
	if (t->urgent && !t->urgent_since)
		t->urgent_since = now;
}

/* `t` woke up: was it a sibling? */
static inline void demand_woken(struct task_ctx *t, struct gang *g, u64 now)
{
	if (waker_slot() == t->vm)
		demand_boost(t, g, shared(g->conf->wake_boost), now);
}

/* `t` has a pCPU from now on. If a sibling waited for that, it is urgent. */
static inline void demand_awaited(struct task_ctx *t, struct gang *g, u64 now)
{
	if (shared(t->awaited) && exchange(t->awaited, 0))
		demand_boost(t, g, shared(g->conf->flush_boost), now);
}

/* How far ahead of the clock of a pCPU may `t` be queued? */
static inline u64 demand_ahead(struct gang *g)
{
	u64 lead = shared(g->conf->boost_lead);

	return lead > knobs.max_lead ? lead : knobs.max_lead;
}

static inline u32 demand_rank(struct ranked *r, struct gang *g, struct cpu_ctx *c)
{
	if (!r->urgent_since)
		r->urgent_since = r->awaited;
	if (r->urgent_since && before(r->vtime, shared(c->vnow) + shared(g->conf->boost_lead)))
		return RANK_URGENT;
	return RANK_ORDINARY;
}

/* `t`, which runs, has used urgent time until now. */
static inline void demand_charge(struct task_ctx *t, u64 now)
{
	u64 used = t->urgent_from && before(t->urgent_from, now) ? now - t->urgent_from : 0;

	if (!t->urgent_since || !t->urgent_from)
		return;
	t->urgent = used < t->urgent ? t->urgent - used : 0;
	t->urgent_from = now;
	if (!t->urgent)
		t->urgent_since = 0;
}

/* `t` gives up its pCPU; if it goes to wait, its sibling got what it wanted. */
static inline void demand_stopped(struct task_ctx *t, bool waits, u64 now)
{
	demand_charge(t, now);
	t->urgent_from = 0;
	if (waits) {
		t->urgent = 0;
		t->urgent_since = 0;
	}
}

#endif
