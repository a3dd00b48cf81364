// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which ready vCPU does a sibling wait for? For crates/linux/src/awaited.rs and cosched-demand.
 *
 * Problem: a vCPU that wants siblings to flush their TLBs, or to run a function for it, sends them
 * interrupts and spins until all have answered; one that was preempted answers when its turn comes.
 * How: KVM reports each interrupt that it delivers (kvm:kvm_apic_accept_irq), in the sender's
 * thread and with the receiver's number. The daemon says once which thread has that number
 * (`introduce`); this program leaves a mark with the thread (dispatcher/awaited.h), and makes its
 * pCPU pick again.
 *
 * Only interrupts for whose answer the sender waits count, as in the published kernel of Kim et al.
 * (ASPLOS 2013), which looked at Linux' vectors for TLB shootdowns. Today TLB shootdowns are
 * function calls on other CPUs, and use their vectors. Guests that number their vectors differently
 * are not seen.
 */
#include "threads.h"

#include <bpf/bpf_tracing.h>

#include "../../../dispatcher/awaited.h"
#include "../../../dispatcher/platform/task_ctxs.h"

/* CALL_FUNCTION_SINGLE_VECTOR and CALL_FUNCTION_VECTOR, arch/x86/include/asm/irq_vectors.h. */
#define FIRST_CALL 0xfb
#define LAST_CALL 0xfc
/* APIC_DM_FIXED >> 8, as KVM reports it. */
#define FIXED 0

/* vCPUs at a time; those that have gone are forgotten first. */
#define MOST_VCPUS 8192

/* What kernel_types.h leaves out. */
struct kvm_vcpu___id {
	struct preempt_notifier preempt_notifier;
	int vcpu_id;
} CORE;

struct receiver {
	u32 tgid;
	u32 number; /* in its VM, as KVM counts */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_VCPUS);
	__type(key, struct receiver);
	__type(value, u32); /* its thread */
} receivers SEC(".maps");

/* Interrupts to vCPUs that were ready. */
u64 awaited;

void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;

/*
 * The number of the vCPU whose thread `p` is, as long as that is inside an ioctl of KVM's: then it
 * has a preempt notifier (dispatcher/platform/bpf.h). -1: not now.
 */
static s32 number_of(const struct task_struct *p)
{
	struct hlist_node *notifier = p->preempt_notifiers.first;
	struct kvm_vcpu___id *vcpu;

	if (!notifier)
		return -1;
	vcpu =
	    (void *)notifier - bpf_core_field_offset(struct kvm_vcpu___id, preempt_notifier.link);
	return BPF_CORE_READ(vcpu, vcpu_id);
}

/* Remembers the vCPU of a thread; returns 1 if it does. */
SEC("syscall")
int introduce(struct thread_key *key)
{
	struct receiver receiver = {.tgid = key->tgid};
	struct task_struct *p = bpf_task_from_pid((s32)key->tid);
	s32 number = -1;

	if (!p)
		return 0;
	if (is_meant(p, key))
		number = number_of(p);
	bpf_task_release(p);
	if (number < 0)
		return 0;
	receiver.number = (u32)number;
	return !bpf_map_update_elem(&receivers, &receiver, &key->tid, BPF_ANY);
}

/* A thread of process `tgid` waits for `p`, a vCPU of the same, if that is ready. */
static void wait_for(struct task_struct *p, u32 tgid)
{
	struct task_ctx *t;
	s32 cpu;

	if ((u32)p->tgid != tgid)
		return;
	t = bpf_task_storage_get(&task_ctxs, p, NULL, 0);
	if (!t || !note_awaited(t, bpf_ktime_get_ns()))
		return;
	__sync_fetch_and_add(&awaited, 1);
	cpu = awaited_at(t);
	if (cpu != NO_PCPU)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

SEC("tp_btf/kvm_apic_accept_irq")
int BPF_PROG(delivered, u32 number, u16 mode, u16 trigger, u8 vector)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct receiver receiver = {.tgid = tgid, .number = number};
	struct task_struct *p;
	u32 *tid;

	if (mode != FIXED || vector < FIRST_CALL || vector > LAST_CALL)
		return 0;
	tid = bpf_map_lookup_elem(&receivers, &receiver);
	p = tid ? bpf_task_from_pid((s32)*tid) : NULL;
	if (!p)
		return 0;
	wait_for(p, tgid);
	bpf_task_release(p);
	return 0;
}

char _license[] SEC("license") = "GPL";
