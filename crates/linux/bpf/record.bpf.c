// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a host's pCPUs and vCPUs do, for `corun record`: the kernel's half.
 *
 * Every context switch, wake-up and migration of the host becomes an event in the ring buffer of the
 * pCPU where it happens, so that pCPUs share no lock, and without waking the reader, who comes by
 * himself. Whoever runs is on record, too: what competes with vCPUs decides as much as they do.
 * Guest exits come too often for that; they are counted by vCPU and reason (`counts`), and the daemon
 * reads the counts now and then.
 *
 * A plain tracing program: it needs BTF and ring buffers (Linux 5.8), no sched_ext. sched_switch tells
 * the state of the thread that leaves since 5.18; before, it is read from the thread. What the
 * running kernel does not have, the daemon does not load. The numbers of threads are those of the
 * first PID namespace.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define CORE __attribute__((preserve_access_index))

struct thread_info {
	u32 cpu;
} CORE;

struct task_struct {
	int pid;
	int tgid;
	struct thread_info thread_info;
	unsigned int __state;
	char comm[16];
} CORE;

/* Before 5.16 the pCPU, before 5.14 the state were elsewhere. */
struct task_struct___old {
	unsigned int cpu;
	long state;
} CORE;

struct trace_event_raw_kvm_exit {
	unsigned int exit_reason;
	u32 isa;
	unsigned int vcpu_id;
} CORE;

/* Where x86 keeps what interrupts are under way: since 6.15, and before 6.2; between these. */
extern const int __preempt_count __ksym __weak;
struct pcpu_hot {
	int preempt_count;
} CORE;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/* include/linux/preempt.h */
#define SOFTIRQ_SERVED 0x00000100
#define HARDIRQ_OR_NMI 0x00ff0000

enum kind {
	SWITCH,
	WAKING,
	QUEUED,
	MIGRATE,
	HALT,
	FORK,
	RENAME,
};

enum cause {
	RUNNING,
	INTERRUPT,
	TIMER,
	UNKNOWN,
};

/* The daemon has the same struct (record/event.rs). */
struct event {
	u64 at;
	u32 running; /* whatever runs there; SWITCH: leaves */
	u32 thread;  /* that it is about */
	u32 number;  /* SWITCH: state; QUEUED: pCPU; MIGRATE: pCPUs; FORK: process; HALT: ns, at most 2^32-1 */
	u16 cpu;
	u8 kind;
	u8 how; /* SWITCH: preempted; WAKING: enum cause; HALT: polled */
};

struct named {
	struct event event;
	char comm[16];
};

/* A ring buffer for each pCPU; the daemon makes them. */
struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Events that found no room, by pCPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

/* Is a timer's handler under way? */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} timers SEC(".maps");

/* Guest exits; the daemon has the same structs (record/exits.rs). */
struct exit {
	u32 thread;
	u32 isa; /* KVM_ISA_VMX, KVM_ISA_SVM …; IPIS: interrupts sent to siblings */
	u32 reason;
	u32 vcpu;
};

#define IPIS 0xffffffff

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct exit);
	__type(value, u64);
} counts SEC(".maps");

static void *room(u64 size)
{
	u32 cpu = bpf_get_smp_processor_id(), zero = 0;
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	void *place = ring ? bpf_ringbuf_reserve(ring, size, 0) : 0;
	u64 *count;

	if (!place) {
		count = bpf_map_lookup_elem(&lost, &zero);
		if (count)
			*count += 1;
	}
	return place;
}

static void fill(struct event *it, u8 kind, u32 running, u32 thread, u32 number, u8 how)
{
	it->at = bpf_ktime_get_ns();
	it->running = running;
	it->thread = thread;
	it->number = number;
	it->cpu = bpf_get_smp_processor_id();
	it->kind = kind;
	it->how = how;
}

static void tell(u8 kind, u32 running, u32 thread, u32 number, u8 how)
{
	struct event *it = room(sizeof(*it));

	if (!it)
		return;
	fill(it, kind, running, thread, number, how);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
}

static u32 running(void)
{
	struct task_struct *current = (void *)bpf_get_current_task_btf();

	return current->pid;
}

static u32 pcpu_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return ((struct task_struct___old *)task)->cpu;
}

SEC("tp_btf/sched_switch")
int switched(u64 *args)
{
	struct task_struct *prev = (void *)args[1], *next = (void *)args[2];

	tell(SWITCH, prev->pid, next->pid, args[3], args[0] != 0);
	return 0;
}

/* Its state may have been changed by whoever wakes it by now: then it waited. */
SEC("tp_btf/sched_switch")
int switched_before_5_18(u64 *args)
{
	struct task_struct *prev = (void *)args[1], *next = (void *)args[2];
	u32 state;

	if (bpf_core_field_exists(prev->__state))
		state = prev->__state;
	else
		state = ((struct task_struct___old *)prev)->state;
	tell(SWITCH, prev->pid, next->pid, state, args[0] != 0);
	return 0;
}

static u8 by_interrupt(void)
{
	u32 zero = 0, *timer = bpf_map_lookup_elem(&timers, &zero);

	return timer && *timer ? TIMER : INTERRUPT;
}

/* On whose behalf does the kernel do what it does now? */
SEC("tp_btf/sched_waking")
int waking(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	u32 under_way = 0;
	u8 cause = RUNNING;

	if (bpf_ksym_exists(&__preempt_count))
		under_way = *(int *)bpf_this_cpu_ptr(&__preempt_count);
	else if (bpf_ksym_exists(&pcpu_hot))
		under_way = ((struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	else
		cause = UNKNOWN;
	if (under_way & (SOFTIRQ_SERVED | HARDIRQ_OR_NMI))
		cause = by_interrupt();
	tell(WAKING, running(), task->pid, 0, cause);
	return 0;
}

/*
 * The same where the kernel does not tell where it keeps that (without CONFIG_KALLSYMS_ALL, or not on
 * x86): handlers are watched. Those of other pCPUs' interrupts are not among them, so that outside of
 * handlers nothing is sure.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, int);
} handlers SEC(".maps");

SEC("tp_btf/sched_waking")
int waking_by_handlers(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	u32 zero = 0, *timer = bpf_map_lookup_elem(&timers, &zero);
	int *handler = bpf_map_lookup_elem(&handlers, &zero);
	u8 cause = UNKNOWN;

	if ((timer && *timer) || (handler && *handler > 0))
		cause = by_interrupt();
	tell(WAKING, running(), task->pid, 0, cause);
	return 0;
}

static void handler(int change)
{
	u32 zero = 0;
	int *it = bpf_map_lookup_elem(&handlers, &zero);

	if (it)
		*it += change;
}

SEC("tp_btf/irq_handler_entry")
int handler_irq_begins(u64 *args)
{
	handler(1);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int handler_irq_ends(u64 *args)
{
	handler(-1);
	return 0;
}

SEC("tp_btf/softirq_entry")
int handler_softirq_begins(u64 *args)
{
	handler(1);
	return 0;
}

SEC("tp_btf/softirq_exit")
int handler_softirq_ends(u64 *args)
{
	handler(-1);
	return 0;
}

static int queue(struct task_struct *task)
{
	tell(QUEUED, running(), task->pid, pcpu_of(task), 0);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int queued(u64 *args)
{
	return queue((void *)args[0]);
}

SEC("tp_btf/sched_wakeup_new")
int queued_first(u64 *args)
{
	return queue((void *)args[0]);
}

/* `number`: the pCPU it comes from, and in the upper half the one it goes to. */
SEC("tp_btf/sched_migrate_task")
int migrating(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	u32 to = args[1];

	tell(MIGRATE, running(), task->pid, pcpu_of(task) | to << 16, 0);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int forked(u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	struct named *it = room(sizeof(*it));

	if (!it)
		return 0;
	fill(&it->event, FORK, parent->pid, child->pid, child->tgid, 0);
	bpf_probe_read_kernel(it->comm, sizeof(it->comm), child->comm);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int renamed(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct named *it = room(sizeof(*it));

	if (!it)
		return 0;
	fill(&it->event, RENAME, running(), task->pid, task->tgid, 0);
	bpf_probe_read_kernel_str(it->comm, sizeof(it->comm), (void *)args[1]);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
	return 0;
}

static void timer(u32 under_way)
{
	u32 zero = 0, *it = bpf_map_lookup_elem(&timers, &zero);

	if (it)
		*it = under_way;
}

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_begins(u64 *args)
{
	timer(1);
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_ends(u64 *args)
{
	timer(0);
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int timer_begins(u64 *args)
{
	timer(1);
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int timer_ends(u64 *args)
{
	timer(0);
	return 0;
}

/* (ns, waited, valid). A raw tracepoint: KVM's own BTF need not be there. */
SEC("raw_tp/kvm_vcpu_wakeup")
int halt_ended(struct bpf_raw_tracepoint_args *args)
{
	u64 took = args->args[0];
	u32 thread = running();

	tell(HALT, thread, thread, took > 0xffffffff ? 0xffffffff : took, args->args[1] == 0);
	return 0;
}

static void count(struct exit *exit)
{
	u64 one = 1, *count = bpf_map_lookup_elem(&counts, exit);

	/* Only its own thread counts a vCPU's exits. */
	if (count)
		*count += 1;
	else
		bpf_map_update_elem(&counts, exit, &one, BPF_ANY);
}

/* The only one of KVM's events that needs more than its arguments: the reason is asked for there. */
SEC("tracepoint/kvm/kvm_exit")
int exited(struct trace_event_raw_kvm_exit *args)
{
	struct exit exit = {
	    .thread = running(), .isa = args->isa, .reason = args->exit_reason, .vcpu = args->vcpu_id};

	count(&exit);
	return 0;
}

SEC("raw_tp/kvm_apic_ipi")
int sent_ipi(struct bpf_raw_tracepoint_args *args)
{
	struct exit exit = {.thread = running(), .isa = IPIS};

	count(&exit);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
