// SPDX-License-Identifier: GPL-2.0-only
//! Runs of vCPUs that always want a pCPU, and what two of them would wait for a lock.
//!
//! A vCPU that holds a lock computes, one that waits for it spins: on the host both just want a pCPU, so which of them
//! runs when does not depend on the lock. Each run is one placement. From when its order has settled, a lock is assumed
//! at many moments (beginnings of slots of the two vCPUs' runqueues), preempted in the hands of one vCPU and wanted by
//! the other; the latency counts from when the first of them runs.

use corun_model::time::{MS, SEC, US};
use corun_model::{DispatcherParams, Nanos, PcpuId, PcpuSet, TaskId, Topology, VmId};
use corun_sim::Simulation;
use corun_sim::host::{
    Costs, HardwareParams, Host, HostParams, Observer, Task, TaskSpec, TaskState,
};
use corun_sim::load::{Achieved, Load, VmInfo};
use corun_sim::rng::Rng;
use corun_sim::sched::HostScheduler;
use corun_sim::sched::cfs::{Cfs, CfsParams};
use corun_sim::sched::dispatcher::Dispatcher;
use std::cell::RefCell;
use std::rc::Rc;

/// The scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// CFS with the slices that the paper states; tasks bound to pCPUs drawn at random.
    Cfs,
    /// The same, tasks not bound.
    CfsUnbound,
    /// corun's dispatcher with balance scheduling and the same slices, tasks not bound.
    Balance,
}

/// When the tasks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All at once, so that all runqueues switch at the same ticks.
    InStep,
    /// Within 50 ms, each at its own time, and ticks are skewed.
    AnyTime,
}

/// Means over placements; latencies in slots.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Share of placements (unbound: of moments) with both vCPUs on one runqueue.
    pub stacking: f64,
    pub stacked: f64,
    pub apart: f64,
    /// Over all placements.
    pub all: f64,
    /// A slot, ns: the median length of a turn.
    pub slot: f64,
}

/// How many placements, from when each has settled, and how long it runs.
struct Extent {
    placements: u64,
    settled: Nanos,
    end: Nanos,
}

impl Scheduler {
    /// Unbound tasks move about until they are evenly spread, and rarely after that.
    fn extent(self) -> Extent {
        match self {
            Scheduler::Cfs => Extent {
                placements: 200,
                settled: 150 * MS,
                end: 250 * MS,
            },
            _ => Extent {
                placements: 60,
                settled: SEC,
                end: 1150 * MS,
            },
        }
    }
}

/// Tasks that compute without end; the first two are the vCPUs of VM 0, the others of a VM each.
struct Hogs {
    at: Vec<(Nanos, TaskId)>,
    allowed: Vec<PcpuSet>,
}

impl Load for Hogs {
    fn vms(&self) -> Vec<VmInfo> {
        let info = |n: usize| VmInfo {
            name: format!("vm{n}"),
            weight: None,
            cookie: 0,
            cap: 0,
            realtime: false,
        };
        (0..self.allowed.len() - 1).map(info).collect()
    }

    fn tasks(&self) -> Vec<TaskSpec> {
        let spec = |(n, &allowed): (usize, &PcpuSet)| TaskSpec {
            name: format!("vcpu{n}"),
            vcpu: Some((VmId::from(n.saturating_sub(1)), u32::from(n == 1))),
            helper_of: None,
            weight: 100,
            allowed,
            last_on: None,
            slice: None,
        };
        self.allowed.iter().enumerate().map(spec).collect()
    }

    fn start(&mut self, host: &mut Host) {
        for &(at, task) in &self.at {
            host.load_timer(at, u64::from(task.0));
        }
    }

    fn run(&mut self, _host: &mut Host, _task: TaskId) {}
    fn stop(&mut self, _host: &mut Host, _task: TaskId, _done: Nanos) {}
    fn step(&mut self, _host: &mut Host, _task: TaskId) {}

    fn timer(&mut self, host: &mut Host, token: u64) {
        host.wake(TaskId(token as u32), None);
    }

    fn reset(&mut self, _now: Nanos) {}

    fn achieved(&self, _vm: VmId, _now: Nanos) -> Achieved {
        Achieved::default()
    }
}

/// A turn: which pCPU, from when to when.
#[derive(Clone, Copy, Debug)]
struct Turn {
    cpu: PcpuId,
    from: Nanos,
    to: Nanos,
}

/// Each task's turns.
type Turns = Vec<Vec<Turn>>;

struct Witness(Rc<RefCell<Turns>>);

impl Observer for Witness {
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        let mut turns = self.0.borrow_mut();
        let known = turns.len().max(id.index() + 1);
        turns.resize(known, Vec::new());
        let own = &mut turns[id.index()];
        if let (TaskState::Running(_), Some(turn)) = (old, own.last_mut()) {
            turn.to = now;
        }
        if let TaskState::Running(cpu) = task.state {
            own.push(Turn {
                cpu,
                from: now,
                to: Nanos::MAX,
            });
        }
    }

    fn finish(&mut self, _now: Nanos) {}
}

/// The tasks of one placement: all pCPUs have `queue` tasks, in random order.
fn hogs(pcpus: u32, queue: u32, bound: bool, start: Start, rng: &mut Rng) -> Hogs {
    let count = (pcpus * queue) as usize;
    // Slot n is on pCPU n / queue; a random task has it.
    let mut tasks: Vec<usize> = (0..count).collect();
    for n in (1..count).rev() {
        tasks.swap(n, rng.between(0, n as u64) as usize);
    }
    let mut allowed = vec![PcpuSet::first(pcpus); count];
    let mut at = Vec::new();
    for (slot, &task) in tasks.iter().enumerate() {
        if bound {
            allowed[task] = [PcpuId(slot as u32 / queue)].into_iter().collect();
        }
        let from = match start {
            Start::InStep => 0,
            Start::AnyTime => rng.between(0, 50 * MS),
        };
        at.push((from, TaskId::from(task)));
    }
    Hogs { at, allowed }
}

fn scheduler(kind: Scheduler, queue: u32, host: &HostParams) -> Box<dyn HostScheduler> {
    match kind {
        Scheduler::Cfs | Scheduler::CfsUnbound => {
            let preset = CfsParams::preset("2.6.33-as-stated", host.topology.pcpus());
            Box::new(Cfs::new(preset.unwrap(), host))
        }
        Scheduler::Balance => {
            let params = DispatcherParams {
                slice: 5 * MS / u64::from(queue),
                ..DispatcherParams::default()
            };
            Box::new(Dispatcher::new(params, host))
        }
    }
}

/// The turns of one placement.
fn turns(pcpus: u32, queue: u32, kind: Scheduler, start: Start, seed: u64) -> Turns {
    let mut rng = Rng::of(seed, "placement", 0);
    let host = HostParams {
        topology: Topology::flat(pcpus).unwrap(),
        // Slices end at ticks: they are whole milliseconds.
        hz: 1000,
        tick_skew: start == Start::AnyTime,
        idle_states: Vec::new(),
        costs: Costs::NONE,
        hardware: HardwareParams::UNSHARED,
    };
    let load = hogs(pcpus, queue, kind == Scheduler::Cfs, start, &mut rng);
    let turns = Rc::default();
    let witness = Box::new(Witness(Rc::clone(&turns)));
    let sched = scheduler(kind, queue, &host);
    let simulation = Simulation::new(host, sched, Box::new(load), Some(witness));
    let simulation = match kind {
        Scheduler::Balance => {
            simulation.with_policy((corun_policies::find("balance").unwrap().make)(
                &corun_policies::Settings::default(),
            ))
        }
        _ => simulation,
    };
    simulation.run(0, kind.extent().end, |_| {});
    turns.take()
}

/// When `task` has a pCPU next: from when (now, if it has one) to when, and where.
fn next(turns: &Turns, task: usize, now: Nanos) -> Option<Turn> {
    let own = &turns[task];
    let turn = own.get(own.partition_point(|turn| turn.to <= now))?;
    Some(Turn {
        from: turn.from.max(now),
        ..*turn
    })
}

/// For how long a 1 µs lock is waited for whose `holder` was preempted before `now`.
fn latency(turns: &Turns, holder: usize, waiter: usize, now: Nanos) -> Option<Nanos> {
    let (held, spun) = (next(turns, holder, now)?, next(turns, waiter, now)?);
    let first = held.from.min(spun.from);
    let released = held.from + US;
    let got = match spun.from <= released && released < spun.to {
        true => released,
        // It runs too late, or too early: then at its first turn from the release on.
        false => next(turns, waiter, released)?.from,
    };
    Some(got - first)
}

/// Sums over moments.
#[derive(Default)]
struct Sum(f64, u64);

impl Sum {
    fn add(&mut self, value: f64) {
        (self.0, self.1) = (self.0 + value, self.1 + 1);
    }

    fn mean(&self) -> f64 {
        if self.1 == 0 {
            0.0
        } else {
            self.0 / self.1 as f64
        }
    }
}

/// All placements of a setting. The moments are the beginnings of slots on the pCPUs of both vCPUs,
/// each of which has the lock once.
pub fn measure(pcpus: u32, queue: u32, kind: Scheduler, start: Start) -> Seen {
    let extent = kind.extent();
    let (mut stacked, mut apart, mut lengths) = (Sum::default(), Sum::default(), Vec::new());
    for seed in 0..extent.placements {
        let turns = turns(pcpus, queue, kind, start, seed);
        // Enough is left for a lock to be taken, whatever happens.
        let sampled = extent.settled..extent.end - 50 * MS;
        let all = || {
            turns
                .iter()
                .flatten()
                .filter(|turn| sampled.contains(&turn.from))
        };
        let slot = median(all().map(|turn| turn.to - turn.from));
        lengths.push(slot);
        for (host, turn) in [0, 1]
            .into_iter()
            .flat_map(|host| all().map(move |t| (host, t)))
        {
            let now = turn.from;
            let places = [0, 1].map(|task| next(&turns, task, now).map(|turn| turn.cpu));
            if places[host] != Some(turn.cpu) {
                continue;
            }
            let sum = match places[0] == places[1] {
                true => &mut stacked,
                false => &mut apart,
            };
            for (holder, waiter) in [(0, 1), (1, 0)] {
                let latency = latency(&turns, holder, waiter, now);
                latency
                    .into_iter()
                    .for_each(|latency| sum.add(latency as f64 / slot as f64));
            }
        }
    }
    let all = (stacked.1 + apart.1) as f64;
    Seen {
        stacking: stacked.1 as f64 / all,
        stacked: stacked.mean(),
        apart: apart.mean(),
        all: (stacked.0 + apart.0) / all,
        slot: median(lengths.into_iter()) as f64,
    }
}

fn median(values: impl Iterator<Item = Nanos>) -> Nanos {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}
