/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: sets of pCPUs with a slice of their own, as AQL_Sched makes them (Teabe et al., EuroSys
 * 2016, §3.5).
 *
 * A vCPU under PLACE_POOL is queued on the pCPUs of its pool only, and its turns there are as long
 * as the pool says. The same holds for a thread that is not a vCPU if the policy names a pool for
 * it. Pools may change at any time: a task that waits on a pCPU that is not in its pool any more
 * has one more turn there and then moves. If the vCPU may use none of the pool's pCPUs, the pool is
 * ignored (placement.h: then all pCPUs that the vCPU may use are open).
 */
#ifndef CORUN_POOL_H
#define CORUN_POOL_H

#include "platform/platform.h"

/* The pool that `conf`, what the policy wants for a task, names; NULL: none. */
static inline struct pool_conf *pool_of(struct task_conf *conf)
{
	u32 pool = conf ? shared(conf->pool) : 0;

	return pool ? pool_at(pool - 1) : NULL;
}

/* May `p` be queued on `cpu` as far as its pool is concerned? */
static inline bool pool_admits(struct task_struct *p, s32 cpu)
{
	struct pool_conf *pool = pool_of(task_conf_of(p));
	u32 word = opaque((u32)cpu / 64) % MASK_WORDS;

	return !pool || shared(pool->pcpus[word]) >> (u32)cpu % 64 & 1;
}

/* The slice that the policy wants for a task; 0: none. */
RARE u64 slice_wanted(struct task_conf *conf)
{
	u64 slice = shared(conf->slice);
	struct pool_conf *pool = slice ? NULL : pool_of(conf);

	return pool ? shared(pool->slice) : slice;
}

#endif
