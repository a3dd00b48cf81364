/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Quotas: cpu.max and cpu.max.burst.
 *
 * In each period, all tasks of a cgroup and of its descendants may together use a given amount of
 * pCPU time. Before a turn begins, it takes its time from all quotas that apply, QUOTA_TURN at
 * most, and gives back what it did not need: the kernel's fair scheduler hands out its quotas in
 * the same way (kernel/sched/fair.c, sched_cfs_bandwidth_slice). Time used beyond that, until the
 * timer fires or the switch is done, is owed and comes off the next periods. Time that is left over
 * may be saved, up to the burst.
 *
 * A task that wants to run when nothing is left is parked: the pCPU that finds this out puts it
 * into a separate queue of its own, from which nothing is dispatched, and the task counts as not
 * wanting to run. Once something is left again, a timer of that pCPU moves it to where it was to be
 * queued, and counts it there: otherwise, code that looks at which tasks are ready, such as time
 * slots (gang_strict.h), would miss it until it runs. A task that is queued already when its quota
 * runs out gets one turn, as short as turns can be, and is parked after it: only a task's own
 * callbacks can take it out of a queue.
 *
 * A quota cannot stop a task for good: after PARK_MAX the task has a short turn all the same,
 * because sched_ext's watchdog, to which it is ready all the time, would take it for forgotten.
 */
#ifndef CORUN_QUOTA_H
#define CORUN_QUOTA_H

#include "fair.h"
#include "group.h"
#include "idle.h"
#include "occupancy.h"
#include "platform/platform.h"

/* What a turn takes at once at most, ns: the kernel's sched_cfs_bandwidth_slice_us. */
#define QUOTA_TURN 5000000ull
/* Longest time parked, ns. */
#define PARK_MAX (WATCHDOG / 5 * 2)
/* How many parked tasks one timer looks at, at most; the rest follow a moment later. */
#define RELEASE_MOST 128
/*
 * A timer that is this late, ns, was never started, because the kernel lacked the memory for it
 * (assumed). One that is less late must not be postponed.
 */
#define RELEASE_LATE 5000000ull
/*
 * What turns gave back is looked for this many times in a period: with the default period, as often
 * as in the kernel (cfs_bandwidth_slack_period, 5 ms).
 */
#define QUOTA_LOOKS 20
/* The kernel's default period, ns. */
#define QUOTA_PERIOD 100000000ull
/* Added to leads so that they can be compared as unsigned: stands for a lead of 0. */
#define LEAD_NONE (1ull << 62)
/* How many missed periods are added up at most. */
#define QUOTA_MISSED 1000000ull

/* The queue of the tasks parked on `cpu`. */
static inline s32 parking_of(s32 cpu)
{
	return cpu + (s32)MAX_PCPUS;
}

/* How often the quota of a cgroup is refilled, ns. */
static inline u64 quota_period(struct group_conf *conf)
{
	u64 period = shared(conf->period);

	return period ? period : QUOTA_PERIOD;
}

/* What is left of the quota of a cgroup; begins the next period if this one is over. */
static inline s64 quota_left(struct group_conf *conf, struct group_ctx *g, u64 quota, u64 now)
{
	u64 end = shared(g->period_end);
	u64 period, missed = 1, next, most;
	s64 left, full;

	if (end && before(now, end))
		return (s64)shared(g->left);
	period = quota_period(conf);
	next = now + period;
	if (end) {
		missed += (now - end) / period;
		next = end + missed * period;
	}
	/* Of the CPUs that see the end of the period, one begins the next. */
	if (exchange_if(g->period_end, end, next) != end)
		return (s64)shared(g->left);
	if (missed > QUOTA_MISSED)
		missed = QUOTA_MISSED;
	left = (s64)shared(g->left);
	most = quota + shared(conf->burst);
	full = left + (s64)(missed * quota);
	if (full > (s64)most)
		full = (s64)most;
	fetch_add(g->left, full - left);
	if (left <= 0 && full > 0)
		store(g->freed_at, now);
	return full;
}

/*
 * Is what is `left` of a quota enough for a task that was parked at `since` (0: is not parked)? For
 * one that was parked in this period, only as much as is worth a turn is enough: otherwise the last
 * of the quota would go to a short turn of the task that looks first, however little that one is
 * owed. To such tasks the kernel, too, hands out no less than a slice (do_sched_cfs_slack_timer()).
 */
static inline bool quota_serves(struct group_conf *conf, struct group_ctx *g, u64 quota, s64 left,
				u64 since)
{
	u64 worth = quota / QUOTA_LOOKS < QUOTA_TURN ? quota / QUOTA_LOOKS : QUOTA_TURN;
	u64 begun = shared(g->period_end) - quota_period(conf);

	if (left <= 0)
		return false;
	return !since || before(since, begun) || (u64)left >= worth;
}

/*
 * In how many ns may something be left of a quota of which `left`, too little, is left now? What
 * turns that are under way have taken and will not need comes back as soon as they end. If nobody
 * looked for that, siblings that wait for each other would wait for the next period with a part of
 * the quota unused. The timers of all parked tasks fire when a period begins, so one may see it
 * begun by another pCPU but not filled yet. So a period that has only just begun is looked at again
 * at once.
 */
static inline u64 quota_again(struct group_conf *conf, struct group_ctx *g, u64 quota, s64 left,
			      u64 now)
{
	s64 reserved = (s64)shared(g->reserved);
	u64 owed = left < 0 ? (u64)-left / quota : 0;
	u64 end = shared(g->period_end);
	u64 wait = before(now, end) ? end - now : 1;
	u64 period = quota_period(conf);

	if (wait + SLICE_MIN > period)
		return SLICE_MIN;
	if (owed > PARK_MAX / SLICE_MIN)
		return PARK_MAX;
	wait += owed * period;
	if (left + reserved > 0 && wait > period / QUOTA_LOOKS)
		return period / QUOTA_LOOKS;
	return wait < PARK_MAX ? wait : PARK_MAX;
}

/*
 * For how many ns does the quota of the cgroup in place `group` - 1 keep a task waiting? `since`:
 * when the task was parked; 0: it is not.
 */
CALLED u64 quota_wait_here(u32 group, u64 since, u64 now)
{
	struct group_conf *conf = group_conf_at(group - 1);
	struct group_ctx *g = group_at(group - 1);
	u64 quota;
	s64 left;

	if (!conf || !g)
		return 0;
	quota = shared(conf->quota);
	if (!quota)
		return 0;
	left = quota_left(conf, g, quota, now);
	if (quota_serves(conf, g, quota, left, since))
		return 0;
	return quota_again(conf, g, quota, left, now);
}

/* The same for all quotas around `group`, its own included. */
CALLED u64 quota_wait(u32 group, u64 since, u64 now)
{
	u64 wait = 0;
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		u64 here = quota_wait_here(group, since, now);

		if (here > wait)
			wait = here;
		group = group_around(conf);
	}
	return wait;
}

/* How much of `want` do the quotas around `group` have left? */
CALLED u64 quota_offer(u32 group, u64 want, u64 now)
{
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		u64 quota;
		s64 left;

		quota = shared(conf->quota);
		if (quota) {
			left = quota_left(conf, g, quota, now);
			if (left <= 0)
				want = 0;
			else if ((u64)left < want)
				want = (u64)left;
		}
		group = group_around(conf);
	}
	return want;
}

/*
 * Takes `ns` from the quotas around `group`, or gives it back if below 0; `reserved`: by how much
 * what turns under way have reserved grows, or shrinks. Returns the least that any of the quotas
 * had before, 0 if that is below 0.
 */
CALLED u64 quota_take(u32 group, s64 ns, s64 reserved)
{
	u64 least = ~0ull;
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		s64 had;

		if (shared(conf->quota)) {
			fetch_add(g->reserved, reserved);
			had = (s64)fetch_add(g->left, -ns);
			if (had < 0)
				had = 0;
			if ((u64)had < least)
				least = (u64)had;
		}
		group = group_around(conf);
	}
	return least;
}

/* When was the last of the quotas around `group` refilled after it had been used up? */
CALLED u64 quota_freed_at(u32 group)
{
	u64 last = 0;
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		u64 freed;

		freed = shared(g->freed_at);
		if (freed > last)
			last = freed;
		group = group_around(conf);
	}
	return last;
}

/* Is there a quota around `group` at all? */
static inline bool is_limited(u32 group)
{
	struct group_conf *conf = group ? group_conf_at(group - 1) : NULL;

	return conf && shared(conf->limited);
}

/* For how many ns is nothing left for `t`? 0: something is. */
INLINED u64 quota_out(struct task_ctx *t, u64 now)
{
	return is_limited(t->group) ? quota_wait(t->group, 0, now) : 0;
}

/*
 * Takes `slice` ns, which the quotas around `group` have offered, or as much of it as they have by
 * now: all parked tasks are released at the same moment, and others may have taken it since.
 * Returns how much that is.
 */
static inline u64 quota_reserve(u32 group, u64 slice)
{
	u64 had = quota_take(group, (s64)slice, (s64)slice);

	if (had < SLICE_MIN)
		had = SLICE_MIN;
	if (had >= slice)
		return slice;
	quota_take(group, (s64)(had - slice), (s64)(had - slice));
	return had;
}

/* `t` gets a turn of `slice` ns on `c`, or as much of it as its quotas have. Returns its length. */
static inline u64 quota_turn(struct task_ctx *t, struct cpu_ctx *c, u64 slice, u64 now)
{
	bool limited = is_limited(t->group);

	if (shared(c->cur_limited) != limited)
		store(c->cur_limited, limited);
	if (!limited)
		return slice;
	slice = quota_offer(t->group, slice < QUOTA_TURN ? slice : QUOTA_TURN, now);
	if (slice < SLICE_MIN)
		slice = SLICE_MIN;
	slice = quota_reserve(t->group, slice);
	t->reserved = slice;
	return slice;
}

/* The turn of `t`, charged up to t->charged, ends or is checked: what it did not need goes back. */
static inline void quota_settle(struct task_ctx *t, u64 now)
{
	u64 used = before(t->charged, now) ? now - t->charged : 0;

	if (!t->reserved)
		return;
	quota_take(t->group, (s64)(used - t->reserved), -(s64)t->reserved);
	t->reserved = 0;
}

/* The turn on `c` is over: must a quota be checked? */
static inline bool quota_is_due(struct cpu_ctx *c)
{
	return knobs.groups && shared(c->cur_limited);
}

/*
 * `t` was throttled for `spent` ns; from when its quota was refilled, it waited like any ready
 * task.
 */
RARE void quota_waited(struct task_ctx *t, u64 spent, u64 now)
{
	u64 freed = quota_freed_at(t->group);
	u64 queued = before(t->since, freed) && before(freed, now) ? now - freed : 0;

	t->sum.throttled += spent - queued;
	t->sum.ready += queued;
}

/* Has `cpu` check the tasks parked there in `wait` ns. */
static inline void release_in(struct cpu_ctx *c, s32 cpu, u64 wait, u64 now)
{
	u64 due = shared(c->release_at);

	if (due && !before(now + wait, due) && before(now, due + RELEASE_LATE))
		return;
	store(c->release_at, now + wait);
	start_release_timer(cpu, wait);
}

/* Has `t` been parked for as long as a task may be? */
static inline bool park_is_over(struct task_ctx *t, u64 now)
{
	return t->parked_since && !before(now, t->parked_since + PARK_MAX);
}

/* What other callbacks may know of a parked task. */
struct parked {
	u64 vtime;
	u64 clock; /* what the clock behind its vtime said when it was parked */
	u64 since;
	u32 group;
	s32 to;	    /* pCPU where it is to be queued */
	u32 vm;	    /* slot of its VM, or NO_VM */
	u32 load;   /* what it adds to the load there, */
	u32 active; /* to its VM's active weight */
	u32 weight; /* and to its cgroup's */
};

static inline bool look_at_parked(struct task_struct *p, struct parked *parked)
{
	struct task_ctx *t = raw_task_ctx(p);

	if (!t)
		return false;
	parked->vtime = shared(t->vtime);
	parked->clock = shared(t->parked_clock);
	parked->since = shared(t->parked_since);
	parked->group = shared(t->group);
	parked->to = (s32)shared(t->parked_for);
	parked->vm = shared(t->vm);
	parked->load = shared(t->load);
	parked->active = shared(t->parked_active);
	parked->weight = shared(t->parked_weight);
	return true;
}

/* Counts `parked` where it is to be queued. */
RARE void count_parked(struct parked *parked)
{
	struct task_ctx it = {.vm = parked->vm, .load = parked->load, .cpu = NO_PCPU};
	struct vm_ctx *vm = vm_of(&it);

	occupancy_add(&it, cpu_at(parked->to), parked->to);
	if (vm)
		fetch_add(vm->active_weight, parked->active);
	if (parked->group)
		group_count(parked->group, parked->weight, 0);
}

/* Takes that back. */
RARE void uncount_parked(struct parked *parked)
{
	struct task_ctx it = {.vm = parked->vm, .load = parked->load, .cpu = NO_PCPU};
	struct vm_ctx *vm = vm_of(&it);

	occupancy_sub(&it, parked->to);
	if (vm)
		fetch_add(vm->active_weight, -(s64)parked->active);
	if (parked->group)
		group_count(parked->group, parked->weight, 1);
}

/*
 * Notes that count_parked() counts `p` (1) or does not (0). Returns what was noted before: the
 * caller that turns a 1 into a 0 uncounts the task.
 */
static inline bool say_released(struct task_struct *p, u32 released)
{
	struct task_ctx *t = raw_task_ctx(p);

	return t && exchange(t->released, released);
}

/* `t` stops being throttled: from now on its own callbacks count it. */
RARE void quota_returns(struct task_ctx *t)
{
	struct parked parked = {
	    .group = t->group,
	    .to = t->parked_for,
	    .vm = t->vm,
	    .load = t->load,
	    .active = t->parked_active,
	    .weight = t->parked_weight,
	};

	if (exchange(t->released, 0))
		uncount_parked(&parked);
}

/* `p` is about to be queued again: it is counted first, since it may run at once. */
static inline void release_begins(struct task_struct *p, struct parked *parked)
{
	count_parked(parked);
	say_released(p, 1);
}

/* `p` was not in the queue any more. */
static inline void release_failed(struct task_struct *p, struct parked *parked)
{
	if (say_released(p, 0))
		uncount_parked(parked);
}

/* What the pCPU's clock to which the virtual time of `t` refers says. */
static inline u64 clock_of(struct task_ctx *t)
{
	struct cpu_ctx *c = cpu_at(t->clock_cpu);

	return c ? shared(c->vnow) : t->vtime;
}

/*
 * `t`, which was parked, comes back: it is as far from the clock as when it was parked. Its
 * siblings in the quota were parked, too, and all of them are to keep the order among each other
 * that their weights have given them. Otherwise, since others, or one of them in a last turn, have
 * advanced the clock meanwhile, the one that is owed least would have caught up.
 */
static inline void clock_goes_on(struct task_ctx *t)
{
	t->vtime += clock_of(t) - t->parked_clock;
}

/*
 * `t`, which was throttled, starts at the virtual time at which it was queued again: it has waited
 * for what others have run since then.
 */
static inline void starts_again(struct task_struct *p, struct task_ctx *t)
{
	if (!shared(t->released)) {
		clock_goes_on(t);
		return;
	}
	t->vtime = queued_vtime(p);
	t->clock_cpu = t->parked_for;
}

/* In how many ns may `parked` be released? */
static inline u64 release_wait(struct parked *parked, u64 now)
{
	u64 wait = quota_wait(parked->group, parked->since, now);
	u64 end = parked->since + PARK_MAX;

	if (!before(now, end))
		return 0;
	return end - now < wait ? end - now : wait;
}

/*
 * Of the tasks parked on `cpu` that are about to return, how far from its clock is the one that is
 * owed most? Below 0: it is owed that much. Not CALLED, as release_one().
 */
static inline s64 least_lead(s32 cpu, u64 now)
{
	u64 unknown = unknown_zero(); /* or the verifier follows each order of leads */
	u32 looked = (u32)unknown;
	u64 least = 2 * LEAD_NONE;
	struct task_struct *p;

	for_each_queued (p, parking_of(cpu)) {
		struct parked parked = {};
		u64 lead;

		if (before(now, queued_vtime(p)) || looked++ == RELEASE_MOST)
			break;
		if (!look_at_parked(p, &parked) || release_wait(&parked, now))
			continue;
		lead = unranged(LEAD_NONE + parked.vtime - parked.clock, unknown);
		if (below(lead, least, unknown))
			least = lead;
	}
	return (s64)(least - LEAD_NONE);
}

/*
 * The clock of `c` has advanced by `gone`: how much of the lead of the tasks that return to it is
 * forgiven? As much as if they had slept, but the same for all: the one that is owed most, at
 * `least` from the clock, comes to a credit behind it.
 */
static inline u64 forgiven(struct cpu_ctx *c, s64 least, s64 gone)
{
	s64 most = least + (s64)fair_span(c, NO_LOAD, knobs.sleeper_credit);

	if (gone < most)
		most = gone;
	return most > 0 ? (u64)most : 0;
}

/*
 * The virtual time at which `parked` returns to the order of `c`. It keeps its place among the
 * tasks that return with it (clock_goes_on()), but need not wait for what others have run
 * meanwhile. Otherwise those others would go first whenever a period begins; and if by then other
 * pCPUs have used up the quota, again and again.
 */
static inline u64 place_again(struct cpu_ctx *c, struct parked *parked, s64 least)
{
	u64 here = shared(c->vnow);
	u64 vtime = here + (parked->vtime - parked->clock);

	vtime -= forgiven(c, least, (s64)(here - parked->clock));
	return later(vtime, here - fair_span(c, parked->load, knobs.sleeper_credit));
}

/*
 * `parked` was queued at `vtime` by the clock of `c`: does it interrupt the task that runs there,
 * as a task does that wakes and is owed so much more (fair_preempts())? Not with gangs or on SMT
 * cores, which have orders of their own.
 */
static inline bool returns_first(struct cpu_ctx *c, struct parked *parked, u64 vtime, u64 now)
{
	u64 gran = fair_span(c, parked->load, knobs.wakeup_gran);

	return !with_gangs() && !with_cores() && shared(c->runs) &&
	       before(vtime + gran, fair_current(c, now));
}

/* `p`, which was `parked`, is queued at `vtime` by the clock of `c`: a pCPU is called for it. */
static inline void call_back(struct task_struct *p, struct cpu_ctx *c, struct parked *parked,
			     u64 vtime, u64 now)
{
	if (!call_idle(p, parked->to) && returns_first(c, parked, vtime, now))
		kick(parked->to, KICK_PREEMPT);
}

/* In how many ns the first of the tasks that stay parked is due; 0: none stays. */
struct again {
	u64 wait;
};

/*
 * Looks at the task parked on `cpu` that is due first. It is queued again if it has something left;
 * else it stays parked, behind those that are due earlier: so none is passed over again and again.
 * False if none is due yet. Not CALLED: on its own the verifier would check it as part of
 * corun_init, which may sleep.
 */
static inline bool release_one(s32 cpu, u64 now, s64 least, struct again *again)
{
	struct task_struct *p;
	bool moved = false;

	again->wait = 0;
	for_each_queued (p, parking_of(cpu)) {
		struct parked parked = {};
		u64 due = queued_vtime(p);
		struct cpu_ctx *to;
		u64 wait, vtime;

		if (before(now, due)) {
			again->wait = due - now;
			break;
		}
		if (!look_at_parked(p, &parked))
			continue;
		wait = release_wait(&parked, now);
		if (wait) {
			moved = requeue(p, parking_of(cpu), now + wait);
			break;
		}
		to = cpu_at(parked.to);
		if (!to)
			continue;
		vtime = place_again(to, &parked, least);
		release_begins(p, &parked);
		moved = requeue(p, parked.to, vtime);
		if (moved)
			call_back(p, to, &parked, vtime, now);
		else
			release_failed(p, &parked);
		break;
	}
	return moved;
}

/* Queues again the tasks parked on `cpu` that have something left. */
static inline void release_parked(struct cpu_ctx *c, s32 cpu, u64 now)
{
	s64 least = least_lead(cpu, now);
	struct again again = {};
	u32 i;

	store(c->release_at, 0);
	repeat (i, RELEASE_MOST) {
		if (!release_one(cpu, now, least, &again))
			break;
	}
	if (!again.wait && queue_length(parking_of(cpu)))
		again.wait = SLICE_MIN;
	if (again.wait)
		release_in(c, cpu, again.wait, now);
}

#endif
