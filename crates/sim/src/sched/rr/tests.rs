// SPDX-License-Identifier: GPL-2.0-only
//! SCHED_RR together with CFS, by hand and at random.

use super::{Rr, RrParams};
use crate::Outcome;
use crate::host::HostParams;
use crate::sched::cfs::{Cfs, CfsParams};
use crate::testing::{Audited, Does, Job, Jobs, host, run, run_shares, shared};
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuId, TaskId};
use proptest::prelude::*;

const PRESET: &str = "2.6.33";

fn cfs(host: &HostParams) -> CfsParams {
    CfsParams::preset(PRESET, host.topology.pcpus()).unwrap()
}

fn rr(host: &HostParams, runtime: Nanos, period: Nanos) -> Rr {
    let params = RrParams {
        runtime,
        period,
        ..RrParams::default()
    };
    Rr::new(params, cfs(host), host)
}

/// A VM of so many hogs, real-time, and as many other hogs as there are pCPUs.
fn gang_and_hogs(vcpus: u32, hogs: u32) -> Jobs {
    let gang = (0..vcpus).map(|n| Job::hog().vcpu(0, n));
    let others = (0..hogs).map(|_| Job::hog());
    Jobs::new(gang.chain(others).collect(), 1).with_realtime_vms(&[0])
}

fn shares(vcpus: u32, runtime: Nanos, period: Nanos) -> (Vec<f64>, Outcome) {
    let params = host("1n1l4c1t", 1000);
    let sched = rr(&params, runtime, period);
    let (outcome, _) = run(&params, sched, gang_and_hogs(vcpus, 4), 4 * SEC, 64 * SEC);
    (run_shares(&outcome), outcome)
}

/// The paper's four settings, with a gang on all pCPUs: it gets runtime/period of them, plus up to two ticks a period.
/// Throttling is noticed at ticks; and when a period begins, a throttled pCPU borrows from those before it whose
/// budgets have just been renewed, which cancels its overrun.
#[test]
fn a_gang_on_all_pcpus_gets_its_runtime() {
    for (runtime, period) in [(15, 30), (28, 30), (500, 1000), (950, 1000)] {
        let (shares, _) = shares(4, runtime * MS, period * MS);
        let (due, most) = (runtime as f64 / period as f64, 2.0 / period as f64);
        let gang = shares[..4].iter().sum::<f64>() / 4.0;
        assert!(
            (0.0..=most).contains(&(gang - due)),
            "{runtime}/{period}: {shares:?}"
        );
        let all: f64 = shares.iter().sum();
        // A pCPU whose hog was moved may idle while its real-time task is throttled.
        assert!(all > 3.98, "{runtime}/{period}: {shares:?}");
    }
}

/// The VM's vCPUs run at the same time, which is the behaviour to be imitated.
#[test]
fn a_gang_runs_together() {
    let params = host("1n1l4c1t", 1000);
    let sched = rr(&params, 15 * MS, 30 * MS);
    let (_, runs) = run(&params, sched, gang_and_hogs(4, 4), 0, 10 * SEC);
    let starts = |task| -> Vec<_> {
        let of = |&&(at, _, id): &&(Nanos, PcpuId, TaskId)| at > SEC && id == TaskId(task);
        runs.iter().filter(of).map(|run| run.0).collect()
    };
    assert!(starts(0).len() > 200);
    for task in 1..4 {
        assert_eq!(starts(task), starts(0));
    }
}

/// A single vCPU borrows what the other pCPUs do not use, for good, until it has whole periods: then throttling ends.
/// Under CFS the hogs share the other three pCPUs.
#[test]
fn a_lone_vcpu_borrows_all_it_needs() {
    let (shares, _) = shares(1, 500 * MS, SEC);
    assert!(shares[0] > 0.999, "{shares:?}");
    assert!(shares[1..].iter().all(|&share| share > 0.3), "{shares:?}");
}

/// Throttled vCPUs wait even if no other task wants the pCPU.
#[test]
fn a_throttled_pcpu_idles() {
    let params = host("1n1l1c1t", 1000);
    let sched = rr(&params, 15 * MS, 30 * MS);
    let (outcome, _) = run(&params, sched, gang_and_hogs(1, 0), SEC, 31 * SEC);
    assert!(
        (outcome.idle_share - 0.5).abs() < 0.01,
        "{}",
        outcome.idle_share
    );
}

/// Two vCPUs on one pCPU take turns of 100 ms.
#[test]
fn turns_of_a_slice() {
    let params = host("1n1l1c1t", 1000);
    let sched = rr(&params, SEC, SEC);
    let (_, runs) = run(&params, sched, gang_and_hogs(2, 1), 0, SEC - MS);
    let starts: Vec<_> = runs.iter().map(|run| (run.0 / MS, run.2.0)).collect();
    assert_eq!(starts.len(), 10, "{starts:?}");
    for (pair, n) in starts.windows(2).zip(0u32..) {
        assert_eq!(pair[1].0 - pair[0].0, 100, "{starts:?}");
        assert_eq!(pair[0].1, n % 2, "{starts:?}");
    }
}

/// Six vCPUs that sleep now and then on four pCPUs: while a pCPU has no real-time task, none waits
/// behind another one for longer than a switch takes.
#[test]
fn real_time_tasks_spread() {
    let params = host("1n1l4c1t", 1000);
    let cycles = Does::Cycles {
        work: 3 * MS,
        sleep: 3 * MS,
        spread: 90,
    };
    let gang = (0..4).map(|n| Job::new(cycles.clone()).vcpu(0, n));
    let hogs = (0..4).map(|_| Job::hog());
    let jobs = Jobs::new(gang.chain(hogs).collect(), 3).with_realtime_vms(&[0]);
    let (outcome, _) = run(&params, rr(&params, SEC, SEC), jobs, SEC, 11 * SEC);
    for (name, _, totals) in &outcome.tasks[..4] {
        assert_eq!(totals.ready, 0, "{name}: {totals:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Without real-time VMs it is CFS, run for run.
    #[test]
    fn without_real_time_vms_it_is_cfs(scene in shared::scenes()) {
        let end = SEC / 2;
        let (params, jobs) = scene.parts();
        let (_, ours) = run(&params, rr(&params, 15 * MS, 30 * MS), jobs, 0, end);
        let (_, jobs) = scene.parts();
        let (_, theirs) = run(&params, Cfs::new(cfs(&params), &params), jobs, 0, end);
        prop_assert_eq!(ours, theirs);
    }

    /// Whatever is real-time: no task is lost or run twice, and affinity holds.
    #[test]
    fn random_loads(scene in shared::scenes(), runtime in 1u64..30, first in any::<bool>()) {
        let (params, jobs) = scene.parts();
        let vms: Vec<usize> = (0..scene.vms()).filter(|&vm| vm == 0 || first).collect();
        let sched = Audited::new(rr(&params, runtime * MS, 30 * MS), Nanos::MAX);
        let (outcome, _) = run(&params, sched, jobs.with_realtime_vms(&vms), 0, 2 * SEC);
        prop_assert!(outcome.tasks.iter().any(|task| task.2.run > 0));
    }
}
