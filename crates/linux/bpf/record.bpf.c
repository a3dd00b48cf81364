// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a host's pCPUs and vCPUs do, for `corun record`: the kernel's half.
 *
 * Every context switch, wake-up and migration on the host becomes an event in the ring of the pCPU
 * where it happens: memory that the daemon has mapped, written without locks or atomic
 * instructions, with no call into the kernel except for the time, and without waking the reader,
 * which polls. Tasks other than vCPUs are recorded, too: what competes with vCPUs matters as much
 * as they do. Guest exits come too often for that; they are counted by vCPU and reason (`counts`),
 * and the daemon reads the counts now and then.
 *
 * It is a plain tracing program: it needs BTF, mapped maps and ring buffers (Linux 5.8), but not
 * sched_ext. Since 5.18 sched_switch passes the state of the thread that leaves; before, it is read
 * from the thread. The daemon does not load what the running kernel lacks. Thread ids are those of
 * the first PID namespace.
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

/* Where x86 counts interrupts under way: first, since 6.15 and before 6.2; second, in between. */
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
	u32 running; /* the task that runs there; SWITCH: that leaves */
	u32 thread;  /* that it is about */
	u32 number; /* SWITCH: state; QUEUED: pCPU; MIGRATE: pCPUs; FORK: process; HALT: ns, at most
		       2^32-1 */
	u16 cpu;
	u8 kind;
	u8 how; /* SWITCH: preempted; WAKING: enum cause; HALT: polled */
};

struct named {
	struct event event;
	char comm[16];
};

/* Room for the events of 20 ms at more than a million a second; a power of two. */
#define SLOTS (1 << 15)

/*
 * A pCPU's ring; the daemon has the same struct (record/ring.rs). Only programs on that pCPU write
 * events, one after the other: a program that is interrupted has set `busy`, and the interrupt's
 * own events go to `asides`. A slot whose time is 0 is free; its time is written last, and the
 * daemon sets it to 0 when it has read it.
 */
struct ring {
	u64 next; /* slot, not yet modulo */
	u64 lost; /* events that found no room */
	u32 busy;
	u32 timer;    /* is a timer's handler under way? */
	int handlers; /* how many are, where the kernel does not tell */
	u32 unused;
	struct event slots[SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the daemon sets it */
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

/* Rare events: names of threads, and those of an interrupt that comes while an event is being
 * written. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} asides SEC(".maps");

/* Guest exits; the daemon has the same structs (record/exits.rs). */
struct exit {
	u32 thread;
	u32 isa; /* KVM_ISA_VMX, KVM_ISA_SVM …; IPIS: interrupts sent to siblings */
	u32 reason;
	u32 vcpu;
};

#define IPIS 0xffffffff

/* Counts of threads that have gone are replaced: nothing deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct exit);
	__type(value, u64);
} counts SEC(".maps");

/*
 * Code that every event passes is inlined: with the kernel's mitigations against speculation, a
 * return costs as much as ten instructions.
 */
static __always_inline struct ring *own(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Fills in all but the time. */
static __always_inline void fill(struct event *it, u8 kind, u32 running, u32 thread, u32 number,
				 u8 how)
{
	it->running = running;
	it->thread = thread;
	it->number = number;
	it->cpu = bpf_get_smp_processor_id();
	it->kind = kind;
	it->how = how;
}

static void *room_aside(struct ring *ring, u64 size)
{
	void *place = bpf_ringbuf_reserve(&asides, size, 0);

	if (!place)
		__sync_fetch_and_add(&ring->lost, 1);
	return place;
}

/* For an event of an interrupt that comes while another event is being written. */
static __always_inline void tell_aside(struct ring *ring, u8 kind, u32 running, u32 thread,
				       u32 number, u8 how)
{
	struct event *it = room_aside(ring, sizeof(*it));

	if (!it)
		return;
	fill(it, kind, running, thread, number, how);
	it->at = bpf_ktime_get_ns();
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
}

static __always_inline void tell(u8 kind, u32 running, u32 thread, u32 number, u8 how)
{
	struct ring *ring = own();
	struct event *it;
	u32 zero = 0;

	if (!ring) {
		/* A pCPU beyond those that were online at the beginning. */
		ring = bpf_map_lookup_elem(&rings, &zero);
		if (ring)
			__sync_fetch_and_add(&ring->lost, 1);
		return;
	}
	if (ring->busy) {
		tell_aside(ring, kind, running, thread, number, how);
		return;
	}
	ring->busy = 1;
	barrier();
	it = &ring->slots[ring->next & (SLOTS - 1)];
	if (it->at) {
		__sync_fetch_and_add(&ring->lost, 1);
	} else {
		fill(it, kind, running, thread, number, how);
		barrier();
		it->at = bpf_ktime_get_ns();
		ring->next += 1;
	}
	barrier();
	ring->busy = 0;
}

static __always_inline u32 running(void)
{
	struct task_struct *current = (void *)bpf_get_current_task_btf();

	return current->pid;
}

static __always_inline u32 pcpu_of(struct task_struct *task)
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

/* The task that wakes it may already have changed its state: then it did wait. */
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

static __always_inline u8 by_interrupt(void)
{
	struct ring *ring = own();

	return ring && ring->timer ? TIMER : INTERRUPT;
}

/* On whose behalf does the kernel run now? */
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
 * The same where that count cannot be found (without CONFIG_KALLSYMS_ALL, or not on x86): handlers
 * are watched. Those of interrupts from other pCPUs cannot be, so outside of handlers nothing is
 * certain.
 */
SEC("tp_btf/sched_waking")
int waking_by_handlers(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct ring *ring = own();
	u8 cause = UNKNOWN;

	if (ring && (ring->timer || ring->handlers > 0))
		cause = ring->timer ? TIMER : INTERRUPT;
	tell(WAKING, running(), task->pid, 0, cause);
	return 0;
}

static __always_inline void handler(int change)
{
	struct ring *ring = own();

	if (ring)
		ring->handlers += change;
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

static __always_inline int queue(struct task_struct *task)
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
	struct ring *ring = own();
	struct named *it = ring ? room_aside(ring, sizeof(*it)) : 0;

	if (!it)
		return 0;
	fill(&it->event, FORK, parent->pid, child->pid, child->tgid, 0);
	it->event.at = bpf_ktime_get_ns();
	bpf_probe_read_kernel(it->comm, sizeof(it->comm), child->comm);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/task_rename")
int renamed(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct ring *ring = own();
	struct named *it = ring ? room_aside(ring, sizeof(*it)) : 0;

	if (!it)
		return 0;
	fill(&it->event, RENAME, running(), task->pid, task->tgid, 0);
	it->event.at = bpf_ktime_get_ns();
	bpf_probe_read_kernel_str(it->comm, sizeof(it->comm), (void *)args[1]);
	bpf_ringbuf_submit(it, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline void timer(u32 under_way)
{
	struct ring *ring = own();

	if (ring)
		ring->timer = under_way;
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

/* The only one of KVM's events that needs more than its arguments: the reason is asked for there.
 */
SEC("tracepoint/kvm/kvm_exit")
int exited(struct trace_event_raw_kvm_exit *args)
{
	struct exit exit = {.thread = running(),
			    .isa = args->isa,
			    .reason = args->exit_reason,
			    .vcpu = args->vcpu_id};

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
