// SPDX-License-Identifier: GPL-2.0-only
//! The programs on a core of a simulated machine, alone and two by two. How their cycles divide comes from the host's
//! counters (`Signals::cycles`), as symbiosis sees it, and not from the programs themselves.

use super::Measured;
use super::fit::Shares;
use crate::compare::{jobs, runs, setup};
use crate::failure::Invalid;
use crate::outputs::Outputs;
use anyhow::Context;
use corun_model::{CyclesSeen, Nanos, Placement, Plan, Snapshot, VmPlan, time::MS};
use corun_policies::Policy;
use corun_scenario::Case;
use std::sync::{Arc, Mutex, PoisonError};

/// Cycles at work, on misses, waiting, percent: as in most applications, and as in few.
const MIXES: [[u32; 3]; 8] = [
    [90, 5, 5],
    [75, 20, 5],
    [60, 25, 15],
    [60, 10, 30],
    [40, 10, 50],
    [40, 50, 10],
    [20, 70, 10],
    [25, 40, 35],
];

/// A core. Nothing else happens there, so a moment shows what an hour would.
const CORE: &str =
    "[host]\ntopology = \"1n1l1c2t\"\n[run]\nduration = \"200ms\"\nwarm_up = \"20ms\"\n";

/// Measures on a core of the machine in the case `machine`.
///
/// # Errors
/// [`Invalid`] if the machine is not valid, else why a run failed.
pub fn measure(machine: &Case, threads: usize) -> anyhow::Result<Measured> {
    if machine.host.topology.threads_per_core() != 2 {
        let found = machine.host.topology;
        let message =
            format!("{found}: expected cores of two hardware threads, such as \"1n1l4c2t\"");
        return Err(Invalid::error(message));
    }
    let all: Vec<usize> = (0..MIXES.len()).collect();
    let alone = jobs::run(&all, threads, |&own| one(machine, &[own]))?;
    let pairs: Vec<[usize; 2]> = all
        .iter()
        .flat_map(|&own| (own..MIXES.len()).map(move |other| [own, other]))
        .collect();
    let together = jobs::run(&pairs, threads, |pair| one(machine, pair))?;
    let mut measured = Measured::default();
    for (mix, run) in MIXES.iter().zip(&alone) {
        let [base, miss, wait] = mix;
        measured.names.push(format!("{base}/{miss}/{wait}"));
        measured.alone.push(shares(run.cycles));
    }
    for (pair, run) in pairs.iter().zip(&together) {
        let [own, other] = *pair;
        measured.beside(own, other, alone[own].rates[0] / run.rates[0]);
        if own != other {
            measured.beside(other, own, alone[other].rates[0] / run.rates[1]);
        }
    }
    Ok(measured)
}

fn shares(seen: CyclesSeen) -> Shares {
    let share = |part: u64| part as f64 / seen.cycles as f64;
    let (base, miss) = (share(seen.base), share(seen.miss));
    Shares {
        base,
        miss,
        wait: 1.0 - base - miss,
    }
}

/// The result of a run: rounds per second of each VM, the first one's cycles.
struct Done {
    rates: Vec<f64>,
    cycles: CyclesSeen,
}

/// Runs these programs, each on a hardware thread of its own.
fn one(machine: &Case, programs: &[usize]) -> anyhow::Result<Done> {
    let mut text = CORE.to_string();
    for (thread, program) in programs.iter().enumerate() {
        let [base, miss, wait] = MIXES[*program];
        text += &format!(
            "[vm.on{thread}]\nvcpus = 1\nallowed = \"{thread}\"\n[[vm.on{thread}.thread]]\n\
             program = \"mix {base}/{miss}/{wait}; loop {{ compute 10us; count 1 rounds }}\"\n"
        );
    }
    let scenario = runs::read(
        &runs::RunArgs::default(),
        "calibration",
        &text,
        &[],
        &Outputs::default(),
    )?;
    let mut case = scenario.cases.into_iter().next().context("no case")?;
    let core = case.host.topology;
    case.host = machine.host.clone();
    case.host.topology = core;
    let seen = Seen::default();
    let meter = Meter(Arc::clone(&seen));
    let simulation = setup::simulation(&case, "fair", 1, None).map_err(Invalid::error)?;
    let end = case.run.warm_up + case.run.duration;
    let outcome = simulation
        .with_policy(Box::new(meter))
        .try_run(case.run.warm_up, end, |_| {})?;
    let cycles = *seen.lock().unwrap_or_else(PoisonError::into_inner);
    let rates = outcome.vms.iter().map(|vm| vm.achieved.throughput);
    Ok(Done {
        rates: rates.collect(),
        cycles,
    })
}

/// The first VM's cycles so far.
type Seen = Arc<Mutex<CyclesSeen>>;

/// A policy that only looks.
struct Meter(Seen);

impl Policy for Meter {
    fn period(&self) -> Nanos {
        20 * MS
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let free = |vm: &corun_model::VmSeen| VmPlan::placed(vm.vm, Placement::Free);
        plan.vms.extend(seen.vms.iter().map(free));
        let vcpus = seen.vms.first().into_iter().flat_map(|vm| &vm.vcpus);
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for cycles in vcpus.filter_map(|vcpu| vcpu.signals.cycles) {
            sum.cycles += cycles.cycles;
            sum.base += cycles.base;
            sum.miss += cycles.miss;
        }
    }

    fn wants_signals(&self) -> bool {
        true
    }
}
