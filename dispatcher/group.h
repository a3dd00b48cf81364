/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cgroups: the tasks with which a task shares its weight (cpu.weight and cpu.idle, nested).
 *
 * The kernel's fair scheduler has a queue for each cgroup on each pCPU, and divides what a cgroup
 * gets among those of its members that want to run (kernel/sched/fair.c). Here every task is in one
 * queue with all others of its pCPU, and its weight is a product over the levels of its path: at
 * each level, its part of the weights there that want to run (as in scx_flatcg of the kernel's
 * tools/sched_ext). A member counts from when its first task wants to run until its last one ceases
 * to.
 *
 * A turn is charged by the mean, over the turn, of the weights that wanted to run in the task's own
 * cgroup: siblings often begin and cease to together, as at barriers, so a snapshot at the end of
 * the turn would tell little. For the cgroups that enclose it, that snapshot is used.
 *
 * Differences from the kernel. It weighs by pCPU and by averages of the last 32 ms or so; this
 * weighs by the whole host and the moment. And here a cgroup weighs as much on each pCPU as a task
 * in the root cgroup with the same weight does, where the kernel divides the cgroup's weight among
 * pCPUs. Cgroups compare with each other as they do there, but tasks in the root cgroup itself,
 * which are the kernel's threads, weigh less by a factor of the number of pCPUs. Were a cgroup's
 * weight divided here, too, the weights of vCPUs would be tiny on large hosts, and all that is
 * measured in virtual time out of proportion.
 *
 * An idle cgroup (cpu.idle) weighs 3, as the kernel's WEIGHT_IDLEPRIO: a task that wakes beside its
 * tasks is soon owed more than they are.
 */
#ifndef CORUN_GROUP_H
#define CORUN_GROUP_H

#include "platform/platform.h"

/* No run is charged at a higher rate than this: keeps products below 2^63. */
#define RATE_MAX ((u64)RATE_ONE << 14)
/* Bound of the active weight of a cgroup: keeps its product with a rate below 2^63. */
#define GROUP_ACTIVE_MAX (1ull << 29)
/* No mean above this is believed: the weight of as many tasks as pCPUs, of weight 100 each. */
#define MEAN_MOST ((u64)MAX_PCPUS * GROUP_NEUTRAL)

/* The weight of `p` among the members of its cgroup. */
static inline u32 group_weight(struct task_struct *p)
{
	u32 weight = weight_of(p) * GROUP_NEUTRAL / WEIGHT_NEUTRAL;

	return weight ? weight : 1;
}

/*
 * The sum of the weights in a cgroup that want to run. `mean`: what its own tasks are taken to
 * weigh together; 0: what they weigh now.
 */
static inline u64 group_active(struct group_ctx *g, u64 mean)
{
	u64 own = mean ? mean : shared(g->own);
	s64 below = (s64)shared(g->below);
	u64 active = below > 0 ? own + (u64)below : own;

	return active < GROUP_ACTIVE_MAX ? active : GROUP_ACTIVE_MAX;
}

/*
 * The integral over time, until `now`, of the weights of the own tasks of `g` that wanted to run;
 * wraps. 0: unknown, because another CPU is adding up at this moment.
 */
static inline u64 group_sum(struct group_ctx *g, u64 now)
{
	u64 since = shared(g->changed);
	u64 sum = shared(g->sum);
	u64 own = shared(g->own);
	u64 still = shared(g->changed);

	if (!since || still != since)
		return 0;
	return sum + own * (now - since);
}

/* The weights that want to run in `g` change `now`: adds up those until now. */
static inline void group_add_up(struct group_ctx *g, u64 now)
{
	u64 since = exchange(g->changed, 0);
	u64 sum;

	if (since) {
		sum = shared(g->own) * (now - since);
		fetch_add(g->sum, sum);
	}
	store(g->changed, now);
}

/* `t` has been charged for what it ran until `now`. */
static inline void group_charged(struct task_ctx *t, u64 now)
{
	struct group_ctx *g = t->group ? group_at(t->group - 1) : NULL;

	t->group_sum = g ? group_sum(g, now) : 0;
}

/*
 * The mean weight of the own tasks of the cgroup of `t` that wanted to run in the last `ns`, since
 * `t` was last charged. 0: unknown; a mean above MEAN_MOST, which two CPUs that add up at once can
 * cause, counts as unknown.
 */
static inline u64 group_mean(struct task_ctx *t, u64 ns, u64 now)
{
	u64 was = t->group_sum;
	u64 mean;

	group_charged(t, now);
	if (!was || !t->group_sum || !ns || (s64)(t->group_sum - was) < 0)
		return 0;
	mean = (t->group_sum - was) / ns;
	return mean <= MEAN_MOST ? mean : 0;
}

/*
 * for_each_group(level, conf, g, group): the cgroup in place `group` - 1, and then the cgroups that
 * enclose it, as long as the body ends in `group = group_around(conf)`.
 */
#define for_each_group(level, conf, g, group)                                                      \
	repeat (level, GROUP_LEVELS)                                                               \
		if (!(group) || !((conf) = group_conf_at((group) - 1)) ||                          \
		    !((g) = group_at((group) - 1)))                                                \
			break;                                                                     \
		else

/* The place plus 1 of the enclosing cgroup; 0: that is the root. */
static inline u32 group_around(struct group_conf *conf)
{
	return shared(conf->parent);
}

/*
 * How fast virtual time grows for a member of `group` that weighs `weight`, beside all others, at
 * most RATE_MAX. `rate`: how fast it would grow if the member had the cgroup to itself on the whole
 * host. `mean`: see group_active().
 */
CALLED u64 group_rate(u32 group, u64 weight, u64 rate, u64 mean)
{
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		u64 active, own;

		own = shared(conf->weight);
		if (!own)
			break;
		active = group_active(g, level ? 0 : mean);
		/* The member itself wants to run, whatever the counts say at this moment. */
		if (active < weight)
			active = weight;
		rate = rate * active / own;
		if (rate > RATE_MAX)
			rate = RATE_MAX;
		weight = own;
		group = group_around(conf);
	}
	return rate / (knobs.online_pcpus ? knobs.online_pcpus : 1);
}

/* A member of `group` that weighs `weight` begins to want to run, or ceases to (`gone`). */
CALLED u32 group_count(u32 group, u64 weight, u32 gone)
{
	s64 delta = gone ? -(s64)weight : (s64)weight;
	struct group_conf *conf;
	struct group_ctx *g;
	s32 level;

	for_each_group (level, conf, g, group) {
		u32 others;

		if (level) {
			fetch_add(g->below, delta);
		} else {
			group_add_up(g, now_ns());
			fetch_add(g->own, delta);
		}
		others = (u32)fetch_add(g->members, gone ? -1 : 1);
		if (others != (gone ? 1 : 0))
			break;
		/* The cgroup as a whole begins to want to run, or ceases to. */
		delta = recounted(g, shared(conf->weight), gone);
		group = group_around(conf);
	}
	return 0;
}

/* `t`, which is not counted in its cgroup yet, wants to run from now on. */
static inline void group_enter(struct task_struct *p, struct task_ctx *t)
{
	t->group = group_of(p);
	t->group_weight = t->group ? group_weight(p) : 1;
	if (t->group)
		group_count(t->group, t->group_weight, 0);
}

static inline void group_leave(struct task_ctx *t)
{
	if (t->group && t->group_weight)
		group_count(t->group, t->group_weight, 1);
	t->group_weight = 0;
}

#endif
