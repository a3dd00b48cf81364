/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a cgroup counts in the one around it: used by both builds and by the kernel's table of
 * cgroups (cgroup.h).
 *
 * A cgroup with members that want to run adds its weight to what is active in the one around it.
 * Its weight may change meanwhile, so it remembers what it has added. A callback that changes that
 * value does so by an exchange, and adds the difference: so the sum always agrees with the
 * remembered values, however callbacks interleave.
 *
 * What is remembered may be wrong for a while: a member that comes or goes between this callback's
 * last look and its last exchange counts the cgroup itself, which that exchange then undoes. That
 * takes three callbacks for the cgroup, on as many CPUs, within these few instructions, and all
 * cgroups are counted anew every second (GROUP_RECOUNT in cgroup.h). Looking again until nothing
 * changes would be one more loop for the verifier to follow, within the loop over the enclosing
 * cgroups, at each wake-up.
 */
#ifndef CORUN_COUNTED_H
#define CORUN_COUNTED_H

/*
 * Makes `g` count what it should by its members and its `weight`. Returns by how much that is more.
 */
static inline s64 group_recounted(struct group_ctx *g, u32 weight)
{
	bool wants = *(volatile u32 *)&g->members;
	u32 now = wants ? weight : 0;
	s64 change = (s64)now - (s64)raw_exchange(g->counted, now);

	/* A member has come or gone meanwhile: its callback may have been here first. */
	if (wants != (*(volatile u32 *)&g->members != 0)) {
		now = wants ? 0 : weight;
		change += (s64)now - (s64)raw_exchange(g->counted, now);
	}
	return change;
}

#endif
