// SPDX-License-Identifier: GPL-2.0-only
//! The papers' own formulas (`corun_policies::analysis`) as functions of checks. Times in ms.

use super::functions::{ANY, Function, function};
use corun_model::Doing;
use corun_policies::analysis::figure_4_2::{self, CORES, Schedule};
use corun_policies::analysis::lock_latency::{Period, Setting, equations};
use corun_policies::analysis::placements::enumerate;
use corun_policies::analysis::synchronisation::{
    MIN_PERIOD, MIN_SLICE, TcpExample, cfs_slice, classic_latency, dt_latency, worst_case,
};
use corun_policies::jupiter::rules;

/// A millisecond in the formulas' unit.
const MS: f64 = 1e6;

/// Of Sukwong & Kim, EuroSys 2011, then of the dissertation (ch. 4).
pub const ALL: &[Function] = &[
    function("cfs_slice_ms", 1..=1, |of| {
        cfs_slice(count(of[0]), MIN_PERIOD, MIN_SLICE) / MS
    }),
    function("worst_stacked_ms", 3..=3, |of| {
        worst_case(of[0] * MS, of[1] * MS, of[2] * MS).stacked / MS
    }),
    function("worst_coscheduled_ms", 3..=3, |of| {
        worst_case(of[0] * MS, of[1] * MS, of[2] * MS).coscheduled / MS
    }),
    function("tcp_response_ms", 0..=0, |_| {
        TcpExample::default().response_with_timeout() / MS
    }),
    function("tcp_increase", 0..=0, |_| {
        TcpExample::default().increase_with_timeout() * 100.0
    }),
    function("tcp_increase_without_timeout", 0..=0, |_| {
        TcpExample::default().increase_without_timeout() * 100.0
    }),
    function("dt_latency_ms", 2..=2, |of| {
        dt_latency(of[0] * MS, of[1] * MS) / MS
    }),
    // Lock holding time, slice, then the probabilities of the slots.
    function("classic_latency_ms", ANY, |of| match of {
        [hold, slice, probabilities @ ..] => {
            classic_latency(hold * MS, slice * MS, probabilities) / MS
        }
        _ => f64::NAN,
    }),
    // pCPUs, tasks per runqueue, vCPUs that want the lock; T_P is the runqueue's period.
    function("lock_latency_cfs_ms", 3..=3, |of| {
        equations(&setting(of), Period::Runqueue).default_scheduler() / MS
    }),
    function("lock_latency_balance_ms", 3..=3, |of| {
        equations(&setting(of), Period::Runqueue).balance / MS
    }),
    // The same by counting every placement.
    function("counted_latency_cfs_ms", 3..=3, |of| {
        small(of).map_or(f64::NAN, |it| enumerate(&it).default_scheduler() / MS)
    }),
    function("counted_latency_balance_ms", 3..=3, |of| {
        small(of).map_or(f64::NAN, |it| enumerate(&it).balance / MS)
    }),
    // By how many per cent balance scheduling is better, in the two readings of T_P.
    function("fig4b_period", 2..=2, |of| {
        improvement(of, Period::Runqueue)
    }),
    function("fig4b_slice", 2..=2, |of| improvement(of, Period::Slice)),
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
    // Jupiter's rules (§4.4). Weights of three vCPUs, the first depleted, and which to tell.
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
    // That of the sibling that woke it, 4 ms before.
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

/// A number of things; what is none is 1.
fn count(value: f64) -> u32 {
    (value as u32).max(1)
}

fn setting(of: &[f64]) -> Setting {
    Setting {
        wanting: count(of[2]).max(2),
        ..Setting::figure_4(count(of[0]), count(of[1]))
    }
}

/// A setting that can be counted in no time.
fn small(of: &[f64]) -> Option<Setting> {
    let setting = setting(of);
    let slots = f64::from(setting.pcpus) * f64::from(setting.queue);
    (slots.powf(f64::from(setting.wanting)) <= 1e6).then_some(setting)
}

fn improvement(of: &[f64], reading: Period) -> f64 {
    let setting = Setting::figure_4(count(of[0]), count(of[1]));
    equations(&setting, reading).improvement() * 100.0
}
