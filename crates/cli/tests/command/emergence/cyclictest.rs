// SPDX-License-Identifier: GPL-2.0-only
//! Wake-ups beside hackbench under EEVDF (Linux 7.1).

use super::page::Section;
use super::run::{Run, Runs, compare};
use std::sync::LazyLock;

static RUNS: LazyLock<Runs> = LazyLock::new(|| compare("cyclictest", &[]));

/// Microseconds beyond the median.
fn wait(figure: &str) -> f64 {
    let of = |figure: &str| {
        let figure = format!("ready_wait_{figure}_us");
        let wait = |run: Run| run.vm("cyclictest", &figure);
        RUNS.of("", wait).median
    };
    of(figure) - of("p50")
}

#[test]
fn most_wake_ups_run_at_once_and_some_wait_for_slices() {
    let [mean, p99, longest] = ["mean", "p99", "max"].map(wait);
    assert!((28.0..120.0).contains(&mean), "{mean}");
    assert!((500.0..2000.0).contains(&p99), "{p99}");
    assert!((2300.0..9300.0).contains(&longest), "{longest}");
}

/// The page's part.
pub fn section() -> Section {
    let row = |what: &str, source: &str, ours: f64| {
        vec![what.into(), source.into(), format!("{ours:.0}")]
    };
    Section {
        title: "Wake-ups beside hackbench",
        scenario: "cyclictest",
        paper: "Linux commit 78cde54ea5f0, first column: latencies of cyclictest beside hackbench of two groups, each \
                in a control group, on 8 CPUs. Its median, 56 us, is the path from the timer to the task; what exceeds \
                it is due to the scheduler.",
        verdict: "the 99 % and the longest: yes; the mean is three times as long",
        heads: &["beyond the median, us", "source", "ours"],
        rows: vec![
            row("mean", "28", wait("mean")),
            row("99 %", "991", wait("p99")),
            row("longest", "4,638", wait("max")),
        ],
        mechanism: "A task that wakes goes first if it is eligible and no slice protects the current task. Otherwise \
                    it waits for the end of that slice, or of slices before its own.",
        differs: "The mean. The source's run is 63 s long, with 22,679 wake-ups; ours have 1440, and the longest of a \
                  few is shorter. The source's median may itself contain waits. What hackbench's messages cost there \
                  is not given. An earlier form of this scenario had the mean at 32 us, but its hackbench was not \
                  hackbench: the receivers of a group shared one queue, which woke a sender for each item taken.",
    }
}
