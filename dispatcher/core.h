/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SMT cores: a hardware thread for CPU-bound vCPUs, one for I/O-bound ones (vSMT-IO, dissertation
 * §3.4.3).
 *
 * Under PLACE_CORE a vCPU has a home, one of the two hardware threads of its core; the policy says
 * which one. A hardware thread whose own vCPUs have nothing to do borrows a vCPU that waits for its
 * SMT sibling, or else any that waits: no hardware thread idles while vCPUs wait, unless it is held
 * (retention.h). A vCPU away from home is a guest: the first vCPU that has its home there takes the
 * hardware thread back at once.
 *
 * If there is a choice, a hardware thread takes, of the first CANDIDATES in fair order, the task
 * that gets along best with the one on the SMT sibling, by the vCPUs' demands (from cycle
 * accounting) as far as they are known. It may overtake the first in order only if it is owed less
 * by no more than a sleeper's credit. Otherwise, a vCPU that gets along with none would wait until
 * all others are done.
 */
#ifndef CORUN_CORE_H
#define CORUN_CORE_H

#include "cookie.h"
#include "fair.h"
#include "placement.h"
#include "platform/platform.h"
#include "pull.h"
#include "retention.h"

/* Number of candidates ("a few vCPUs") that fair order proposes and symbiosis picks from. */
#define CANDIDATES 3u

/* The parts of task_conf.demand: thousandths of the time alone, and percent of the cycles. */
static inline u64 demand_alone(u32 demand)
{
	return demand & 0xffff;
}

static inline u64 demand_wait(u32 demand)
{
	return demand >> 16 & 0xff;
}

static inline u64 demand_miss(u32 demand)
{
	return demand >> 24;
}

/*
 * What two vCPUs with these demands lose to each other on a core: only the terms that differ
 * between candidates `a` for the same `b`.
 */
static inline u64 core_loss(u32 a, u32 b, u64 wait_wait, u64 miss_miss)
{
	u64 waits = demand_wait(a) * demand_wait(b) * wait_wait;
	u64 misses = demand_miss(a) * demand_miss(b) * miss_miss;

	/* Percent times percent times thousandths, each way. */
	return demand_alone(a) + 2 * (waits + misses) / 10000;
}

/*
 * Which of the tasks that wait for `from` should run beside the SMT sibling of `cpu`? Returns its
 * id; 0: the first in order, since there is no basis for a choice.
 */
CALLED u32 best_match(s32 from, s32 cpu)
{
	struct pcpu_conf *conf = core_conf(cpu);
	struct cpu_ctx *other = cpu_at(partner_of(cpu));
	u64 wait_wait, miss_miss, least = ~0ull, latest = 0, ahead;
	struct cpu_ctx *queue = cpu_at(from);
	struct task_struct *p;
	u32 beside, best = 0;
	u32 looked = 0;

	if (!conf || !other || !queue || shared(other->idle) || shared(other->held))
		return 0;
	beside = shared(other->cur_demand);
	if (!beside)
		return 0;
	ahead = fair_span(queue, NO_LOAD, knobs.sleeper_credit);
	wait_wait = shared(conf->wait_wait);
	miss_miss = shared(conf->miss_miss);
	for_each_queued (p, from) {
		struct task_conf *wanted = task_conf_of(p);
		u32 demand = wanted ? shared(wanted->demand) : 0;
		u64 loss, vtime = queued_vtime(p);

		/* No task overtakes one that its cookie keeps waiting. */
		if (!cookie_admits_queued(p, cpu))
			break;
		if (!looked)
			latest = vtime + ahead;
		else if (before(latest, vtime))
			break;
		/* Without a known demand there is nothing to compare: fair order. */
		if (!demand) {
			best = 0;
			break;
		}
		loss = core_loss(demand, beside, wait_wait, miss_miss);
		if (loss < least) {
			least = loss;
			best = id_of(p);
		}
		if (++looked == CANDIDATES)
			break;
	}
	return best;
}

/* Runs the next task that waits for `cpu`. */
static inline bool core_next(s32 cpu)
{
	u32 best = queue_length(cpu) > 1 ? best_match(cpu, cpu) : 0;

	if (best && take(cpu, best))
		return true;
	return with_cookies(cpu) ? move_admitted(cpu) : move_first(cpu);
}

/* `cpu` borrows a task that waits for its SMT sibling. */
static inline bool core_borrow_beside(s32 cpu, s32 partner)
{
	struct pull_rule rule = {.apart = with_cookies(cpu)};
	u32 waiting = queue_length(partner);

	if (waiting > 1)
		rule.id = best_match(partner, cpu);
	return waiting && pull_from(partner, cpu, &rule);
}

/*
 * `cpu` has no task in its own queue: it borrows one that waits for its SMT sibling, else one that
 * waits anywhere.
 */
static inline bool core_borrow(s32 cpu, s32 partner, struct cpu_ctx *c)
{
	struct pull_rule apart = {.apart = true};

	if (core_borrow_beside(cpu, partner))
		return true;
	return with_cookies(cpu) ? pull_any(cpu, &apart) : pull_idle(cpu);
}

/* Is the home of `t`, which runs on `cpu`, another pCPU? */
static inline bool core_away(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	s32 home;

	if (placement_of(p, t) != PLACE_CORE)
		return false;
	home = home_of(p, t);
	return home != NO_PCPU && home != cpu;
}

/*
 * May a vCPU that runs away from home stay? As long as its home is busy and no task is queued
 * there.
 */
static inline bool guest_stays(struct task_struct *p, struct task_ctx *t)
{
	s32 home = home_of(p, t);
	struct cpu_ctx *c = cpu_at(home);

	return c && !shared(c->idle) && !queue_length(home);
}

/* core_turn() on a host with cores. */
RARE void core_turn_thread(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
			   u64 now)
{
	struct task_conf *conf = task_conf_of(p);
	u32 demand = conf ? shared(conf->demand) : 0;
	u32 is = core_away(p, t, cpu) ? CUR_AWAY : 0;

	if (conf && shared(conf->dormant))
		is |= CUR_DORMANT;
	if (with_cookies(cpu)) {
		is |= CUR_COOKIE;
		cookie_turn(p, t->vm, cpu);
	}
	store(c->cur_is, is);
	store(c->cur_demand, demand);
	if (!shared(c->held_since))
		return;
	/*
	 * The kernel may have put a task there that the dispatcher did not. A hold whose end nobody
	 * noticed, because no plan asked for cores then, has no known length.
	 */
	if (shared(c->held))
		hold_count(c, false, now);
	else if (exchange(c->held_since, 0))
		fetch_add(c->holds.gave_way, 1);
}

/* `t` gets `cpu` or keeps it. CUR_* and demands are needed only where plans ask for cores. */
INLINED void core_turn(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c, s32 cpu,
		       u64 now)
{
	if (with_cores())
		core_turn_thread(p, t, c, cpu, now);
	store(c->held, 0);
}

/*
 * May `t`, which just woke, start at once on `cpu` if that is idle? Not if it is held for another
 * vCPU.
 */
static inline bool core_may_start(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);
	u32 held;

	if (!c || !with_cores())
		return true;
	held = shared(c->held);
	if (held && (held != id_of(p) || others_first(cpu, t->vtime)))
		return false;
	return !with_cookies(cpu) || (!queue_length(cpu) && cookie_admits(p, t->vm, cpu));
}

/*
 * `cpu`, which idled, has found work in its own queue: if it was called for a task that waits
 * elsewhere, another idle pCPU is called instead.
 */
static inline void core_pass_call(s32 cpu, struct cpu_ctx *c)
{
	s32 i;

	if (!shared(c->called))
		return;
	store(c->called, 0);
	repeat (i, nr_pcpus()) {
		struct cpu_ctx *other = cpu_at(i);

		if (i == cpu || !other || !shared(other->idle) || shared(other->called))
			continue;
		store(other->called, 1);
		kick(i, KICK_IDLE);
		break;
	}
}

/* `cpu`, which idled, has been given to a task that will start there: it is not free any more. */
static inline void core_claimed(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);

	if (!c || !with_cores())
		return;
	store(c->held, 0);
	store(c->idle, 0);
	if (with_cookies(cpu))
		cookie_turn(p, t->vm, cpu);
	core_pass_call(cpu, c);
}

/*
 * Wakes an idle pCPU for `p`, which is queued on `cpu`: the SMT sibling, else any other. If the SMT
 * sibling runs a vCPU that has been dormant for long enough, `p` goes first there.
 */
static inline void core_call(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	s32 partner = partner_of(cpu);
	struct cpu_ctx *other = cpu_at(partner);
	s32 i;

	if (!other)
		return;
	if (shared(other->idle) && allowed(p, partner) && cookie_admits(p, t->vm, partner)) {
		store(other->called, 1);
		kick(partner, KICK_IDLE);
		return;
	}
	if (dormant_enough(other, now) && allowed(p, partner)) {
		kick(partner, KICK_PREEMPT);
		return;
	}
	for_each_allowed (i, p) {
		other = cpu_at(i);
		if (!other || !shared(other->idle) || !cookie_admits(p, t->vm, i))
			continue;
		store(other->called, 1);
		kick(i, KICK_IDLE);
		break;
	}
}

/* Should `t`, just queued on `cpu`, have it at once? `how`: enum wake. */
static inline bool core_preempts(struct task_struct *p, struct task_ctx *t, struct cpu_ctx *c,
				 s32 cpu, u32 how, u64 now)
{
	bool fair = how & WAKE_FAIR;
	u32 held = shared(c->held);

	if (held)
		return hold_yields(c, cpu, fair || held == id_of(p), how & WAKE_AFAR, now);
	/* `cur_is` describes a task that has just lost `cpu`, perhaps `p` itself. */
	if (!shared(c->runs))
		return fair;
	return fair || dormant_enough(c, now) ||
	       ((shared(c->cur_is) & CUR_AWAY) && !core_away(p, t, cpu));
}

#endif
