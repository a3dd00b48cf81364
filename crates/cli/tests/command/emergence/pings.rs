// SPDX-License-Identifier: GPL-2.0-only
//! A vCPU without a pCPU takes no interrupts.

use super::page::Section;
use super::run::{Runs, sweep};
use std::sync::LazyLock;

const SLICES: [&str; 3] = ["1ms", "10ms", "30ms"];

static RUNS: LazyLock<Vec<Runs>> =
    LazyLock::new(|| sweep("ping", "scheduler.credit.slice", &SLICES, &[]));

/// A quantile of the round trips in us.
fn trip(runs: &Runs, case: &str, quantile: &str) -> f64 {
    let figure = format!("response_{quantile}_us");
    runs.of(case, |run| run.client("ping", &figure)).median
}

/// With `neighbours` neighbours with slices of `slice` us, a ping waits for W with P(W > w) =
/// (neighbours - w/slice) / (neighbours + 1): the rest of a slice, and whole ones.
fn expected(neighbours: f64, slice: f64, quantile: f64) -> f64 {
    (slice * (neighbours - (1.0 - quantile) * (neighbours + 1.0))).max(0.0)
}

#[test]
fn a_ping_waits_for_the_rest_of_the_neighbours_slices() {
    for (runs, case, neighbours, slice) in [
        (&RUNS[1], "one neighbour", 1.0, 10_000.0),
        (&RUNS[2], "one neighbour", 1.0, 30_000.0),
    ] {
        let base = trip(runs, "alone", "p50");
        for (name, quantile) in [("p95", 0.95), ("p99", 0.99), ("max", 1.0)] {
            let found = trip(runs, case, name) - base;
            let expected = expected(neighbours, slice, quantile);
            assert!(
                (found - expected).abs() < 0.02 * slice,
                "{case} of {slice} us, {name}: {found}, expected {expected}"
            );
        }
    }
}

/// Where accounting comes within slices decides whether vCPUs run two in a row: no seed has less than whole rounds,
/// some have just that.
#[test]
fn rounds_are_of_one_slice_or_more() {
    for (runs, slice) in [(&RUNS[1], 10_000.0), (&RUNS[2], 30_000.0)] {
        for (case, neighbours) in [("one neighbour", 1.0), ("two neighbours", 2.0)] {
            let base = trip(runs, "alone", "p50");
            let found = runs.of(case, |run| run.client("ping", "response_p95_us"));
            let expected = expected(neighbours, slice, 0.95);
            let (least, most) = (found.low - base, found.high - base);
            assert!((least - expected).abs() < 0.02 * slice, "{case}: {least}");
            assert!(most < 2.2 * expected, "{case}: {most}, {expected}");
        }
    }
}

#[test]
fn a_boosted_vcpu_answers_at_once() {
    for (runs, slice) in [(&RUNS[1], 10_000.0), (&RUNS[2], 30_000.0)] {
        let base = trip(runs, "alone", "max");
        assert!(trip(runs, "idle, boosted", "max") < base + 10.0);
        let waits = trip(runs, "idle, not boosted", "max") - base;
        assert!((waits - slice).abs() < 0.02 * slice, "{waits}");
    }
}

/// The page's part.
pub fn section() -> Section {
    let mut rows = Vec::new();
    for (runs, (slice, ms)) in RUNS.iter().zip(SLICES.iter().zip([1.0, 10.0, 30.0])) {
        for (case, neighbours) in [
            ("alone", None),
            ("one neighbour", Some(1.0)),
            ("two neighbours", Some(2.0)),
            ("idle, boosted", None),
            ("idle, not boosted", None),
        ] {
            let of = |name, quantile| {
                let found = trip(runs, case, name) / 1e3;
                let base = trip(runs, "alone", "p50") / 1e3;
                match neighbours {
                    None => format!("{found:.2}"),
                    Some(n) => {
                        let expected = expected(n, ms, quantile) + base;
                        format!("{found:.2} ({expected:.2})")
                    }
                }
            };
            let [p95, p99, max] = [of("p95", 0.95), of("p99", 0.99), of("max", 1.0)];
            rows.push(vec![(*slice).into(), case.into(), p95, p99, max]);
        }
    }
    Section {
        title: "Interrupts wait for the vCPU",
        scenario: "ping",
        paper: "vMigrater §2.2 and AQL_Sched §3.2: an interrupt is taken only when its vCPU has a pCPU; how late that \
                is depends on the number of vCPUs and the quantum. The expected values, in brackets, are arithmetic: \
                the rest of one neighbour's slice, plus whole slices of further neighbours.",
        verdict: "yes, to 2 % of a slice with one neighbour (medians of nine seeds)",
        heads: &[
            "slice",
            "the pinged VM",
            "95 %, ms",
            "99 %, ms",
            "longest, ms",
        ],
        rows,
        mechanism: "The ping's interrupt stays pending while its vCPU is ready or another runs. A \
                    vCPU that sleeps is woken, and Credit's BOOST lets it run at once.",
        differs: "Some seeds wait twice as long, and with two neighbours most do, because vCPUs run two slices in a \
                  row. Priorities are those of the last accounting, which hands out credit once per slice. A vCPU that \
                  still has credit when its slice ends goes on if the others were in debt at the last accounting. When \
                  accounting happens within slices depends on the seed, as it depends on when timers were started on a \
                  Xen host. A boosted vCPU waits for the rate limit of 1 ms, which shows with slices of 1 ms.",
    }
}
