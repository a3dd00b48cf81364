// SPDX-License-Identifier: GPL-2.0-only
//! The expected lock latency of the balance-scheduling paper's Appendix A: worked out, and simulated.
//!
//! Problem: the paper's analytic model and the simulator should say the same where the model's assumptions hold, and
//! where they do not, it should be known by how much they differ. So `rotation` runs vCPUs that always want a pCPU
//! under the modelled schedulers and derives from the runs when a waiter would get the lock; the tests here compare
//! that with `corun_policies::analysis`, with tolerances that were set before any run, and write
//! `docs/lock-latency.md`.

mod locks;
mod page;
mod rotation;

use self::rotation::{Scheduler, Seen, Start, measure};
use crate::common;
use corun_policies::analysis::lock_latency::Setting;
use corun_policies::analysis::placements::{enumerate, out_of_step};
use std::sync::LazyLock;

/// Tasks per runqueue.
const QUEUES: [u32; 4] = [2, 3, 4, 5];

/// Runs of bound tasks on four pCPUs, by tasks per runqueue.
static IN_STEP_RUNS: LazyLock<[Seen; 4]> =
    LazyLock::new(|| QUEUES.map(|queue| measure(4, queue, Scheduler::Cfs, Start::InStep)));
static ANY_TIME_RUNS: LazyLock<[Seen; 4]> =
    LazyLock::new(|| QUEUES.map(|queue| measure(4, queue, Scheduler::Cfs, Start::AnyTime)));

/// The same of unbound ones.
static CFS_RUNS: LazyLock<[Seen; 4]> =
    LazyLock::new(|| QUEUES.map(|queue| measure(4, queue, Scheduler::CfsUnbound, Start::AnyTime)));
static BALANCE_RUNS: LazyLock<[Seen; 4]> =
    LazyLock::new(|| QUEUES.map(|queue| measure(4, queue, Scheduler::Balance, Start::AnyTime)));

/// Runs in step with the slice that they have: slots are those of the model, so only chance differs.
/// Set beforehand: a placement's latency lies between 0 and a period, so its standard deviation is at
/// most half a period, and the standard error of 200 placements at most 0.035 of one; three of these.
const IN_STEP: f64 = 0.1;

/// The expected latencies of a setting in slots.
fn in_slots(pcpus: u32, queue: u32) -> corun_policies::analysis::lock_latency::Expected {
    enumerate(&Setting {
        slice: 1.0,
        hold: 0.0,
        ..Setting::figure_4(pcpus, queue)
    })
}

#[track_caller]
fn is_the_model(pcpus: u32, queue: u32, seen: &Seen) {
    let expected = in_slots(pcpus, queue);
    let near = |a: f64, b: f64, most: f64| {
        assert!(
            (a - b).abs() < most,
            "{pcpus}, {queue}: {seen:?} {expected:?}"
        );
    };
    near(seen.apart, expected.balance, IN_STEP * f64::from(queue));
    near(seen.stacked, expected.stacked, IN_STEP * f64::from(queue));
    near(seen.stacking, expected.stacking, IN_STEP);
}

#[test]
fn placements_at_random_in_step_are_the_model() {
    for (queue, seen) in QUEUES.into_iter().zip(&*IN_STEP_RUNS) {
        is_the_model(4, queue, seen);
    }
    for pcpus in [2, 8] {
        is_the_model(pcpus, 3, &measure(pcpus, 3, Scheduler::Cfs, Start::InStep));
    }
}

/// Runqueues that are not in step overlap, and a waiter that runs meanwhile spins for only part of a slice.
#[test]
fn out_of_step_waits_are_shorter() {
    for (queue, seen) in QUEUES.into_iter().zip(&*ANY_TIME_RUNS) {
        let (step, out) = (in_slots(4, queue).balance, out_of_step(queue));
        assert!(
            (seen.apart - out).abs() < IN_STEP * f64::from(queue),
            "{queue}: {seen:?} {out}"
        );
        assert!(seen.apart < step, "{queue}: {seen:?} {step}");
    }
}

/// Unbound, as in the paper: balance scheduling never stacks; CFS does, and then waits are longer.
#[test]
fn balance_never_stacks() {
    for (cfs, balance) in CFS_RUNS.iter().zip(&*BALANCE_RUNS) {
        assert_eq!(balance.stacking, 0.0, "{balance:?}");
        assert!(cfs.stacking > 0.0 && cfs.stacked > cfs.apart, "{cfs:?}");
    }
}

/// `CORUN_UPDATE=1 cargo test -p corun --test command lock_latency` writes it anew.
#[test]
fn the_page_is_fresh() {
    common::is_fresh("docs/lock-latency.md", &page::page(), "lock_latency");
}
