/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A plan is on lease: it holds for as long as the daemon that made it shows that it is alive.
 *
 * If a daemon dies, the scheduler is unloaded with it, and the kernel's own takes over. If it hangs
 * (stopped, starved, out of memory), that does not happen: the dispatcher would go on with a plan
 * that fits less and less. The daemon therefore renews the lease five times a second or more (NAP
 * in crates/linux/src/daemon.rs). If it has not done so for LEASE_LENGTH, all VMs are put in fair
 * order: placed freely, without gangs, and no pCPU is held for a halted vCPU. Weights, affinities
 * and cookies, which administrators set, stay, and so do slices, which are bounded. A daemon that
 * comes back finds `lapsed` set, and writes its plan anew.
 *
 * This is written to the tables as the daemon would write it, so that callbacks need not know of
 * leases.
 */
#ifndef CORUN_LEASE_H
#define CORUN_LEASE_H

/* As long as the kernel waits for the dispatcher, ns. */
#define LEASE_LENGTH WATCHDOG
/* How often the lease is checked, ns. */
#define LEASE_LOOK 1000000000ull

struct lease {
	u64 renewed; /* when the daemon last renewed it, ns; 0: not yet */
	u64 lapsed;  /* 1: all VMs are in fair order until the daemon tells its plan anew */
	u64 lapses;  /* how often that happened */
};

volatile struct lease lease;

struct lease_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct lease_timer);
} lease_timers SEC(".maps");

static inline void lease_lapse(void)
{
	u32 i;

	bpf_for (i, 0, MAX_VMS) {
		u32 slot = i;
		struct vm_conf *conf = bpf_map_lookup_elem(&vm_confs, &slot);

		if (!conf)
			break;
		*(volatile u32 *)&conf->gang = GANG_NONE;
		*(volatile u32 *)&conf->placement = PLACE_FREE;
	}
	bpf_for (i, 0, MAX_PCPUS) {
		u32 cpu = i;
		struct pcpu_conf *conf = bpf_map_lookup_elem(&pcpu_confs, &cpu);

		if (!conf)
			break;
		*(volatile u64 *)&conf->hold = 0;
	}
	lease.lapses++;
	lease.lapsed = 1;
}

static int lease_look(void *map, u32 *key, struct lease_timer *t)
{
	u64 renewed = lease.renewed;

	if (renewed && !lease.lapsed && renewed + LEASE_LENGTH < bpf_ktime_get_ns())
		lease_lapse();
	bpf_timer_start(&t->timer, LEASE_LOOK, 0);
	return 0;
}

static inline s32 lease_begin(void)
{
	u32 zero = 0;
	struct lease_timer *t = bpf_map_lookup_elem(&lease_timers, &zero);
	s32 err;

	if (!t)
		return -ENOMEM;
	err = bpf_timer_init(&t->timer, &lease_timers, 1 /* CLOCK_MONOTONIC */);
	if (!err)
		err = bpf_timer_set_callback(&t->timer, lease_look);
	return err ? err : (s32)bpf_timer_start(&t->timer, LEASE_LOOK, 0);
}

#endif
