/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Placement: the pCPU that a task is queued on when it becomes ready.
 *
 *   free     any pCPU it may use, the least loaded one;
 *   fixed    its home pCPU (affinity-based scheduling);
 *   balance  as free, but no pCPU where a sibling vCPU is queued or running (Sukwong & Kim,
 *            "Is Co-scheduling Too Expensive for SMP VMs?", EuroSys 2011, Algorithm 2). Siblings
 *            that are halted do not count. A VM with more ready vCPUs than pCPUs it may use cannot
 *            be balanced: then all of them are open, as in the published code;
 *   pool     the pCPUs of its pool (pool.h);
 *   core     its home, a hardware thread of its core (others borrow it from there while they would
 *            idle: core.h); if it has none, any whose SMT sibling does not run another cookie
 *            (cookie.h);
 *   load-conscious
 *            as balance, but only pCPUs that are light: their load is at most a given percentage of
 *            the mean. If siblings are on all of these, one of them all the same (Kim et al.,
 *            "Demand-based coordinated scheduling for SMP VMs", ASPLOS 2013, and its published
 *            code): the gain from not stacking is not worth waiting where many wait.
 *
 * Affinity and cpusets always hold. Load is the weight of the ready and running tasks.
 *
 * A task that wakes stays on the pCPU where it was unless a move pays: because another pCPU idles,
 * or has less load with the task than that one has without it, or idles on a core of its own
 * (crowding.h). CFS decides a wake-up in the same way (wake_affine()), and balance scheduling
 * leaves it to CFS to choose among the pCPUs without a sibling. Always choosing the least load
 * would not do: a vCPU's weight is a share of its VM's, which changes with each sibling that wakes.
 * So hardly any pCPU stays the least loaded for longer than it takes to warm its caches.
 *
 * Among pCPUs that are equally good, those come first that share the last-level cache with the one
 * where the task was. A task that wakes leaves that cache only if no pCPU with it idles: it may run
 * for less time than it would take to fill another cache. A task that runs on and on is moved to an
 * idle core anywhere (pull.h). vCPUs that have not run yet begin at the cache of their VM. Each new
 * VM gets the next cache in turn, so that VMs spread out, while siblings share a cache as far as
 * there is room.
 */
#ifndef CORUN_PLACEMENT_H
#define CORUN_PLACEMENT_H

#include "cookie.h"
#include "crowding.h"
#include "fair.h"
#include "gang_events.h"
#include "gang_strict.h"
#include "occupancy.h"
#include "platform/platform.h"
#include "pool.h"
#include "vm.h"

/*
 * Two CPUs may place siblings on one pCPU at once; the second one chooses again, this many times at
 * most.
 */
#define PLACE_AGAIN 2

/* How vCPUs of `vm`, in a slot of the table, are placed. */
static inline u32 placement_in(u32 slot, struct vm_ctx *vm)
{
	struct vm_conf *conf = vm_conf_in(slot, vm);

	return conf ? shared(conf->placement) : knobs.placement;
}

/* Threads that serve a VM (I/O threads, vhost) are in its pool if the control loop says so. */
static inline u32 placement_of(struct task_struct *p, struct task_ctx *t)
{
	struct vm_ctx *vm = vm_of(t);

	if (!vm)
		return pool_of(task_conf_of(p)) ? PLACE_POOL : PLACE_FREE;
	return placement_in(t->vm, vm);
}

/* The home of `t` under fixed and core placement; NO_PCPU if it has none that it may use. */
static inline s32 home_of(struct task_struct *p, struct task_ctx *t)
{
	struct task_conf *conf = task_conf_of(p);
	s32 home = conf ? (s32)shared(conf->home) - 1 : NO_PCPU;

	return home >= 0 && home < nr_pcpus() && allowed(p, home) ? home : NO_PCPU;
}

/* May `t` be queued on `cpu` as far as its VM's mode, which is not free, is concerned? */
CALLED u32 bound_mode_admits(struct task_struct *p TRUSTED, struct task_ctx *t, u32 mode, s32 cpu)
{
	s32 home;

	if (!t)
		return false;
	switch (mode) {
	case PLACE_BALANCE:
	case PLACE_LOAD_CONSCIOUS:
		return siblings_at(t, cpu) == 0;
	case PLACE_CORE:
		home = home_of(p, t);
		return home == NO_PCPU ? cookie_admits(p, t->vm, cpu) : home == cpu;
	case PLACE_FIXED:
		home = home_of(p, t);
		return home == NO_PCPU || home == cpu;
	case PLACE_POOL:
		return pool_admits(p, cpu);
	default:
		return true;
	}
}

/* May `t` be queued on `cpu` as far as its VM's mode is concerned? */
static inline bool mode_admits(struct task_struct *p, struct task_ctx *t, u32 mode, s32 cpu)
{
	return mode == PLACE_FREE || bound_mode_admits(p, t, mode, cpu);
}

/*
 * How much more load than another pCPU `prev`, the one that `t` was on last, may have for `t` to
 * stay: the load of `t`. If the difference is less, the other pCPU would have more load than `prev`
 * as soon as `t` is there. A task that has not run yet has no reason to stay.
 */
static inline u64 staying(struct task_ctx *t)
{
	return t->last_cpu == NO_PCPU ? 0 : t->load;
}

/*
 * The load with which `prev`, which has `load`, enters the comparison: at least 1 if it is not
 * idle, since no pCPU may be as good as an idle one.
 */
static inline u64 load_staying(u64 load, u64 stay)
{
	if (load <= stay)
		return load != 0;
	return load - stay;
}

/* crowding() of `cpu` for a task, given the load of the other tasks there. */
static inline u64 crowding_at(s32 cpu, u64 load)
{
	struct cpu_ctx *beside = load ? NULL : cpu_at(smt_sibling_of(cpu));

	return crowding(load, beside && shared(beside->load));
}

/* The last-level cache near which `t`, which was on `prev`, should be. */
static inline u32 llc_near(struct task_ctx *t, s32 prev)
{
	struct vm_ctx *vm = t->last_cpu == NO_PCPU && knobs.llcs > 1 ? vm_of(t) : NULL;

	return vm ? shared(vm->llc) : llc_of(prev);
}

/*
 * least_loaded(): the least crowded pCPU that affinity and the mode admit. `stay`: the load by
 * which `prev` is favoured; if not 0, idle pCPUs in the near last-level cache go before idle ones
 * elsewhere. Ties go to `prev`, then to the near last-level cache, then to the lowest number.
 */
#ifdef INDEXED
/* Added to the ranks of pCPUs that are not in the near last-level cache. */
#define ELSEWHERE ((s32)MAX_PCPUS)

/*
 * Makes `cpu` the best candidate if it is `open` to the task and better than the best one so far.
 */
static inline void consider(struct candidate *best, s32 cpu, s32 rank, u64 key, bool open)
{
	if (open && beats((s64)key, rank, best))
		*best = (struct candidate){(s64)key, cpu, rank};
}

/* Considers the pCPU that `t` occupies, without the load of `t`. */
static inline void consider_here(struct task_struct *p, struct task_ctx *t, u32 mode,
				 struct candidate *best)
{
	consider(best, t->cpu, t->cpu, crowding_at(t->cpu, cpu_at(t->cpu)->load - t->load),
		 allowed(p, t->cpu) && mode_admits(p, t, mode, t->cpu));
}

static inline s32 least_loaded(struct task_struct *p, struct task_ctx *t, u32 mode, s32 prev,
			       u64 stay)
{
	struct candidate best = {.key = INT64_MAX, .cpu = NO_PCPU, .rank = 2 * ELSEWHERE};
	struct cpu_ctx *last = cpu_at(prev);
	u32 near = llc_near(t, prev);
	s32 here = t->cpu;
	u64 open[MASK_WORDS];
	u64 far[MASK_WORDS];
	s32 i;

	i = mode == PLACE_FIXED || mode == PLACE_CORE ? home_of(p, t) : NO_PCPU;
	if (i != NO_PCPU)
		return i;
	if (last)
		consider(&best, prev, llc_of(prev) == near ? -1 : ELSEWHERE - 1,
			 crowding_at(prev,
				     load_staying(last->load - (here == prev ? t->load : 0), stay)),
			 allowed(p, prev) && mode_admits(p, t, mode, prev));
	if (!best.key && best.rank < 0)
		return prev;
	/*
	 * In the tree, the key of `here` includes the load of `t`: never better than the key used
	 * here.
	 */
	if (here == prev)
		here = NO_PCPU;
	if (here != NO_PCPU && llc_of(here) == near)
		consider_here(p, t, mode, &best);
	repeat (i, words_in_use()) {
		u64 both = in_use((u32)i, p->allowed[i] & knobs.online[i]);

		open[i] = both & llc_pcpus(near)[i];
		far[i] = both & ~open[i];
	}
	tree_search(&corun_context->index.light, open, &best, i, mode_admits(p, t, mode, i));
	/*
	 * From here on, ranks are those of pCPUs in other caches: the best one in the near cache
	 * wins each tie.
	 */
	best.rank -= ELSEWHERE;
	if (stay && best.key < LOADED)
		return best.cpu;
	if (here != NO_PCPU && llc_of(here) != near)
		consider_here(p, t, mode, &best);
	if (knobs.llcs > 1)
		tree_search(&corun_context->index.light, far, &best, i, mode_admits(p, t, mode, i));
	return best.cpu;
}
#else
/*
 * How bad a pCPU is: twice the crowding, and one more if it is `far`. If `near_first`, an idle pCPU
 * in the near cache is never worse than an idle one elsewhere.
 */
static inline u64 badness(u64 crowding, bool far, bool near_first)
{
	if (near_first && crowding < LOADED)
		return crowding + 2 * far;
	return 2 * crowding + far;
}

CALLED s32 least_loaded(struct task_struct *p TRUSTED, struct task_ctx *t, u32 mode, s32 prev,
			u64 stay)
{
	struct cpu_ctx *c = cpu_at(prev);
	/* Copies, which do not change, whatever the loop reads of shared values. */
	s32 here = t ? t->cpu : NO_PCPU;
	u64 own = t ? t->load : 0;
	u64 best_key = ~0ull;
	u64 unknown = unknown_zero(); /* or the verifier takes seconds */
	s32 best = NO_PCPU;
	u32 near;
	s32 i;

	if (!t)
		return NO_PCPU;
	near = llc_near(t, prev);
	if (c && allowed(p, prev) && mode_admits(p, t, mode, prev)) {
		best_key = shared(c->load) - (here == prev ? own : 0);
		best_key = badness(crowding_at(prev, load_staying(best_key, stay)),
				   llc_of(prev) != near, stay);
		best = prev;
	}
	if (!best_key)
		return best;
	for_each_allowed (i, p) {
		u64 key;

		c = cpu_at(i);
		if (!c || i == prev || !mode_admits(p, t, mode, i))
			continue;
		key = shared(c->load) - (same((u32)here, (u32)i, unknown) ? own : 0);
		key = unranged(crowding_at(i, key), unknown);
		key = badness(key, !same(llc_of(i), near, unknown), unranged(stay, unknown));
		key = unranged(key, unknown);
		if (below(key, best_key, unknown)) {
			best_key = key;
			best = i;
		}
		if (!best_key)
			break;
	}
	return best;
}
#endif

/* The sum of the loads of the pCPUs that `p` may use; their number is added to `*count`. */
static inline u64 load_of_allowed(struct task_struct *p, u32 *count)
{
	u64 sum = 0;
	s32 i;

	for_each_allowed (i, p) {
		struct cpu_ctx *c = cpu_at(i);

		if (!c)
			continue;
		sum += shared(c->load);
		*count += 1;
	}
	return sum;
}

/* Is `cpu` light by the definition of the VM of `t`, which occupies no pCPU? */
RARE bool is_light(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct cpu_ctx *c = cpu_at(cpu);
	struct gang g = {.vm = vm_of(t)};
	u32 count = 0;
	u64 sum;

	g.conf = g.vm ? vm_conf_of(t, g.vm) : NULL;
	if (!c || !g.conf)
		return true;
	sum = load_of_allowed(p, &count);
	return shared(c->load) * 100 * count <= sum * shared(g.conf->light);
}

/*
 * Load-conscious: the least loaded pCPU without a sibling if that is light, else the least loaded
 * one, which always is. `prev` is favoured only if it is light: otherwise a task that stays because
 * of its own load would wait where many wait.
 */
RARE s32 least_loaded_light(struct task_struct *p, struct task_ctx *t, s32 prev, u64 stay)
{
	s32 apart = least_loaded(p, t, PLACE_LOAD_CONSCIOUS, prev, stay);

	if (is_light(p, t, apart))
		return apart;
	if (apart == prev && stay) {
		apart = least_loaded(p, t, PLACE_LOAD_CONSCIOUS, prev, 0);
		if (apart != prev && is_light(p, t, apart))
			return apart;
	}
	if (stay && !is_light(p, t, prev))
		stay = 0;
	return least_loaded(p, t, PLACE_FREE, prev, stay);
}

/* The pCPU that the gang of `t` assigns to it; NO_PCPU: it assigns none. */
RARE s32 gang_place(struct task_struct *p, struct task_ctx *t, s32 prev)
{
	struct gang g = gang_of(t);

	return g.vm && g.mode == GANG_STRICT ? strict_place(p, g.slot, prev) : NO_PCPU;
}

/* The pCPU that `t` should be queued on; NO_PCPU if its mode admits none. */
static inline s32 best_place(struct task_struct *p, struct task_ctx *t, u32 mode, s32 prev)
{
	s32 owned = NO_PCPU;
	u64 stay = staying(t);

	/* A home that the mode admits takes the place of `prev`. */
	if (t->claims && t->home && mode_admits(p, t, mode, t->home - 1))
		prev = t->home - 1;

	if (has_gang(t))
		owned = gang_place(p, t, prev);
	if (owned != NO_PCPU)
		return owned;
	if (mode == PLACE_LOAD_CONSCIOUS)
		return least_loaded_light(p, t, prev, stay);
	return least_loaded(p, t, mode, prev, stay);
}

/*
 * Makes `t` occupy the best pCPU of its mode, and sets `*found` to it. Returns false if a sibling
 * was placed there at the same time.
 */
INLINED bool try_place(struct task_struct *p, struct task_ctx *t, u32 mode, s32 prev, s32 *found)
{
	s32 cpu = best_place(p, t, mode, prev);

	if (cpu == NO_PCPU) {
		/* Stacking cannot be avoided: more ready siblings than pCPUs. */
		cpu = least_loaded(p, t, PLACE_FREE, prev, staying(t));
		*found = cpu == NO_PCPU ? prev : cpu;
		occupancy_move(t, *found);
		return true;
	}
	*found = cpu;
	return occupancy_move(t, cpu) == 0 || mode != PLACE_BALANCE;
}

/* Other CPUs placed siblings of `t` on `cpu` at the same time: chooses again. */
RARE s32 place_anew(struct task_struct *p, struct task_ctx *t, u32 mode, s32 prev, s32 cpu)
{
	u32 again;

	repeat (again, PLACE_AGAIN) {
		if (try_place(p, t, mode, prev, &cpu))
			break;
	}
	return cpu;
}

/*
 * Chooses a pCPU among those that `t` may run on, and makes `t` occupy it; `prev` is the one it was
 * on, if any.
 */
RARE s32 choose_place(struct task_struct *p, struct task_ctx *t, s32 prev)
{
	u32 mode = placement_of(p, t);
	s32 cpu;

	if (prev == NO_PCPU)
		prev = task_cpu_of(p);
	cpu = prev;
	return try_place(p, t, mode, prev, &cpu) ? cpu : place_anew(p, t, mode, prev, cpu);
}

/*
 * Chooses a pCPU for `t` and makes `t` occupy it. A task that may run on one pCPU only is there
 * already: the kernel has put it there.
 */
INLINED struct cpu_ctx *place(struct task_struct *p, struct task_ctx *t, s32 prev)
{
	struct cpu_ctx *c;

	occupancy_leave(t);
	t->load = fair_load(p, t);
	if (!is_bound(p))
		return cpu_at(choose_place(p, t, prev));
	t->cpu = task_cpu_of(p);
	c = cpu_at(t->cpu);
	occupancy_add(t, c, t->cpu);
	return c;
}

/* Has `t` a pCPU that it is not about to leave (TURN_MOVES)? */
static inline bool is_settled(struct task_ctx *t)
{
	return t->cpu != NO_PCPU && t->over != TURN_MOVES;
}

/*
 * May `t` stay where it is? Its affinity may have changed, or what its VM's mode admits. If
 * load-conscious placement has put it beside siblings, that was on purpose. And under balance, if
 * `t` runs, it is rather the waiting sibling that should move.
 */
RARE bool still_admitted(struct task_struct *p, struct task_ctx *t, bool runs)
{
	u32 mode;

	if (!allowed(p, t->cpu))
		return false;
	mode = placement_of(p, t);
	if (mode == PLACE_LOAD_CONSCIOUS || (mode == PLACE_BALANCE && runs))
		mode = PLACE_FREE;
	return mode_admits(p, t, mode, t->cpu) && !gang_moves(p, t);
}

#endif
