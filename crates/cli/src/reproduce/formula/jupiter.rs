// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter's rules and the dissertation's Figure 4.2 as functions of checks. Times in ms.

use super::functions::{Function, function};
use super::papers::{MS, count};
use corun_model::Doing;
use corun_policies::analysis::figure_4_2::{self, CORES, Schedule};
use corun_policies::jupiter::rules;

pub const ALL: &[Function] = &[
    // Dissertation, Fig. 4.2; 1: with the conflict resolved.
    function("fig42_length", 1..=1, |of| figure(of[0]).length() as f64),
    function("fig42_switches", 2..=2, |of| {
        figure(of[0]).switches((of[1] as usize).min(CORES - 1)) as f64
    }),
    function("fig42_app1_ends", 1..=1, |of| {
        figure(of[0]).finish(0) as f64
    }),
    function("fig42_app1_again", 1..=1, |of| {
        figure(of[0]).second_iteration() as f64
    }),
    // Is a core of (b) free from 6 on?
    function("fig42_free_at_6", 1..=1, |of| {
        truth(figure(0.0).free_from(6).contains(&(of[0] as usize)))
    }),
    // Jupiter's rules (§4.4). Weights of three vCPUs, the first depleted, and the one to return.
    function("dats_weight", 4..=4, |of| {
        let whole = |at: usize| (of[at] * 1e6) as u64;
        let after = rules::weights_after([whole(0), whole(1), whole(2)]);
        after
            .get(of[3] as usize)
            .map_or(f64::NAN, |&w| w as f64 / 1e6)
    }),
    // A latency, what the vCPU does (0 waiting, 1 ready, 2 running), whether its slice is used up.
    function("dasl_latency_ms", 3..=3, |of| {
        let doing = [Doing::Waiting, Doing::Ready, Doing::Running];
        let doing = doing.get(of[1] as usize).copied().unwrap_or_default();
        rules::latencies_after((of[0] * MS) as u64, doing, of[2] > 0.0)[0] as f64 / MS
    }),
    // The latency of the sibling that woke it, 4 ms before.
    function("dasl_source_ms", 1..=1, |of| {
        rules::latencies_after((of[0] * MS) as u64, Doing::Ready, false)[1] as f64 / MS
    }),
    function("rcr_conflict", 3..=3, |of| {
        let slices = vec![(of[1] * MS) as u64; count(of[2]) as usize];
        truth(rules::slices_conflict((of[0] * MS) as u64, &slices))
    }),
    function("rcr_moved_for_slices", 2..=2, |of| {
        rules::moved_for_slices((of[0] * MS) as u64, (of[1] * MS) as u64) as f64
    }),
    function("rcr_moved_for_latencies", 3..=3, |of| {
        rules::moved_for_latencies(count(of[0]).min(64), of[1] as u64, of[2] as u64) as f64
    }),
    // Periods, use before and in the last, conflicts of two borrowers: the loan, percent.
    function("elb_loan", 5..=5, |of| {
        loan(of).map_or(0.0, |(_, loan)| loan as f64 / 10.0)
    }),
    function("elb_borrower", 5..=5, |of| {
        loan(of).map_or(0.0, |(to, _)| f64::from(to.0))
    }),
];

fn figure(resolved: f64) -> Schedule {
    match resolved > 0.0 {
        true => figure_4_2::resolved(),
        false => figure_4_2::unresolved(),
    }
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn loan(of: &[f64]) -> Option<(corun_model::VmId, u64)> {
    let number = |at: usize| of[at] as u64;
    let conflicts = [number(3), number(4)];
    let all = rules::loans(count(of[0]).min(1000), number(1), number(2), conflicts);
    all.last().copied()
}
