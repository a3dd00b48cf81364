/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cgroups in the kernel: which one a task is in, and what its administrator wants for it.
 *
 * cpu.weight, cpu.idle and cpu.max are kept in the kernel's struct task_group whichever scheduler
 * runs (kernel/sched/core.c: sched_group_set_shares(), tg_set_cfs_bandwidth()), and a task points
 * to its own. So they are read there, from the task's own cgroup outwards, when a task wants to run
 * and they have not been read for GROUP_LOOK, and once a second for cgroups with running tasks.
 * This needs no callback that only newer kernels have, and no daemon that watches thousands of
 * files, and it works with cgroup v1. All reads are of a kind that may fail: a cgroup may be on its
 * way out.
 *
 * A cgroup has a place in a table as long as it has running members. Once a second each is counted
 * anew in the one around it, because weights change after they have been counted; and places that
 * have not been asked for in GROUP_FORGET are given up.
 *
 * The members of a cgroup that finds no place, or that is nested too deeply to be told apart, count
 * in the nearest enclosing cgroup that has a place, never in the root: otherwise a user who may
 * create cgroups within another one could escape the limits of that one.
 *
 * While one callback does any of this, others ask for places, and count tasks in them. Three things
 * hold all the same:
 *
 *   - No task is counted in a place that is given up. A place is given up in two steps, a second
 *     apart, and stays if it was asked for in between: group_stays() and the second step exclude
 *     each other by compare and swap. A callback that asked just before the first step has read the
 *     cgroup long before the second, since callbacks run with interrupts off; then the place is not
 *     old any more.
 *   - A task is counted out of the same cgroups that it was counted in: a cgroup's parent does not
 *     change while the cgroup has members. And no callback finds a place marked as read before all
 *     enclosing ones are read.
 *   - A place that has just been taken is not old, whenever its last owner was read.
 */
#ifndef CORUN_CGROUP_H
#define CORUN_CGROUP_H

#include "counted.h"

/* How old the data on a cgroup may be, ns. */
#define GROUP_LOOK 100000000ull
/* How often cgroups are counted anew, ns. */
#define GROUP_RECOUNT 1000000000ull
/* After how long a cgroup without running tasks is forgotten, ns. */
#define GROUP_FORGET 60000000000ull
/* How many places are tried for a new one: with 3500 of 4096 taken, one in 20,000 finds none. */
#define GROUP_TRIES 64
/* GOLDEN_RATIO_64 of the kernel's include/linux/hash.h. */
#define GROUP_HASH 0x61C8864680B583EBull
/* The kernel keeps weights with this many more binary digits (scale_load()). */
#define GROUP_SCALE 10
/* cfs_bandwidth.quota of a cgroup without one (RUNTIME_INF). */
#define NO_QUOTA (~0ull)
/* Longer times are cut to this, ns: keeps sums below 2^63. */
#define GROUP_LONGEST 1000000000000ull

/*
 * group_place.going. GROUP_GOES: the place has not been asked for in GROUP_FORGET, and is given up
 * a second later unless it is asked for before then. GROUP_GONE: it has been given up, and a
 * callback that still finds it comes too late.
 */
enum group_going {
	GROUP_STAYS = 0,
	GROUP_GOES = 1,
	GROUP_GONE = 2,
};

/* The cgroup that has a place. */
struct group_place {
	u64 tg;	       /* the kernel's task_group, by its address; 0: free */
	u64 looked_at; /* when the task_group was last read, ns */
	u64 going;     /* enum group_going */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct group_place);
} group_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u64);
	__type(value, u32);
} group_index SEC(".maps");

/* How crowded the table is, for the daemon to read. */
struct group_table {
	u64 taken;   /* number of places taken, as last counted */
	u64 crowded; /* how often a place was looked for and none was free */
};

volatile struct group_table group_table;

struct group_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group_timer);
} group_timers SEC(".maps");

static inline struct group_place *group_place_at(u32 place)
{
	return bpf_map_lookup_elem(&group_places, &place);
}

/* Does `at`, whose cgroup is asked for, stay the place of that cgroup? */
static inline bool group_stays(struct group_place *at)
{
	if (*(volatile u64 *)&at->going == GROUP_STAYS)
		return true;
	return __sync_val_compare_and_swap(&at->going, GROUP_GOES, GROUP_STAYS) != GROUP_GONE;
}

/* Is `at` the place of `tg`? The index may be out of date. */
static inline bool group_has(struct group_place *at, u64 tg)
{
	return *(volatile u64 *)&at->tg == tg;
}

/* `at`, which was free, gets a new owner: clears what is left of the last one. */
static inline void group_taken(u32 place, struct group_place *at)
{
	struct group_ctx *g = group_at(place);

	/*
	 * So that it is due to be read, even for a callback whose `now` is a moment old, but is not
	 * old.
	 */
	*(volatile u64 *)&at->looked_at = bpf_ktime_get_ns() - 2 * GROUP_LOOK;
	if (g) {
		*(volatile s64 *)&g->left = 0;
		*(volatile s64 *)&g->reserved = 0;
		*(volatile u64 *)&g->period_end = 0;
		*(volatile u64 *)&g->freed_at = 0;
	}
	__sync_lock_test_and_set(&at->going, GROUP_STAYS);
}

/* The place plus 1 that the index has for `tg`; 0: none (NULL), or it has just been given up. */
static inline u32 group_indexed(u64 tg, u32 *known)
{
	u32 place = known ? *known : MAX_GROUPS;
	struct group_place *at = group_place_at(place);

	return at && group_has(at, tg) && group_stays(at) ? place + 1 : 0;
}

/*
 * The place of `tg` plus 1, a new one if need be; 0: there is no room, or the place is being given
 * up. task_groups lie side by side in slabs: so the place that is tried first, and the step to the
 * next ones, depend on all bits of the address.
 */
CALLED u32 group_place_of(u64 tg)
{
	u32 *known = bpf_map_lookup_elem(&group_index, &tg);
	u64 hash = tg * GROUP_HASH;
	/* The step is odd, so that it reaches all places. */
	u32 first = (u32)(hash >> 32), step = (u32)(hash >> 16) | 1;
	u32 found = 0;
	u32 i;

	if (known)
		return group_indexed(tg, known);
	repeat (i, GROUP_TRIES) {
		u32 place = (first + i * step) % MAX_GROUPS;
		struct group_place *at = group_place_at(place);

		/* Read first: where the table is full, each exchange would take the line from other
		 * CPUs. */
		if (!at || *(volatile u64 *)&at->tg || __sync_val_compare_and_swap(&at->tg, 0, tg))
			continue;
		group_taken(place, at);
		if (!bpf_map_update_elem(&group_index, &tg, &place, BPF_NOEXIST)) {
			found = place + 1;
			break;
		}
		/* Another CPU was faster. */
		__sync_lock_test_and_set(&at->tg, 0);
		found = group_indexed(tg, bpf_map_lookup_elem(&group_index, &tg));
		break;
	}
	if (!found)
		__sync_fetch_and_add(&group_table.crowded, 1);
	return found;
}

/* Copies what the kernel's task_group says to where the dispatcher reads it. */
CALLED u32 group_read(u64 tg, u32 group, u32 parent)
{
	struct task_group *from = (struct task_group *)tg;
	struct group_conf *conf = group_conf_at(group - 1);
	struct group_ctx *g = group_at(group - 1);
	u64 weight = BPF_CORE_READ(from, shares) >> GROUP_SCALE;
	u64 quota = NO_QUOTA, period = 0, burst = 0;

	if (!conf || !g)
		return 0;
	if (bpf_core_field_exists(from->cfs_bandwidth)) {
		quota = BPF_CORE_READ(from, cfs_bandwidth.quota);
		period = (u64)BPF_CORE_READ(from, cfs_bandwidth.period);
		burst = BPF_CORE_READ(from, cfs_bandwidth.burst);
	}
	if (quota == NO_QUOTA)
		quota = 0;
	*(volatile u64 *)&conf->burst = burst < GROUP_LONGEST ? burst : GROUP_LONGEST;
	*(volatile u64 *)&conf->period = period < GROUP_LONGEST ? period : GROUP_LONGEST;
	*(volatile u64 *)&conf->quota = quota < GROUP_LONGEST ? quota : GROUP_LONGEST;
	/*
	 * Another cgroup at the same address may be nested elsewhere: the parent changes only while
	 * no member is counted.
	 */
	if (!*(volatile u32 *)&g->members)
		*(volatile u32 *)&conf->parent = parent;
	*(volatile u32 *)&conf->weight = weight ? (u32)weight : 1;
	return 0;
}

/* Has `group` or a cgroup that encloses it a quota? */
CALLED u32 group_limits(u32 group)
{
	u32 limited = 0;
	s32 level;

	repeat (level, GROUP_LEVELS) {
		struct group_conf *conf = group_conf_at(group - 1);

		if (!group || !conf)
			break;
		limited |= conf->quota != 0;
		group = conf->parent;
	}
	return limited;
}

/* Has the cgroup at `at` been read lately? If not, the caller must read it. */
static inline bool group_is_fresh(struct group_place *at, u64 now)
{
	return (s64)(now - *(volatile u64 *)&at->looked_at) < (s64)GROUP_LOOK;
}

static inline u64 group_parent(u64 tg)
{
	return (u64)BPF_CORE_READ((struct task_group *)tg, parent);
}

/* Is `tg` the root? The root has no weight, and no place. */
static inline bool group_is_root(u64 tg)
{
	return !tg || !group_parent(tg);
}

/* The pointer at index `number` of the kernel's array at `at`. */
static inline u64 group_pointer(u64 at, u64 number)
{
	u64 pointer = 0;

	bpf_probe_read_kernel(&pointer, sizeof(pointer), (void *)(at + number * sizeof(pointer)));
	return pointer;
}

/* The task_group of the kernel's `cgroup`; 0: it has none any more. */
static inline u64 group_of_cgroup(u64 cgroup)
{
	u64 css = group_pointer(cgroup + bpf_core_field_offset(struct cgroup, subsys),
				bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id));

	return css ? css - bpf_core_field_offset(struct task_group, css) : 0;
}

/*
 * The cgroup in which members of `tg` are counted: itself, or the enclosing one at the deepest
 * level that is looked at. All cgroups that enclose it must be in the table, or members would be
 * counted out of cgroups in which they have not been counted. The kernel knows the enclosing cgroup
 * at each level, so deep nesting does not make wake-ups expensive. If a cgroup has been removed
 * while a task still exits in it, some of those that enclose it may have been removed, too.
 */
CALLED u64 group_anchor(u64 tg)
{
	u64 cgroup = (u64)BPF_CORE_READ((struct task_group *)tg, css.cgroup);
	u64 around = cgroup + bpf_core_field_offset(struct cgroup, ancestors);
	s32 level;

	/* autogroups are not cgroups; their parent is the root. */
	if (!cgroup || BPF_CORE_READ((struct cgroup *)cgroup, level) <= GROUP_LEVELS)
		return tg;
	repeat (level, GROUP_LEVELS) {
		tg = group_of_cgroup(group_pointer(around, (u64)(GROUP_LEVELS - level)));
		if (tg)
			break;
	}
	return tg;
}

/*
 * Reads `tg`, in place `group` - 1, and the enclosing cgroups that have not been read lately. Other
 * callbacks must not find `group` marked as read before all of them are: group_were_read().
 */
CALLED u32 group_read_all(u64 tg, u32 group, u64 now)
{
	u64 outer = tg;
	s32 level;

	repeat (level, GROUP_LEVELS) {
		struct group_place *at;
		u32 parent = 0;

		outer = group_parent(outer);
		if (!group_is_root(outer)) {
			parent = group_place_of(outer);
			/*
			 * Without a place for that one, `tg` counts as nested in the next one out.
			 */
			if (!parent)
				continue;
		}
		group_read(tg, group, parent);
		at = group_place_at(parent - 1);
		if (!at || group_is_fresh(at, now))
			break;
		group = parent;
		tg = outer;
	}
	return 0;
}

/* Marks `group`, and the enclosing cgroups that were not marked yet, as read. */
CALLED u32 group_were_read(u32 group, u64 now)
{
	s32 level;

	repeat (level, GROUP_LEVELS) {
		struct group_conf *conf = group_conf_at(group - 1);
		struct group_place *at = group_place_at(group - 1);

		if (!group || !conf || !at || group_is_fresh(at, now))
			break;
		*(volatile u32 *)&conf->limited = group_limits(group);
		/* This must not be seen before what has been read. */
		__sync_lock_test_and_set(&at->looked_at, now);
		group = conf->parent;
	}
	return 0;
}

/* The place of `tg` plus 1, if it has one and has been read lately; else 0. */
static inline u32 group_known(u64 tg, u64 now)
{
	u32 *known = bpf_map_lookup_elem(&group_index, &tg);
	struct group_place *at = group_place_at(known ? *known : MAX_GROUPS);

	return known && at && group_has(at, tg) && group_is_fresh(at, now) ? *known + 1 : 0;
}

/*
 * The same, with a new place if need be, and with the data on it and the enclosing cgroups brought
 * up to date.
 */
static inline u32 group_brought_up(u64 tg, u64 now)
{
	u32 own = group_place_of(tg);
	struct group_place *at = group_place_at(own - 1);

	if (!at || !group_has(at, tg))
		return 0;
	if (!group_is_fresh(at, now)) {
		if (!group_stays(at))
			return 0;
		group_read_all(tg, own, now);
		group_were_read(own, now);
	}
	return own;
}

/*
 * The place plus 1 where members of `tg` count, up to date: its own, or that of an enclosing
 * cgroup.
 */
CALLED u32 group_find(u64 tg)
{
	u64 now = bpf_ktime_get_ns();
	u32 own = group_known(tg, now);
	s32 level;

	if (own)
		return own;
	tg = group_anchor(tg);
	repeat (level, GROUP_LEVELS) {
		if (group_is_root(tg))
			break;
		own = group_brought_up(tg, now);
		if (own)
			break;
		tg = group_parent(tg);
	}
	return own;
}

/* The root's task_group, by its address, once a task of it has been seen. */
volatile u64 group_root;

/* The same for a task that is not known to be in the root cgroup. */
RARE u32 group_beyond_root(struct task_struct *p)
{
	u64 tg = (u64)BPF_CORE_READ(p, sched_task_group);

	if (!tg)
		return 0;
	if (group_parent(tg))
		return group_find(tg);
	group_root = tg;
	return 0;
}

static inline u32 raw_group_of(struct task_struct *p)
{
	/* The pointer can be compared without a helper, but not passed as a number. */
	return (u64)p->sched_task_group == group_root ? 0 : group_beyond_root(p);
}

/*
 * No task wants to run in the cgroup in `place`: if that has been so for long, gives up the place.
 */
static inline void group_fade(u32 place, struct group_place *at, u64 now)
{
	/* It may have been read since `now`. */
	bool old = (s64)(now - *(volatile u64 *)&at->looked_at) > (s64)GROUP_FORGET;
	u64 going = *(volatile u64 *)&at->going;
	u64 tg = at->tg;

	/* GROUP_GONE: the place has just been taken anew. */
	if (going == GROUP_STAYS && old)
		__sync_val_compare_and_swap(&at->going, GROUP_STAYS, GROUP_GOES);
	if (going != GROUP_GOES)
		return;
	if (!old)
		group_stays(at);
	else if (__sync_bool_compare_and_swap(&at->going, GROUP_GOES, GROUP_GONE)) {
		bpf_map_delete_elem(&group_index, &tg);
		__sync_lock_test_and_set(&at->tg, 0);
	}
}

/* The cgroup of `g` counts in the one around it with the weight that it has now. */
static inline void group_weigh(struct group_conf *conf, struct group_ctx *g)
{
	struct group_ctx *outer = group_at(conf->parent - 1);
	s64 change = group_recounted(g, conf->weight);

	if (outer && change)
		__sync_fetch_and_add(&outer->below, change);
}

/*
 * Reads the cgroups that have members anew, and weighs all cgroups: a task that computes all the
 * time does not wake, and so would not have its cgroups read.
 */
static inline void group_weigh_all(u64 now)
{
	u32 i;

	bpf_for (i, 0, MAX_GROUPS) {
		struct group_place *at = group_place_at(i);
		struct group_conf *conf = group_conf_at(i);
		struct group_ctx *g = group_at(i);
		bool wants;

		if (!at || !conf || !g || !at->tg)
			continue;
		wants = *(volatile u32 *)&g->members;
		if (wants) {
			group_stays(at);
			/* The task_group lives as long as it has members. */
			group_read(at->tg, i + 1, conf->parent);
		}
		group_weigh(conf, g);
		if (!wants)
			group_fade(i, at, now);
	}
}

/* A look at parked tasks (quota.h) that is this late will not come any more, ns (assumed). */
#define RELEASE_OVERDUE 100000000ull

/*
 * Starts release timers that should have fired by now: where tasks are parked, but the kernel could
 * not start the timer (raw_start_timer()). Here nothing keeps the kernel from starting it.
 */
static inline void release_overdue(u64 now)
{
	s32 i;

	bpf_for (i, 0, nr_pcpus()) {
		u32 key = (u32)i + MAX_PCPUS;
		struct pcpu_timer *t = bpf_map_lookup_elem(&timers, &key);
		struct cpu_ctx *c = cpu_at(i);
		u64 due = c ? *(volatile u64 *)&c->release_at : 0;

		if (t && due && (s64)(now - due) > (s64)RELEASE_OVERDUE)
			bpf_timer_start(&t->timer, 0, 0);
	}
}

static int group_recount(void *map, u32 *key, struct group_timer *t)
{
	u64 taken = unknown_zero();
	u32 i;

	group_weigh_all(bpf_ktime_get_ns());
	release_overdue(bpf_ktime_get_ns());
	bpf_for (i, 0, MAX_GROUPS) {
		struct group_place *at = group_place_at(i);
		struct group_conf *conf = group_conf_at(i);
		struct group_ctx *g = group_at(i);

		if (!at || !conf || !g || !at->tg)
			continue;
		taken++;
		if (*(volatile u32 *)&g->members)
			*(volatile u32 *)&conf->limited = group_limits(i + 1);
	}
	group_table.taken = taken;
	bpf_timer_start(&t->timer, GROUP_RECOUNT, 0);
	return 0;
}

static inline s32 group_begin(void)
{
	u32 zero = 0;
	struct group_timer *t = bpf_map_lookup_elem(&group_timers, &zero);
	s32 err;

	if (!t)
		return -ENOMEM;
	err = bpf_timer_init(&t->timer, &group_timers, 1 /* CLOCK_MONOTONIC */);
	if (!err)
		err = bpf_timer_set_callback(&t->timer, group_recount);
	return err ? err : (s32)bpf_timer_start(&t->timer, GROUP_RECOUNT, 0);
}

#endif
