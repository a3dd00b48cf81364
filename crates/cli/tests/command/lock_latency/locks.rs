// SPDX-License-Identifier: GPL-2.0-only
//! The same host with a guest's real spin locks: `experiments/balance/appendix-a.toml`.

use crate::common::{self, corun, in_tree};
use serde_json::Value;
use std::sync::LazyLock;

/// Figures of a case under a policy, each over its seeds, in order.
pub struct Case {
    pub queue: u32,
    pub policy: &'static str,
    /// Share of runqueues, over time, with both vCPUs on them, percent: one of four is 25.
    pub stacked: Vec<f64>,
    /// The median and the 99th percentile of contended waits, ms.
    pub median: Vec<f64>,
    pub long: Vec<f64>,
    /// Times the lock was taken per second.
    pub rounds: Vec<f64>,
}

pub static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let scenario = in_tree("experiments/balance/appendix-a.toml");
    let scenario = scenario.to_str().unwrap();
    let json = common::json(corun(&["compare", scenario, "--json", "-q"]));
    let runs = json["runs"].as_array().unwrap();
    let case = |(queue, policy): (u32, &'static str)| {
        let name = format!("{queue} tasks");
        let mine = |run: &&Value| run["case"] == name.as_str() && run["policy"] == policy;
        let runs: Vec<&Value> = runs.iter().filter(mine).collect();
        assert!(!runs.is_empty(), "{name}");
        let figures = |figure: &dyn Fn(&Value) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(|run| figure(run)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let of_locks = |name: &'static str| {
            move |run: &Value| {
                let vms = run["vms"].as_array().unwrap();
                let vm = vms.iter().find(|vm| vm["name"] == "locks").unwrap();
                vm[name].as_f64().unwrap()
            }
        };
        Case {
            queue,
            policy,
            stacked: figures(&|run| 100.0 * run["host"]["stacking_probability"].as_f64().unwrap()),
            median: figures(&|run| of_locks("lock_wait_p50_us")(run) / 1e3),
            long: figures(&|run| of_locks("lock_wait_p99_us")(run) / 1e3),
            rounds: figures(&of_locks("throughput")),
        }
    };
    let queues = (2..=5).flat_map(|queue| ["cfs", "balance"].map(|policy| (queue, policy)));
    queues.map(case).collect()
});

/// The period of a runqueue, ms: CFS's slices end at the first tick beyond the ideal one, the
/// dispatcher's when they should.
fn period(case: &Case) -> f64 {
    let queue = f64::from(case.queue);
    match case.policy {
        "cfs" => queue * ((5.0 / queue).floor() + 1.0),
        _ => 5.0,
    }
}

/// A vCPU that runs before the lock's holder does waits for its next turn: a runqueue's period. That is the long wait,
/// and none is longer, except by what is left of the slice in which the vCPU came to the lock, and a tick; where pCPUs
/// are out of step, it is a little shorter. (At first the limit was a period and a tick; at 2 tasks the dispatcher
/// exceeded it.)
#[test]
fn long_waits_are_a_period() {
    for case in &*CASES {
        let most = case.long[case.long.len() - 1];
        let period = period(case);
        let limit = period + period / f64::from(case.queue) + 1.0;
        let about = format!("{}, {}: {most}", case.queue, case.policy);
        assert!((0.8 * period..limit).contains(&most), "{about}");
    }
}

#[test]
fn balance_never_stacks_them() {
    for case in CASES.iter().filter(|case| case.policy == "balance") {
        assert!(case.stacked.iter().all(|&share| share == 0.0));
    }
}
