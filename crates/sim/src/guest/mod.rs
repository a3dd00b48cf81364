// SPDX-License-Identifier: GPL-2.0-only
//! Modelled guests: VMs whose kernels schedule threads over vCPUs that come and go.
//!
//! Problem: what co-scheduling papers fight (lock-holder preemption, spinning, barriers that wait
//! for a descheduled vCPU, interrupts that are not taken) arises between two schedulers. So each VM
//! has a kernel of its own here: a runqueue per vCPU, ticks, wake-ups and IPIs ([`GuestParams`]),
//! and threads that execute [programs](crate::workload). A vCPU makes progress only while the host
//! runs it; nothing else happens in the guest on a descheduled vCPU.
//!
//! Disks and the network are the host's ([`crate::device`]); the guest's part in them is in `block` and `net`.

mod access;
mod agent;
mod balancing;
mod balloon;
mod barrier;
mod block;
mod circles;
mod condition;
mod condition_barrier;
mod disks;
mod emulator;
mod execute;
mod group;
mod halt_polling;
mod host_task;
mod housekeeping;
mod idle;
mod inactivity;
mod interrupts;
mod link;
mod log;
mod mutex;
mod net;
mod params;
mod placing;
mod queue;
mod runqueue;
mod scheduling;
mod shootdown;
mod spec;
mod spinlock;
mod spinning;
mod stats;
mod tell;
mod tell_disk;
mod thread;
mod timer;
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
pub use housekeeping::{
    HousekeepingParams, STAGGER, is_housekeeping, parameters as housekeeping_parameters,
};
pub use idle::IdleMode;
pub use net::{NetParams, parameters as net_parameters};
pub use params::{BlockIrq, GuestParams, LockKind, block_parameters, parameters};
pub use shootdown::TlbFlush;
pub use spec::{DiskUse, GuestError, HostTaskSpec, MOST, MOST_VCPUS, ThreadSpec, VmSpec};
pub use spinning::PleFavours;

use crate::device::net::{ClientOutcome, Network, NetworkSpec, Wake};
use crate::host::{Host, TaskSpec};
use crate::load::{Achieved, Cgroups, DeviceOutcome, Load, Offered, VmInfo};
use crate::rng::Rng;
use block::{Block, Served};
use corun_model::{Nanos, Signals, TaskId, VmId};
use disks::Disks;
use emulator::{Emulator, Job};
use host_task::HostTask;
use stats::Stats;
pub(crate) use timer::NET_TIMER;
use timer::Timer;
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
    /// Each VM's emulator, if it has one.
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

impl Guests {
    /// Makes the guests of a run without a network ready: see [`Guests::with_devices`].
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
    /// As [`Guests::with_disks`]; ports that no program serves or uses.
    pub fn with_devices(
        vms: Vec<VmSpec>,
        host_tasks: Vec<HostTaskSpec>,
        disks: &[DiskSpec],
        network: &NetworkSpec,
        seed: u64,
    ) -> Result<Self, GuestError> {
        link::link(vms, host_tasks, disks, network, seed)
    }

    /// Puts the guests on a host with these cgroups.
    #[must_use]
    pub fn in_cgroups(mut self, cgroups: Cgroups) -> Self {
        self.cgroups = cgroups;
        self
    }

    /// Makes the host poll for halted vCPUs like this, rather than as KVM does by default.
    #[must_use]
    pub fn with_halt_polling(mut self, params: HaltPollParams) -> Self {
        for vm in &mut self.vms {
            vm.halt_poll = params;
        }
        self
    }

    /// Makes each VM begin at a random time within the first half of `over`, and each of its threads within as long
    /// after that, rather than all at once: threads that begin together on equal pCPUs and compute go on in step, on a
    /// silent host for ever. Hosts that have been up for hours have random phases.
    #[must_use]
    pub fn begun_within(mut self, over: Nanos, seed: u64) -> Self {
        if over == 0 {
            return self;
        }
        for vm in &mut self.vms {
            let mut rng = Rng::of(seed, "VM begins", u64::from(vm.id));
            let begin = rng.between(0, over / 2);
            let threads = vm.threads.iter();
            vm.begins = threads.map(|_| begin + rng.between(0, over / 2)).collect();
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

    /// Attends to what happened in a VM and passes on what it has sent.
    fn attend(&mut self, host: &mut Host, vm: usize) {
        self.vms[vm].attend_all(host);
        self.carry(host, vm);
    }

    /// Passes on what a VM has sent.
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
        if block.image.served == Served::ByVcpu {
            return self.disks.submit(host, order);
        }
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
            // Without a window, the CPU does not detect spinning.
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
            Timer::Begin => self.vms[vm].begin_threads(host, index as usize..index as usize + 1),
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
        let passed = now.saturating_sub(self.reset_at);
        let known = &self.vms[vm.index()];
        Achieved {
            io: known.block.as_ref().and_then(Block::achieved),
            agent: known.agent_achieved(),
            ..known.stats.achieved(&self.units[vm.index()], passed)
        }
    }

    fn devices(&self) -> Vec<DeviceOutcome> {
        self.disks.outcomes()
    }
}
