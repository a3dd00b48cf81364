// SPDX-License-Identifier: GPL-2.0-only
//! The share of a task that sleeps half of the time (Linux 6.6: sleepers' credit gives way to lag).

use super::page::Section;
use super::run::{Runs, compare};
use std::sync::LazyLock;

static RUNS: LazyLock<Runs> = LazyLock::new(|| compare("sleepers", &[]));
const CASES: [&str; 3] = ["1 ms", "4 ms", "30 ms"];

/// Percent of the pCPU.
fn share(policy: &str, case: &str) -> f64 {
    let share = |run: super::run::Run| run.vm("sleeps", "run_share") * 100.0;
    RUNS.under(policy).of(case, share).median
}

#[test]
fn cfs_makes_short_sleeps_up_and_eevdf_none() {
    assert!((share("cfs", "1 ms") - 50.0).abs() < 2.0);
    assert!((share("cfs", "30 ms") - 33.3).abs() < 2.0);
    let eevdf = CASES.map(|case| share("eevdf", case));
    assert!(
        eevdf.iter().all(|share| (share - 33.3).abs() < 2.0),
        "{eevdf:?}"
    );
}

/// The page's part.
pub fn section() -> Section {
    let source = ["50 %, 33 %", "between, 33 %", "33 %, 33 %"];
    let rows = CASES.iter().zip(source).map(|(case, source)| {
        let ours = ["cfs", "eevdf"].map(|policy| format!("{:.1} %", share(policy, case)));
        let [cfs, eevdf] = ours;
        vec![(*case).into(), source.into(), cfs, eevdf]
    });
    Section {
        title: "A task that sleeps half of the time",
        scenario: "sleepers",
        paper: "Linux commit \"sched/fair: Commit to lag based placement\" (6.6), about a task that would use half of \
                the CPU, beside one that always runs. Under CFS it gets half, unless it sleeps for longer than CFS \
                compensates; under EEVDF it gets a third.",
        verdict: "yes",
        heads: &[
            "work and sleep",
            "source: CFS, EEVDF",
            "`cfs` (5.x)",
            "`eevdf`",
        ],
        rows: rows.collect(),
        mechanism: "CFS places a waking task up to half a latency (3 ms on one CPU) behind the others, so a shorter \
                    sleep costs it nothing. EEVDF's lag is what the task was owed when it went to sleep, which is \
                    nothing here.",
        differs: "Nothing; between the bounds the source has no number.",
    }
}
