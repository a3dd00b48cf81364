// SPDX-License-Identifier: GPL-2.0-only
//! Balancing by averages of load, where one group has one thread and another many (Linux up to 5.4).

use super::page::Section;
use super::run::{Run, Runs, Spread, compare, sweep};
use std::sync::LazyLock;

const PRESETS: [&str; 3] = ["2.6.33", "4.x", "5.x"];
static CFS: LazyLock<Vec<Runs>> =
    LazyLock::new(|| sweep("imbalance", "scheduler.cfs.preset", &PRESETS, &[]));
static EEVDF: LazyLock<Runs> = LazyLock::new(|| compare("imbalance", &["--policies", "eevdf"]));

fn idle(runs: &Runs) -> Spread {
    runs.of("", |run: Run| run.host("idle_share") * 100.0)
}

/// By what part less time make takes if no pCPU idles while it has threads that wait.
fn slower(runs: &Runs) -> Spread {
    // 66 threads on 64 pCPUs, of which two are R's.
    runs.of("", |run: Run| {
        100.0 - run.vm("make", "throughput") / 62_000.0 * 100.0
    })
}

#[test]
fn older_kernels_leave_pcpus_idle_and_newer_ones_none() {
    for runs in &CFS[..2] {
        assert!(idle(runs).median > 3.0, "{}", idle(runs));
        assert!(slower(runs).median > 3.0);
    }
    for runs in [&CFS[2], &*EEVDF] {
        assert!(idle(runs).high < 0.1, "{}", idle(runs));
        assert!(slower(runs).median < 1.0);
    }
}

/// The page's part.
pub fn section() -> Section {
    let ours = |name: &str, source: &str, runs: &Runs| {
        vec![
            name.into(),
            source.into(),
            format!("{} %", slower(runs)),
            format!("{} %", idle(runs)),
        ]
    };
    Section {
        title: "A group of one thread and a group of many",
        scenario: "imbalance",
        paper: "The Linux Scheduler: a Decade of Wasted Cores (EuroSys 2016), §3.1: make with 64 threads, beside two \
                programs of one thread, leaves cores idle in the nodes of those two. With the bug fixed make takes 13 \
                % less time, and the others as long as before.",
        verdict: "yes: 4.x loses half as much, 2.6.33 more, 5.x and EEVDF nothing",
        heads: &["scheduler", "source", "make: less work by", "pCPUs idle"],
        rows: vec![
            ours("`cfs`, 2.6.33", "–", &CFS[0]),
            ours("`cfs`, 4.x", "13 % (4.1)", &CFS[1]),
            ours("`cfs`, 5.x", "(mended in 5.5)", &CFS[2]),
            ours("`eevdf`", "–", &EEVDF),
        ],
        mechanism: "A thread that is alone in its group weighs 64 times as much as one of 64. With one busy CPU, the \
                    node of such a thread already has more than its share of load, so its idle CPUs take nothing from \
                    nodes whose mean is lower.",
        differs: "Linux 4.1 has no preset: it balances by averages, as 2.6.33 and 4.13 do, but tracks load as the \
                  latter does. Threads compute all the time here; make's come and go, which both spreads and repairs \
                  the imbalance. One seed of 4.x has no idle pCPUs.",
    }
}
