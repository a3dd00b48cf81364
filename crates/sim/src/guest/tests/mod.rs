// SPDX-License-Identifier: GPL-2.0-only
//! Guests under the simplest possible host scheduler, so that what they show comes from the guest
//! model alone.

mod agents;
mod beginnings;
mod block;
mod dormant;
mod errors;
mod exact;
mod hardware;
mod io_inactivity;
mod kernel;
mod locks;
mod net;
mod placing;
mod presets;
mod properties;
mod random;
mod round_robin;
mod rtapp;
mod spinning;
mod standstill;
mod told;

pub(crate) use random::random_program;

use super::*;
use crate::device::disk::Share;
use crate::host::{Costs, HardwareParams, HostParams};
use crate::workload::Program;
use crate::{Outcome, Simulation};
use corun_model::time::{MS, SEC};
use corun_model::{PcpuId, PcpuSet, Topology};
use round_robin::RoundRobin;

/// A guest kernel whose own work costs nothing.
fn free() -> GuestParams {
    GuestParams {
        tick: 0,
        interrupt: 0,
        ipi: 0,
        thread_switch: 0,
        futex: 0,
        timer_slack: 0,
        ..GuestParams::default()
    }
}

const FREE: Costs = Costs::NONE;

/// A VM with one vCPU per program, each program bound to its vCPU.
fn vm(name: &str, params: GuestParams, programs: &[&str]) -> VmSpec {
    let thread = |(index, text): (usize, &&str)| ThreadSpec {
        name: format!("t{index}"),
        program: Program::parse(text).unwrap(),
        vcpu: Some(index as u32),
    };
    VmSpec {
        threads: programs.iter().enumerate().map(thread).collect(),
        params,
        ..VmSpec::new(name, programs.len().max(1) as u32, PcpuSet::first(64))
    }
}

/// The same, with its vCPUs on this pCPU only.
fn on(pcpu: u32, mut vm: VmSpec) -> VmSpec {
    vm.allowed = [PcpuId(pcpu)].into_iter().collect();
    vm
}

/// An image of 32 GiB on the first disk, with a share of the usual weight and no quota.
fn image() -> DiskUse {
    DiskUse {
        disk: 0,
        size: 32 << 30,
        share: Share {
            weight: 100,
            quota: None,
        },
    }
}

fn machine(pcpus: u32, costs: Costs) -> HostParams {
    HostParams {
        topology: Topology::flat(pcpus).unwrap(),
        hz: 1000,
        tick_skew: false,
        idle_states: Vec::new(),
        costs,
        hardware: HardwareParams::default(),
    }
}

/// 100.3 ms of warm-up, then a measured second: its ends fall between events, which are at round
/// numbers.
fn simulate(host: HostParams, slice: Nanos, guests: Guests) -> Outcome {
    let sched = Box::new(RoundRobin::new(slice));
    let warm_up = 100 * MS + 3 * MS / 10;
    Simulation::new(host, sched, Box::new(guests), None).run(warm_up, warm_up + SEC, |_| {})
}

/// On `pcpus` pCPUs where scheduling costs nothing.
fn run(pcpus: u32, slice: Nanos, vms: Vec<VmSpec>) -> Outcome {
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    simulate(machine(pcpus, FREE), slice, guests)
}

fn throughput(outcome: &Outcome, vm: usize) -> f64 {
    outcome.vms[vm].achieved.throughput
}
