// SPDX-License-Identifier: GPL-2.0-only
//! Hand-made recordings, and the simplest scheduler there is.

use crate::host::{Costs, HardwareParams, Host, HostParams};
use crate::replay::{Beyond, Options, Replay, ReplayReport};
use crate::sched::HostScheduler;
use crate::{Outcome, Simulation};
use corun_model::{Nanos, PcpuId, TaskId, Topology, VmId};
use corun_recording::*;
use std::collections::VecDeque;

/// First come, first served, on any pCPU that is free. With `rotate` tasks take turns at ticks.
#[derive(Default)]
pub struct Fifo {
    pub rotate: bool,
    queue: VecDeque<TaskId>,
}

impl HostScheduler for Fifo {
    fn add(&mut self, _: &mut Host, _: TaskId) {}

    fn wake(&mut self, host: &mut Host, task: TaskId, _: Option<PcpuId>) {
        self.queue.push_back(task);
        host.queue_on(task, PcpuId(0));
        for cpu in host.all_pcpus() {
            if host.current(cpu).is_none() {
                host.resched(cpu, Some(cpu));
            }
        }
    }

    fn block(&mut self, _: &mut Host, _: TaskId, _: PcpuId) {}

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        match (host.current(cpu), self.rotate) {
            (None, _) => self.queue.pop_front(),
            (Some(current), true) => {
                self.queue.push_back(current);
                self.queue.pop_front()
            }
            (current, false) => current,
        }
    }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        host.resched(cpu, Some(cpu));
    }

    fn timer(&mut self, _: &mut Host, _: u64) {}
    fn yield_pcpu(&mut self, _: &mut Host, _: TaskId, _: PcpuId, _: Option<TaskId>) -> bool {
        false
    }
}

/// A burst that ends by blocking.
pub fn burst(wake: WakeCause, woken_at: Nanos, work: Nanos) -> Burst {
    let end = BurstEnd::Blocked('S');
    Burst {
        wake,
        woken_at,
        work,
        end,
    }
}

pub fn by(waker: u32, waker_work: Nanos) -> WakeCause {
    let waker = TaskId(waker);
    WakeCause::Task { waker, waker_work }
}

pub fn after(delay: Nanos) -> WakeCause {
    WakeCause::External { delay }
}

/// vCPU `number` of the only VM with these bursts.
pub fn vcpu(number: u32, bursts: Vec<Burst>) -> Task {
    let first = bursts.first().map(|burst| burst.wake);
    let at_start = match first {
        Some(WakeCause::AtStart) => AtStart::Ready,
        _ => AtStart::Waiting,
    };
    let at_end = match bursts.last().map(|burst| burst.end) {
        Some(BurstEnd::Exited) => AtEnd::Exited,
        Some(BurstEnd::RecordingEnded) => AtEnd::Ready,
        _ => AtEnd::Waiting,
    };
    Task {
        tid: 100 + number,
        tgid: Some(100),
        comm: format!("CPU {number}/KVM"),
        role: Role::Vcpu {
            vm: VmId(0),
            index: number,
        },
        at_start,
        first_pcpu: None,
        at_end,
        observed: TaskObserved {
            run: bursts.iter().map(|burst| burst.work).sum(),
            ..TaskObserved::default()
        },
        bursts,
        kvm: KvmSeen::default(),
    }
}

pub fn recording(pcpus: u32, duration: Nanos, tasks: Vec<Task>) -> Recording {
    let fact = |value| Fact {
        value,
        source: "the test",
    };
    Recording {
        format: Format::Ftrace,
        host: corun_recording::Host {
            pcpus: fact(pcpus),
            kernel: None,
            scheduler: None,
            clock: None,
        },
        start: 0,
        end: duration,
        vms: vec![Vm {
            name: "vm".to_string(),
            tgid: Some(100),
            vcpus: (0..tasks.len()).map(TaskId::from).collect(),
            threads: Vec::new(),
            grouping: Grouping::Stated,
        }],
        tasks,
        observed: HostObserved::default(),
    }
}

/// Replays for the recording's duration, on a host where nothing costs anything.
pub fn replay(recording: &Recording, beyond: Beyond, rotate: bool) -> (Outcome, ReplayReport) {
    let options = Options {
        beyond,
        ..Options::default()
    };
    replay_with(recording, options, rotate)
}

/// The same with other options.
pub fn replay_with(
    recording: &Recording,
    options: Options,
    rotate: bool,
) -> (Outcome, ReplayReport) {
    replay_at(recording, options, rotate, Costs::NONE)
}

/// The same on a host where things cost something.
pub fn replay_at(
    recording: &Recording,
    options: Options,
    rotate: bool,
    costs: Costs,
) -> (Outcome, ReplayReport) {
    let pcpus = recording.host.pcpus.value;
    let params = HostParams {
        topology: Topology::flat(pcpus).unwrap(),
        hz: 10_000,
        tick_skew: false,
        idle_states: Vec::new(),
        costs,
        hardware: HardwareParams::UNSHARED,
    };
    let fifo = Fifo {
        rotate,
        ..Fifo::default()
    };
    let load = Replay::new(recording, pcpus, options);
    let simulation = Simulation::new(params, Box::new(fifo), Box::new(load.clone()), None);
    let outcome = simulation.run(0, recording.duration(), |_| {});
    (outcome, load.report())
}
