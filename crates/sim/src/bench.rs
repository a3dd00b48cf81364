// SPDX-License-Identifier: GPL-2.0-only
//! Hosts of known size to measure the simulator with: `corun bench` and `cargo bench` share them.
//!
//! The loads are made to exercise the simulator, not to resemble any real host: a mix of computing
//! and sleeping with which other scheduler simulators are measured, the same at growing sizes,
//! guests with their own kernels on a host with SMT, and the event queue with nothing around it.
//! All seeds are fixed, so that every run of a case does the same work.
//!
//! A context switch here means that a pCPU starts another task than the one it had, or one after idling; going idle is
//! not counted separately. Times are the machine's, so they also reflect its other work:
//! [`measure`] takes the best of several rounds, and times the bare event queue in each of them.

use crate::event_queue::EventQueue;
use crate::guest::{Guests, ThreadSpec, VmSpec};
use crate::host::{Costs, HardwareParams, HostParams};
use crate::load::{Cgroup, Cgroups, Load, Pattern, Patterns, Quota};
use crate::sched::HostScheduler;
use crate::sched::cfs::{Cfs, CfsParams};
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::workload::{Program, preset};
use crate::{Outcome, Simulation};
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Nanos, PcpuSet};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Why a case could not be run; only an error in this file can be the cause.
pub type Fault = Box<dyn Error + Send + Sync>;

/// A host, what is on it and its scheduler.
#[derive(Clone, Debug)]
pub struct Case {
    /// For people and JSON, such as `8 pCPUs, 96 tasks`.
    pub name: String,
    /// Length of a run in virtual time, ns.
    pub length: Nanos,
    topology: String,
    policy: &'static str,
    seed: u64,
    demand: Demand,
}

/// What a case's tasks do.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// This many host tasks, which run for 0.2 ms and sleep for 2.2 ms.
    Tasks(u32),
    /// The same for so many vCPUs, in VMs of eight.
    Vcpus(u32),
    /// The same with each VM in a cgroup that has a quota, and all of these in another.
    Grouped(u32),
    /// Four VMs of 24 vCPUs with these workloads.
    Guests([Workload; 4]),
}

/// What the guests of the two-level host run.
#[derive(Clone, Copy, Debug)]
enum Workload {
    /// A preset with as many threads as it has by default.
    Preset(&'static str),
    /// A preset with a thread per vCPU.
    Wide(&'static str),
    /// Threads that sleep until the next request and share a lock, a kind that the presets lack.
    Service,
}

/// The run/sleep mix on two hosts, and of VMs in nested cgroups (to be compared with the same VMs
/// without, in [`scaling`]), scheduled by corun's dispatcher.
pub fn mixes() -> Vec<Case> {
    let tasks = |(pcpus, tasks)| {
        let name = format!("{pcpus} pCPUs, {tasks} tasks");
        Case::new(name, flat(pcpus), 100 * MS, Demand::Tasks(tasks))
    };
    let name = "8 pCPUs, 64 vCPUs in cgroups".into();
    let grouped = Case::new(name, flat(8), 3_200 * MS, Demand::Grouped(64));
    let flat_tasks = [(8, 96), (48, 1000)].map(tasks);
    flat_tasks.into_iter().chain([grouped]).collect()
}

/// The mix with eight vCPUs per pCPU, from 8 pCPUs to 512, with corun's dispatcher and the models of
/// Linux' schedulers: does an event cost more on a larger host? Each has about the same number of
/// events, some sixty for each vCPU of the largest host, so that its start is a small part.
pub fn scaling() -> Vec<Case> {
    let case = |policy, pcpus: u32| {
        let vcpus = pcpus * 8;
        let name = format!("{pcpus} pCPUs, {vcpus} vCPUs: {policy}");
        let length = 25_600 * MS / Nanos::from(pcpus);
        Case::new(name, flat(pcpus), length, Demand::Vcpus(vcpus)).under(policy)
    };
    let sizes = |policy| [8, 48, 128, 512].map(|pcpus| case(policy, pcpus));
    ["fair", "cfs", "eevdf"].map(sizes).concat()
}

/// 96 vCPUs with guest kernels on 48 hyperthreads: one workload in all four VMs, then one in each.
pub fn two_level() -> Vec<Case> {
    let [a, b, c] = ["hackbench", "lockheavy", "sync"].map(Workload::Preset);
    let cases = [
        ("hackbench", [a; 4]),
        ("hackbench on all vCPUs", [Workload::Wide("hackbench"); 4]),
        ("lockheavy", [b; 4]),
        ("sync", [c; 4]),
        ("service", [Workload::Service; 4]),
        ("one of each", [a, b, c, Workload::Service]),
    ];
    let case = |(what, guests)| {
        let name = format!("96 vCPUs, 48 hyperthreads: {what}");
        Case::new(name, "2n1l12c2t".into(), 20 * MS, Demand::Guests(guests))
    };
    cases.map(case).into()
}

/// Policies and seeds as `corun compare` runs them, for several threads.
pub fn sweep() -> Vec<Case> {
    let run = |policy, seed| {
        let name = format!("{policy}, seed {seed}");
        let case = Case::new(name, flat(16), 50 * MS, Demand::Vcpus(192));
        Case { seed, ..case }.under(policy)
    };
    let policies = ["cfs", "eevdf", "affinity", "balance"];
    let all = policies
        .iter()
        .flat_map(|policy| (1..=4).map(|seed| run(policy, seed)));
    all.collect()
}

/// A cgroup for each of so many VMs, all in one. A VM may have four pCPUs, which it never uses up.
fn nested(vms: usize) -> Cgroups {
    let group = |quota, within| Cgroup {
        weight: 100,
        idle: false,
        quota,
        within,
    };
    let quota = Quota {
        time: 400 * MS,
        period: 100 * MS,
        burst: 0,
    };
    let of_vms = (0..vms).map(|_| group(Some(quota), Some(0)));
    Cgroups {
        all: std::iter::once(group(None, None)).chain(of_vms).collect(),
        of_vms: (1..=vms).map(Some).collect(),
        ..Cgroups::default()
    }
}

/// One LLC domain, no SMT.
fn flat(pcpus: u32) -> String {
    format!("1n1l{pcpus}c1t")
}

impl Case {
    fn new(name: String, topology: String, length: Nanos, demand: Demand) -> Self {
        Self {
            name,
            length,
            topology,
            policy: "fair",
            seed: 1,
            demand,
        }
    }

    /// The same case with another length of virtual time, ns.
    #[must_use]
    pub fn lasting(&self, length: Nanos) -> Self {
        Self {
            length,
            ..self.clone()
        }
    }

    /// The same case under another policy: `cfs`, `eevdf` or one of corun's.
    #[must_use]
    pub fn under(&self, policy: &'static str) -> Self {
        Self {
            policy,
            ..self.clone()
        }
    }

    /// Runs the case without a trace.
    ///
    /// # Errors
    /// If the case itself is not valid.
    pub fn run(&self) -> Result<Outcome, Fault> {
        let params = HostParams {
            topology: self.topology.parse()?,
            hz: 250,
            tick_skew: false,
            idle_states: Vec::new(),
            costs: Costs::default(),
            hardware: HardwareParams::default(),
        };
        let pcpus = params.topology.pcpus();
        let sched: Box<dyn HostScheduler> = match self.policy {
            "cfs" => {
                let cfs = CfsParams::preset("2.6.33", pcpus).ok_or("no such CFS")?;
                Box::new(Cfs::new(cfs, &params))
            }
            "eevdf" => {
                let eevdf = EevdfParams::preset("6.12", pcpus).ok_or("no such EEVDF")?;
                Box::new(Eevdf::new(eevdf, &params))
            }
            _ => Box::new(Dispatcher::new(DispatcherParams::default(), &params)),
        };
        let load = self.demand.load(pcpus, self.seed)?;
        let simulation = Simulation::new(params, sched, load, None);
        let simulation = match corun_policies::find(self.policy) {
            Some(policy) => {
                simulation.with_policy((policy.make)(&corun_policies::Settings::default()))
            }
            None => simulation,
        };
        Ok(simulation.try_run(0, self.length, |_| {})?)
    }
}

impl Demand {
    fn load(self, pcpus: u32, seed: u64) -> Result<Box<dyn Load>, Fault> {
        let pattern = |vcpu| Pattern {
            run: 200 * US,
            sleep: 2_200 * US,
            ..Pattern::hog(vcpu)
        };
        Ok(match self {
            Demand::Tasks(count) => {
                let tasks = vec![pattern(None); count as usize];
                Box::new(Patterns::new(tasks, &[], seed))
            }
            Demand::Vcpus(count) | Demand::Grouped(count) => {
                let tasks = (0..count).map(|n| pattern(Some((n / 8, n % 8)))).collect();
                let vms = vec![Some(100); count.div_ceil(8) as usize];
                let patterns = Patterns::new(tasks, &vms, seed);
                Box::new(match self {
                    Demand::Grouped(_) => patterns.in_cgroups(nested(vms.len())),
                    _ => patterns,
                })
            }
            Demand::Guests(workloads) => {
                let vms = workloads.iter().enumerate();
                let vms = vms.map(|(n, workload)| workload.vm(n, pcpus));
                let vms = vms.collect::<Result<Vec<_>, _>>()?;
                Box::new(Guests::new(vms, Vec::new(), seed)?)
            }
        })
    }
}

impl Workload {
    const VCPUS: u32 = 24;
    const SERVICE: &str = "loop { sleep 1ms exp; compute 300us ±20%; \
                           lock journal { compute 10us }; count requests }";

    fn vm(self, number: usize, pcpus: u32) -> Result<VmSpec, Fault> {
        let of_preset = |name, threads: Option<u32>| -> Result<Vec<Program>, Fault> {
            let preset = preset(name).ok_or("no such preset")?;
            let threads = threads.unwrap_or_else(|| preset.default_threads(Self::VCPUS));
            let threads = preset.threads(threads)?.into_iter();
            Ok(threads.map(|thread| thread.program).collect())
        };
        let programs = match self {
            Workload::Preset(name) => of_preset(name, None)?,
            Workload::Wide(name) => of_preset(name, Some(Self::VCPUS))?,
            Workload::Service => vec![Program::parse(Self::SERVICE)?; Self::VCPUS as usize],
        };
        let thread = |(n, program)| ThreadSpec {
            name: format!("thread{n}"),
            program,
            vcpu: None,
        };
        let name = format!("vm{number}");
        Ok(VmSpec {
            weight: Some(100),
            threads: programs.into_iter().enumerate().map(thread).collect(),
            ..VmSpec::new(name, Self::VCPUS, PcpuSet::first(pcpus))
        })
    }
}

/// The event queue with nothing around it: what a simulation costs beyond it is models and
/// scheduling. It is the unit for the other cases, so that numbers from different machines, or from
/// a busy one, can be compared.
pub struct BareQueue(EventQueue<u64>);

impl BareQueue {
    /// A queue with so many events pending.
    pub fn new(pending: u64) -> Self {
        let mut queue = EventQueue::default();
        for n in 0..pending {
            queue.schedule(n * 7919 % pending.max(1), n);
        }
        Self(queue)
    }

    /// Takes the next event out and schedules it again, `times` times. Returns the time reached.
    pub fn turn(&mut self, times: u64) -> Nanos {
        let mut reached = 0;
        for _ in 0..times {
            if let Some((at, event)) = self.0.pop() {
                self.0.schedule(at + 1 + event * 31 % 997, event);
                reached = at;
            }
        }
        reached
    }
}

/// Events pending in the bare queue that others are compared with.
pub const PENDING: u64 = 1000;

/// What running a case took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Events of one run.
    pub events: u64,
    /// Context switches of one run.
    pub switches: u64,
    /// Wall-clock time of the fastest run.
    pub wall: Duration,
    /// Wall-clock time of an event taken out of the bare queue and scheduled again, ns, at its
    /// fastest.
    pub bare: f64,
}

impl Measured {
    /// Events per second of wall-clock time.
    pub fn events_per_s(&self) -> f64 {
        self.events as f64 / self.seconds()
    }

    /// Context switches per second of wall-clock time.
    pub fn switches_per_s(&self) -> f64 {
        self.switches as f64 / self.seconds()
    }

    /// The cost of an event in turns of the bare event queue.
    pub fn ratio_to_bare(&self) -> f64 {
        self.seconds() * 1e9 / self.events.max(1) as f64 / self.bare
    }

    /// Wall-clock time of the fastest run, never 0.
    pub fn seconds(&self) -> f64 {
        self.wall.as_secs_f64().max(1e-9)
    }
}

/// Runs `case` in `rounds` rounds, at least one, each of which times the bare queue as well.
///
/// # Errors
/// As [`Case::run`].
pub fn measure(case: &Case, rounds: u32) -> Result<Measured, Fault> {
    const TURNS: u64 = 100_000;
    let mut queue = BareQueue::new(PENDING);
    let mut best: Option<Measured> = None;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        black_box(queue.turn(TURNS));
        let bare = start.elapsed().as_nanos().max(1) as f64 / TURNS as f64;
        let start = Instant::now();
        let outcome = case.run()?;
        let wall = start.elapsed();
        best = Some(Measured {
            events: outcome.events,
            switches: outcome.switches,
            wall: best.map_or(wall, |best| best.wall.min(wall)),
            bare: best.map_or(bare, |best| best.bare.min(bare)),
        });
    }
    best.ok_or_else(|| "no round".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_and_does_the_same_work_each_time() {
        let all = [mixes(), scaling(), two_level(), sweep()].concat();
        for case in all {
            let short = case.lasting(case.length / 20);
            let (one, two) = (short.run().unwrap(), short.run().unwrap());
            assert!(one.events > 0 && one.switches > 0, "{}", short.name);
            let counts = |outcome: &Outcome| (outcome.events, outcome.switches);
            assert_eq!(counts(&one), counts(&two), "{}", short.name);
        }
    }

    #[test]
    fn the_bare_queue_keeps_its_events() {
        let mut queue = BareQueue::new(1000);
        assert!(queue.turn(5000) > 0);
        assert_eq!(queue.0.len(), 1000);
    }
}
