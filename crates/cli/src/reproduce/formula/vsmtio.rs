// SPDX-License-Identifier: GPL-2.0-only
//! vSMT-IO's rules (`corun_policies::vsmtio`) as functions of checks. Times in ms, rates and speed-ups in
//! percent.

use super::functions::{Function, function};
use super::papers::{MS, count};
use corun_model::TaskId;
use corun_policies::vsmtio::VsmtIoParams;
use corun_policies::vsmtio::adjuster::{Rates, swap};
use corun_policies::vsmtio::ltcr::{Ltcr, Performance, reward};
use corun_policies::vsmtio::rass::{FULL, Ranked, split};
use corun_policies::vsmtio::symbiosis::{Coefficients, Cycles};
use std::collections::BTreeMap;

pub const ALL: &[Function] = &[
    // Algorithm 1, from 1 ms on: speed-ups of CPU-bound and I/O-bound vCPUs while 10 % more is tested, while
    // 10 % less is, and periods: the timeout.
    function("ltcr_timeout_ms", 5..=5, |of| {
        ltcr(of).desired() as f64 / MS
    }),
    // The same: the timeout in force in the next period.
    function("ltcr_tries_ms", 5..=5, |of| {
        ltcr(of).effective() as f64 / MS
    }),
    // A retention's length, the times of deschedule and reschedule: what the I/O gains, what computing on the SMT
    // sibling does. With Table 3.2's speed beside switches.
    function("retention_gains_io_ms", 2..=2, |of| gains(of)[0]),
    function("retention_gains_cpu_ms", 2..=2, |of| gains(of)[1]),
    // Four vCPUs' weights and retention rates, and one of them, from 1: is it I/O-bound?
    function("rass_io", 9..=9, rass_io),
    // All cycles, those at work and those on misses: the share of waiting.
    function("cpi_wait", 3..=3, |of| {
        let whole = |at: usize| of[at] as u64;
        let cycles = Cycles::of(whole(0), whole(1), whole(2));
        cycles.map_or(f64::NAN, |cycles| f64::from(cycles.wait))
    }),
    // Shares of base and misses of three candidates in fair order and of the vCPU beside: which is picked.
    function("symbiosis_pick", 8..=8, |of| {
        let cycles = |at: usize| Cycles::of(100, of[2 * at] as u64, of[2 * at + 1] as u64);
        let known: Option<Vec<Cycles>> = (0..4).map(cycles).collect();
        let picked = known.and_then(|all| Coefficients::default().best(&all[..3], all[3]));
        picked.map_or(f64::NAN, |at| (at + 1) as f64)
    }),
    // Retention rates on two cores, three vCPUs each; the core: which of its vCPUs is swapped; 0: none.
    function("adjuster_swaps", 7..=7, adjuster_swaps),
];

fn ltcr(of: &[f64]) -> Ltcr {
    let bounds = VsmtIoParams::default().bounds;
    let mut ltcr = Ltcr::new(MS as u64);
    for _ in 0..count(of[4]).min(1000) {
        let at = match ltcr.effective().cmp(&ltcr.desired()) {
            std::cmp::Ordering::Equal => [100.0, 100.0],
            std::cmp::Ordering::Greater => [of[0], of[1]],
            std::cmp::Ordering::Less => [of[2], of[3]],
        };
        let achieved =
            |task, percent: f64| BTreeMap::from([(TaskId(task), (percent * 1e3) as u64)]);
        let seen = Performance {
            cpu: achieved(0, at[0]),
            io: achieved(1, at[1]),
        };
        ltcr.step(seen, &bounds);
    }
    ltcr
}

fn gains(of: &[f64]) -> [f64; 2] {
    const BESIDE_SWITCHES: u32 = 32;
    let gains = reward((of[0] * MS) as u64, (of[1] * MS) as u64, BESIDE_SWITCHES);
    gains.map(|gain| gain as f64 / MS)
}

fn rate(percent: f64) -> u32 {
    (percent * f64::from(FULL) / 100.0) as u32
}

fn rass_io(of: &[f64]) -> f64 {
    let vcpu = |at: usize| Ranked {
        task: TaskId::from(at + 1),
        weight: (of[2 * at] as u64).max(1),
        rate: rate(of[2 * at + 1]),
        was_io: false,
    };
    let mut all: Vec<Ranked> = (0..4).map(vcpu).collect();
    let io = split(&mut all);
    let meant = |vcpu: &Ranked| f64::from(vcpu.task.0) == of[8];
    f64::from(u8::from(all[..io].iter().any(meant)))
}

fn adjuster_swaps(of: &[f64]) -> f64 {
    let core = |core: usize| Rates {
        group: (0, 0),
        vcpus: (0..3)
            .map(|at| (TaskId::from(10 * core + at + 1), rate(of[3 * core + at])))
            .collect(),
    };
    let threshold = VsmtIoParams::default().homogeneous * FULL / 100;
    let swapped = swap(&[core(0), core(1)], threshold, |_, _| true);
    let [one, other] = swapped.map_or([0, 0], |(one, other)| [one.0, other.0]);
    let on = |task: u32| f64::from(task / 10 + 1) == of[6];
    [one, other]
        .into_iter()
        .find(|&task| task > 0 && on(task))
        .map_or(0.0, |task| f64::from(task % 10))
}
