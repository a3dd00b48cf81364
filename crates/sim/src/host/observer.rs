// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run as it happens: what the host, the guests and the devices report about themselves.
//!
//! Problem: a result says that threads waited for a lock; why, only a timeline can show. So each
//! model reports what it does at the moment it does it, through
//! [`Host::observe`](super::Host::observe), and an observer writes it down. Without an observer
//! (nearly always) that is one branch, and the closure that would make the report is not run.
//!
//! Observers only listen: nothing in a run depends on whether they do. Times never decrease.
//! Reports are forgiving, so that models need no records of their own for them: beginning a span
//! that is open, ending one that is not, or reporting the same activity twice changes nothing.

use super::{Task, TaskSpec, TaskState};
use corun_model::{Nanos, PcpuId, TaskId, VmId};

/// Where something happens: a row of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// The host as a whole: policy decisions.
    Host,
    /// A pCPU.
    Pcpu(PcpuId),
    /// A host task: a vCPU or another.
    Task(TaskId),
    /// A guest thread, by its number in its VM.
    Thread {
        /// Its VM.
        vm: VmId,
        /// Its number, from 0.
        thread: u32,
    },
    /// A request to a device of a VM. Requests overlap, so each is a lane of its own while it is
    /// under way: its outer span must begin first and end last.
    Request {
        /// The VM that made it.
        vm: VmId,
        /// The device's number in the VM, from 0. Named with [`Observer::device_name`].
        device: u32,
        /// Any number that no other request of this device has while this one is under way.
        request: u64,
    },
}

/// What a running vCPU spends its pCPU on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VcpuActivity {
    /// The work of its guest thread.
    Guest,
    /// Its thread spins: for a kernel spin lock, or at a spin barrier.
    Spinning,
    /// It is halted and polls for what would wake it: KVM's halt polling (the host's loop), or the
    /// guest's own (haltpoll governor, `idle=poll`).
    Polling,
    /// It is halted and keeps its pCPU without using it: MWAIT in the guest.
    Retention,
    /// Guest kernel work: interrupts, thread switches; and exits, during which the host works for it.
    Kernel,
}

/// Something that begins and ends.
///
/// Spans of one lane nest; a span that ends before a span that began inside it cuts that one in
/// two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    // --- of guest threads; `name` is the lock's, barrier's or queue's ---
    /// Could run, but does not have its vCPU: woken or preempted by the guest's scheduler.
    Runnable,
    /// From wanting a taken kernel spin lock until it notices that it has it.
    SpinWait,
    /// Holds a kernel spin lock.
    SpinHold,
    /// From wanting a taken mutex until it has it.
    MutexWait,
    /// Holds a mutex.
    MutexHold,
    /// Blocked at a barrier until the last one comes.
    BarrierWait,
    /// Spins at a barrier until it notices that the last one has come.
    SpinBarrierWait,
    /// Waits at a barrier of a mutex and a condition variable until it may go on.
    ConditionBarrierWait,
    /// Waits for a place in a queue.
    SendWait,
    /// Waits for an item in a queue.
    ReceiveWait,
    /// Waits on a condition variable.
    ConditionWait,
    /// Sleeps, until its vCPU takes the timer interrupt.
    Sleep,
    /// Waits for a request to a device; `name` is the device's.
    IoWait,
    /// Waits for other vCPUs to answer an IPI (TLB shoot-down, function call).
    IpiWait,

    // --- of requests: the outer span, and its phases one after another inside ---
    /// From issuing a request until the guest has taken its completion; `name` says what is asked
    /// for, such as `read` or `send`. Use few different names: each is kept.
    Request,
    /// Issued, but the device has not begun: the notification, and waiting behind others, for an
    /// iothread or for vhost.
    Queued,
    /// The device (disk, wire, far end) works on it.
    Device,
    /// The device is done, the guest does not know yet: completion in the host, the interrupt, and
    /// the wait for a vCPU that takes it.
    Delivery,
}

/// Something that takes no time, at least not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    /// The CPU noticed that a vCPU spins (PLE) and left the guest.
    PauseLoopExit,
    /// A vCPU sent an IPI (reschedule, kick, call) to this sibling vCPU's task.
    Ipi(TaskId),
    /// A task began to run on another pCPU than this one, on which it ran last.
    Migration(PcpuId),
    /// A device's interrupt was posted to this vCPU.
    DeviceInterrupt,
    /// A policy looked at the host and decided.
    PolicyDecision,
}

/// A value over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// pCPUs with two or more sibling vCPUs of one VM on their runqueue.
    StackedRunqueues,
    /// How long a vCPU may poll before it blocks, ns (KVM's `vcpu->halt_poll_ns`).
    PollLimit(TaskId),
    /// How long a policy lets guests retain a context on a pCPU, ns.
    RetentionLimit(PcpuId),
    /// A vCPU's weight among its siblings, as its policy sets it: thousandths of the default.
    Weight(TaskId),
    /// A vCPU's rescheduling latency, as its policy sets it, ns.
    Latency(TaskId),
    /// Is what the policy decides for a VM carried out? 1: yes.
    Enforced(VmId),
    /// CPU time that a VM has borrowed, thousandths of what it is entitled to.
    Borrowed(VmId),
    /// The same, lent.
    Lent(VmId),
    /// Requests of a VM's device that are under way.
    RequestsInFlight {
        /// The VM.
        vm: VmId,
        /// The device's number in the VM.
        device: u32,
    },
}

/// What wakes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// The pCPU that the wake-up comes from.
    pub cpu: PcpuId,
    /// The task that ran there when the wake-up was ordered, and so caused it.
    pub task: Option<TaskId>,
}

/// Is told everything that a timeline shows. All times are ns since the run began.
pub trait Observer {
    /// A task of the host, waiting at first. All are told before the run begins.
    fn task(&mut self, id: TaskId, spec: &TaskSpec) {
        let _ = (id, spec);
    }

    /// A task entered `task.state`; before, it was in `old`.
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState);

    /// A waiting task was woken, and is ready: by another task, or (`None`) by a timer or a device.
    fn woken(&mut self, now: Nanos, id: TaskId, task: &Task, by: Option<Waker>) {
        let _ = (now, id, task, by);
    }

    /// A woken task has not been put on a runqueue: a cgroup around it is throttled. Told after `woken`.
    fn put_aside(&mut self, now: Nanos, id: TaskId, task: &Task) {
        let _ = (now, id, task);
    }

    /// A ready task was put on the runqueue of `to`: it woke up (`from` is `None`), or was moved.
    fn queued(&mut self, now: Nanos, id: TaskId, task: &Task, from: Option<PcpuId>, to: PcpuId) {
        let _ = (now, id, task, from, to);
    }

    /// A guest thread's name. Told once, before anything else about it.
    fn thread_name(&mut self, vm: VmId, thread: u32, name: &str) {
        let _ = (vm, thread, name);
    }

    /// A device's name, such as `vda`. Told once, before anything else about it.
    fn device_name(&mut self, vm: VmId, device: u32, name: &str) {
        let _ = (vm, device, name);
    }

    /// The guest thread (number in its VM) that has the vCPU `vcpu` from now on, whether or not
    /// that has a pCPU.
    fn guest_thread(&mut self, now: Nanos, vcpu: TaskId, thread: Option<u32>) {
        let _ = (now, vcpu, thread);
    }

    /// What the running vCPU `vcpu` spends its pCPU on from now on. It is forgotten when the vCPU
    /// loses its pCPU.
    fn vcpu_activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) {
        let _ = (now, vcpu, activity);
    }

    /// A span begins; no effect if the same (lane, kind, name) is open. `name` may be empty.
    fn span_begin(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        let _ = (now, lane, kind, name);
    }

    /// A span ends; no effect if it is not open.
    fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        let _ = (now, lane, kind, name);
    }

    /// Something happened.
    fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) {
        let _ = (now, lane, kind);
    }

    /// A value is so much from now on.
    fn counter(&mut self, now: Nanos, counter: Counter, value: u64) {
        let _ = (now, counter, value);
    }

    /// The run is over: all that is open ends.
    fn finish(&mut self, now: Nanos);
}
