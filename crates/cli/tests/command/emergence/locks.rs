// SPDX-License-Identifier: GPL-2.0-only
//! Lock holders that are descheduled, by slice, siblings spread or stacked.

use super::page::Section;
use super::run::{Run, Runs, compare};
use std::sync::LazyLock;

/// Slices in ms.
const SLICES: [u32; 5] = [1, 3, 6, 12, 24];

static RUNS: LazyLock<Vec<Runs>> = LazyLock::new(|| {
    let run = |&slice: &u32| {
        let latency = format!("scheduler.cfs.latency={}ms", 2 * slice);
        let least = format!("scheduler.cfs.min_granularity={slice}ms");
        compare("lock-holders", &["--set", &latency, "--set", &least])
    };
    SLICES.iter().map(run).collect()
});

fn long_wait(run: Run) -> f64 {
    run.vm("locks", "lock_wait_p99_us") / 1e3
}

fn rounds(run: Run) -> f64 {
    run.vm("locks", "throughput")
}

#[test]
fn stacked_siblings_wait_for_whole_slices() {
    let waits: Vec<_> = RUNS
        .iter()
        .map(|runs| runs.of("stacked", long_wait))
        .collect();
    for (wait, slice) in waits.iter().zip(SLICES) {
        // The neighbour's slice and the own one's rest, up to the next ticks.
        let slice = f64::from(slice);
        let bounds = slice..=2.0 * slice + 2.5;
        assert!(bounds.contains(&wait.high), "{slice} ms: {wait:?}");
    }
    assert!(waits.is_sorted_by(|a, b| a.high < b.high), "{waits:?}");
}

#[test]
fn stacking_costs_throughput_at_the_same_cpu_share() {
    for runs in &*RUNS {
        let share = |case| runs.of(case, |run| run.vm("locks", "utilisation")).median;
        assert!((share("spread") - share("stacked")).abs() < 0.01);
        let [spread, stacked] = ["spread", "stacked"].map(|case| runs.of(case, rounds));
        assert!(
            stacked.median < 0.8 * spread.median,
            "{stacked:?} {spread:?}"
        );
    }
}

/// The page's part.
pub fn section() -> Section {
    let mut rows = Vec::new();
    for (runs, slice) in RUNS.iter().zip(SLICES) {
        let mut row = vec![format!("{slice} ms")];
        for case in ["spread", "stacked"] {
            row.push(runs.of(case, long_wait).to_string());
            row.push(runs.of(case, rounds).to_string());
        }
        rows.push(row);
    }
    Section {
        title: "Descheduled lock holders",
        scenario: "lock-holders",
        paper: "Balance Scheduling §2.2 and AQL_Sched §3.2: a vCPU that waits for the lock of a descheduled sibling \
                spins for the rest of its slice. It wastes more with longer slices, and most of all when both share a \
                pCPU. No number is given for this plain case. Longest waits: 99 % of the contended ones.",
        verdict: "longer waits of stacked siblings: yes; lost throughput: yes with stacking; no with longer slices, \
                  where the loss shrinks",
        heads: &[
            "slice",
            "spread: wait, ms",
            "spread: rounds/s",
            "stacked: wait, ms",
            "stacked: rounds/s",
        ],
        rows,
        mechanism: "Ticket locks are granted in order of arrival, whether the next vCPU runs or not. With siblings on \
                    one pCPU, a vCPU that spins for its sibling's lock keeps that sibling from running, so each such \
                    wait lasts at least as long as the rest of its own slice.",
        differs: "Longer slices make each wait longer, but there are fewer waits, and spread siblings that run in step \
                  hardly wait at all. So, for two vCPUs that compute, the throughput lost to lock-holder preemption \
                  does not grow with the slice; what grows is the single wait. The papers have more vCPUs, and guests \
                  that sleep, which would keep siblings from staying in step.",
    }
}
