/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's types, as far as the dispatcher looks into them.
 *
 * Only names count: CO-RE finds the true layout in the BTF of the kernel that loads the program, so
 * no kernel headers are needed to build and one build serves many kernels.
 */
#ifndef CORUN_KERNEL_TYPES_H
#define CORUN_KERNEL_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)
#define ENOMEM 12

#ifndef CORE
#define CORE __attribute__((preserve_access_index))
#endif

/* Defined, not only declared: otherwise libbpf takes the kfuncs' prototypes for different ones. */
struct cpumask {
	unsigned long bits[1];
} CORE;

struct hlist_node {
	struct hlist_node *next;
} CORE;

struct hlist_head {
	struct hlist_node *first;
} CORE;

struct preempt_notifier {
	struct hlist_node link;
} CORE;

struct pcpu_hot {
	int preempt_count;
} CORE;

struct kvm_vcpu {
	struct preempt_notifier preempt_notifier;
	bool wants_to_run;
} CORE;

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
} CORE;

struct cfs_bandwidth {
	s64 period;
	u64 quota;
	u64 burst;
} CORE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CORE;

enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
};

struct cgroup {
	int level;
	struct cgroup_subsys_state *subsys[2];
	struct cgroup *ancestors[];
} CORE;

/* The part of a cgroup that concerns its CPU time. */
struct task_group {
	struct cgroup_subsys_state css;
	unsigned long shares;
	struct task_group *parent;
	struct cfs_bandwidth cfs_bandwidth;
} CORE;

struct thread_info {
	u32 cpu;
} CORE;

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	char comm[16];
	int nr_cpus_allowed;
	u16 migration_disabled;
	const struct cpumask *cpus_ptr;
	struct hlist_head preempt_notifiers;
	struct task_group *sched_task_group;
	struct sched_ext_entity scx;
} CORE;

enum scx_dsq_id_flags {
	SCX_DSQ_INVALID = 0,
	SCX_DSQ_GLOBAL = (1LLU << 63) | 1,
	SCX_DSQ_LOCAL = (1LLU << 63) | 2,
	SCX_DSQ_LOCAL_ON = (1LLU << 63) | (1LLU << 62),
};

enum scx_enq_flags {
	SCX_ENQ_PREEMPT = 1LLU << 32,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};

enum scx_ops_flags {
	SCX_OPS_ENQ_LAST = 2,
	SCX_OPS_ENQ_EXITING = 4,
	SCX_OPS_ENQ_MIGRATION_DISABLED = 16,
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
} CORE;

/* For a task that comes under the scheduler: was it just created, or did it exist before? */
struct scx_init_task_args {
	bool fork;
} CORE;

struct scx_exit_task_args;

/* The callbacks that the dispatcher fills in; libbpf matches members by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*disable)(struct task_struct *p);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

#endif
