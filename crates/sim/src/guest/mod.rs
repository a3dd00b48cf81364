// SPDX-License-Identifier: GPL-2.0-only
//! Modelled guests: VMs whose kernels schedule threads over vCPUs that come and go.
//!
//! Problem: what co-scheduling papers fight (lock-holder preemption, spinning, barriers that wait
//! for a descheduled vCPU, interrupts that nobody takes) arises between two schedulers. So each VM
//! has a kernel of its own here: a runqueue per vCPU, ticks, wake-ups and IPIs ([`GuestParams`]),
//! and threads that execute [programs](crate::workload). A vCPU makes progress only while the host
//! runs it; nothing else happens in the guest on a descheduled vCPU.
//!
//! Kept out, so far: block devices, TLB shoot-downs, memory, guest idle polling, and
//! periodic balancing between busy vCPUs.

mod barrier;
mod execute;
mod host_task;
mod interrupts;
mod link;
mod mutex;
mod net;
mod params;
mod queue;
mod runqueue;
mod scheduling;
mod spec;
mod spinlock;
mod thread;
mod vcpu;
mod vm;
mod wiring;

#[cfg(test)]
pub(crate) mod tests;

pub use net::{NetParams, parameters as net_parameters};
pub use params::{GuestParams, LockKind};
pub use spec::{GuestError, HostTaskSpec, MOST, MOST_VCPUS, ThreadSpec, VmSpec};

use crate::device::net::{ClientOutcome, Network, NetworkSpec, Wake};
use crate::host::{Host, TaskSpec};
use crate::load::{Achieved, Load, VmInfo};
use crate::waits::Waits;
use corun_model::{Nanos, TaskId, VmId};
use host_task::HostTask;
use vm::Vm;

/// The modelled VMs and host tasks of a run.
///
/// Tasks are numbered VM by VM, vCPU 0 first; the host tasks follow.
#[derive(Debug)]
pub struct Guests {
    infos: Vec<VmInfo>,
    tasks: Vec<TaskSpec>,
    roles: Vec<Role>,
    vms: Vec<Vm>,
    /// What a `count` of each VM counts; `None`: it never counts.
    units: Vec<Option<String>>,
    host_tasks: Vec<HostTask>,
    network: Network,
    /// Name and called VM of each channel.
    channels: Vec<(String, VmId)>,
    reset_at: Nanos,
}

/// What a host task is to the guests.
#[derive(Clone, Copy, Debug)]
enum Role {
    Vcpu { vm: u32, vcpu: u32 },
    HostTask(u32),
}

/// What a VM did since the last reset; times in ns of progress.
#[derive(Clone, Debug, Default)]
struct Stats {
    /// Threads' `compute`.
    work: Nanos,
    spin: Nanos,
    /// Interrupts and thread switches.
    kernel: Nanos,
    counted: u64,
    lock_acquisitions: u64,
    lock_waits: Waits,
    /// Times a vCPU halted for a paravirtual lock.
    lock_halts: u64,
    pause_loop_exits: u64,
    thread_switches: u64,
}

/// What a load timer is for; packed into its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Tick,
    Sleep,
    HostSleep,
    /// The network's; the rest of the token is a [`Wake`].
    Net,
}

/// What the tokens of the network's timers have in common.
pub(crate) const NET_TIMER: u64 = (Timer::Net as u64) << 56;

impl Timer {
    /// Kind in the highest byte, then 24 bits for the VM and 32 for the vCPU, thread or task.
    fn token(self, vm: u32, index: u32) -> u64 {
        (self as u64) << 56 | u64::from(vm) << 32 | u64::from(index)
    }

    fn of(token: u64) -> (Timer, usize, u32) {
        let kind = match token >> 56 {
            0 => Timer::Tick,
            1 => Timer::Sleep,
            2 => Timer::HostSleep,
            _ => Timer::Net,
        };
        let vm = (token >> 32) & 0xff_ffff;
        (kind, vm as usize, token as u32)
    }
}

impl Guests {
    /// Makes the guests of a run without network ready: see [`Guests::networked`].
    ///
    /// # Errors
    /// Likewise.
    pub fn new(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        seed: u64,
    ) -> Result<Self, GuestError> {
        Self::networked(vms, host_tasks, &NetworkSpec::default(), seed)
    }

    /// Makes the guests of a run and their clients ready. All chance in them comes from `seed`.
    ///
    /// # Errors
    /// The first thing wrong: numbers out of range, or programs that do not fit together (see
    /// [`GuestError`]).
    pub fn networked(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        network: &NetworkSpec,
        seed: u64,
    ) -> Result<Self, GuestError> {
        link::link(vms, host_tasks, network, seed)
    }

    /// A timer of the network went off.
    fn net_timer(&mut self, host: &mut Host, wake: Wake) {
        let vm = match wake {
            Wake::GuestRto { vm, endpoint } => {
                self.vms[vm as usize].rto_due(host, endpoint);
                vm
            }
            wake => {
                let Some((vm, packet)) = self.network.timer(host, wake) else {
                    return;
                };
                self.vms[vm as usize].packet_due(host, packet);
                vm
            }
        };
        self.attend(host, vm as usize);
    }

    /// Attends to what happened in a VM and sends what it has sent on its way.
    fn attend(&mut self, host: &mut Host, vm: usize) {
        self.vms[vm].attend_all(host);
        self.carry(host, vm);
    }

    /// Sends what a VM has sent on its way.
    fn carry(&mut self, host: &mut Host, vm: usize) {
        for (departs, packet) in self.vms[vm].net.outbox.drain(..) {
            self.network.carry_from_guest(host, departs, packet);
        }
    }

    fn role(&self, task: TaskId) -> Role {
        self.roles[task.index()]
    }
}

impl Load for Guests {
    fn vms(&self) -> Vec<VmInfo> {
        self.infos.clone()
    }

    fn tasks(&self) -> Vec<TaskSpec> {
        self.tasks.clone()
    }

    fn start(&mut self, host: &mut Host) {
        for vm in &mut self.vms {
            vm.start(host);
        }
        for task in &self.host_tasks {
            host.wake(task.task, None);
        }
        self.network.start(host);
    }

    fn run(&mut self, host: &mut Host, task: TaskId) {
        match self.role(task) {
            Role::Vcpu { vm, vcpu } => self.vms[vm as usize].run(host, vcpu),
            Role::HostTask(index) => self.host_tasks[index as usize].run(host),
        }
    }

    fn stop(&mut self, _host: &mut Host, task: TaskId, done: Nanos) {
        match self.role(task) {
            Role::Vcpu { vm, vcpu } => self.vms[vm as usize].stop(vcpu, done),
            Role::HostTask(index) => self.host_tasks[index as usize].stop(done),
        }
    }

    fn step(&mut self, host: &mut Host, task: TaskId) {
        match self.role(task) {
            Role::Vcpu { vm, vcpu } => {
                self.vms[vm as usize].step(host, vcpu);
                self.carry(host, vm as usize);
            }
            Role::HostTask(index) => {
                let token = Timer::HostSleep.token(0, index);
                self.host_tasks[index as usize].step(host, token);
            }
        }
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        let (kind, vm, index) = Timer::of(token);
        if kind == Timer::HostSleep {
            host.wake(self.host_tasks[index as usize].task, None);
            return;
        }
        match kind {
            Timer::Net => return self.net_timer(host, Wake::of(token)),
            Timer::Tick => self.vms[vm].tick_due(host, index),
            _ => self.vms[vm].sleep_over(host, index),
        }
        self.attend(host, vm);
    }

    fn settle(&mut self, host: &Host) {
        for vm in &mut self.vms {
            vm.settle_all(host);
        }
    }

    fn reset(&mut self, now: Nanos) {
        self.reset_at = now;
        for vm in &mut self.vms {
            vm.stats = Stats::default();
            vm.net.reset();
        }
        self.network.reset();
    }

    fn clients(&self, now: Nanos) -> Vec<ClientOutcome> {
        wiring::outcomes(self, now)
    }

    fn achieved(&self, vm: VmId, now: Nanos) -> Achieved {
        let stats = &self.vms[vm.index()].stats;
        let seconds = now.saturating_sub(self.reset_at) as f64 / 1e9;
        let (done, throughput_unit) = match &self.units[vm.index()] {
            Some(unit) => (stats.counted as f64, format!("{unit}/s")),
            None => (stats.work as f64 / 1e9, "work s/s".to_owned()),
        };
        Achieved {
            throughput: if seconds > 0.0 { done / seconds } else { 0.0 },
            throughput_unit,
            lock_waits: stats.lock_waits.clone(),
            lock_acquisitions: stats.lock_acquisitions,
            work: stats.work,
            spin: stats.spin,
            kernel: stats.kernel,
            lock_halts: stats.lock_halts,
            pause_loop_exits: stats.pause_loop_exits,
            thread_switches: stats.thread_switches,
        }
    }
}
