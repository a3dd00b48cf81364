/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Demand-based co-scheduling: Kim et al., "Demand-based coordinated scheduling for SMP VMs", ASPLOS
 * 2013, and its published kernel (CONFIG_BALANCE_SCHED).
 *
 * In space, vCPUs are placed load-consciously (placement.h). In time, urgent vCPUs come first: a
 * vCPU is urgent when a sibling has sent it an interrupt, since the sibling may be waiting for it.
 * It preempts the running task for a short time. Several urgent vCPUs on one pCPU take turns in the
 * order in which they became urgent, each for as long as it is urgent (should_delay_resched()
 * there). Urgent time adds up, but to a limit only, and a vCPU that has run far ahead of the tasks
 * that run in their turn is not urgent any more: so no other task waits for long. The vCPU keeps
 * that lead while it is halted, and the clock of its pCPU does not advance with it. Otherwise the
 * lead would be lost at each wake-up, and a VM whose vCPUs wake each other all the time would have
 * the pCPU to itself. A vCPU that is alone on its pCPU keeps no task waiting, and gets no lead for
 * running.
 *
 * Only interrupts that can be observed count. An interrupt to a halted vCPU shows as a wake-up from
 * a pCPU on which a sibling runs. An interrupt to a ready vCPU, such as for a TLB shootdown, shows
 * in KVM only (awaited.h).
 */
#ifndef CORUN_GANG_DEMAND_H
#define CORUN_GANG_DEMAND_H

#include "awaited.h"
#include "gang.h"

/* `t` becomes urgent for `grant` ns, or stays so for `grant` ns longer, up to the limit. */
static inline void demand_boost(struct task_ctx *t, struct gang *g, u64 grant, u64 now)
{
	u64 limit = shared(g->conf->boost_limit);

	t->urgent += grant;
	if (t->urgent > limit)
		t->urgent = limit;
	if (t->urgent && !t->urgent_at)
		t->urgent_at = now;
}

/* `t` woke up: it is urgent if a sibling woke it. */
static inline void demand_woken(struct task_ctx *t, struct gang *g, u64 now)
{
	if (waker_slot() == t->vm)
		demand_boost(t, g, shared(g->conf->wake_boost), now);
}

/* `t` gets a pCPU: it is urgent if a sibling waited for it. */
static inline void demand_awaited(struct task_ctx *t, struct gang *g, u64 now)
{
	if (shared(t->awaited) && exchange(t->awaited, 0))
		demand_boost(t, g, shared(g->conf->flush_boost), now);
}

/* How far ahead of a pCPU's clock may `t` be queued? */
static inline u64 demand_ahead(struct gang *g)
{
	u64 lead = shared(g->conf->boost_lead);

	return lead > knobs.max_lead ? lead : knobs.max_lead;
}

/*
 * A vCPU that a sibling waits for is urgent from the moment the sibling began to wait, though it
 * has no urgent time yet. That moment goes into r->urgent_at, by which ranks_before() compares.
 */
static inline u32 demand_rank(struct ranked *r, struct gang *g, struct cpu_ctx *c)
{
	if (!r->urgent_at)
		r->urgent_at = r->awaited;
	if (r->urgent_at && before(r->vtime, shared(c->vnow) + shared(g->conf->boost_lead)))
		return RANK_URGENT;
	return RANK_ORDINARY;
}

/* Charges `t`, which runs, for the urgent time that it has used until now. */
static inline void demand_charge(struct task_ctx *t, u64 now)
{
	u64 used = t->urgent_from && before(t->urgent_from, now) ? now - t->urgent_from : 0;

	if (!t->urgent_at || !t->urgent_from)
		return;
	t->urgent = used < t->urgent ? t->urgent - used : 0;
	t->urgent_from = now;
	if (!t->urgent)
		t->urgent_at = 0;
}

/*
 * `t` gives up its pCPU. If it halts, it has done what its sibling waited for, and is urgent no
 * more.
 */
static inline void demand_stopped(struct task_ctx *t, bool waits, u64 now)
{
	demand_charge(t, now);
	t->urgent_from = 0;
	if (waits) {
		t->urgent = 0;
		t->urgent_at = 0;
	}
}

#endif
