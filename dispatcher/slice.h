/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slices: how long a task may run while others wait for its pCPU.
 *
 * sched_ext ends slices at the tick (4 ms apart at HZ=250). With knobs.slice_timer a timer per pCPU
 * ends them on time; the kernel's own slice is then a little longer and only a safety net.
 */
#ifndef CORUN_SLICE_H
#define CORUN_SLICE_H

#include "gang_events.h"
#include "grace.h"
#include "micro.h"
#include "platform/platform.h"
#include "pool.h"
#include "quota.h"
#include "retention.h"
#include "timer.h"
#include "yield.h"

/* What is added to the kernel's slice when a timer ends it, ns: above one tick at HZ=100. */
#define SLICE_NET 12000000ull

static inline u64 slice_of(struct task_struct *p)
{
	struct task_conf *conf = task_conf_of(p);
	u64 slice = conf ? slice_wanted(conf) : 0;

	if (!slice)
		return knobs.slice;
	return slice < SLICE_MIN ? SLICE_MIN : slice;
}

/* The slice that the kernel is told. */
static inline u64 kernel_slice(u64 slice)
{
	return knobs.slice_timer ? slice + SLICE_NET : slice;
}

/* Does the timer end the slice of the task that has `c`? */
static inline bool slice_is_timed(struct cpu_ctx *c)
{
	return knobs.slice_timer || with_gangs() || quota_is_due(c) ||
	       shared(c->favoured) == RUNS_FAVOURED || with_micro() || shared(c->put_off);
}

/* A slice of `slice` ns begins on `cpu`. */
static inline void slice_begin(struct cpu_ctx *c, s32 cpu, u64 slice, u64 now)
{
	store(c->slice_end, now + slice);
	if (knobs.slice_timer || with_gangs() || quota_is_due(c))
		timer_within(c, cpu, gang_timer(slice, c), now);
}

/* `c` is busy: is it time to look at other pCPUs (pull.h)? */
static inline bool balance_is_due(struct cpu_ctx *c, u64 now)
{
	return !before(now, shared(c->balanced_at) + knobs.balance_interval);
}

/* Does a task wait for any pCPU? */
CALLED u32 some_wait(void)
{
	s32 i;

	for_each_queue (i) {
		if (queue_length(i))
			return true;
	}
	return false;
}

/*
 * Is the task on `cpu` to be interrupted for a look at other pCPUs? Not if there is nothing to
 * find: no task waits, and no idle core could take one of two tasks that share a core. An
 * interruption would end KVM's polling for a halted vCPU. Hardware threads of cores under a plan do
 * not look.
 */
static inline bool balance_interrupts(struct cpu_ctx *c, s32 cpu, u64 now)
{
	if (partner_of(cpu) != NO_PCPU || !balance_is_due(c, now))
		return false;
	if (shares_core(cpu) || some_wait())
		return true;
	store(c->balanced_at, now);
	return false;
}

/* The timer of `cpu`, which idles, fired: waiting tasks that could not start may be able to now. */
static inline void idle_timer(s32 cpu)
{
	if (queue_length(cpu))
		kick(cpu, KICK_IDLE);
}

/*
 * The timer of `cpu` fired: is the slice over and does a task wait, or is it time to look at other
 * pCPUs? Without the latter, a pCPU whose task shares it with tasks that mostly sleep would look
 * only at the moments when those run.
 */
static inline void slice_timer(struct cpu_ctx *c, s32 cpu)
{
	u64 now = now_ns();
	u64 end = shared(c->slice_end);

	if (shared(c->idle)) {
		idle_timer(cpu);
		return;
	}
	if (gang_sample(c, cpu, now)) {
		kick(cpu, KICK_PREEMPT);
		return;
	}
	if (shared(c->favoured) == RUNS_FAVOURED && favour_is_over(c, cpu, now)) {
		kick(cpu, KICK_PREEMPT);
		return;
	}
	if (now < end) {
		/*
		 * Usually the timer was set for a task that is due (micro.h); dispatch finds out.
		 */
		if (with_micro() && queue_length(cpu)) {
			kick(cpu, KICK_PREEMPT);
			return;
		}
		if (grace_is_over(c, now) && queue_length(cpu)) {
			kick(cpu, KICK_PREEMPT);
			return;
		}
		/* The timer was for an earlier slice. */
		timer_within(c, cpu, gang_timer(grace_timer(end - now, c, now), c), now);
		return;
	}
	if (queue_length(cpu) || quota_is_due(c) || beside_is_due(c, cpu) ||
	    balance_interrupts(c, cpu, now)) {
		kick(cpu, KICK_PREEMPT);
		return;
	}
	/* There is nothing to choose between. */
	if (shared(c->runs))
		fair_clock_alone(c, now);
	timer_within(c, cpu, gang_timer(knobs.slice, c), now);
}

#endif
