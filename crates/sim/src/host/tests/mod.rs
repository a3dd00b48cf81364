// SPDX-License-Identifier: GPL-2.0-only
//! How hardware threads of one core slow each other down, seen in a whole run.

mod moment;

use super::{Activity, Costs, HardwareParams, HostParams, Totals};
use crate::sched::eevdf::{Eevdf, EevdfParams};
use crate::testing::{Does, Job, Jobs, host, run};
use corun_model::Nanos;
use corun_model::time::MS;

fn smt_host(topology: &str, costs: Costs) -> HostParams {
    HostParams {
        costs,
        hardware: HardwareParams::default(),
        ..host(topology, 1000)
    }
}

/// 50 ms of `jobs`, each bound to its pCPU: the accounts of job 0, which computes.
fn beside(params: &HostParams, jobs: &[Job]) -> Totals {
    let preset = EevdfParams::preset("7.x", params.topology.pcpus()).unwrap();
    let sched = Eevdf::new(preset, params);
    let computes = [Job::hog().on("0")];
    let jobs = computes.iter().chain(jobs).cloned().collect();
    let (outcome, _) = run(params, sched, Jobs::new(jobs, 1), MS, 51 * MS);
    outcome.tasks[0].2
}

/// Work done per time on the pCPU, in tenths of a percent.
fn speed(totals: Totals) -> Nanos {
    let lost = totals.smt_lost + totals.cache_lost;
    ((totals.run - lost) * 1000 + totals.run / 2) / totals.run
}

/// Two tasks of `pcpu`, numbered from `first`, that wake each other as soon as they run.
fn ping_pong(first: u32, pcpu: &str) -> [Job; 2] {
    [(first + 1, true), (first, false)].map(|(to, first)| {
        let work = 1;
        Job::new(Does::Hands { work, to, first }).on(pcpu)
    })
}

#[test]
fn table_3_2_of_the_dissertation() {
    let params = smt_host("1n1l1c2t", Costs::default());
    let keeps = |activity| [Job::new(Does::Keeps(activity)).on("1")];
    assert_eq!(speed(beside(&params, &[])), 1000);
    assert_eq!(speed(beside(&params, &keeps(Activity::Retention))), 1000);
    assert_eq!(speed(beside(&params, &keeps(Activity::HaltPolling))), 730);
    assert_eq!(speed(beside(&params, &ping_pong(1, "1"))), 320);
}

#[test]
fn two_that_compute_yield_a_quarter_more() {
    let params = smt_host("1n1l1c2t", Costs::default());
    let totals = beside(&params, &[Job::hog().on("1")]);
    assert_eq!(speed(totals), 625);
    assert_eq!(totals.cache_lost, 0);
}

#[test]
fn another_core_is_not_felt() {
    let params = smt_host("1n1l2c2t", Costs::default());
    let mut jobs = vec![Job::hog().on("3")];
    jobs.extend(ping_pong(2, "2"));
    assert_eq!(beside(&params, &jobs).smt_lost, 0);
}

#[test]
fn switches_are_felt_while_they_last() {
    // 2.5 us each, 40 of them in 1 ms: a waker computes for 22.5 us in between.
    let params = smt_host("1n1l1c2t", Costs::default());
    let hands = |to, first| {
        let work = 22_500;
        Job::new(Does::Hands { work, to, first }).on("1")
    };
    let totals = beside(&params, &[hands(2, true), hands(1, false)]);
    let expected = (2_500 * 320 + 22_500 * 625) / 25_000;
    let found = speed(totals);
    // The task that hands over is slowed, too, so there is a little less switching per time.
    assert!((expected..=expected + 15).contains(&found), "{found}");
}

/// 48 ms on one pCPU, in which `jobs` take turns of 1 ms: the number of switches, and of those
/// between vCPUs.
fn switches(jobs: &[Job]) -> [u64; 2] {
    let params = host("1n1l1c1t", 1000);
    let preset = EevdfParams::preset("7.x", 1).unwrap();
    let sched = Eevdf::new(preset, &params);
    let (outcome, _) = run(&params, sched, Jobs::new(jobs.to_vec(), 1), 0, 48 * MS);
    [outcome.switches, outcome.switches_between_vcpus]
}

/// A vCPU that comes back to where it was makes no switch between vCPUs, though the pCPU idled or had another task in
/// between; a vCPU that comes where another vCPU was does, whatever was in between.
#[test]
fn switches_between_vcpus_are_of_two_of_them() {
    let now_and_then = || {
        Job::new(Does::Cycles {
            work: MS,
            sleep: 3 * MS,
            spread: 0,
        })
    };
    let vcpu = |number| now_and_then().vcpu(0, number);
    assert_eq!(switches(&[vcpu(0)]), [12, 0]);
    assert_eq!(switches(&[vcpu(0), now_and_then()])[1], 0);
    let [all, between] = switches(&[vcpu(0), vcpu(1)]);
    assert_eq!(between, all - 1, "the first one follows none");
}
