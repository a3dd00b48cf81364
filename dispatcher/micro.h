/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Micro slices: short turns, spread between the long turns of others instead of in a row.
 *
 * In fair order, a short slice alone does not make a task run more often: beside slices of 30 ms, a
 * task with a slice of 5 ms is still owed most after it, so it has six slices in a row before it is
 * another task's turn. Here it gets as much time, in separate short turns (vSlicer, Xu et al., HPDC
 * 2012). A task with micro slices (task_conf.micro) is due again as soon as the time that it ran is
 * its share, by weight, of the time since it was due: with two equal tasks, after a break as long
 * as it ran; with four, after a break three times as long. A task that is due goes first on its
 * pCPU; a task whose turn it interrupts gets the rest of it afterwards (turn.h). After a micro
 * slice it is the turn of others, if any wait, however much is still owed. All are charged as in
 * plain fair order.
 *
 * So such a task gets its share and no more. If it had to wait for longer than it should, it is due
 * sooner next time, by up to half a break. Fair order makes up for the rest, between the turns of
 * others: a task that is owed most has a turn before it is due, which does not change when it is
 * due; and one that has run far ahead is not due.
 *
 * Tasks with micro slices do not interrupt each other. Gangs and SMT cores have orders of their
 * own, without this.
 */
#ifndef CORUN_MICRO_H
#define CORUN_MICRO_H

#include "fair.h"
#include "platform/platform.h"
#include "timer.h"

/* How many tasks in a queue are looked at for one that is due (assumed, as TURN_LOOK). */
#define MICRO_LOOK 32u
/* A task that is this far ahead of its pCPU's clock is not due, ns: some long slices (assumed). */
#define MICRO_LEAD 100000000ull

static inline bool has_micro_slices(struct task_struct *p)
{
	struct task_conf *conf = task_conf_of(p);

	return conf && shared(conf->micro);
}

/* `t`, which ran until now, leaves its pCPU: computes when it is due again. */
RARE void micro_ran(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct cpu_ctx *c = cpu_at(t->cpu);
	u64 ran = before(t->since, now) ? now - t->since : 0;
	u64 load, paid, next;

	if (!c || !t->load || !has_micro_slices(p)) {
		t->due = 0;
		return;
	}
	load = later(shared(c->load), t->load);
	if (ran > CHARGE_MAX)
		ran = CHARGE_MAX;
	paid = ran * load / t->load;
	next = before(t->since, t->due) ? t->due : t->due + paid;
	t->due = later(next, now + (paid - ran) / 2);
}

/* Does `t`, whose turn is over, let other tasks go first, whatever it is owed? */
static inline bool lets_others(struct task_ctx *t)
{
	return t->over || (t->due && with_micro());
}

/*
 * `t` waits for `cpu`, where a task runs: if `t` is due before the timer of `cpu` fires, has `cpu`
 * look at its queue now.
 */
RARE void micro_waits(struct task_ctx *t, struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 fires = shared(c->timer_at);

	if (shared(c->runs) && (!before(now, fires) || before(t->due, fires)))
		kick(cpu, KICK_PREEMPT);
}

/* When is `p`, which waits, due on a pCPU whose clock says `vnow`? 0: never. */
static inline u64 due_of(struct task_struct *p, u64 vnow)
{
	struct task_ctx *t = raw_task_ctx(p);
	u64 due = t ? shared(t->due) : 0;

	return due && !before(vnow + MICRO_LEAD, shared(t->vtime)) ? due : 0;
}

/*
 * When is the first of the tasks that wait for `cpu`, whose clock says `vnow`, due? 0: none will
 * be.
 */
CALLED u64 first_due(s32 cpu, u64 vnow)
{
	struct task_struct *p;
	u32 looked = 0;
	u64 first = 0;

	for_each_queued (p, cpu) {
		u64 due;

		if (looked++ == MICRO_LOOK)
			break;
		due = due_of(p, vnow);
		if (due && (!first || before(due, first)))
			first = due;
	}
	return first;
}

/* Runs next on `cpu`, whose clock says `vnow`, a waiting task that is due. */
CALLED u32 move_due(s32 cpu, u64 vnow, u64 now)
{
	struct task_struct *p;
	u32 looked = 0;
	u32 moved = 0;

	for_each_queued (p, cpu) {
		u64 due;

		if (looked++ == MICRO_LOOK)
			break;
		due = due_of(p, vnow);
		if (!due || before(now, due))
			continue;
		moved = move_queued(p, cpu);
		break;
	}
	return moved;
}

/* A turn begins on `cpu`, or goes on: the timer fires when the first waiting task is due. */
RARE void micro_look(struct cpu_ctx *c, s32 cpu, u64 now)
{
	u64 due = queue_length(cpu) ? first_due(cpu, shared(c->vnow)) : 0;

	if (due)
		timer_within(c, cpu, before(now + SLICE_MIN, due) ? due - now : SLICE_MIN, now);
}

#endif
