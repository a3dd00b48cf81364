// SPDX-License-Identifier: GPL-2.0-only
//! A vCPU that spins lets a sibling go first (dispatcher/yield.h).

use super::Dispatcher;
use super::tests::Placed;
use crate::Outcome;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, DispatcherParams, Gang, Nanos, PcpuId, PcpuSet, Placement, TaskId};

/// A vCPU on one pCPU that does nothing but spin, with an exit every 5 us.
fn spins(vm: u32, number: u32, on: u32) -> Job {
    let mut job = Job::new(Does::Spins { each: 5 * US }).vcpu(vm, number);
    job.allowed = PcpuSet::from_iter([PcpuId(on)]);
    job
}

fn hog(vm: u32, number: u32, on: u32) -> Job {
    let mut job = Job::hog().vcpu(vm, number);
    job.allowed = PcpuSet::from_iter([PcpuId(on)]);
    job
}

fn simulated(jobs: Vec<Job>, cores: &str) -> (Outcome, Vec<(Nanos, PcpuId, TaskId)>) {
    let host = host(cores, 1000);
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    run(&host, sched, Jobs::new(jobs, 1), SEC, 3 * SEC)
}

/// Two vCPUs that wait for each other, each sharing its pCPU with one that computes.
#[test]
fn a_vcpu_that_computes_beside_spinners_is_not_interrupted_all_the_time() {
    let jobs = vec![spins(0, 0, 0), spins(0, 1, 1), hog(1, 0, 0), hog(1, 1, 1)];
    let (outcome, runs) = simulated(jobs, "1n1l2c1t");
    let switches = runs.len() as u64 / 3;
    assert!(switches < 4_000, "{switches} switches a second");
    for share in run_shares(&outcome) {
        assert!((share - 0.5).abs() < 0.01, "{share}");
    }
}

/// Of two vCPUs on one pCPU, the one that spins lets the other go first at once; but both have
/// their share.
#[test]
fn a_spinning_vcpu_lets_a_sibling_on_its_pcpu_go_first() {
    let (outcome, runs) = simulated(vec![spins(0, 0, 0), hog(0, 1, 0)], "1n1l1c1t");
    let first = |task| runs.iter().find(|run| run.2 == TaskId(task)).unwrap().0;
    let waited = first(1).saturating_sub(first(0));
    assert!(waited < 20 * US, "{waited} ns");
    let vcpus = &outcome.vms[0].vcpus;
    let lead = vcpus[1].run.abs_diff(vcpus[0].run);
    assert!(lead < 10 * MS, "{lead} ns");
}

/// Under a gang mode where vCPUs that are waited for run sooner, spinning shows which these are: spinners yield as
/// without a gang.
#[test]
fn a_spinning_vcpu_lets_a_sibling_go_first_under_demand_too() {
    let host = host("1n1l1c1t", 1000);
    let jobs = Jobs::new(vec![spins(0, 0, 0), hog(0, 1, 0)], 1);
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let placed = Placed(sched, Placement::Free, Gang::Demand(Boost::default()));
    let (_, runs) = run(&host, placed, jobs, SEC, 3 * SEC);
    let first = |task| runs.iter().find(|run| run.2 == TaskId(task)).unwrap().0;
    let waited = first(1).saturating_sub(first(0));
    assert!(waited < 20 * US, "{waited} ns");
}
