// SPDX-License-Identifier: GPL-2.0-only
//! Modelled guests: VMs whose kernels schedule threads over vCPUs that come and go.
//!
//! Problem: what co-scheduling papers fight (lock-holder preemption, spinning, barriers that wait
//! for a descheduled vCPU, interrupts that nobody takes) arises between two schedulers. So each VM
//! has a kernel of its own here: a runqueue per vCPU, ticks, wake-ups and IPIs ([`GuestParams`]),
//! and threads that execute [programs](crate::workload). A vCPU makes progress only while the host
//! runs it; nothing else happens in the guest on a descheduled vCPU.
//!
//! Disks and the network are the host's ([`crate::device`]); what the guest has to do with them is in
//! `block` and `net`.
//!
//! Kept out: periodic balancing between busy vCPUs.

mod access;
mod agent;
mod balloon;
mod barrier;
mod block;
mod circles;
mod condition;
mod condition_barrier;
mod disks;
mod emulator;
mod execute;
mod halt_polling;
mod host_task;
mod idle;
mod inactivity;
mod interrupts;
mod link;
mod mutex;
mod net;
mod params;
mod queue;
mod runqueue;
mod scheduling;
mod shootdown;
mod spec;
mod spinlock;
mod spinning;
mod tell;
mod tell_disk;
mod thread;
mod timing;
mod vcpu;
mod vm;
mod wiring;

#[cfg(test)]
pub(crate) mod tests;

pub use agent::{Agent, parameters as agent_parameters};
pub use balloon::{BalloonParams, parameters as balloon_parameters};
pub use disks::DiskSpec;
pub use emulator::{EmulatorParams, parameters as emulator_parameters};
pub use halt_polling::{HaltPollParams, parameters as halt_poll_parameters};
pub use idle::IdleMode;
pub use net::{NetParams, parameters as net_parameters};
pub use params::{BlockIrq, GuestParams, LockKind, block_parameters, parameters};
pub use shootdown::TlbFlush;
pub use spec::{
    DiskUse, GuestError, HostTaskSpec, MOST, MOST_VCPUS, SMALLEST_IMAGE, ThreadSpec, VmSpec,
};

use crate::device::net::{ClientOutcome, Network, NetworkSpec, Wake};
use crate::host::{Host, TaskSpec};
use crate::load::{Achieved, AgentAchieved, Cgroups, DeviceOutcome, Load, Offered, VmInfo};
use crate::waits::Waits;
use block::Block;
use corun_model::{Nanos, Signals, TaskId, VmId};
use disks::Disks;
use emulator::{Emulator, Job};
use host_task::HostTask;
use vm::Vm;

/// The modelled VMs and host tasks of a run.
///
/// Tasks are numbered VM by VM, vCPU 0 first; the host tasks follow, then the emulators.
#[derive(Debug)]
pub struct Guests {
    infos: Vec<VmInfo>,
    cgroups: Cgroups,
    tasks: Vec<TaskSpec>,
    roles: Vec<Role>,
    vms: Vec<Vm>,
    /// What the programs of each VM count, the main unit first.
    units: Vec<Vec<String>>,
    host_tasks: Vec<HostTask>,
    /// Of each VM, if it has one.
    emulators: Vec<Option<Emulator>>,
    disks: Disks,
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
    Emulator { vm: u32 },
}

/// What a VM did since the last reset; times in ns of progress.
#[derive(Clone, Debug, Default)]
struct Stats {
    /// Threads' `compute`.
    work: Nanos,
    spin: Nanos,
    /// Interrupts and thread switches.
    kernel: Nanos,
    /// Finished work, unit by unit.
    counted: Vec<u64>,
    /// vCPUs without a thread, as their kernels see it.
    idle: Nanos,
    /// On a pCPU without work: polling, or keeping the context.
    idling: Nanos,
    lock_acquisitions: u64,
    lock_waits: Waits,
    /// Times a vCPU halted for a paravirtual lock.
    lock_halts: u64,
    pause_loop_exits: u64,
    thread_switches: u64,
    shootdowns: u64,
    shootdown_waits: Waits,
    /// Halts for which the host polled, and how many of these polls caught the wake-up.
    halt_polls: u64,
    halt_poll_hits: u64,
    /// What its agent did.
    agent: AgentAchieved,
}

impl Stats {
    fn count(&mut self, unit: u32, units: u32) {
        let unit = unit as usize;
        if self.counted.len() <= unit {
            self.counted.resize(unit + 1, 0);
        }
        self.counted[unit] += u64::from(units);
    }
}

/// What a load timer is for; packed into its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Tick,
    Sleep,
    HostSleep,
    /// A poll or retention has lasted as long as it may.
    Idle,
    /// A VM's request reaches its disk.
    BlockSubmit,
    /// A disk's medium is done with the request at a place (the disk is in the VM's bits).
    DiskDone,
    /// A disk asked to be looked at.
    DiskLook,
    /// A request's completion reaches its VM.
    BlockDone,
    /// Packets that have left a VM are to be sent by its emulator.
    Transmit,
    /// vMigrater's monitor on a vCPU is due.
    Heartbeat,
    /// A vCPU has slept for xBalloon as long as it may.
    Balloon,
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

    /// What goes off, for people.
    fn name(self) -> &'static str {
        match self {
            Timer::Tick => "a tick",
            Timer::Sleep => "a sleep that ends",
            Timer::HostSleep => "a host task's sleep that ends",
            Timer::Idle => "a poll or retention that ends",
            Timer::BlockSubmit => "a request to the disk",
            Timer::DiskDone => "a disk that is done with a request",
            Timer::DiskLook => "a disk that looks for its next request",
            Timer::BlockDone => "a request's completion",
            Timer::Transmit => "packets that are sent",
            Timer::Heartbeat => "a heartbeat",
            Timer::Balloon => "a balloon's sleep that ends",
            Timer::Net => "packets and clients of the network",
        }
    }

    fn of(token: u64) -> (Timer, usize, u32) {
        let kind = match token >> 56 {
            0 => Timer::Tick,
            1 => Timer::Sleep,
            2 => Timer::HostSleep,
            3 => Timer::Idle,
            4 => Timer::BlockSubmit,
            5 => Timer::DiskDone,
            6 => Timer::DiskLook,
            7 => Timer::BlockDone,
            8 => Timer::Transmit,
            9 => Timer::Heartbeat,
            10 => Timer::Balloon,
            _ => Timer::Net,
        };
        let vm = (token >> 32) & 0xff_ffff;
        (kind, vm as usize, token as u32)
    }
}

impl Guests {
    /// Makes the guests of a run without network ready: see [`Guests::with_devices`].
    ///
    /// # Errors
    /// Likewise.
    pub fn new(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        seed: u64,
    ) -> Result<Self, GuestError> {
        Self::with_disks(vms, host_tasks, &[], seed)
    }

    /// The same on a host with disks.
    ///
    /// # Errors
    /// As [`Guests::new`]; disks out of range or too small for their VMs' images.
    pub fn with_disks(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        disks: &[DiskSpec],
        seed: u64,
    ) -> Result<Self, GuestError> {
        Self::with_devices(vms, host_tasks, disks, &NetworkSpec::default(), seed)
    }

    /// The same on a host with disks and a network, and with the clients at its other end.
    ///
    /// # Errors
    /// As [`Guests::with_disks`]; ports that nobody serves or uses.
    pub fn with_devices(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        disks: &[DiskSpec],
        network: &NetworkSpec,
        seed: u64,
    ) -> Result<Self, GuestError> {
        link::link(vms, host_tasks, disks, network, seed)
    }

    /// On a host with these cgroups.
    #[must_use]
    pub fn in_cgroups(mut self, cgroups: Cgroups) -> Self {
        self.cgroups = cgroups;
        self
    }

    /// Has the host poll for halted vCPUs like this, rather than as KVM does by default.
    #[must_use]
    pub fn with_halt_polling(mut self, params: HaltPollParams) -> Self {
        for vm in &mut self.vms {
            vm.halt_poll = params;
        }
        self
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
                if self.emulate(host, vm as usize, Job::Receive(packet), None) {
                    return;
                }
                self.vms[vm as usize].packet_due(host, packet, None);
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
            match &mut self.emulators[vm] {
                Some(emulator) => emulator.leaves(host, vm as u32, departs, packet),
                None => self.network.carry_from_guest(host, departs, packet),
            }
        }
    }

    /// A VM's request has been kicked off.
    fn kicked_off(&mut self, host: &mut Host, vm: usize, request: u32) {
        let Some(block) = &self.vms[vm].block else {
            return;
        };
        let (issuer, order) = (block.issuer(request), block.request(request));
        let waker = host
            .task(self.vms[vm].vcpus[issuer as usize].task)
            .running_on();
        if !self.emulate(host, vm, Job::Submit(request), waker) {
            self.disks.submit(host, order);
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

    fn cgroups(&self) -> Cgroups {
        self.cgroups.clone()
    }

    fn tasks(&self) -> Vec<TaskSpec> {
        self.tasks.clone()
    }

    fn signals(&self, task: TaskId) -> Signals {
        let Role::Vcpu { vm, vcpu } = self.role(task) else {
            return Signals::default();
        };
        let vm = &self.vms[vm as usize];
        let vcpu = &vm.vcpus[vcpu as usize];
        Signals {
            io_events: Some(vcpu.io_events),
            // Without a window, the CPU does not look for spinning.
            pause_exits: vm.params.ple_window.map(|_| vcpu.pause_exits),
            kept: (vm.params.idle == IdleMode::Told).then_some(vcpu.kept),
            ..Signals::default()
        }
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
            Role::Vcpu { vm, vcpu } => {
                let vm = &mut self.vms[vm as usize];
                vm.run(host, vcpu);
                vm.note_inactivity(host.now());
            }
            Role::HostTask(index) => self.host_tasks[index as usize].run(host),
            Role::Emulator { vm } => {
                if let Some(emulator) = &self.emulators[vm as usize] {
                    emulator.run(host);
                }
            }
        }
    }

    fn on_spin(
        &mut self,
        host: &mut Host,
        task: TaskId,
        offer: &mut dyn FnMut(&mut Host, TaskId) -> Offered,
    ) {
        if let Role::Vcpu { vm, vcpu } = self.role(task) {
            self.vms[vm as usize].on_spin(host, vcpu, offer);
        }
    }

    fn stop(&mut self, host: &mut Host, task: TaskId, done: Nanos) {
        match self.role(task) {
            Role::Vcpu { vm, vcpu } => {
                let vm = &mut self.vms[vm as usize];
                vm.stop(vcpu, done);
                vm.note_inactivity(host.now());
            }
            Role::HostTask(index) => self.host_tasks[index as usize].stop(done),
            Role::Emulator { vm } => {
                if let Some(emulator) = &mut self.emulators[vm as usize] {
                    emulator.stop(done);
                }
            }
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
            Role::Emulator { vm } => self.emulator_step(host, vm),
        }
    }

    fn crowded(&mut self, host: &mut Host, task: TaskId) {
        if let Role::Vcpu { vm, vcpu } = self.role(task) {
            self.vms[vm as usize].crowded(host, vcpu);
            self.attend(host, vm as usize);
        }
    }

    fn end_poll(&mut self, host: &mut Host, task: TaskId) {
        if let Role::Vcpu { vm, vcpu } = self.role(task) {
            self.vms[vm as usize].end_poll(host, vcpu);
        }
    }

    fn timer(&mut self, host: &mut Host, token: u64) {
        let (kind, vm, index) = Timer::of(token);
        match kind {
            Timer::HostSleep => return host.wake(self.host_tasks[index as usize].task, None),
            Timer::DiskDone => return self.disks.done(host, vm, index),
            Timer::DiskLook => return self.disks.look(host, vm),
            Timer::BlockSubmit => return self.kicked_off(host, vm, index),
            Timer::Transmit => return self.transmit_due(host, vm),
            Timer::BlockDone if self.emulate(host, vm, Job::Complete(index), None) => return,
            _ => {}
        }
        match kind {
            Timer::Net => return self.net_timer(host, Wake::of(token)),
            Timer::Tick => self.vms[vm].tick_due(host, index),
            Timer::Idle => self.vms[vm].idled_enough(index),
            Timer::Heartbeat => self.vms[vm].heartbeat_due(host, index),
            Timer::Balloon => self.vms[vm].balloon_due(host, index),
            Timer::BlockDone => self.vms[vm].completion(host, index, None),
            _ => self.vms[vm].sleep_over(host, index),
        }
        self.attend(host, vm);
    }

    fn timer_is(&self, token: u64) -> String {
        let (kind, vm, _) = Timer::of(token);
        let what = kind.name();
        match (kind, self.infos.get(vm)) {
            (Timer::Net | Timer::HostSleep | Timer::DiskDone | Timer::DiskLook, _) | (_, None) => {
                what.to_string()
            }
            (_, Some(info)) => format!("{what} of VM {}", info.name),
        }
    }

    fn settle(&mut self, host: &Host) {
        for vm in &mut self.vms {
            vm.settle_all(host);
            vm.note_inactivity(host.now());
        }
        self.disks.settle(host.now());
    }

    fn reset(&mut self, now: Nanos) {
        self.reset_at = now;
        for vm in &mut self.vms {
            vm.stats = Stats::default();
            if let Some(block) = &mut vm.block {
                block.reset();
            }
            vm.net.reset();
        }
        self.disks.reset(now);
        self.network.reset();
    }

    fn clients(&self, now: Nanos) -> Vec<ClientOutcome> {
        wiring::outcomes(self, now)
    }

    fn achieved(&self, vm: VmId, now: Nanos) -> Achieved {
        let stats = &self.vms[vm.index()].stats;
        let seconds = now.saturating_sub(self.reset_at) as f64 / 1e9;
        let rate = |done: f64| if seconds > 0.0 { done / seconds } else { 0.0 };
        let counted = |unit: usize| stats.counted.get(unit).copied().unwrap_or(0) as f64;
        let mut rates = self.units[vm.index()]
            .iter()
            .enumerate()
            .map(|(unit, name)| (format!("{name}/s"), rate(counted(unit))));
        let main = rates.next();
        let (throughput_unit, throughput) =
            main.unwrap_or_else(|| ("work s/s".to_owned(), rate(stats.work as f64 / 1e9)));
        Achieved {
            throughput,
            throughput_unit,
            other_throughputs: rates.collect(),
            lock_waits: stats.lock_waits.clone(),
            lock_acquisitions: stats.lock_acquisitions,
            work: stats.work,
            spin: stats.spin,
            kernel: stats.kernel,
            idling: stats.idling,
            idle: Some(stats.idle),
            lock_halts: stats.lock_halts,
            pause_loop_exits: stats.pause_loop_exits,
            thread_switches: stats.thread_switches,
            shootdowns: stats.shootdowns,
            shootdown_waits: stats.shootdown_waits.clone(),
            halt_polls: stats.halt_polls,
            halt_poll_hits: stats.halt_poll_hits,
            io: self.vms[vm.index()]
                .block
                .as_ref()
                .and_then(Block::achieved),
            agent: self.vms[vm.index()].agent_achieved(),
        }
    }

    fn devices(&self) -> Vec<DeviceOutcome> {
        self.disks.outcomes()
    }
}
