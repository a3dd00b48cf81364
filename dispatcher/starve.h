/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No task starves: a task that has been ready for too long runs next, whatever it is owed. Only if
 * its core-scheduling cookie keeps it off that core does it have to wait, until the vCPU that runs
 * there cedes the core at the end of its turn (cookie.h).
 *
 * Three things could keep a task waiting for longer than sched_ext's watchdog allows:
 *
 * - extreme weights (1 against 10000). A task that is rescued without being owed anything gets a
 *   turn as short as turns can be, which is enough for the watchdog. A whole slice for each would
 *   be several times what light VMs are owed, the more so with many of them and with long slices;
 * - so many equal tasks that a round of their turns takes that long: 200 turns of 30 ms each;
 * - a pCPU that stops scheduling, because firmware or an underlying hypervisor holds it. Then other
 *   pCPUs take the tasks that starve in its queue, wherever placement wanted them.
 *
 * A pCPU that idles because gangs keep its waiting tasks from starting looks as often as a busy one
 * (idle_for_now()).
 */
#ifndef CORUN_STARVE_H
#define CORUN_STARVE_H

#include "fair.h"
#include "platform/platform.h"
#include "pull.h"
#include "slice.h"

/* How long a task may stay ready, ns. */
#define STARVE_LIMIT (WATCHDOG / 5)
/* How long at most, whatever the order, ns: the guard of VMs in packaging/host.toml has 3 s. */
#define STARVE_LONG (WATCHDOG / 5 * 2)
/*
 * How often a pCPU looks for starving tasks, ns (assumed: a tenth of the limit, so that the limit
 * is exceeded by a tenth at most; a look goes through the pCPU's queue).
 */
#define STARVE_LOOK 100000000ull

/*
 * What rescue_from() has done: nothing; dispatched a task; dispatched one that starts out of turn.
 */
#define RESCUED_NONE 0u
#define RESCUED 1u
#define RESCUED_AHEAD 2u

/*
 * Dispatches on `cpu` the first task in the queue of `from` that has been ready for too long.
 * Returns RESCUED_*.
 */
RARE u32 rescue_from(s32 from, s32 cpu, struct cpu_ctx *c, u64 now)
{
	struct cpu_ctx *where = cpu_at(from);
	u64 clock = where ? shared(where->vnow) : 0;
	ROOM_FOR_COPY(t, cpu);
	u32 rescued = RESCUED_NONE;
	struct task_struct *p;

	for_each_queued (p, from) {
		if (!look_at(p, t) || !before(t->since + STARVE_LIMIT, now) || !allowed(p, cpu) ||
		    !cookie_admits(p, t->vm, cpu))
			continue;
		if (from != cpu)
			announce(t, c, cpu, id_of(p));
		rescued = RESCUED;
		if (before(t->since + STARVE_LONG, now) || before(clock, vtime_of(p)))
			rescued = RESCUED_AHEAD;
		if (!move_queued(p, cpu)) {
			rescued = RESCUED_NONE;
			if (from != cpu)
				forget_incoming(c, cpu);
		}
		break;
	}
	return rescued;
}

/*
 * A pCPU other than `cpu` that has tasks in its queue and has not looked for starving ones for too
 * long.
 */
RARE s32 unresponsive(s32 cpu, u64 now)
{
	s32 found = NO_PCPU;
	s32 i;

	for_each_queue (i) {
		struct cpu_ctx *c = cpu_at(i);

		if (c && i != cpu && before(shared(c->rescued_at) + STARVE_LIMIT, now) &&
		    queue_length(i)) {
			found = i;
			break;
		}
	}
	return found;
}

/*
 * Does a task starve in the queue of `cpu`, or in that of a pCPU that does not look? Then it runs
 * on `cpu`.
 */
RARE bool look_for_starving(s32 cpu, struct cpu_ctx *c, u32 at)
{
	u64 now = now_ns();
	u32 rescued;
	s32 from;

	store(c->tick, at);
	if (now - shared(c->rescued_at) < STARVE_LOOK)
		return false;
	store(c->rescued_at, now);
	rescued = rescue_from(cpu, cpu, c, now);
	if (!rescued) {
		from = unresponsive(cpu, now);
		if (from != NO_PCPU)
			rescued = rescue_from(from, cpu, c, now);
	}
	/*
	 * There may be more of them, and the turn of this one is short (is_rescued()): dispatch
	 * looks again when it is over. Where tasks only wait for so long because turns are long and
	 * many, the rescued one has a whole turn, and dispatch goes on as usual until the next
	 * look.
	 */
	if (rescued == RESCUED_AHEAD) {
		store(c->rescued_at, now - STARVE_LOOK);
		store(c->tick, at - 1);
	}
	return rescued != RESCUED_NONE;
}

/*
 * `t`, which has been ready for `ready` ns, starts on `c`: does it do so out of turn, because it
 * has waited for so long? A task that is ahead of the clock there has had what it is owed; and
 * where equal tasks are so many that each has waited for STARVE_LONG, none can have a whole turn
 * before the others. Such a task gets the shortest turn, as if it were the rest of an interrupted
 * one (turn.h), and as there the clock does not advance with it.
 */
static inline bool is_rescued(struct task_ctx *t, struct cpu_ctx *c, u64 ready)
{
	if (ready <= STARVE_LIMIT || t->state != TASK_READY)
		return false;
	return ready > STARVE_LONG || before(shared(c->vnow), t->vtime);
}

/*
 * The turn of the rescued task `p` on `cpu` is short, whatever slice its gang or the kernel gave
 * it.
 */
RARE void shorten_turn(struct task_struct *p, struct cpu_ctx *c, s32 cpu, u64 now)
{
	set_slice(p, kernel_slice(SLICE_MIN));
	slice_begin(c, cpu, SLICE_MIN, now);
}

/* look_for_starving(), if it is time to look. */
static inline bool rescue_starving(s32 cpu, struct cpu_ctx *c)
{
	u32 at = tick();

	return at != shared(c->tick) && look_for_starving(cpu, c, at);
}

#endif
