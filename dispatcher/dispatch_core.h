/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task a hardware thread of a core runs next, where plans ask for cores (core.h): its own
 * vCPUs, then one borrowed from the SMT sibling or from elsewhere. A hardware thread may also be
 * held for a halted vCPU (retention.h), or have to idle because no waiting task may share the core
 * (cookie.h).
 */
#ifndef CORUN_DISPATCH_CORE_H
#define CORUN_DISPATCH_CORE_H

#include "cookie.h"
#include "core.h"
#include "dispatch.h"
#include "platform/platform.h"
#include "retention.h"

/* `cpu`, a hardware thread of a core, idles: as in idles(). */
RARE void core_idles(s32 cpu, struct cpu_ctx *c, u64 now)
{
	exchange(c->idle, 1);
	if (queue_length(cpu) && core_next(cpu))
		store(c->idle, 0);
	else
		cookie_idles(cpu, now);
}

/* `prev` runs on `cpu`, a hardware thread of a core, and wants to go on: it does, or another task
 * has its turn. */
static inline void core_dispatch_or_keep(s32 cpu, s32 partner, struct cpu_ctx *c,
					 struct task_struct *prev, struct task_ctx *t, u64 now)
{
	bool guest = shared(c->cur_is) & CUR_AWAY;
	bool lets = dormant_enough(c, now);
	bool stays = !guest && may_go_on(prev, t, now);
	bool first;

	if ((guest || !before(now, shared(c->slice_end))) && cookie_blocks(cpu)) {
		cookie_cede(cpu);
		return;
	}
	first = stays && !t->over && !lets && still_first(c, cpu, now);
	if (!first) {
		if (core_next(cpu))
			return;
		if (cookie_waits(cpu)) {
			core_idles(cpu, c, now);
			return;
		}
	}
	if (stays) {
		if (!lets || !core_borrow_beside(cpu, partner))
			keep(cpu, prev, t, now);
		return;
	}
	if (guest && allowed(prev, cpu) && guest_stays(prev, t) && !quota_out(t, now)) {
		keep(cpu, prev, t, now);
		return;
	}
	if (core_borrow(cpu, partner, c))
		return;
	core_idles(cpu, c, now);
}

/*
 * Chooses the next task of `cpu` if that is a hardware thread of a core under a plan; else returns
 * false, and the caller chooses.
 */
RARE bool dispatch_thread(s32 cpu, struct cpu_ctx *c, struct task_struct *prev, struct task_ctx *t)
{
	s32 partner = partner_of(cpu);
	u64 now;

	if (partner == NO_PCPU)
		return false;
	now = now_ns();
	if (shared(c->held)) {
		if (!t && before(now, shared(c->held_until)))
			return true;
		hold_over(c, now);
	}
	if (t) {
		core_dispatch_or_keep(cpu, partner, c, prev, t, now);
		return true;
	}
	/* `cpu` did not idle: its task has just left. */
	if (!shared(c->idle) && cookie_blocks(cpu)) {
		cookie_cede(cpu);
		return true;
	}
	if (core_next(cpu)) {
		core_pass_call(cpu, c);
		return true;
	}
	store(c->called, 0);
	if (!cookie_waits(cpu) && core_borrow(cpu, partner, c))
		return true;
	core_idles(cpu, c, now);
	return true;
}

/* dispatch_thread(), where plans ask for cores at all. */
static inline bool dispatch_core(s32 cpu, struct cpu_ctx *c, struct task_struct *prev,
				 struct task_ctx *t)
{
	return with_cores() && dispatch_thread(cpu, c, prev, t);
}

#endif
