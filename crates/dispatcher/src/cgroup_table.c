/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel build's table of cgroups (dispatcher/platform/cgroup.h), compiled natively for the
 * tests in cgroup_table.rs: what it asks BPF and the kernel for is answered by a model of both.
 */
#define CORE
#include "../../../dispatcher/platform/kernel_types.h"

#include "../../../dispatcher/types.h"

#include <string.h>

/* --- what BPF has --- */

#define CALLED static __attribute__((noinline))
#define SEC(name)
#define __uint(name, number) int(*name)[number]
#define __type(name, kind) kind *name
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_NOEXIST 1
#define repeat(i, n) for ((i) = 0; (i) < (n); (i)++)
#define bpf_for(i, from, to) for ((i) = (from); (i) < (to); (i)++)
#define bpf_core_field_exists(field) true
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)
#define bpf_core_enum_value(type, value) (value)
#define BPF_CORE_READ(from, field) ((from)->field)
#define bpf_probe_read_kernel(to, size, from) memcpy(to, from, size)

struct bpf_timer {
	u64 opaque[2];
};

#define bpf_timer_init(timer, map, clock) 0
#define bpf_timer_set_callback(timer, callback) ((void)(callback), 0)

static u64 model_now;
static struct group_conf model_confs[MAX_GROUPS];
static struct group_ctx model_groups[MAX_GROUPS];

#define MODEL_PCPUS 2

static struct cpu_ctx model_cpus[MODEL_PCPUS];

/* The timers that release parked tasks. */
static struct pcpu_timer {
	struct bpf_timer timer;
} model_releases[MODEL_PCPUS], timers[1];

/* How often each was started. */
static u32 model_started[MODEL_PCPUS];

static inline s32 nr_pcpus(void)
{
	return MODEL_PCPUS;
}

static inline struct cpu_ctx *cpu_at(s32 cpu)
{
	return cpu >= 0 && cpu < MODEL_PCPUS ? &model_cpus[cpu] : NULL;
}

static inline u64 bpf_ktime_get_ns(void)
{
	return model_now;
}

static inline long bpf_timer_start(struct bpf_timer *timer, u64 delay, u64 flags)
{
	for (u32 i = 0; i < MODEL_PCPUS; i++)
		model_started[i] += timer == &model_releases[i].timer;
	return 0;
}

static inline u64 unknown_zero(void)
{
	return 0;
}

static inline struct group_conf *group_conf_at(u32 place)
{
	return place < MAX_GROUPS ? &model_confs[place] : NULL;
}

static inline struct group_ctx *group_at(u32 place)
{
	return place < MAX_GROUPS ? &model_groups[place] : NULL;
}

#define raw_exchange(lvalue, value) __sync_lock_test_and_set(&(lvalue), (value))

static void *bpf_map_lookup_elem(const void *map, const void *key);
static long bpf_map_update_elem(const void *map, const void *key, const void *value, u64 flags);
static long bpf_map_delete_elem(const void *map, const void *key);

#include "../../../dispatcher/platform/cgroup.h"

/* --- how callbacks count tasks in it --- */

/* Instead of platform.h. */
#define CORUN_PLATFORM_H
#define shared(lvalue) (*(volatile typeof(lvalue) *)&(lvalue))
#define store(lvalue, value) ((lvalue) = (value))
#define fetch_add(lvalue, delta) __sync_fetch_and_add(&(lvalue), (typeof(lvalue))(delta))
#define exchange(lvalue, value) raw_exchange(lvalue, value)
#define now_ns() bpf_ktime_get_ns()
#define recounted(g, weight, gone) group_recounted(g, weight)
#define weight_of(p) WEIGHT_NEUTRAL
#define group_of(p) raw_group_of(p)

static struct knobs knobs;

#include "../../../dispatcher/group.h"

/* --- its maps --- */

/* What the index holds, in no order. */
static struct indexed {
	u64 tg;
	u32 place;
} model_index[MAX_GROUPS];
static u32 model_indexed;

static struct group_place model_places[MAX_GROUPS];
static struct group_timer model_timer;

static struct indexed *index_entry(u64 tg)
{
	for (u32 i = 0; i < model_indexed; i++)
		if (model_index[i].tg == tg)
			return &model_index[i];
	return NULL;
}

/* The cgroup of which a member ceases to want to run once all places have been looked at; 0: none.
 */
static u32 model_ceases;

/* Another CPU comes in between, when a second pass through the table begins. */
static void model_looks_at(u32 place)
{
	static u32 last;
	u32 ceases = model_ceases;

	if (ceases && !place && last == MAX_GROUPS - 1) {
		model_ceases = 0;
		group_count(ceases, GROUP_NEUTRAL, 1);
	}
	last = place;
}

static void *bpf_map_lookup_elem(const void *map, const void *key)
{
	if (map == &group_places) {
		u32 place = *(const u32 *)key;

		model_looks_at(place);
		return place < MAX_GROUPS ? &model_places[place] : NULL;
	}
	if (map == &group_index) {
		struct indexed *entry = index_entry(*(const u64 *)key);

		return entry ? &entry->place : NULL;
	}
	if (map == &timers)
		return &model_releases[*(const u32 *)key - MAX_PCPUS];
	return &model_timer;
}

static long bpf_map_update_elem(const void *map, const void *key, const void *value, u64 flags)
{
	u64 tg = *(const u64 *)key;

	if (map != &group_index || index_entry(tg) || model_indexed == MAX_GROUPS)
		return -1;
	model_index[model_indexed++] = (struct indexed){.tg = tg, .place = *(const u32 *)value};
	return 0;
}

static long bpf_map_delete_elem(const void *map, const void *key)
{
	struct indexed *entry = index_entry(*(const u64 *)key);

	if (map != &group_index || !entry)
		return -1;
	*entry = model_index[--model_indexed];
	return 0;
}

/* --- the kernel's cgroups, and what tests ask --- */

/* Sizes in tests, in bytes: of a task_group, and of the cgroup that belongs to it. */
const u64 cgroup_table_task_group = sizeof(struct task_group);
const u64 cgroup_table_cgroup = sizeof(struct cgroup);

void cgroup_table_empty(u64 now)
{
	model_now = now;
	model_indexed = 0;
	memset(model_places, 0, sizeof(model_places));
	memset(model_confs, 0, sizeof(model_confs));
	memset(model_groups, 0, sizeof(model_groups));
	memset(model_cpus, 0, sizeof(model_cpus));
	memset(model_started, 0, sizeof(model_started));
}

/* Tasks are parked on this pCPU, and due for a look at that time. */
void cgroup_table_park(u32 cpu, u64 at)
{
	model_cpus[cpu].release_at = at;
}

/* How often the timer of this pCPU that looks at parked tasks was started. */
u32 cgroup_table_started(u32 cpu)
{
	return model_started[cpu];
}

/* `tg` is a cgroup within `around` (NULL: it is the root) from now on; `cgroup` has room for as
 * many ancestors as it is deep, and itself. */
void cgroup_table_make(struct task_group *tg, struct cgroup *cgroup, struct task_group *around)
{
	struct cgroup *outer = around ? around->css.cgroup : NULL;

	*tg = (struct task_group){.css.cgroup = cgroup, .parent = around};
	tg->shares = 1024ul << GROUP_SCALE;
	tg->cfs_bandwidth.quota = NO_QUOTA;
	cgroup->level = outer ? outer->level + 1 : 0;
	cgroup->subsys[cpu_cgrp_id] = &tg->css;
	for (int i = 0; outer && i <= outer->level; i++)
		cgroup->ancestors[i] = outer->ancestors[i];
	cgroup->ancestors[cgroup->level] = cgroup;
}

/* Its own place plus 1, or that of the cgroup in which its members count. */
u32 cgroup_table_find(struct task_group *tg)
{
	struct task_struct p = {.sched_task_group = tg};

	return raw_group_of(&p);
}

/* The cgroup whose place it is. */
u64 cgroup_table_owner(u32 group)
{
	return group ? model_places[group - 1].tg : 0;
}

/* The place plus 1 of the cgroup around it. */
u32 cgroup_table_around(u32 group)
{
	return group ? model_confs[group - 1].parent : 0;
}

/* A task of the cgroup begins to want to run. Returns the place plus 1 where it counts. */
u32 cgroup_table_enter(struct task_group *tg)
{
	struct task_struct p = {.sched_task_group = tg};
	struct task_ctx t = {};

	group_enter(&p, &t);
	return t.group;
}

/* A task that counts there ceases to want to run. */
void cgroup_table_leave(u32 group)
{
	group_count(group, GROUP_NEUTRAL, 1);
}

/* From now on the cgroup has this weight, which is read when it is asked for or counted next. */
void cgroup_table_weigh(struct task_group *tg, u32 weight)
{
	tg->shares = (unsigned long)weight << GROUP_SCALE;
	model_now += 2 * GROUP_LOOK;
}

/* The cgroups are counted anew; meanwhile a task that counts in `ceases`, if any, ceases to. */
void cgroup_table_recount(u32 ceases)
{
	u32 key = 0;

	model_ceases = ceases;
	group_recount(&group_timers, &key, &model_timer);
}

/* The sum of the weights of the cgroups within it that want to run. */
s64 cgroup_table_below(u32 group)
{
	return model_groups[group - 1].below;
}
