// SPDX-License-Identifier: GPL-2.0-only
//! The papers' own formulas (`corun_policies::analysis`) as functions of checks. Times in ms.

use super::functions::{ANY, Function, function};
use corun_model::{PcpuId, PcpuSet};
use corun_policies::analysis::algorithms::{balanced, called, coscheduling_slot, figure_3};
use corun_policies::analysis::lock_latency::{Period, Setting, equations};
use corun_policies::analysis::placements::enumerate;
use corun_policies::analysis::synchronisation::{
    MIN_PERIOD, MIN_SLICE, PauseLoop, TcpExample, cfs_slice, classic_latency, dt_latency,
    worst_case,
};

/// A millisecond in the formulas' unit.
pub(super) const MS: f64 = 1e6;

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
    // The same, by counting every placement.
    function("counted_latency_cfs_ms", 3..=3, |of| {
        small(of).map_or(f64::NAN, |it| enumerate(&it).default_scheduler() / MS)
    }),
    function("counted_latency_balance_ms", 3..=3, |of| {
        small(of).map_or(f64::NAN, |it| enumerate(&it).balance / MS)
    }),
    // By how many per cent balance scheduling is better, for the two readings of T_P.
    function("fig4b_period", 2..=2, |of| {
        improvement(of, Period::Runqueue)
    }),
    function("fig4b_slice", 2..=2, |of| improvement(of, Period::Slice)),
    // Algorithm 1: pCPUs, vCPUs, then how many pCPUs are idle in each slot. The first slot is 1; 0: no slot has enough.
    function("alg1_slot", ANY, |of| match of {
        [pcpus, wanted, idle @ ..] => {
            let slots: Vec<_> = idle.iter().map(|idle| slot(*pcpus, *idle)).collect();
            let found = coscheduling_slot(&slots, *wanted as usize).answer;
            found.map_or(0.0, |number| number as f64 + 1.0)
        }
        _ => f64::NAN,
    }),
    // Their steps at most: pCPUs, and for Algorithm 1 tasks per runqueue.
    function("alg1_steps", 2..=2, |of| {
        let slots: Vec<_> = (0..small_count(of[1])).map(|_| slot(of[0], 0.0)).collect();
        coscheduling_slot(&slots, small_count(of[0])).steps as f64
    }),
    function("alg2_steps", 1..=1, |of| {
        let siblings: Vec<_> = (1..small_count(of[0])).map(PcpuId::from).collect();
        balanced(PcpuSet::first(small_count(of[0]) as u32), &siblings).steps as f64
    }),
    function("alg3_steps", 1..=1, |of| {
        let siblings = vec![(true, false); small_count(of[0]) - 1];
        called(&siblings).steps as f64 + siblings.len() as f64
    }),
    // Figure 3: the slots in which the vCPUs start and the I/O job does; T0 is 0.
    function("figure_3_vcpus", 0..=0, |_| {
        figure_3().map_or(f64::NAN, |(vcpus, _)| vcpus as f64)
    }),
    function("figure_3_io", 0..=0, |_| {
        figure_3().map_or(f64::NAN, |(_, io)| io as f64)
    }),
    // The shortest spinning that pause-loop exiting finds, us: according to the paper, and to Intel.
    function("ple_spin_of_paper_us", 0..=0, |_| {
        PauseLoop::default().spin_of_paper() / 1e3
    }),
    function("ple_spin_us", 0..=0, |_| PauseLoop::default().spin() / 1e3),
];

/// A time slot with `idle` idle pCPUs.
fn slot(pcpus: f64, idle: f64) -> Vec<bool> {
    let idle = (idle.max(0.0)) as usize;
    (0..small_count(pcpus)).map(|cpu| cpu < idle).collect()
}

/// A number of things that fit a host.
fn small_count(value: f64) -> usize {
    (value as usize).clamp(1, 512)
}

/// A number of things, at least 1.
pub(super) fn count(value: f64) -> u32 {
    (value as u32).max(1)
}

fn setting(of: &[f64]) -> Setting {
    Setting {
        wanting: count(of[2]).max(2),
        ..Setting::figure_4(count(of[0]), count(of[1]))
    }
}

/// A setting small enough to be counted quickly.
fn small(of: &[f64]) -> Option<Setting> {
    let setting = setting(of);
    let slots = f64::from(setting.pcpus) * f64::from(setting.queue);
    (libm::pow(slots, f64::from(setting.wanting)) <= 1e6).then_some(setting)
}

fn improvement(of: &[f64], reading: Period) -> f64 {
    let setting = Setting::figure_4(count(of[0]), count(of[1]));
    equations(&setting, reading).improvement() * 100.0
}
