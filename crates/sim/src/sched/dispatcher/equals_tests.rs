// SPDX-License-Identifier: GPL-2.0-only
//! vSMT-IO and the dispatcher together: VMs that weigh the same and only compute get the same.

use super::Dispatcher;
use crate::Simulation;
use crate::testing::{Does, Job, Jobs, host, run_shares};
use corun_model::DispatcherParams;
use corun_model::time::{MS, SEC, US};
use corun_policies::vsmtio::VsmtIo;

/// What each vCPU has of a pCPU within three seconds, per cent, under vSMT-IO.
fn shares(topology: &str, jobs: Vec<Job>, seed: u64) -> Vec<u64> {
    let params = host(topology, 250);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let jobs = Jobs::new(jobs, seed);
    let outcome = Simulation::new(params, Box::new(dispatcher), Box::new(jobs), None)
        .with_policy(Box::new(VsmtIo::default()))
        .run(SEC, 4 * SEC, |_| {});
    let percent = |share: &f64| (share * 100.0) as u64;
    run_shares(&outcome).iter().map(percent).collect()
}

fn hogs(vms: u32, vcpus: u32) -> Vec<Job> {
    let vm = |vm| (0..vcpus).map(move |vcpu| Job::hog().vcpu(vm, vcpu));
    (0..vms).flat_map(vm).collect()
}

fn alike(of: &[u64], wanted: u64, by: u64) {
    assert!(
        of.iter().all(|share| share.abs_diff(wanted) <= by),
        "{of:?}"
    );
}

#[test]
fn vcpus_that_compute_have_equal_shares_whatever_their_number() {
    for seed in 1..4 {
        alike(&shares("1n1l1c2t", hogs(3, 1), seed), 66, 4);
        alike(&shares("1n1l2c2t", hogs(3, 2), seed), 66, 4);
        alike(&shares("1n1l2c2t", hogs(4, 2), seed), 50, 2);
        alike(&shares("1n1l2c2t", hogs(5, 1), seed), 80, 9);
        alike(&shares("1n1l2c2t", hogs(7, 1), seed), 57, 7);
    }
}

/// A vCPU that waits is in its class by merit, and what is left of the class is shared in turns.
#[test]
fn nor_does_one_beside_io_have_more_than_others() {
    let io = Does::Cycles {
        work: 50 * US,
        sleep: 450 * US,
        spread: 0,
    };
    let mut jobs = vec![Job::new(io).vcpu(9, 0)];
    jobs.extend(hogs(4, 1));
    let told = shares("1n1l1c2t", jobs, 1);
    assert!((8..=11).contains(&told[0]), "{told:?}");
    alike(&told[1..], 46, 4);
    // A vCPU that waits for part of a period is not treated as an equal because of what it has in
    // that period.
    let waits = Does::Cycles {
        work: 5 * MS,
        sleep: 500 * US,
        spread: 0,
    };
    let mut jobs = vec![Job::new(waits).vcpu(9, 0)];
    jobs.extend(hogs(2, 1));
    let told = shares("1n1l1c2t", jobs, 1);
    assert!(told[0] >= 88, "{told:?}");
    alike(&told[1..], 52, 4);
}
