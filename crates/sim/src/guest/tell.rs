// SPDX-License-Identifier: GPL-2.0-only
//! What the guests tell the observer: names, which thread a vCPU has, what it does, and the spans
//! of threads.
//!
//! Nothing takes time in a guest between two [`Vm::plan`]s, so a vCPU's thread and activity are
//! reported there, in one place.

use super::ThreadSpec;
use super::idle::Idling;
use super::tell_disk;
use super::thread::Doing;
use super::vm::Vm;
use crate::host::{Host, Lane, Span, VcpuActivity};
use crate::workload::Names;
use corun_model::VmId;

/// Names for observers.
#[derive(Debug)]
pub(super) struct Told {
    threads: Vec<String>,
    locks: Vec<String>,
    mutexes: Vec<String>,
    barriers: Vec<String>,
    spin_barriers: Vec<String>,
    condition_barriers: Vec<String>,
    queues: Vec<String>,
    conditions: Vec<String>,
    disk: Option<String>,
    ports: Vec<String>,
}

/// What a thread waits for in [`Span::IoWait`], as the number that [`Vm::tell_begin`] takes: its disk.
pub(super) const DISK: u32 = 0;

/// The same of a port.
pub(super) fn of_port(port: u32) -> u32 {
    port + 1
}

impl Told {
    pub fn new(names: &Names, threads: &[ThreadSpec]) -> Self {
        Self {
            threads: threads.iter().map(|thread| thread.name.clone()).collect(),
            locks: names.locks.clone(),
            mutexes: names.mutexes.clone(),
            barriers: names.barriers.clone(),
            spin_barriers: names.spin_barriers.clone(),
            condition_barriers: names.condition_barriers.clone(),
            queues: names.queues.clone(),
            conditions: names.conditions.clone(),
            disk: None,
            ports: names.ports.clone(),
        }
    }

    /// Sets the name of the VM's disk.
    pub fn set_disk(&mut self, name: &str) {
        self.disk = Some(name.into());
    }

    /// What a span is about: the name of its lock, mutex, barrier, queue or port number `what`.
    fn name(&self, span: Span, what: u32) -> &str {
        let table = match span {
            Span::SpinWait | Span::SpinHold => &self.locks,
            Span::MutexWait | Span::MutexHold => &self.mutexes,
            Span::BarrierWait => &self.barriers,
            Span::SpinBarrierWait => &self.spin_barriers,
            Span::ConditionBarrierWait => &self.condition_barriers,
            Span::SendWait | Span::ReceiveWait => &self.queues,
            Span::ConditionWait => &self.conditions,
            Span::IoWait if what == DISK => return self.disk.as_deref().unwrap_or(""),
            Span::IoWait => return self.ports.get(what as usize - 1).map_or("", String::as_str),
            _ => return "",
        };
        table.get(what as usize).map_or("", String::as_str)
    }
}

impl Vm {
    /// Tells the threads' names, and that all of them could run.
    pub(super) fn tell_names(&self, host: &mut Host) {
        let vm = VmId(self.id);
        for (thread, name) in (0..).zip(&self.told.threads) {
            host.observe(|_, observer| observer.thread_name(vm, thread, name));
            self.tell_begin(host, thread, Span::Runnable, 0);
        }
        if let Some(disk) = &self.told.disk {
            tell_disk::name_disk(host, self.id, disk);
        }
    }

    fn lane(&self, thread: u32) -> Lane {
        let vm = VmId(self.id);
        Lane::Thread { vm, thread }
    }

    /// A span of a thread begins. `what`: the number of what it is about; any number if it is about nothing.
    #[inline]
    pub(super) fn tell_begin(&self, host: &mut Host, thread: u32, span: Span, what: u32) {
        host.observe(|now, observer| {
            observer.span_begin(now, self.lane(thread), span, self.told.name(span, what));
        });
    }

    /// A span of a thread ends.
    #[inline]
    pub(super) fn tell_end(&self, host: &mut Host, thread: u32, span: Span, what: u32) {
        host.observe(|now, observer| {
            observer.span_end(now, self.lane(thread), span, self.told.name(span, what));
        });
    }

    /// Tells which thread `vcpu` has.
    pub(super) fn tell_thread(&self, host: &mut Host, vcpu: u32) {
        let slot = &self.vcpus[vcpu as usize];
        host.observe(|now, observer| observer.guest_thread(now, slot.task, slot.current));
    }

    /// Tells which thread the running `vcpu` has and what goes on there until something else does.
    #[inline]
    pub(super) fn tell_activity(&self, host: &mut Host, vcpu: u32) {
        host.observe(|now, observer| {
            let slot = &self.vcpus[vcpu as usize];
            let thread = slot.current.map(|thread| &self.threads[thread as usize]);
            let activity = match (slot.overhead, thread) {
                _ if slot.idle_state.idling.is_some() => match slot.idle_state.idling {
                    Some(Idling::Retaining { .. }) => VcpuActivity::Retention,
                    _ => VcpuActivity::Polling,
                },
                (0, Some(thread))
                    if matches!(thread.doing, Doing::Computing(_) | Doing::Busy { .. }) =>
                {
                    VcpuActivity::Guest
                }
                (0, Some(_)) => VcpuActivity::Spinning,
                _ => VcpuActivity::Kernel,
            };
            observer.guest_thread(now, slot.task, slot.current);
            observer.vcpu_activity(now, slot.task, activity);
        });
    }
}
