// SPDX-License-Identifier: GPL-2.0-only
/*
 * Problem: how much of what corun costs beyond minimal.bpf.c does any scheduler cost that heeds
 * weights?
 * How: the minimal one that does: a queue for all pCPUs in the order of virtual times, which grow
 * by what a task has used of its slice, more slowly the more it weighs. No books of who waits for
 * how long, no cgroups, no queue for each pCPU, no turn that goes on after an interruption.
 */
typedef unsigned long long u64;
typedef unsigned int u32;
typedef long long s64;
typedef int s32;

#define SECTION(name) __attribute__((section(name), used))
#define KERNEL_FUNCTION __attribute__((section(".ksyms")))
#define CORE __attribute__((preserve_access_index))

/* Defined, not only declared: otherwise libbpf takes the functions' prototypes for others. */
struct sched_ext_entity {
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
} CORE;

struct task_struct {
	struct sched_ext_entity scx;
} CORE;

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) KERNEL_FUNCTION;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			      u64 enq_flags) KERNEL_FUNCTION;
_Bool scx_bpf_dsq_move_to_local(u64 dsq_id) KERNEL_FUNCTION;
_Bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) KERNEL_FUNCTION;

/* The queue, and how long a task may run at a time: SCX_SLICE_DFL. */
#define QUEUE 0
#define SLICE_NS (20 * 1000 * 1000ULL)
#define WEIGHT_NEUTRAL 100

/* The virtual time of whoever began to run last. */
u64 clock;

/* Arguments of callbacks come as an array: enqueue(task, flags). */
SECTION("struct_ops/weighted_enqueue") int weighted_enqueue(u64 *arguments)
{
	struct task_struct *p = (struct task_struct *)arguments[0];
	u64 vtime = p->scx.dsq_vtime;

	/* A task that slept has saved up at most a slice. */
	if ((s64)(vtime - (clock - SLICE_NS)) < 0)
		vtime = clock - SLICE_NS;
	scx_bpf_dsq_insert_vtime(p, QUEUE, SLICE_NS, vtime, arguments[1]);
	return 0;
}

SECTION("struct_ops/weighted_dispatch") int weighted_dispatch(u64 *arguments)
{
	scx_bpf_dsq_move_to_local(QUEUE);
	return 0;
}

SECTION("struct_ops/weighted_running") int weighted_running(u64 *arguments)
{
	struct task_struct *p = (struct task_struct *)arguments[0];

	if ((s64)(clock - p->scx.dsq_vtime) < 0)
		clock = p->scx.dsq_vtime;
	return 0;
}

SECTION("struct_ops/weighted_stopping") int weighted_stopping(u64 *arguments)
{
	struct task_struct *p = (struct task_struct *)arguments[0];
	u64 used = SLICE_NS - p->scx.slice;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + used * WEIGHT_NEUTRAL / p->scx.weight);
	return 0;
}

SECTION("struct_ops.s/weighted_init") int weighted_init(u64 *arguments)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

struct sched_ext_ops {
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, _Bool runnable);
	s32 (*init)(void);
	char name[128];
};

SECTION(".struct_ops.link")
struct sched_ext_ops weighted = {
    .enqueue = (void *)weighted_enqueue,
    .dispatch = (void *)weighted_dispatch,
    .running = (void *)weighted_running,
    .stopping = (void *)weighted_stopping,
    .init = (void *)weighted_init,
    .name = "weighted",
};

SECTION("license") char terms[] = "GPL";
