// SPDX-License-Identifier: GPL-2.0-only
//! A quota with and without burst (Linux 5.14).

use super::page::Section;
use super::run::{Run, Runs, compare};
use std::sync::LazyLock;

static RUNS: LazyLock<Runs> = LazyLock::new(|| compare("burst", &[]));

fn wait(policy: &str, case: &str, figure: &str) -> super::run::Spread {
    let figure = |run: Run| run.vm("schbench", figure);
    RUNS.under(policy).of(case, figure)
}

#[test]
fn bursts_are_throttled_unless_they_may_save_up() {
    for policy in ["cfs", "eevdf"] {
        let longest = wait(policy, "no burst", "ready_wait_max_us");
        assert!((1000.0..30_000.0).contains(&longest.median), "{longest}");
        let p99 = wait(policy, "no burst", "ready_wait_p99_us").median;
        assert!((100.0..8000.0).contains(&p99), "{policy}: {p99}");
        let saved = wait(policy, "burst", "ready_wait_max_us").high;
        assert!(saved < 406.0, "{policy}: {saved}");
    }
}

/// The page's part.
pub fn section() -> Section {
    let figures = [
        "ready_wait_p50_us",
        "ready_wait_p99_us",
        "ready_wait_max_us",
    ];
    let row = |setting: &str, cells: [String; 3]| [vec![setting.into()], cells.to_vec()].concat();
    let ours = |policy, case| {
        let cells = figures.map(|figure| wait(policy, case, figure).to_string());
        row(&format!("`{policy}`, {case}"), cells)
    };
    let source =
        |case: &str, cells: [&str; 3]| row(&format!("source, {case}"), cells.map(String::from));
    Section {
        title: "A quota with and without burst",
        scenario: "burst",
        paper: "Linux 5.14, \"sched/fair: Introduce the burstable CFS controller\": wake-up latencies of schbench, us. \
                It uses 5 CPUs on average, of a quota of 6, in bursts of 200 ms of CPU time.",
        verdict: "yes; under CFS, the source's scheduler, the 99 % are four times as long, and the longest wait a third",
        heads: &["setting", "50 %", "99 %", "longest"],
        rows: vec![
            source("no burst", ["7", "933", "20,054"]),
            ours("cfs", "no burst"),
            ours("eevdf", "no burst"),
            source("burst", ["9", "12", "406"]),
            ours("cfs", "burst"),
            ours("eevdf", "burst"),
        ],
        mechanism: "Some periods see three bursts, 600 ms. A pCPU takes its part of the quota in pieces of 5 ms and \
                    gives back what is left beyond 1 ms, so some pCPUs find nothing left although others have not used \
                    theirs up. A vCPU that computes or wakes there waits until something is given back, or for the \
                    next period.",
        differs: "The kernel is that of 2021 (`cfs`). Waits are those of vCPUs for their pCPU, including those in the \
                  midst of a request; schbench counts only wake-ups. There are 39.9 ms between two bursts. With 40, \
                  tried first, every seed has the same two and a half bursts in each period and never throttles \
                  anybody; schbench's timing is less exact.",
    }
}
