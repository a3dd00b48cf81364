/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How crowded a pCPU is: one number, by which placement compares pCPUs.
 *
 * The hardware threads of an SMT core share its units: two that compute have some 60 % of a core
 * each (125 % for two: `host.smt.yield` in docs/parameters.md has the source). So an idle pCPU
 * beside a busy SMT sibling is worse than one on an idle core, but better than a pCPU where a task
 * already runs or waits. The kernel's own schedulers look for idle cores first as well
 * (select_idle_core() in kernel/sched/fair.c, scx_select_cpu_dfl() in ext_idle.c).
 */
#ifndef CORUN_CROWDING_H
#define CORUN_CROWDING_H

/* From this value on, the pCPU has tasks. */
#define LOADED 2u

/* `load`: sum over the tasks ready or running on the pCPU; `beside`: the SMT sibling has tasks. */
static inline u64 crowding(u64 load, bool beside)
{
	if (!load)
		return beside;
	return load > LOADED ? load : LOADED;
}

#endif
