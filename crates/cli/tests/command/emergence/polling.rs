// SPDX-License-Identifier: GPL-2.0-only
//! How long to poll for a halted vCPU (dissertation, Figure 3.1a).

use super::page::Section;
use super::run::{Run, Runs, sweep};
use std::sync::LazyLock;

const LIMITS: [&str; 7] = ["0us", "10us", "100us", "200us", "500us", "1ms", "5ms"];
const NONE: usize = 0;
const SHORT: [usize; 3] = [1, 2, 3];
const LONG: [usize; 3] = [4, 5, 6];

fn over(clients: &str, seeds: &str) -> Vec<Runs> {
    let args = ["--set", clients, "--seeds", seeds];
    sweep("halt-polling", "host.halt_poll.most", &LIMITS, &args)
}

static FEW: LazyLock<Vec<Runs>> =
    LazyLock::new(|| over("client.users.connections=8", "1,2,3,4,5,6,7,8,9"));
static MANY: LazyLock<Vec<Runs>> = LazyLock::new(|| over("client.users.connections=64", "1,2,3"));

fn redis(run: Run) -> f64 {
    run.vm("redis", "throughput")
}

fn pagerank(run: Run) -> f64 {
    run.vm("pagerank", "throughput")
}

fn medians(runs: &[Runs], figure: impl Fn(Run) -> f64 + Copy) -> Vec<f64> {
    runs.iter().map(|runs| runs.of("", figure).median).collect()
}

#[test]
fn short_polls_do_no_harm_and_long_ones_eat_the_slice() {
    let rates: Vec<f64> = FEW.iter().map(|runs| runs.mean(redis)).collect();
    let short = SHORT.map(|place| rates[place] / rates[NONE]);
    assert!(
        short.iter().all(|ratio| (ratio - 1.0).abs() < 0.1),
        "{rates:?}"
    );
    assert!(
        LONG.iter().all(|&place| rates[place] < 0.85 * rates[NONE]),
        "{rates:?}"
    );
}

#[test]
fn polling_costs_the_neighbour() {
    let rates = medians(&FEW, pagerank);
    assert!(
        LONG.iter().all(|&place| rates[place] < 0.9 * rates[NONE]),
        "{rates:?}"
    );
}

#[test]
fn a_busy_server_hardly_polls_briefly() {
    let rates = medians(&MANY, redis);
    assert!((rates[1] / rates[NONE] - 1.0).abs() < 0.1, "{rates:?}");
}

/// The page's part.
pub fn section() -> Section {
    let relative = |all: &[Runs], place: usize, figure: fn(Run) -> f64| {
        let base = all[NONE].of("", figure).median;
        format!("{} %", all[place].of("", figure).times(100.0 / base))
    };
    let rows = LIMITS.iter().enumerate().map(|(place, limit)| {
        let paper = match place {
            0 => "100 %",
            1 | 2 => "slightly more",
            3 | 4 => "about 110 %, the plateau",
            _ => "Redis falls",
        };
        vec![
            (*limit).into(),
            paper.into(),
            relative(&FEW, place, redis),
            relative(&FEW, place, pagerank),
            relative(&MANY, place, redis),
            relative(&MANY, place, pagerank),
        ]
    });
    Section {
        title: "How long to poll",
        scenario: "halt-polling",
        paper: "Dissertation §3.2.1 and Figure 3.1(a): enhanced halt polling with a limit of 10 us to 5 ms. Throughput \
                of Redis and PageRank rises slightly and reaches a plateau at about 10 % from 200 us on; beyond 0.5 ms \
                Redis degrades (§3.3). 100 %: no polling.",
        verdict: "that short polls help Redis: no, they do it no harm; that Redis falls from 0.5 ms on: yes; that \
                  PageRank gains, too: no, it loses",
        heads: &[
            "longest poll",
            "paper",
            "Redis, a client per vCPU",
            "PageRank",
            "Redis, 64 clients",
            "PageRank",
        ],
        rows: rows.collect(),
        mechanism: "A poll that catches the next request (a round trip takes 180 us and more) saves a block and a \
                    wake-up. But a vCPU counts as running while the host polls for it. From some 0.5 ms on, that uses \
                    up the credit of a vCPU that hardly runs: its wake-ups no longer preempt, and it waits for whole \
                    slices of its neighbour. The neighbour loses the time spent polling.",
        differs: "The paper's PageRank gains as much as Redis, which the paper attributes to fewer switches. Here a \
                  switch costs 2.5 us, and the flush of caches and predictors, which that kernel does at each switch, \
                  is not modelled. Nor does Redis gain. Its requests and replies carry each other's ACKs, so a vCPU is \
                  woken half as often as when each packet had an ACK of its own; then, short polls brought Redis 20 % \
                  and more. A polling window that suffices is kept and one that does not is reset, so seeds end in \
                  different states, hence the ranges. In an earlier form of this scenario vCPUs were grouped by VM. \
                  Wake-ups of many-vCPU groups hardly preempt under CFS, so Redis never fell. The grouping was dropped \
                  because the paper's vanilla KVM lets vCPUs that use little preempt others (§3.2.1), and the limits \
                  of these tests were set with the new numbers in view.",
    }
}
