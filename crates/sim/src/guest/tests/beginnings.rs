// SPDX-License-Identifier: GPL-2.0-only
//! VMs that begin at different times.

use super::*;
use crate::sched::cfs::{Cfs, CfsParams};

/// The run's outcome from its beginning on.
fn from_the_start(pcpus: u32, vms: Vec<VmSpec>, over: Nanos, seed: u64) -> Outcome {
    let host = machine(pcpus, FREE);
    let cfs = Cfs::new(CfsParams::preset("4.x", pcpus).unwrap(), &host);
    let guests = Guests::new(vms, Vec::new(), seed).unwrap();
    let guests = Box::new(guests.begun_within(over, seed));
    Simulation::new(host, Box::new(cfs), guests, None).run(0, SEC, |_| {})
}

fn hogs(name: &str) -> VmSpec {
    vm(name, free(), &["loop { compute 100ms }"; 2])
}

/// The work that is missing because a VM begins later: each VM has pCPUs of its own.
#[test]
fn each_vm_begins_at_a_time_of_its_own() {
    let late = |seed| {
        let apart = |mut spec: VmSpec, first: u32| {
            spec.allowed = (first..first + 2).map(PcpuId).collect();
            spec
        };
        let vms = vec![apart(hogs("a"), 0), apart(hogs("b"), 2)];
        let outcome = from_the_start(4, vms, 100 * MS, seed);
        let late = |vm: &crate::VmOutcome| SEC - vm.achieved.work / 2;
        outcome.vms.iter().map(late).collect::<Vec<_>>()
    };
    let (once, again) = (late(1), late(1));
    assert_eq!(once, again);
    assert!(
        once.iter().all(|late| (1..=100 * MS).contains(late)),
        "{once:?}"
    );
    assert_ne!(once[0], once[1]);
    assert_ne!(once, late(2));
}

/// Periods that passed before the VM began are not made up for.
#[test]
fn a_timer_counts_from_when_its_vm_begins() {
    let program = "loop { timer t 20ms; compute 1ms; count }";
    let outcome = from_the_start(1, vec![vm("a", free(), &[program])], 500 * MS, 3);
    let begun = outcome.vms[0].achieved.throughput;
    // One per period in what is left of the second, at least half of it.
    assert!((24.0..50.0).contains(&begun), "{begun}");
}
