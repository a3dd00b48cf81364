// SPDX-License-Identifier: GPL-2.0-only
//! Hosts of known size to measure the simulator with: `corun bench` and `cargo bench` share them.
//!
//! The loads are made to exercise the simulator, not to resemble anybody's host: a mix of computing
//! and sleeping as other scheduler simulators are measured with, the same at growing sizes, guests
//! with their own kernels on a host with SMT, and the event queue with nothing around it. All seeds
//! are fixed, so that every run of a case does the same work.

use crate::engine::EventQueue;
use crate::guest::{GuestParams, Guests, ThreadSpec, VmSpec};
use crate::host::{Costs, HostParams};
use crate::load::{Load, Pattern, Patterns};
use crate::sched::HostScheduler;
use crate::sched::cfs::{Cfs, CfsParams};
use crate::sched::dispatcher::Dispatcher;
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::workload::{Program, preset};
use crate::{Outcome, Simulation};
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Nanos, PcpuSet};
use std::error::Error;

/// Why a case could not be run; only an error in this file can be the cause.
pub type Fault = Box<dyn Error + Send + Sync>;

/// A host, what is on it and who schedules it.
#[derive(Clone, Debug)]
pub struct Case {
    /// For people and JSON, such as `8 pCPUs, 96 tasks`.
    pub name: String,
    /// Virtual time that a run takes, ns.
    pub length: Nanos,
    topology: String,
    policy: &'static str,
    seed: u64,
    demand: Demand,
}

/// What a case's tasks do.
#[derive(Clone, Copy, Debug)]
enum Demand {
    /// So many host tasks that run 0.2 ms and sleep 2.2 ms.
    Tasks(u32),
    /// The same of so many vCPUs, in VMs of eight.
    Vcpus(u32),
    /// Four VMs of 24 vCPUs with these workloads.
    Guests([Workload; 4]),
}

/// What the guests of the two-level host run.
#[derive(Clone, Copy, Debug)]
enum Workload {
    /// A preset, with as many threads as vCPUs.
    Preset(&'static str),
    /// Threads that sleep until the next request and share a lock: what the presets lack.
    Service,
}

/// The run/sleep mix on two hosts, scheduled by corun's dispatcher.
pub fn mixes() -> Vec<Case> {
    let case = |(pcpus, tasks)| {
        let name = format!("{pcpus} pCPUs, {tasks} tasks");
        Case::new(name, flat(pcpus), 100 * MS, Demand::Tasks(tasks))
    };
    [(8, 96), (48, 1000)].map(case).into()
}

/// The mix with eight vCPUs per pCPU, from 8 pCPUs to 512: does an event cost more on a larger
/// host? Each has about the same number of events.
pub fn scaling() -> Vec<Case> {
    let case = |pcpus: u32| {
        let vcpus = pcpus * 8;
        let name = format!("{pcpus} pCPUs, {vcpus} vCPUs");
        let length = 6400 * MS / Nanos::from(pcpus);
        Case::new(name, flat(pcpus), length, Demand::Vcpus(vcpus))
    };
    [8, 32, 128, 512].map(case).into()
}

/// 96 vCPUs with guest kernels on 48 hyperthreads: one workload in all four VMs, then one in each.
pub fn two_level() -> Vec<Case> {
    let [a, b, c] = ["hackbench", "lockheavy", "sync"].map(Workload::Preset);
    let cases = [
        ("hackbench", [a; 4]),
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
    let run = |policy, seed| Case {
        policy,
        seed,
        ..Case::new(
            format!("{policy}, seed {seed}"),
            flat(16),
            50 * MS,
            Demand::Vcpus(192),
        )
    };
    let policies = ["cfs", "eevdf", "affinity", "balance"];
    let all = policies
        .iter()
        .flat_map(|policy| (1..=4).map(|seed| run(policy, seed)));
    all.collect()
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

    /// Runs it, nothing traced.
    ///
    /// # Errors
    /// If the case itself is not valid.
    pub fn run(&self) -> Result<Outcome, Fault> {
        let params = HostParams {
            topology: self.topology.parse()?,
            hz: 250,
            tick_skew: false,
            costs: Costs::default(),
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
            Some(policy) => simulation.with_policy((policy.make)()),
            None => simulation,
        };
        Ok(simulation.run(0, self.length, |_| {}))
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
            Demand::Vcpus(count) => {
                let tasks = (0..count).map(|n| pattern(Some((n / 8, n % 8)))).collect();
                let vms = vec![Some(100); count.div_ceil(8) as usize];
                Box::new(Patterns::new(tasks, &vms, seed))
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
        let programs: Vec<Program> = match self {
            Workload::Preset(name) => {
                let preset = preset(name).ok_or("no such preset")?;
                let threads = preset.threads(Self::VCPUS)?;
                threads.into_iter().map(|thread| thread.program).collect()
            }
            Workload::Service => vec![Program::parse(Self::SERVICE)?; Self::VCPUS as usize],
        };
        let thread = |(n, program)| ThreadSpec {
            name: format!("thread{n}"),
            program,
            vcpu: None,
        };
        Ok(VmSpec {
            name: format!("vm{number}"),
            vcpus: Self::VCPUS,
            weight: Some(100),
            vcpu_weight: 100,
            allowed: PcpuSet::first(pcpus),
            threads: programs.into_iter().enumerate().map(thread).collect(),
            params: GuestParams::default(),
        })
    }
}

/// The event queue with nothing around it: what a simulation costs beyond it is models and
/// scheduling. The unit that others are compared with, so that numbers of two machines, or of a
/// busy one, can be.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_and_does_the_same_work_each_time() {
        let all = [mixes(), scaling(), two_level(), sweep()].concat();
        for case in all {
            let short = Case {
                length: case.length / 20,
                ..case
            };
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
