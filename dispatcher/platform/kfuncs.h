/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's names of sched_ext's kfuncs.
 *
 * They are not a stable interface: most have had two names. If a name is declared weak and the
 * running kernel lacks it, it is null to the verifier, which drops the calls of it; so one build
 * serves Linux 6.12 and its successors (7.2 has none of 6.12's names any more). preflight accepts
 * either name (crates/linux/src/preflight/kernel.rs).
 */
#ifndef CORUN_KFUNCS_H
#define CORUN_KFUNCS_H

#include "kernel_types.h"

#include <bpf/bpf_helpers.h>

/* --- the same since 6.12 --- */

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

/* --- since 6.13, and what 6.12 calls it --- */

void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;

static inline void dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch(p, dsq_id, slice, enq_flags);
}

void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			      u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			    u64 enq_flags) __ksym __weak;

static inline void dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
				    u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, dsq_id, slice, vtime, enq_flags);
	else
		scx_bpf_dispatch_vtime(p, dsq_id, slice, vtime, enq_flags);
}

bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;

static inline bool dsq_move_to_local(u64 dsq_id)
{
	return bpf_ksym_exists(scx_bpf_dsq_move_to_local) ? scx_bpf_dsq_move_to_local(dsq_id)
							  : scx_bpf_consume(dsq_id);
}

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
		      u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			       u64 enq_flags) __ksym __weak;

static inline bool dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags)
{
	return bpf_ksym_exists(scx_bpf_dsq_move)
		   ? scx_bpf_dsq_move(it, p, dsq_id, enq_flags)
		   : scx_bpf_dispatch_from_dsq(it, p, dsq_id, enq_flags);
}

void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;

static inline void dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_set_vtime))
		scx_bpf_dsq_move_set_vtime(it, vtime);
	else
		scx_bpf_dispatch_from_dsq_set_vtime(it, vtime);
}

bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				     u64 enq_flags) __ksym __weak;

static inline bool dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
				  u64 enq_flags)
{
	return bpf_ksym_exists(scx_bpf_dsq_move_vtime)
		   ? scx_bpf_dsq_move_vtime(it, p, dsq_id, enq_flags)
		   : scx_bpf_dispatch_vtime_from_dsq(it, p, dsq_id, enq_flags);
}

/* --- since 6.19; before, the field is written directly --- */

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;

#endif
