/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Core-scheduling cookies: vCPUs with different cookies do not share a core (prctl(PR_SCHED_CORE)).
 *
 * If the policy says that cookies matter (pcpu_conf.cookies), a vCPU gets a hardware thread only
 * while the SMT sibling idles, is held, or runs a vCPU with the same cookie. A vCPU whose cookie is
 * not known yet shares a core with its sibling vCPUs only; host tasks run beside any task.
 *
 * So a vCPU may have to wait for a hardware thread that idles. No other vCPU overtakes it there.
 * The idle hardware thread is called when another task, or none, runs on the SMT sibling. And a
 * vCPU that runs on the SMT sibling cedes the core at the end of its turn, or at once if it is a
 * guest (core.h): then no task starts on its hardware thread before one has started on the other.
 *
 * Looking at the SMT sibling and starting a vCPU are two steps: two hardware threads that do so at
 * the same moment do not see each other. Then the kernel's own core scheduling, from which cookies
 * come, has the last word, and lets one of them idle.
 */
#ifndef CORUN_COOKIE_H
#define CORUN_COOKIE_H

#include "fair.h"
#include "platform/platform.h"
#include "retention.h"

/*
 * How many tasks in the queue of a hardware thread are looked at (assumed: more than wait for one
 * on any usable host; tasks further behind wait until some of these have run).
 */
#define COOKIE_LOOK 32u
/* The cookie of a vCPU whose own is not known yet: one for each VM, with its slot. */
#define COOKIE_UNKNOWN 0x80000000u

/* Do cookies matter on `cpu`? */
static inline bool with_cookies(s32 cpu)
{
	struct pcpu_conf *conf = core_conf(cpu);

	return conf && shared(conf->cookies);
}

/* The cookie of `p`, a vCPU of the VM in slot `vm`; 0: it may run beside any task. */
static inline u32 cookie_of(struct task_struct *p, u32 vm)
{
	struct task_conf *conf = vm == NO_VM ? NULL : task_conf_of(p);
	u32 cookie = conf ? shared(conf->cookie) : 0;

	if (vm == NO_VM)
		return 0;
	return cookie ? cookie : COOKIE_UNKNOWN | vm;
}

/* The same for a queued task. */
static inline u32 cookie_of_queued(struct task_struct *p)
{
	struct task_ctx *t = raw_task_ctx(p);

	return t ? cookie_of(p, shared(t->vm)) : 0;
}

/* Has `cpu` been ceded, and has no task started on the SMT sibling yet? */
static inline bool cookie_ceded(struct cpu_ctx *c, struct cpu_ctx *other, s32 partner)
{
	if (!shared(c->ceded))
		return false;
	if (shared(other->idle) && queue_length(partner))
		return true;
	store(c->ceded, 0);
	return false;
}

/* May a vCPU with this cookie start on `cpu`, where cookies matter? */
CALLED u32 cookie_fits(u32 cookie, s32 cpu)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);
	struct cpu_ctx *c = cpu_at(cpu);
	u32 beside;

	if (!cookie || !c || !other)
		return true;
	if (cookie_ceded(c, other, partner))
		return false;
	beside = shared(other->idle) || shared(other->held) ? 0 : shared(other->cur_cookie);
	return !beside || beside == cookie;
}

/* May `p`, a vCPU of the VM in slot `vm`, start on `cpu`? */
static inline bool cookie_admits(struct task_struct *p TRUSTED, u32 vm, s32 cpu)
{
	return !with_cookies(cpu) || cookie_fits(cookie_of(p, vm), cpu);
}

/* The same for `p`, which is queued. */
CALLED u32 cookie_admits_queued(struct task_struct *p TRUSTED, s32 cpu)
{
	return !with_cookies(cpu) || cookie_fits(cookie_of_queued(p), cpu);
}

/*
 * Runs on `cpu` the first task that waits for it and may start there. Behind a vCPU that may not,
 * only host tasks are considered: that vCPU would never get the core if others, which may run
 * beside the SMT sibling's task, went first.
 */
CALLED u32 move_admitted(s32 cpu)
{
	struct task_struct *p;
	bool blocked = false;
	u32 looked = 0;
	u32 moved = 0;

	for_each_queued (p, cpu) {
		u32 cookie;

		if (looked++ == COOKIE_LOOK)
			break;
		cookie = cookie_of_queued(p);
		if (cookie && (blocked || !cookie_fits(cookie, cpu))) {
			blocked = true;
			continue;
		}
		moved = move_queued(p, cpu);
		break;
	}
	return moved;
}

/* No task that waits for `cpu` could start: does one wait, so that `cpu` has to idle? */
static inline bool cookie_waits(s32 cpu)
{
	return with_cookies(cpu) && queue_length(cpu);
}

/*
 * Does the task that has `cpu`, or last had it, keep out the first task that waits for the SMT
 * sibling?
 */
CALLED u32 cookie_blocks(s32 cpu)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);
	struct cpu_ctx *c = cpu_at(cpu);
	struct task_struct *p;
	u32 cookie = 0;

	if (!c || !other || !with_cookies(cpu) || !shared(other->idle) || !queue_length(partner))
		return false;
	for_each_queued (p, partner) {
		cookie = cookie_of_queued(p);
		break;
	}
	return cookie && shared(c->cur_cookie) && cookie != shared(c->cur_cookie);
}

/*
 * `cpu` cedes the core to the tasks that wait for its SMT sibling: it idles until one has started
 * there.
 */
CALLED u32 cookie_cede(s32 cpu)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c || !other)
		return 0;
	store(c->ceded, 1);
	/* Never both: one of them must start first. */
	store(other->ceded, 0);
	exchange(c->idle, 1);
	kick(partner, KICK_IDLE);
	return 1;
}

/* `p` gets `cpu`, or is about to: a task that waits for the SMT sibling may start beside it. */
CALLED u32 cookie_turn(struct task_struct *p TRUSTED, u32 vm, s32 cpu)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);
	struct cpu_ctx *c = cpu_at(cpu);
	u32 cookie = cookie_of(p, vm);
	bool news;

	if (!c)
		return 0;
	news = cookie != shared(c->cur_cookie);
	store(c->cur_cookie, cookie);
	if (!other)
		return 0;
	if (shared(other->ceded)) {
		store(other->ceded, 0);
		news = true;
	}
	if (news && shared(other->idle) && queue_length(partner))
		kick(partner, KICK_IDLE);
	return news;
}

/*
 * `cpu` idles: a task that waits for the SMT sibling may start. And if a task waits for `cpu`, a
 * vCPU on the SMT sibling that is away from home, or whose slice is over, has to give way.
 */
CALLED u32 cookie_idles(s32 cpu, u64 now)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);

	if (!other || !with_cookies(cpu))
		return 0;
	if (shared(other->idle)) {
		if (queue_length(partner))
			kick(partner, KICK_IDLE);
	} else if (queue_length(cpu) && !shared(other->held) &&
		   ((shared(other->cur_is) & CUR_AWAY) || !before(now, shared(other->slice_end)))) {
		kick(partner, KICK_PREEMPT);
	}
	return 1;
}

#endif
