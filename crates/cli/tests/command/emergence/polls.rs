// SPDX-License-Identifier: GPL-2.0-only
//! What polling for halted vCPUs saves: Linux 4.1 (writes), 4.3 (TCP_RR), and a token between two vCPUs.

use super::page::Section;
use super::run::{Run, Runs, sweep};
use std::sync::LazyLock;

/// Without and with.
static RUNS: LazyLock<Vec<Runs>> =
    LazyLock::new(|| sweep("polls", "host.halt_poll.most", &["0us", "500us"], &[]));
const IN_GUEST: &str = ", the guest polls";

/// A round trip of one byte, us.
fn trip(runs: &Runs) -> f64 {
    let trip = |run: Run| run.client("netperf", "response_mean_us");
    runs.of("rr", trip).median
}

/// Writes, percent of those without a VM: 20 us, and 4 KiB at 520 MB/s.
fn writes(runs: &Runs, polls: &str) -> f64 {
    let alone = 1e6 / (20.0 + 4096.0 / 520.0);
    let rate = |run: Run| run.vm("writer", "throughput");
    runs.of(&format!("dsync{polls}"), rate).median * 100.0 / alone
}

/// From one thread to the other, us.
fn switch(runs: &Runs, polls: &str) -> f64 {
    let rate = |run: Run| run.vm("token", "throughput");
    1e6 / runs.of(&format!("token{polls}"), rate).median
}

#[test]
fn polls_save_what_they_save() {
    let saved = 1.0 - trip(&RUNS[1]) / trip(&RUNS[0]);
    assert!((0.1..0.4).contains(&saved), "{saved}");
    let [without, with] = [&RUNS[0], &RUNS[1]].map(|runs| writes(runs, ""));
    assert!(with > 1.3 * without, "{with}, {without}");
    assert!(with / writes(&RUNS[0], IN_GUEST) > 0.99);
    let [without, with] = [&RUNS[0], &RUNS[1]].map(|runs| switch(runs, ""));
    assert!(with < without && switch(&RUNS[0], IN_GUEST) < with);
}

/// The page's part.
pub fn section() -> Section {
    let row = |what: &str, source: [&str; 3], ours: [String; 3]| {
        let [none, host, guest] = source;
        let [our_none, our_host, our_guest] = ours;
        let cells = [none, host, guest].map(String::from);
        let [none, host, guest] = cells;
        vec![
            what.into(),
            none,
            our_none,
            host,
            our_host,
            guest,
            our_guest,
        ]
    };
    let us = |value: f64| format!("{value:.1} us");
    let percent = |value: f64| format!("{value:.0} %");
    Section {
        title: "What polling saves",
        scenario: "polls",
        paper: "Three sources. Linux 4.3, \"KVM: dynamic halt-polling\": a round trip of TCP_RR. Linux 4.1, \"kvm: add \
                halt_poll_ns module parameter\": synchronous writes to a disk that answers fast, in per cent of those \
                without a VM. linux-kernel, 29 August 2017: a switch between two threads that wake each other \
                (contextswitch).",
        verdict: "yes; writes gain ×1.5 instead of ×2",
        heads: &[
            "what",
            "source: no polls",
            "ours",
            "source: KVM polls",
            "ours",
            "source: the guest polls",
            "ours",
        ],
        rows: vec![
            row(
                "TCP_RR",
                ["34 us", "26.7 us", "n. g."],
                [us(trip(&RUNS[0])), us(trip(&RUNS[1])), "–".into()],
            ),
            row(
                "writes",
                ["30 %", "60–65 %", "1 % more"],
                [
                    percent(writes(&RUNS[0], "")),
                    percent(writes(&RUNS[1], "")),
                    percent(writes(&RUNS[0], IN_GUEST)),
                ],
            ),
            row(
                "a switch",
                ["n. g.", "2.3–2.6 us", "2.05 us"],
                [
                    us(switch(&RUNS[0], "")),
                    us(switch(&RUNS[1], "")),
                    us(switch(&RUNS[0], IN_GUEST)),
                ],
            ),
        ],
        mechanism: "Without a poll, a wake-up takes the IPI, an exit from the state in which the core idles, and the \
                    switch. A vCPU for which the host polls is there at once; one whose guest polls needs neither exit \
                    nor interrupt.",
        differs: "The first column depends on how deeply a core sleeps. The sources do not name their processors' idle \
                  states, and with none (`host.costs.idle_wake` alone) TCP_RR takes 38 us. No number is given for the \
                  disk of the writes: with a faster one the VM's part is greater. That a woken vCPU has to find a pCPU \
                  elsewhere, which the second source mentions, costs hardly anything here.",
    }
}
