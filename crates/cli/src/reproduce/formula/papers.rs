// SPDX-License-Identifier: GPL-2.0-only
//! The papers' own formulas (`corun_policies::analysis`) as functions of checks. Times in ms.

use super::functions::{ANY, Function, function};
use corun_policies::analysis::lock_latency::{Period, Setting, equations};
use corun_policies::analysis::placements::enumerate;
use corun_policies::analysis::synchronisation::{
    MIN_PERIOD, MIN_SLICE, TcpExample, cfs_slice, classic_latency, dt_latency, worst_case,
};

/// A millisecond in the formulas' unit.
const MS: f64 = 1e6;

/// Of Sukwong & Kim, EuroSys 2011.
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
];

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
