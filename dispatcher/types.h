/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the dispatcher knows: of a task, a VM and a pCPU, and the knobs of the host.
 *
 * The structs are plain data of fixed size: BPF maps hold them in the kernel, arrays in the
 * simulator. Times and virtual times are u64 nanoseconds.
 *
 * Who may write what: a task's own struct is written only by callbacks for that task, which the
 * kernel serialises (runqueue lock or wake-up lock); but for `awaited` and `released`, marks that
 * others leave there, and which its callbacks take by an exchange. VM and pCPU structs are shared:
 * everything another CPU may change is read through shared() and written with atomics, so that a
 * recorded callback can be replayed on its own (platform/tap.h).
 */
#ifndef CORUN_TYPES_H
#define CORUN_TYPES_H

#define MAX_PCPUS 512u
#define MAX_VMS 1024u
/* Of a host with more last-level caches, several count as one. */
#define MAX_LLCS 64u
#define MASK_WORDS (MAX_PCPUS / 64)
/* How long the kernel lets a ready task wait before it takes that for a stall and ends the
 * scheduler, ns: whoever is kept waiting on purpose is for a part of that only. */
#define WATCHDOG 5000000000ull
/* Each has a pCPU at least. */
#define MAX_POOLS MAX_PCPUS
/* Shorter slices, ns, would only switch. */
#define SLICE_MIN 50000ull
/* Most cgroups that have members which run, and the deepest level that is told apart: members of
 * deeper ones count in the one around them at that level. */
#define MAX_GROUPS 4096u
#define GROUP_LEVELS 10

/*
 * BPF passes no structs by value and five arguments at most. What takes or returns more must be
 * inlined. What is CALLED (platform/) is a function of its own instead: the verifier looks at it
 * once, knowing nothing of who calls it, rather than once for each way that leads there. So it
 * takes numbers, and pointers to structs, which it must find not to be NULL.
 */
#define INLINED static inline __attribute__((always_inline))

/*
 * What is done now and then, or on some hosts only: a function of its own, so that it takes neither
 * registers nor stack (512 bytes in BPF) from what is done at every switch.
 */
#define RARE static __attribute__((noinline))

#define NO_VM 0xffffffffu
/* The slot in which a vCPU was to be counted is not its VM's any more (vm.h). */
#define NOT_COUNTED 0xffffffffu
#define NO_PCPU (-1)

/* A weight of 100 is neutral, as in cgroup v2; the range is 1 to 10000. */
#define WEIGHT_NEUTRAL 100u

/* What a vCPU (or any host task) is about. Throttled is ready as far as its guest is concerned. */
enum task_state {
	TASK_WAITING = 0,
	TASK_READY = 1,
	TASK_RUNNING = 2,
	TASK_THROTTLED = 3, /* ready, but its cgroup's quota is used up (quota.h) */
};

/* Where a VM's vCPUs may be queued (placement.h). */
enum placement_mode {
	PLACE_FREE = 0,
	PLACE_FIXED = 1,
	PLACE_BALANCE = 2,
	PLACE_LOAD_CONSCIOUS = 3,
	PLACE_POOL = 4,
	PLACE_CORE = 5,
};

/* How a VM's vCPUs are scheduled in time, as far as they are siblings (gang.h). */
enum gang_mode {
	GANG_NONE = 0,
	GANG_DYNAMIC = 1,
	GANG_STRICT = 2,
	GANG_DEMAND = 3,
	GANG_RELAXED = 4,
	GANG_RELAXED_ALL = 5,
	GANG_ASYMMETRIC = 6,
};

/* vCPUs of a VM whose progress is compared; of a larger VM, the rest is never held back. */
#define GANG_VCPUS 64u

/* The unit of weights of cgroups, as the kernel has it: 1024 is nice 0, and cpu.weight 100. */
#define GROUP_NEUTRAL 1024u

/* A vCPU's share of its VM's weight, fixed point: this is what it has by default. */
#define SHARE_ONE 65536u

/* A ready or running vCPU as gangs look at it, and where and when. */
struct ranked {
	u64 vtime;
	u64 urgent_since;
	u64 awaited; /* as in task_ctx */
	u64 now;
	u32 vm;	    /* slot of its VM, or NO_VM */
	u32 member; /* as in task_ctx */
	s32 cpu;
	u16 runs;  /* does it run there, or wait? */
	u16 fresh; /* as in task_ctx */
};

/* A task that waits, as yield.h looks at it. */
struct favoured {
	u64 vtime;
	u32 state;
	s32 cpu;
	u32 vm;
	u32 over; /* as in task_ctx */
};

/* What happened to a task since it was first seen; ns and counts. */
struct task_counters {
	u64 run;
	u64 ready;
	u64 wait;
	u64 switches; /* times it was given a pCPU */
	u64 wakeups;
	u64 migrations; /* started on another pCPU than before */
	u64 depleted;	/* lost its pCPU because its slice was used up */
	u64 preempted;	/* lost it before that, and wanted to run on */
	u64 late;	/* gang_asymmetric.h: began to run after its latency had passed */
	u64 held;	/* retention.h: halted, and its pCPU was held for it */
	u64 kept;	/* times it woke before the timeout, and before others' claims */
	u64 throttled;	/* ns in which its cgroup's quota was used up */
};

/* task_ctx.woken: the pCPU it was placed on could not be had at once. */
#define WOKEN_UNANSWERED 2u

/* task_ctx.over: its turn is over, as it yielded or others go first; or it goes on elsewhere. */
#define TURN_OVER 1u
#define TURN_MOVES 2u
/* With TURN_OVER: it spun, and let others go first (yield.h). */
#define TURN_SPUN 4u

/* task_ctx.fresh: it has not run since it woke, or was placed anew; it has, and not for a slice; so
 * it has, and was interrupted. */
#define FRESH 1u
#define FRESH_TURN 2u
#define FRESH_BACK 3u

/* Siblings remembered that woke a vCPU (gang_asymmetric.h). */
#define WAKERS 8u

/* Holds of a pCPU whose ends are remembered (retention.h). */
#define HOLD_ENDS 8u

struct task_ctx {
	u64 vtime;   /* weighted virtual time */
	u64 since;   /* when it entered its state */
	u64 charged; /* running: up to when its run is charged to vtime */
	u64 seq;     /* number of callbacks seen: orders a recording */
	struct task_counters sum;
	u32 state;	   /* enum task_state */
	u32 vm;		   /* slot of its VM, or NO_VM */
	u32 active_weight; /* what it adds to its VM's active weight now */
	s32 cpu;	   /* pCPU it occupies while ready or running, else NO_PCPU */
	s32 last_cpu;	   /* pCPU it ran on last */
	s32 clock_cpu;	   /* pCPU whose clock vtime is told by */
	u8 woken;	   /* has not been queued since it woke; or WOKEN_UNANSWERED */
	u8 queued;	   /* has been, and has not run since */
	u16 fresh;	   /* turn.h: FRESH; gang_pick.h: or FRESH_TURN, FRESH_BACK */
	u32 load;	   /* what it adds to the load of the pCPU it occupies */
	u64 urgent;	   /* gang_demand.h: time left to it as an urgent vCPU, ns */
	u64 urgent_since;  /* since when it is urgent; 0: it is not. Asymmetric: by when it is */
	u64 urgent_from;   /* running: from when its urgent time is to be charged */
	u32 member;	   /* gang_relaxed.h: its place in gang_ctx.vcpu, plus 1; 0: none */
	u32 share;	   /* gang_asymmetric.h: of its VM's weight, SHARE_ONE; 0: as by default */
	s32 home;	   /* pCPU where it had better be, plus 1; 0: none */
	u16 claims;	   /* 1: it has a claim; 0: what is about claims is void */
	u16 over;	   /* turn.h: its turn is over, though not its slice; or TURN_MOVES */
	u64 gran;	   /* its own knobs.wakeup_gran */
	u64 allot_end;	   /* when its allotment begins anew */
	u64 allot_run;	   /* sum.run when it began */
	u64 woken_at[WAKERS]; /* when siblings woke it last */
	u32 wakers[WAKERS];   /* their ids; 0: free */
	u64 held_since;	      /* retention.h: halted, and last_cpu held for it since then; 0: not */
	u64 held_until;	      /* until then at most */
	u64 reserved;	      /* quota.h: taken from quotas for the turn it has, ns */
	u32 group;	      /* its cgroup's place in the table, plus 1; 0: none that is known */
	u32 group_weight; /* group.h: what it adds to its cgroup's active weight now; 0: nothing */
	s32 parked_for;	  /* quota.h: throttled, and then to be queued on that pCPU */
	u32 rest;	  /* what is left of a turn that was interrupted, ns; 0: nothing is */
	u32 hold_no;	  /* retention.h: number of the hold of last_cpu for it */
	u32 released; /* quota.h: throttled, but counted already on the pCPU it was parked for */
	u64 awaited;  /* awaited.h: ready, and a sibling waits for it since then; 0: none does */
	u32 parked_active; /* quota.h: throttled: its active_weight before, */
	u32 parked_weight; /* and its group_weight */
	u64 due;	   /* micro.h: when it is due; 0: it has no micro slices */
};

/* What the policy wants for a task; written by the control loop only. */
struct task_conf {
	u64 slice;   /* ns; 0: its pool's, else the host's default */
	s32 home;    /* pCPU of PLACE_FIXED or PLACE_CORE, plus 1; 0: none yet. Asymmetric: where it
		      * had better be */
	u32 share;   /* GANG_ASYMMETRIC: of its VM's weight, SHARE_ONE; 0: as by default */
	u64 latency; /* how long it may stay ready, ns; 0: as long as fair order has it */
	u64 allotment; /* how long it may run in a period under that promise, ns */
	u32 pool;      /* its pool (pool.h), plus 1; 0: none. Not vCPUs only */
	u32 demand;  /* core.h: what it asks of its core, see demand_alone() there; 0: not known */
	u32 dormant; /* retention.h: it may be dormant while it runs, and lets others go first after
		      * its slice */
	u32 cookie;  /* cookie.h: who may share a core with it; 0: nobody has said */
	u32 micro;   /* micro.h: its slices are micro slices */
	u32 pad;
};

/* What the policy wants of a hardware thread of a core with two; the control loop's. */
struct pcpu_conf {
	u64 hold;      /* how long it is held for a vCPU that has halted there, ns; 0: not */
	u32 partner;   /* its SMT sibling, plus 1; 0: none */
	u32 wait_wait; /* how much two slow each other down that both wait, thousandths */
	u32 miss_miss; /* that both miss */
	u32 gives_way; /* a hold ends for whoever is queued there */
	u32 cookies;   /* cookie.h: vCPUs with different cookies are kept apart */
	u32 pad;
};

/* pCPUs that belong together (pool.h); written by the control loop only. */
struct pool_conf {
	u64 slice;	       /* of vCPUs in this pool, ns; 0: the host's default */
	u64 pcpus[MASK_WORDS]; /* a bit each */
};

/* What an administrator wants for a cgroup (group.h, quota.h). */
struct group_conf {
	u64 quota;   /* pCPU time of all its tasks in a period, ns; 0: no limit */
	u64 period;  /* ns */
	u64 burst;   /* what may be saved up beyond the quota, ns */
	u32 weight;  /* GROUP_NEUTRAL is that of a task with nice 0; 0: free place */
	u32 parent;  /* the place of the cgroup around it, plus 1; 0: that is the root */
	u32 limited; /* it, or one around it, has a quota */
	u32 pad;
};

/* Who of a cgroup wants to run, and what is left of its quota. */
struct group_ctx {
	u64 own;	/* weights of its ready and running tasks */
	s64 below;	/* weights of the cgroups within it that have such */
	s64 left;	/* of the quota in this period, ns; below 0: owed */
	u64 period_end; /* 0: none has begun */
	u64 freed_at;	/* when there was something left again */
	u32 members;	/* ready or running tasks, and cgroups within it that have such */
	u32 pad;
};

struct vm_ctx {
	u32 id;		   /* process id of the VM, 0: free slot; one word with the next (vm.h) */
	u32 vcpus;	   /* vCPU threads seen */
	u64 active_weight; /* sum of the weights of its ready and running vCPUs */
	u32 llc;	   /* the last-level cache where its vCPUs begin */
	u32 pad;
	u32 here[MAX_PCPUS];   /* ready or running vCPUs per pCPU */
	u64 where[MASK_WORDS]; /* pCPUs with any of those, a bit each; a bit may be left over */
};

/* What the policy wants for a VM; written by the control loop only. */
struct vm_conf {
	u32 id;	       /* VM this is meant for; others ignore it */
	u32 placement; /* enum placement_mode */
	u32 weight;    /* 1-10000; 0: its vCPUs count with their own weights */
	u32 light;     /* PLACE_LOAD_CONSCIOUS: up to which load a pCPU is light, percent of mean */
	u32 gang;      /* enum gang_mode */
	u32 fill;      /* GANG_STRICT: 1: others may run where the slot's owner leaves pCPUs idle */
	u64 slot;      /* GANG_STRICT: length of a time slot, ns */
	u64 stop;      /* GANG_RELAXED*: lead at which a vCPU is stopped, ns of progress */
	u64 resume;    /* lead below which it may go on, ns */
	u64 sample;    /* how often leads are looked at, ns */
	u64 wake_boost;	 /* GANG_DEMAND: urgent time for being woken by a sibling, ns */
	u64 flush_boost; /* urgent time for being waited for by a sibling, ns; 0: not seen */
	u64 boost_limit; /* most urgent time that adds up, ns */
	u64 boost_lead;	 /* how far ahead of its pCPU an urgent vCPU may run, ns of vtime */
	u64 period;	 /* GANG_ASYMMETRIC: how often allotments begin anew, ns */
	u64 neutral;	 /* latency with which knobs.wakeup_gran is a vCPU's own, ns */
	/* GANG_STRICT: pCPUs that any of its vCPUs may use, a bit each */
	u64 pcpus[MASK_WORDS];
};

/* A vCPU among its siblings (gang_relaxed.h): progress it has not made. */
struct gang_vcpu {
	u64 behind;  /* time spent ready until `since`, ns */
	u64 since;   /* ready since then; 0: running or halted */
	u64 stopped; /* co-stopped since then; 0: it is not */
	u64 costop;  /* time spent co-stopped, ns */
	u32 id;	     /* the task's id; 0: free */
	u32 pad;
};

/* What a VM's gang is about; one per slot of the VM table. */
struct gang_ctx {
	u64 until;   /* the gang was started together, and is one until then (gang_dynamic.h) */
	u64 stopped; /* all of it is co-stopped since then; 0: it is not (gang_relaxed.h) */
	u32 leader;  /* id of the vCPU that started it */
	u32 epoch;   /* number of the start, never 0 once there was one */
	u32 members; /* places of `vcpu` that have ever been used */
	u32 turn;    /* gang_strict.h: number of the slot in which it had pCPUs last */
	u32 target[MAX_PCPUS]; /* pCPUs called on to join: those that hold the epoch */
	struct gang_vcpu vcpu[GANG_VCPUS];
};

/* The host's time slots (gang_strict.h). */
struct gang_slots {
	u64 end;     /* when the present slot is over */
	u64 opening; /* somebody is filling the next one */
	u32 first;   /* slot of the VM that is served first in the next one */
	u32 number;  /* of the present slot */
	u32 round;   /* number of the slot that the present round began with */
	u32 spare;   /* slot of the VM that is first with what is left over */
};

/* Holds of a pCPU since the dispatcher was loaded (retention.h): counts and ns. Those that ended,
 * in three ways, and the one under way, if there is one, are those that began. */
struct hold_counters {
	u64 begun;
	u64 woke;     /* ended because the vCPU woke in time */
	u64 expired;  /* because the timeout had passed */
	u64 gave_way; /* before that, for somebody else */
	u64 length;   /* of those that ended, summed */
	u64 longest;
	u64 latest; /* how far beyond its timeout the one that was latest ended */
};

/* cpu_ctx.cur_is: it has its home elsewhere; it may be dormant (task_conf.dormant); it has a cookie
 * that matters. */
#define CUR_AWAY 1u
#define CUR_DORMANT 2u
#define CUR_COOKIE 4u

struct cpu_ctx {
	u64 vnow;      /* highest vtime that started here: never goes back */
	u64 cur_vtime; /* vtime of the running task at cur_since */
	u64 cur_since;
	u64 cur_rate;	 /* how fast its vtime grows, RATE_ONE = as time */
	u64 slice_end;	 /* when the running task's slice is over */
	u64 balanced_at; /* last look for a busier pCPU (pull.h) */
	u64 rescued_at;	 /* last look for a starving task (starve.h) */
	u64 offered_at;	 /* idle.h: when another pCPU was last called for who waits here */
	u64 switches;
	u64 idle;	 /* nobody runs here */
	u64 nr;		 /* ready or running tasks */
	u64 load;	 /* their weights, VM shares taken into account */
	u32 incoming;	 /* task pulled here that has not started yet */
	u32 incoming_vm; /* its VM's slot, or NO_VM */
	u32 incoming_load;
	u32 cur_vm;	/* gangs: slot of the VM whose vCPU runs here, or NO_VM */
	u32 cur_member; /* its place in gang_ctx.vcpu, plus 1; 0: none */
	u32 owner; /* gang_strict.h: slot of the VM that has the time slot, plus 1; 0: nobody */
	u64 held_until;		  /* retention.h: held until then at most */
	u64 hold_ends[HOLD_ENDS]; /* when the last holds ended, by their numbers */
	u32 held;		  /* id of the halted vCPU that it is held for; 0: of none */
	u32 hold_no;		  /* number of the hold that began last */
	u32 cur_is;		  /* core.h: what who runs here is on its core, CUR_* */
	u32 cur_demand;		  /* task_conf.demand of who runs here */
	u16 called;		  /* core.h: idle, and woken for a task that waits elsewhere */
	u16 runs;		  /* one of ours runs here, and who is next is not decided */
	u16 brief;		  /* gang_dynamic.h: who starts next interrupts one that woke */
	u16 cur_limited; /* quota.h: who runs here has a quota, and its turn ends with its part */
	u16 cut;	 /* turn.h: somebody who waits here was perhaps interrupted */
	u16 behind;	 /* pull.h: at the last look, a pCPU was behind */
	u32 busier_by;	 /* pull.h: at the last look, the busiest pCPU had so much more load */
	u64 turn_vtime;	 /* turn.h: vtime at which the turn of who runs here began */
	u64 release_at;	 /* quota.h: when who is parked here is looked at; 0: nobody is */
	u64 timer_at;	 /* timer.h: when its timer fires; not later than now: it has */
	u32 favoured;	 /* yield.h: id of who goes next; 0: nobody; or RUNS_FAVOURED */
	u32 tick;	 /* starve.h: when it was last asked for the time */
	u64 favour_end;	 /* yield.h: the vtime up to which who was favoured, and runs here, may */
	u64 held_since;	 /* retention.h: when the hold under way began; 0: there is none */
	struct hold_counters holds;
	u32 cur_cookie; /* cookie.h: of who runs here, or ran last; 0: none */
	u32 ceded;	/* cookie.h: somebody must start on the SMT sibling first */
	u64 unknown;	/* bpf.h: vtime at which one of which nothing is kept was queued last */
	u64 offer_due;	/* idle.h: who was interrupted has waited for long then; 0: nobody has been
			 */
};

/* The host's knobs, set before loading; `gangs`, `cores`, `tasks` and `micro` change with plans. */
struct knobs {
	u64 slice;		/* default slice, ns; SLICE_MIN at least */
	u64 wakeup_gran;	/* lead in vtime that a waking task needs to preempt, ns */
	u64 sleeper_credit;	/* how far behind a task may start after waiting, ns of vtime */
	u64 max_lead;		/* how far ahead of its pCPU a task may be queued, ns of vtime */
	u64 balance_interval;	/* how often a busy pCPU looks for a busier one, ns */
	u64 online[MASK_WORDS]; /* pCPUs that may be used, a bit each */
	u32 pcpus;		/* highest pCPU number plus 1 */
	u32 placement;		/* mode of VMs the policy has not spoken about */
	u16 slice_timer;	/* 1: end slices by timer instead of at the tick */
	u16 groups;		/* 1: tasks' cgroups are looked at; 0: none has any */
	u16 gangs; /* 1: VMs' gang modes are looked at; 0: they all are GANG_NONE; with_gangs() */
	u16 cores; /* 1: pcpu_confs are looked at; 0: they all are void; with_cores() */
	u16 tasks; /* 1: task_confs are looked at; 0: there are none. The kernel's build only */
	u16 micro; /* 1: some have micro slices; 0: nobody has any; with_micro() */
	u32 llcs;  /* how many last-level caches there are, at least 1 */
	u16 sibling[MAX_PCPUS]; /* the other hardware thread of its core, plus 1; 0: none */
	u16 llc[MAX_PCPUS];	/* its last-level cache, below `llcs` */
};

#endif
