// SPDX-License-Identifier: GPL-2.0-only
//! The emulator's thread: what stands between a VM and its devices.
//!
//! Without one, requests and packets pass between guest and host after a fixed time. In reality a
//! thread of the host does that work, and has to get a pCPU for it: QEMU's main loop (all virtio
//! devices until iothreads and vhost), an iothread, or vhost's thread. It competes with vCPUs,
//! preempts them when it wakes, and the vCPU that it interrupts is woken from *its* pCPU, which is
//! where a scheduler with wake affinity then puts that vCPU (`wake_affine()` in Linux).
//!
//! One thread per VM does everything in order of arrival. A job takes as much work as the device's
//! fixed time would have been. QEMU 0.11 differs from later versions in three things:
//!
//! - *Kicks without ioeventfd* are exits that the vCPU's own thread serves: it submits the request
//!   (`virtio_blk_handle_output()`, `qemu_paio_submit()`), and the guest does not run meanwhile. One of up to 64 worker
//!   threads then waits for the disk in `pread()` and signals the main loop, which completes the request
//!   (`posix-aio-compat.c`). Workers are not modelled: they compute next to nothing, and are assumed to find a pCPU at
//!   once. Nor is the mutex that vCPUs and main loop share.
//! - *A transmit timer*: packets that leave the guest wait until it expires; those that follow within that time go with
//!   them (`TX_TIMER_INTERVAL`, `hw/virtio-net.c`).
//! - *Its alarm* is set for 250 us at least (`MIN_TIMER_REARM_US`, `qemu_next_deadline_dyntick()`), so a timer of 150
//!   us is late, unless the main loop wakes for something else meanwhile: at each turn it runs the timers that have
//!   expired (`main_loop_wait()`, `vl.c`).

use super::{GuestError, Guests, Role, Timer, VmSpec};
use crate::device::net::Packet;
use crate::host::{Host, TaskSpec};
use corun_model::{Nanos, Parameter, PcpuId, PcpuSet, TaskId, Topology, Value, VmId};
use std::collections::VecDeque;

/// What an emulator's thread is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatorParams {
    /// How long packets wait for others to go with them, ns, at most 1 s. 0: vhost and later QEMU
    /// send at once.
    pub transmit_timer: Nanos,
    /// The shortest time that the alarm for that timer is set for, ns, at most 1 s. 0: for what is left.
    pub shortest_alarm: Nanos,
    /// Do kicks go to this thread, or does the vCPU's own thread submit requests to the disk?
    pub ioeventfd: bool,
}

impl Default for EmulatorParams {
    fn default() -> Self {
        Self {
            transmit_timer: 0,
            shortest_alarm: 0,
            ioeventfd: true,
        }
    }
}

/// The longest timer or alarm.
const MOST_TIMER: Nanos = 1_000_000_000;

/// The numbers that the model rests on.
pub fn parameters() -> Vec<Parameter> {
    let default = EmulatorParams::default();
    vec![
        Parameter::new(
            "vm.*.emulator.transmit_timer",
            "how long packets wait for others to go with them",
            Value::Time(default.transmit_timer),
            "vhost sends at once; QEMU 0.11: 150 µs (TX_TIMER_INTERVAL, hw/virtio-net.c)",
            "0 and 150 µs in tests",
        ),
        Parameter::new(
            "vm.*.emulator.shortest_alarm",
            "the least that the alarm for that timer is set for",
            Value::Time(default.shortest_alarm),
            "QEMU 0.11: 250 µs (MIN_TIMER_REARM_US, vl.c)",
            "0 and 250 µs in tests",
        ),
        Parameter::new(
            "vm.*.emulator.ioeventfd",
            "kicks go to the thread; without it the vCPU submits its requests itself",
            Value::Switch(default.ioeventfd),
            "QEMU since 25db9ebe15 (virtio-pci: Use ioeventfd for virtqueue notify, 2011)",
            "on and off in tests",
        ),
    ]
}

/// Work for the thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// A request goes to its disk.
    Submit(u32),
    /// A request is done.
    Complete(u32),
    /// A packet for the guest.
    Receive(Packet),
    /// A packet from the guest.
    Send(Packet),
}

/// The thread in the run.
#[derive(Debug)]
pub(super) struct Emulator {
    task: TaskId,
    params: EmulatorParams,
    /// Jobs, with the work that is left of each.
    jobs: VecDeque<(Job, Nanos)>,
    /// Packets that wait for the transmit timer.
    leaving: VecDeque<(Nanos, Packet)>,
    alarm_set: bool,
    asleep: bool,
}

impl Emulator {
    fn new(task: TaskId, params: EmulatorParams) -> Self {
        Self {
            task,
            params,
            jobs: VecDeque::new(),
            leaving: VecDeque::new(),
            alarm_set: false,
            asleep: true,
        }
    }

    /// Gives it a job, and wakes it from `waker` if it sleeps.
    pub fn add(&mut self, host: &mut Host, job: Job, work: Nanos, waker: Option<PcpuId>) {
        // A loop of jobs may not stand still in time.
        self.jobs.push_back((job, work.max(1)));
        if std::mem::take(&mut self.asleep) {
            host.wake(self.task, waker);
        }
    }

    pub fn run(&self, host: &mut Host) {
        self.order(host);
    }

    fn order(&self, host: &mut Host) {
        if let Some((_, work)) = self.jobs.front() {
            host.step_after(self.task, *work);
        }
    }

    pub fn stop(&mut self, done: Nanos) {
        if let Some((_, work)) = self.jobs.front_mut() {
            *work = work.saturating_sub(done);
        }
    }

    /// The first job's work is done.
    fn done(&mut self) -> Option<Job> {
        self.jobs.pop_front().map(|(job, _)| job)
    }

    /// Goes on with the next job, or to sleep.
    fn go_on(&mut self, host: &mut Host) {
        self.asleep = self.jobs.is_empty();
        match self.asleep {
            true => host.block(self.task),
            false => self.order(host),
        }
    }

    /// A packet leaves the guest at that time.
    pub fn leaves(&mut self, host: &mut Host, vm: u32, departs: Nanos, packet: Packet) {
        self.leaving.push_back((departs, packet));
        self.set_alarm(host, vm);
    }

    /// Sets the alarm unless one is set: that one goes off before one that would be set now.
    fn set_alarm(&mut self, host: &mut Host, vm: u32) {
        if let Some((departs, _)) = self.leaving.front().filter(|_| !self.alarm_set) {
            self.alarm_set = true;
            let earliest = host.now().max(*departs) + self.params.shortest_alarm;
            let at = earliest.max(departs + self.params.transmit_timer);
            host.load_timer(at, Timer::Transmit.token(vm, 0));
        }
    }

    /// The alarm went off.
    fn alarm(&mut self, host: &mut Host, vm: u32, work: Nanos) {
        self.alarm_set = false;
        self.run_timer(host, work);
        self.set_alarm(host, vm);
    }

    /// If the transmit timer has expired, what has left the guest by now is to be sent.
    fn run_timer(&mut self, host: &mut Host, work: Nanos) {
        let expires = |(departs, _): &(Nanos, _)| departs + self.params.transmit_timer;
        if self
            .leaving
            .front()
            .map(expires)
            .is_none_or(|at| at > host.now())
        {
            return;
        }
        let gone = |(departs, _): &(Nanos, _)| *departs <= host.now();
        let due = self.leaving.iter().take_while(|one| gone(one)).count();
        let packets: Vec<_> = self.leaving.drain(..due).collect();
        for (_, packet) in packets {
            self.add(host, Job::Send(packet), work, None);
        }
    }
}

impl Guests {
    /// Gives each VM that has one its emulator's thread; the last of all tasks.
    pub(super) fn add_emulators(&mut self, vms: &[VmSpec]) -> Result<(), GuestError> {
        let emulated = vms.iter().map(|spec| spec.emulator.is_some());
        self.network.set_emulated(emulated.collect());
        for (vm, spec) in vms.iter().enumerate() {
            let Some(params) = spec.emulator else {
                self.emulators.push(None);
                continue;
            };
            let timers = [
                ("transmit_timer", params.transmit_timer),
                ("shortest_alarm", params.shortest_alarm),
            ];
            if let Some((key, timer)) = timers.iter().find(|(_, timer)| *timer > MOST_TIMER) {
                let message = format!("{key} is {timer} ns; accepted: at most 1 s");
                return Err(GuestError::new(format!("VM {}", spec.name), message));
            }
            let task = TaskId::from(self.tasks.len());
            self.emulators.push(Some(Emulator::new(task, params)));
            self.roles.push(Role::Emulator { vm: vm as u32 });
            self.tasks.push(TaskSpec {
                name: format!("{}/emulator", spec.name),
                vcpu: None,
                helper_of: Some(VmId::from(vm)),
                weight: 100,
                allowed: PcpuSet::first(Topology::MAX_PCPUS),
                last_on: None,
                slice: None,
            });
        }
        Ok(())
    }

    /// A job of a VM's emulator is done: what follows from it.
    pub(super) fn emulator_step(&mut self, host: &mut Host, vm: u32) {
        let place = vm as usize;
        let Some(emulator) = &mut self.emulators[place] else {
            return;
        };
        let from = host.task(emulator.task).running_on();
        match emulator.done() {
            Some(Job::Submit(request)) => {
                if let Some(block) = &self.vms[place].block {
                    self.disks.submit(host, block.request(request));
                }
            }
            Some(Job::Complete(request)) => {
                self.vms[place].completion(host, request, from);
                self.attend(host, place);
            }
            Some(Job::Receive(packet)) => {
                self.vms[place].packet_due(host, packet, from);
                self.attend(host, place);
            }
            Some(Job::Send(packet)) => self.network.at_nic(host, packet),
            None => {}
        }
        let work = self.network.handling();
        if let Some(emulator) = &mut self.emulators[place] {
            emulator.run_timer(host, work);
            emulator.go_on(host);
        }
    }

    /// The alarm for a VM's transmit timer went off.
    pub(super) fn transmit_due(&mut self, host: &mut Host, vm: usize) {
        let work = self.network.handling();
        if let Some(emulator) = &mut self.emulators[vm] {
            emulator.alarm(host, vm as u32, work);
        }
    }

    /// A VM's request was kicked off, or a packet or completion is there for it: gives that to its
    /// emulator, if it has one. False if it has none.
    pub(super) fn emulate(
        &mut self,
        host: &mut Host,
        vm: usize,
        job: Job,
        waker: Option<PcpuId>,
    ) -> bool {
        let work = match (job, self.disks.image(vm as u32)) {
            (Job::Submit(_), Some(image)) => image.submit,
            (Job::Complete(_), Some(image)) => image.complete,
            _ => self.network.handling(),
        };
        match &mut self.emulators[vm] {
            Some(emulator) => {
                emulator.add(host, job, work, waker);
                true
            }
            None => false,
        }
    }
}
