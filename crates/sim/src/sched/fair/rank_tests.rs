// SPDX-License-Identifier: GPL-2.0-only
//! Turns and waits of light and idle groups (`cpu.idle`) under the models of CFS and EEVDF, on a host of eight pCPUs.

use super::throttle_tests::{PLAIN, grouped, kernel, run};
use crate::VmOutcome;
use crate::load::Cgroup;
use crate::testing::{Does, Job};
use crate::waits::Waits;
use corun_model::Nanos;
use corun_model::time::{MS, SEC, US};

const IDLE: Cgroup = Cgroup {
    idle: true,
    ..PLAIN
};
const LIGHT: Cgroup = Cgroup { weight: 1, ..PLAIN };

/// The outcome of the first of several VMs of one vCPU each, all on one pCPU, with 1000 ticks a second: the first one
/// does `does`, the others compute.
fn first_of(name: &str, does: Does, group: Cgroup, others: u32, length: Nanos) -> VmOutcome {
    let mut jobs: Vec<Job> = (0..=others)
        .map(|vm| Job::hog().vcpu(vm, 0).on("0"))
        .collect();
    jobs[0].does = does;
    let mut groups = vec![group];
    groups.resize(others as usize + 1, PLAIN);
    let of_vms: Vec<usize> = (0..=others as usize).collect();
    let topology = ("1n1l8c1t", 1000);
    let jobs = grouped(jobs, groups, &of_vms);
    run(kernel(name, topology.0, 1000), topology, jobs, length)
        .vms
        .remove(0)
}

/// How long the turns and waits of a VM that computes are while another one computes, in ms;
/// medians.
fn turn_and_wait(name: &str, group: Cgroup) -> (u64, u64) {
    let vm = first_of(name, Does::Hog { from: 0 }, group, 1, 10 * SEC);
    let ms = |times: &Waits| (times.quantile(0.5) + 10 * US) / MS;
    (ms(&vm.turns), ms(&vm.ready_waits))
}

/// Slices of 3 ms at least since 5.13 (`BASE_SLICE`), which are three ticks where switches take no time, as here;
/// before 5.13, a weight of 10 to 1024 makes a slice of 0.2 ms, which lasts for one tick.
#[test]
fn a_light_group_has_the_least_slice() {
    let turn_and_wait = |name| turn_and_wait(name, LIGHT);
    let (turn, wait) = turn_and_wait("4.x");
    assert!(turn == 1 && (90..110).contains(&wait), "{turn}, {wait}");
    let (turn, wait) = turn_and_wait("5.x");
    assert!(turn == 3 && (290..310).contains(&wait), "{turn}, {wait}");
}

/// 0.75 ms for an idle group, which lasts for a tick (`sched_idle_min_granularity`, 5.15).
#[test]
fn an_idle_group_has_a_shorter_slice_beside_others() {
    for name in ["4.x", "5.x"] {
        let (turn, wait) = turn_and_wait(name, IDLE);
        assert!(
            turn == 1 && (330..350).contains(&wait),
            "{name}: {turn}, {wait}"
        );
    }
}

/// A sleeper of an idle group is placed 12 ms behind the others, and runs at the next tick; since 5.15 it is placed 1.5
/// ms behind them, and waits until a turn is over (`place_entity()`).
#[test]
fn a_sleeper_of_an_idle_group_waits_longer_since_5_15() {
    let nap = Does::Cycles {
        work: 10 * US,
        sleep: 50 * MS,
        spread: 50,
    };
    let mean = |name| {
        first_of(name, nap.clone(), IDLE, 3, 20 * SEC)
            .wakeups
            .mean()
            / MS as f64
    };
    let (before, after) = (mean("4.x"), mean("5.x"));
    assert!((0.3..2.0).contains(&before), "{before}");
    assert!((3.0..7.0).contains(&after), "{after}");
}

/// On one pCPU, a VM that computes for 5 us each ms, and an idle VM that computes for 3 ms each second, both give or
/// take a fifth: how long the first one waits at most, us.
fn longest_wait_beside_idle(name: &str) -> u64 {
    let cycles = |work, sleep| Does::Cycles {
        work,
        sleep,
        spread: 20,
    };
    let job = |vm, does| Job::new(does).vcpu(vm, 0).on("0");
    let jobs = vec![job(0, cycles(5 * US, MS)), job(1, cycles(3 * MS, SEC))];
    let topology = ("1n1l8c1t", 1000);
    let jobs = grouped(jobs, vec![PLAIN, IDLE], &[0, 1]);
    let outcome = run(kernel(name, topology.0, 1000), topology, jobs, 20 * SEC);
    outcome.vms[0].wakeups.max() / US
}

/// Until 6.14 (f553741ac8c0) a slice protects a task of an idle group, so that it goes on to the slice's end, or until
/// it sleeps.
#[test]
fn in_6_6_a_wake_up_waits_for_the_slice_of_an_idle_group() {
    let wait = longest_wait_beside_idle("6.6");
    assert!((2600..3600).contains(&wait), "{wait}");
    for name in ["5.x", "6.12", "7.x"] {
        let wait = longest_wait_beside_idle(name);
        assert!(wait < 100, "{name}: {wait}");
    }
}
