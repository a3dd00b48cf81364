/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the dispatcher knows about a task, a VM and a pCPU, and the knobs of the host.
 *
 * The structs are plain data of fixed size: BPF maps hold them in the kernel, arrays in the
 * simulator. Times and virtual times are u64 nanoseconds.
 *
 * Write access: a task's own struct is written only by callbacks for that task, which the kernel
 * serialises (runqueue lock or wake-up lock). The exceptions are `awaited` and `released`: other
 * callbacks set them, and the task's own callbacks read and clear them by an exchange. VM and pCPU
 * structs are shared: everything that another CPU may change is read through shared() and written
 * with atomics, so that a recorded callback can be replayed on its own (platform/tap.h).
 */
#ifndef CORUN_TYPES_H
#define CORUN_TYPES_H

#define MAX_PCPUS 512u
#define MAX_VMS 1024u
/* On a host with more last-level caches, several count as one. */
#define MAX_LLCS 64u
#define MASK_WORDS (MAX_PCPUS / 64)
/*
 * How long a ready task may wait before the kernel calls it a stall and ends the scheduler, ns: a
 * task that is kept waiting on purpose waits for only a part of that.
 */
#define WATCHDOG 5000000000ull
/* Each pool has at least one pCPU. */
#define MAX_POOLS MAX_PCPUS
/*
 * ns; shorter slices would cost more in switches than they are worth (assumed: a switch takes 2 to
 * 3 us, so 5 % of this).
 */
#define SLICE_MIN 50000ull
/*
 * How many cgroups with running members are handled, and the deepest level of nesting: members of
 * deeper cgroups count in the enclosing cgroup at that level.
 */
#define MAX_GROUPS 4096u
#define GROUP_LEVELS 10

/*
 * BPF passes no structs by value and five arguments at most: a function that takes or returns more
 * must be inlined. A function marked CALLED (platform/) is not inlined: the verifier checks it
 * once, without knowing its callers, rather than once for each path that leads there. So its
 * arguments are numbers, or pointers to structs, which it must check for NULL.
 */
#define INLINED static inline __attribute__((always_inline))

/*
 * For code that runs rarely, or on some hosts only: a function of its own, so that it takes neither
 * registers nor stack (512 bytes in BPF) from what runs at every switch.
 */
#define RARE static __attribute__((noinline))

#define NO_VM 0xffffffffu
/* count_in(): the slot does not belong to the vCPU's VM any more (vm.h). */
#define NOT_COUNTED 0xffffffffu
#define NO_PCPU (-1)

/* A weight of 100 is neutral, as in cgroup v2; the range is 1 to 10000. */
#define WEIGHT_NEUTRAL 100u

/* The state of a vCPU (or any host task). To its guest, a throttled vCPU is ready. */
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

/* How a VM's vCPUs are scheduled in time with respect to each other (gang.h). */
enum gang_mode {
	GANG_NONE = 0,
	GANG_DYNAMIC = 1,
	GANG_STRICT = 2,
	GANG_DEMAND = 3,
	GANG_RELAXED = 4,
	GANG_RELAXED_ALL = 5,
	GANG_ASYMMETRIC = 6,
};

/* vCPUs of a VM whose progress is compared; the other vCPUs of a larger VM are never held back. */
#define GANG_VCPUS 64u

/* The unit of weights of cgroups, as the kernel has it: 1024 is nice 0, and cpu.weight 100. */
#define GROUP_NEUTRAL 1024u

/*
 * Rates are fixed-point: RATE_ONE means that virtual time grows as fast as time. They need digits
 * to spare: for a VM in a cgroup of weight 10000 on 512 pCPUs it grows a ten-thousandth as fast, or
 * slower.
 */
#define RATE_ONE (1u << 20)

/* A vCPU's share of its VM's weight, fixed point: this is the default. */
#define SHARE_ONE 65536u

/* What gangs need to know of a ready or running vCPU to rank it on a pCPU at a moment. */
struct ranked {
	u64 vtime;
	u64 urgent_at; /* as in task_ctx */
	u64 awaited;   /* as in task_ctx */
	u64 now;
	u32 vm;	    /* slot of its VM, or NO_VM */
	u32 member; /* as in task_ctx */
	s32 cpu;
	u16 runs;  /* 1: it runs there; 0: it waits */
	u16 fresh; /* as in task_ctx */
};

/* A task that waits, as yield.h looks at it. */
struct favoured {
	u64 vtime;
	u32 state;
	s32 cpu;
	u32 vm;
	u32 over;  /* as in task_ctx */
	u64 since; /* as in task_ctx */
};

/* What happened to a task since it was first seen; ns and counts. */
struct task_counters {
	u64 run;
	u64 ready;
	u64 wait;
	u64 switches; /* times it was given a pCPU */
	u64 wakeups;
	u64 migrations; /* starts on another pCPU than the last */
	u64 depleted;	/* times it lost its pCPU because its slice was used up */
	u64 preempted;	/* times it lost its pCPU before that, and wanted to run on */
	u64 late;	/* gang_asymmetric.h: times it began to run after its latency had passed */
	u64 held;	/* retention.h: ns in which its pCPU was held for it while it was halted */
	u64 kept; /* times it woke before the hold's timeout, and before the hold ended for another
		     task */
	u64 throttled; /* ns in which it was throttled */
};

/* task_ctx.woken: the pCPU it was placed on could not be had at once. */
#define WOKEN_UNANSWERED 2u

/*
 * task_ctx.over. TURN_OVER: its turn is over, because it yielded or other tasks go first.
 * TURN_MOVES: it continues on another pCPU.
 */
#define TURN_OVER 1u
#define TURN_MOVES 2u
/* With TURN_OVER: it spun, and let other tasks go first (yield.h). */
#define TURN_SPUN 4u

/*
 * task_ctx.fresh. FRESH: it waits for its first turn since it woke, was placed anew or was
 * throttled, or is in that turn. FRESH_BACK: that turn was interrupted, and it has not had a whole
 * slice yet. 0: it has.
 */
#define FRESH 1u
#define FRESH_BACK 2u

/* How many of the siblings that woke a vCPU are remembered (gang_asymmetric.h). */
#define WAKERS 8u

/* For how many holds of a pCPU the ends are remembered (retention.h). */
#define HOLD_ENDS 8u

struct task_ctx {
	u64 vtime;   /* weighted virtual time */
	u64 since;   /* when it entered its state */
	u64 charged; /* running: time up to which its run is charged to vtime */
	u64 seq;     /* number of callbacks seen: orders a recording */
	struct task_counters sum;
	u32 state;	   /* enum task_state */
	u32 vm;		   /* slot of its VM, or NO_VM */
	u32 active_weight; /* what it adds to its VM's active weight */
	s32 cpu;	   /* pCPU it occupies while ready or running, else NO_PCPU */
	s32 last_cpu;	   /* pCPU it ran on last */
	s32 clock_cpu;	   /* pCPU whose clock its vtime refers to */
	u8 woken;	   /* 1: it has not been queued since it woke; or WOKEN_UNANSWERED */
	u8 queued;	   /* 1: it has been queued, and has not run since */
	u16 fresh;	   /* FRESH*: turn.h, gang_pick.h */
	u32 load;	   /* what it adds to the load of the pCPU it occupies */
	u64 urgent;	   /* gang_demand.h: urgent time that is left to it, ns */
	u64 urgent_at;	   /* gang_demand.h: since when it is urgent; gang_asymmetric.h: its
			      deadline; 0: neither. The task with the least is next */
	u64 urgent_from;   /* running: time from which its urgent time is to be charged */
	u32 member;	   /* gang_relaxed.h: its place in gang_ctx.vcpu, plus 1; 0: none */
	u32 share;	   /* gang_asymmetric.h: its share of its VM's weight; 0: SHARE_ONE */
	s32 home;	   /* pCPU where it should be, plus 1; 0: none */
	u16 claims;    /* 1: gang_asymmetric.h: it has claims; 0: the fields for them are void */
	u16 over;      /* turn.h: TURN_*; 0: its turn is not over */
	u64 gran;      /* its own knobs.wakeup_gran */
	u64 allot_end; /* when its next allotment begins */
	u64 allot_run; /* sum.run when the present allotment began */
	u64 woken_at[WAKERS]; /* when siblings woke it last */
	u32 wakers[WAKERS];   /* their ids; 0: free */
	u64 held_since;	      /* retention.h: since when last_cpu is held for it; 0: it is not */
	u64 held_until;	      /* when that hold ends at the latest */
	u64 reserved;	      /* quota.h: time taken from quotas for its present turn, ns */
	u32 group;	      /* place of its cgroup in the table, plus 1; 0: none is known */
	u32 group_weight;     /* group.h: what it adds to its cgroup's active weight; 0: nothing */
	s32 parked_for;	      /* quota.h: throttled: the pCPU on which it is to be queued again */
	u32 rest;	      /* what is left of its interrupted turn, ns; 0: nothing */
	u32 hold_no;	      /* retention.h: number of that hold of last_cpu */
	u32 released;	   /* quota.h: 1: throttled, but counted already on the pCPU `parked_for` */
	u64 awaited;	   /* awaited.h: ready: since when a sibling waits for it; 0: none does */
	u32 parked_active; /* quota.h: throttled: its active_weight before that, */
	u32 parked_weight; /* and its group_weight */
	u64 due;	   /* micro.h: when it is due; 0: it has no micro slices */
	u64 parked_since;  /* quota.h: since when a quota keeps it waiting; 0: it is not parked */
	u64 parked_clock;  /* quota.h: throttled: what its pCPU's clock said when it was parked */
	u64 group_sum;	   /* group.h: group_sum() of its cgroup when it was last charged */
	u64 beyond;	   /* vm.h: BEYOND*: its VM found no slot; 0: it did, or it is no vCPU */
};

/* What the policy wants for a task; written by the control loop only. */
struct task_conf {
	u64 slice;     /* ns; 0: that of its pool, else the host's default */
	s32 home;      /* pCPU of PLACE_FIXED, PLACE_CORE or asymmetric mode, plus 1; 0: none */
	u32 share;     /* GANG_ASYMMETRIC: its share of its VM's weight; 0: SHARE_ONE */
	u64 latency;   /* how long it may stay ready, ns; 0: fair order alone decides */
	u64 allotment; /* run time in a period for which `latency` is promised, ns */
	u32 pool;      /* its pool (pool.h), plus 1; 0: none. For host tasks, too */
	u32 demand;    /* core.h: its demand on its core, see demand_alone() there; 0: unknown */
	u32 dormant;   /* retention.h: 1: it may be dormant: after its slice others go first */
	u32 cookie;    /* cookie.h: its core-scheduling cookie; 0: not known yet */
	u32 micro;     /* micro.h: 1: its slices are micro slices */
	u32 pad;
};

/*
 * What the policy wants of a hardware thread whose core has two; written by the control loop only.
 */
struct pcpu_conf {
	u64 hold;      /* how long it is held for a vCPU that has halted there, ns; 0: not at all */
	u32 partner;   /* its SMT sibling, plus 1; 0: none */
	u32 wait_wait; /* how much two tasks slow each other down while both wait, thousandths */
	u32 miss_miss; /* the same while both miss */
	u32 gives_way; /* 1: a hold ends for any task that is queued there */
	u32 cookies;   /* cookie.h: 1: vCPUs with different cookies are kept apart */
	u32 pad;
};

/* pCPUs that belong together (pool.h); written by the control loop only. */
struct pool_conf {
	u64 slice;	       /* of vCPUs in this pool, ns; 0: the host's default */
	u64 pcpus[MASK_WORDS]; /* one bit each */
};

/* What an administrator wants for a cgroup (group.h, quota.h). */
struct group_conf {
	u64 quota;   /* pCPU time of all its tasks in a period, ns; 0: no limit */
	u64 period;  /* ns */
	u64 burst;   /* time that may be saved up beyond the quota, ns */
	u32 weight;  /* GROUP_NEUTRAL is that of a task with nice 0; 0: the place is free */
	u32 parent;  /* place of the enclosing cgroup, plus 1; 0: that is the root */
	u32 limited; /* 1: it or an enclosing cgroup has a quota */
	u32 pad;
};

/* The tasks of a cgroup that want to run, and what is left of its quota. */
struct group_ctx {
	u64 own;	/* sum of the weights of its ready and running tasks */
	s64 below;	/* sum of the weights of its child cgroups that have such tasks */
	s64 left;	/* what is left of the quota in this period, ns; below 0: owed */
	s64 reserved;	/* what turns that are under way have taken of it, ns */
	u64 period_end; /* end of this period; 0: none has begun */
	u64 freed_at;	/* when something was last left again after the quota had been used up */
	u32 members;	/* number of its ready or running tasks and such child cgroups */
	u32 counted;	/* what it has added to `below` of the one around it; 0: nothing */
	u64 changed; /* when a task of its own last began or ceased to want to run; 0: none has */
	u64 sum; /* of each own task: weight x time that it wanted to run, until `changed`, ns */
};

struct vm_ctx {
	u32 id;	   /* process id of the VM, 0: free slot; one word together with `vcpus` (vm.h) */
	u32 vcpus; /* number of its vCPU threads */
	u64 active_weight; /* sum of the weights of its ready and running vCPUs */
	u32 llc;	   /* last-level cache where vCPUs that have not run yet are placed */
	u32 pad;
	u32 here[MAX_PCPUS];   /* number of ready or running vCPUs per pCPU */
	u64 where[MASK_WORDS]; /* pCPUs with such vCPUs, a bit each; a bit may stay set too long */
};

/* What the policy wants for a VM; written by the control loop only. */
struct vm_conf {
	u32 id;	       /* VM that this is meant for; other VMs ignore it */
	u32 placement; /* enum placement_mode */
	u32 weight;    /* 1-10000; 0: its vCPUs count with their own weights */
	u32 light; /* PLACE_LOAD_CONSCIOUS: load up to which a pCPU is light, percent of the mean */
	u32 gang;  /* enum gang_mode */
	u32 fill;  /* GANG_STRICT: 1: it may run on pCPUs that the owner of the slot leaves idle */
	u64 slot;  /* GANG_STRICT: length of a time slot, ns */
	u64 stop;  /* GANG_RELAXED*: lead at which a vCPU is stopped, ns of progress */
	u64 resume;	 /* lead below which it may go on, ns */
	u64 sample;	 /* how often leads are sampled, ns */
	u64 wake_boost;	 /* GANG_DEMAND: urgent time for being woken by a sibling, ns */
	u64 flush_boost; /* urgent time for one that a sibling waits for, ns; 0: not watched */
	u64 boost_limit; /* limit of the urgent time that adds up, ns */
	u64 boost_lead;	 /* how far ahead of its pCPU an urgent vCPU may run, ns of vtime */
	u64 period;	 /* GANG_ASYMMETRIC: how often allotments begin anew, ns */
	u64 neutral; /* latency at which a vCPU's wake-up granularity is knobs.wakeup_gran, ns */
	/* GANG_STRICT: pCPUs that any of its vCPUs may use, one bit each */
	u64 pcpus[MASK_WORDS];
};

/* A vCPU among its siblings (gang_relaxed.h): the progress that it has missed. */
struct gang_vcpu {
	u64 behind;  /* time spent ready until `since`, ns */
	u64 since;   /* since when it is ready; 0: it runs or is halted */
	u64 stopped; /* since when it is stopped; 0: it is not */
	u64 costop;  /* time spent stopped, ns */
	u32 id;	     /* task id; 0: the place is free */
	u32 pad;
};

/* State of a VM's gang; one per slot of the VM table. */
struct gang_ctx {
	u64 until;   /* end of the time for which the gang was started together (gang_dynamic.h) */
	u64 stopped; /* since when the whole gang is stopped; 0: it is not (gang_relaxed.h) */
	u32 leader;  /* id of the vCPU that started it */
	u32 epoch;   /* number of the last call; never 0 once there was one */
	u32 members; /* number of places of `vcpu` that have ever been used */
	u32 turn;    /* gang_strict.h: number of the last time slot in which it had pCPUs */
	u32 target[MAX_PCPUS]; /* siblings are called on those pCPUs whose entry is the epoch */
	struct gang_vcpu vcpu[GANG_VCPUS];
};

/* The host's time slots (gang_strict.h). */
struct gang_slots {
	u64 end;     /* when the present slot is over */
	u64 opening; /* 1: a pCPU is assigning the next one */
	u32 first;   /* place in the VM table from which the next slot is assigned */
	u32 number;  /* number of the present slot */
	u32 round;   /* number of the slot with which the present round began */
	u32 spare;   /* place in the VM table of the VM that gets left-over pCPUs first */
};

/*
 * Holds of a pCPU since the dispatcher was loaded (retention.h): counts and ns. `begun` is the sum
 * of the holds that ended, in three ways, and of the one under way, if there is one.
 */
struct hold_counters {
	u64 begun;
	u64 woke;     /* ended because the vCPU woke in time */
	u64 expired;  /* ended because the timeout had passed */
	u64 gave_way; /* ended before that, for another task */
	u64 length;   /* summed length of those that ended */
	u64 longest;
	u64 latest; /* the longest that a hold has lasted beyond its timeout */
};

/*
 * cpu_ctx.cur_is, of the running task. CUR_AWAY: its home is another pCPU. CUR_DORMANT: it may be
 * dormant (task_conf.dormant). CUR_COOKIE: it has a cookie that matters.
 */
#define CUR_AWAY 1u
#define CUR_DORMANT 2u
#define CUR_COOKIE 4u

struct cpu_ctx {
	u64 vnow;      /* fair.h: the clock here, which never goes back */
	u64 cur_vtime; /* vtime of the running task at cur_since */
	u64 cur_since;
	u64 cur_rate;	 /* how fast its vtime grows; RATE_ONE: as fast as time */
	u64 slice_end;	 /* when the running task's slice is over */
	u64 balanced_at; /* last look for a busier pCPU (pull.h) */
	u64 rescued_at;	 /* last look for a starving task (starve.h) */
	u64 offered_at;	 /* idle.h: when another pCPU was last called for a task that waits here */
	u64 switches;
	u64 idle;	 /* 1: no task runs here */
	u64 nr;		 /* number of ready or running tasks */
	u64 load;	 /* sum of their weights, VM shares taken into account */
	u32 incoming;	 /* id of a task pulled here that has not started yet */
	u32 incoming_vm; /* its VM's slot, or NO_VM */
	u32 incoming_load;
	u32 cur_vm;	/* gangs: slot of the VM whose vCPU runs here, or NO_VM */
	u32 cur_member; /* its place in gang_ctx.vcpu, plus 1; 0: none */
	u32 owner;	/* gang_strict.h: slot of its owner in this time slot, plus 1; 0: none */
	u64 held_until; /* retention.h: when its hold ends at the latest */
	u64 hold_ends[HOLD_ENDS]; /* when the last holds ended, by their numbers */
	u32 held;		  /* id of the halted vCPU that it is held for; 0: it is not held */
	u32 hold_no;		  /* number of the last hold that began */
	u32 cur_is;		  /* core.h: CUR_* of the task that runs here */
	u32 cur_demand;		  /* task_conf.demand of the task that runs here */
	u16 called;		  /* core.h: 1: idle, and woken for a task that waits elsewhere */
	u16 runs;  /* 1: a task of this scheduler runs here, and the next one is not chosen yet */
	u16 brief; /* gang_dynamic.h: 1: the vCPU that starts next interrupts a task that woke */
	u16 cur_limited; /* quota.h: 1: the running task has a quota, which bounds its turn */
	u16 cut;	 /* turn.h: 1: a task that waits here may have been interrupted */
	u16 behind;	 /* pull.h: 1: at the last look, a pCPU's clock was behind */
	u32 busier_by;	 /* pull.h: by how much more load the busiest pCPU had at the last look */
	u64 turn_vtime;	 /* turn.h: vtime at which the turn of the running task began */
	u64 release_at;	 /* quota.h: when the tasks parked here are checked; 0: none is parked */
	u64 timer_at;	 /* timer.h: when its timer fires; if not later than now, it has fired */
	u32 favoured;	 /* yield.h: id of the task that goes next; 0: none; or RUNS_FAVOURED */
	u32 tick;	 /* starve.h: tick() when starving tasks were last looked for */
	u64 favour_end;	 /* yield.h: vtime up to which the favoured task may run here */
	u64 held_since;	 /* retention.h: when the hold under way began; 0: there is none */
	struct hold_counters holds;
	u32 cur_cookie; /* cookie.h: cookie of the task that runs here, or ran last; 0: none */
	u32 ceded;	/* cookie.h: 1: a task must start on the SMT sibling first */
	u64 unknown;	/* bpf.h: vtime at which a task without a task_ctx was last queued */
	u64 offer_due;	/* idle.h: when an interrupted task has waited for long; 0: none waits */
	u64 grace_end;	/* grace.h: until when tasks that the running one wakes let it run on */
	u64 put_off;	/* grace.h: 1: a task waits for grace_end */
};

/* The host's knobs, set before loading; `gangs`, `cores`, `tasks` and `micro` change with plans. */
struct knobs {
	u64 slice;	    /* default slice, ns; SLICE_MIN at least */
	u64 wakeup_gran;    /* lead that a waking task needs to preempt, ns: fair_span() */
	u64 sleeper_credit; /* how far behind its pCPU a task may start after sleeping: fair_span(),
			       ns */
	u64 max_lead; /* how far ahead of its pCPU's clock a task may be queued, ns of vtime */
	u64 balance_interval;	/* how often a busy pCPU looks for a busier one, ns */
	u64 online[MASK_WORDS]; /* pCPUs that may be used, one bit each */
	u32 pcpus;		/* highest pCPU number plus 1 */
	u32 placement;		/* placement mode of VMs for which the policy has named none */
	u16 slice_timer;	/* 1: end slices by timer instead of at the tick */
	u16 groups;		/* 1: tasks' cgroups are looked at; 0: no task has any */
	u16 gangs;		/* 1: VMs have gang modes; 0: all are GANG_NONE; with_gangs() */
	u16 cores;		/* 1: pcpu_confs are valid; 0: all are void; with_cores() */
	u16 tasks;	  /* 1: there are task_confs; 0: there are none. The kernel's build only */
	u16 micro;	  /* 1: some tasks have micro slices; 0: none has; with_micro() */
	u32 llcs;	  /* number of last-level caches, at least 1 */
	u32 online_pcpus; /* how many pCPUs may be used */
	u32 pad;
	u16 sibling[MAX_PCPUS]; /* the other hardware thread of its core, plus 1; 0: none */
	u16 llc[MAX_PCPUS];	/* its last-level cache, below `llcs` */
};

#endif
