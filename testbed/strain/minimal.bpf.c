// SPDX-License-Identifier: GPL-2.0-only
/*
 * Problem: what a scheduler costs has to be compared with what any sched_ext scheduler costs.
 * How: the minimal one: a queue for all pCPUs, first come, first served; the kernel's default finds
 * idle pCPUs. It needs no headers; libbpf matches kernel types, members and functions by name
 * (Documentation/scheduler/sched-ext.rst).
 */
typedef unsigned long long u64;
typedef int s32;

#define SECTION(name) __attribute__((section(name), used))
#define KERNEL_FUNCTION __attribute__((section(".ksyms")))

/* Defined, not only declared: otherwise libbpf takes the functions' prototypes for others. */
struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) KERNEL_FUNCTION;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice,
			u64 enq_flags) KERNEL_FUNCTION;
_Bool scx_bpf_dsq_move_to_local(u64 dsq_id) KERNEL_FUNCTION;

/* The queue, and how long a task may run at a time: SCX_SLICE_DFL. */
#define QUEUE 0
#define SLICE_NS (20 * 1000 * 1000ULL)

/* Arguments of callbacks come as an array: enqueue(task, flags). */
SECTION("struct_ops/minimal_enqueue") int minimal_enqueue(u64 *arguments)
{
	scx_bpf_dsq_insert((struct task_struct *)arguments[0], QUEUE, SLICE_NS, arguments[1]);
	return 0;
}

SECTION("struct_ops/minimal_dispatch") int minimal_dispatch(u64 *arguments)
{
	scx_bpf_dsq_move_to_local(QUEUE);
	return 0;
}

SECTION("struct_ops.s/minimal_init") int minimal_init(u64 *arguments)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

struct sched_ext_ops {
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	s32 (*init)(void);
	char name[128];
};

SECTION(".struct_ops.link")
struct sched_ext_ops minimal = {
    .enqueue = (void *)minimal_enqueue,
    .dispatch = (void *)minimal_dispatch,
    .init = (void *)minimal_init,
    .name = "minimal",
};

SECTION("license") char terms[] = "GPL";
