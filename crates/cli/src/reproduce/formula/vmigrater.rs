// SPDX-License-Identifier: GPL-2.0-only
//! vMigrater's model and its decisions as functions of checks. Times in ms.

use super::functions::{ANY, Function, function};
use super::papers::MS;
use corun_policies::vmigrater::model::{Run, least_migrations, speedup_by_p};
use corun_policies::vmigrater::{Activity, Core, MigraterParams, Why};

pub const ALL: &[Function] = &[
    // N, N_migrate, C_avg, T_ns.
    function("vmig_speedup", 4..=4, |of| run(of).speedup()),
    // T_ns, T_ts.
    function("vmig_n_min", 2..=2, |of| least_migrations(of[0], of[1])),
    // N, the dissertation's P.
    function("vmig_speedup_by_p", 2..=2, |of| speedup_by_p(of[0], of[1])),
    // N, N_migrate, C_avg, T_ns, T_ts.
    function("vmig_p_diss", 5..=5, |of| run(of).p_dissertation(of[4])),
    function("vmig_p_atc", 5..=5, |of| run(of).p_atc(of[4])),
    // Figure 7: beats at these times; the predicted slice, the last absence, what is left.
    function("vmig_slice_ms", ANY, |of| {
        let core = monitored(of);
        let slice = core.monitor(0).and_then(|it| it.slice(core.params()));
        slice.map_or(f64::NAN, |slice| slice as f64 / MS)
    }),
    function("vmig_away_ms", ANY, |of| {
        let core = monitored(of);
        let away = core.monitor(0).and_then(|it| it.away());
        away.map_or(f64::NAN, |away| away as f64 / MS)
    }),
    function("vmig_left_ms", ANY, |of| {
        let last = of.last().map_or(0, |last| ns(*last));
        match monitored(of).activity(0, last) {
            Activity::Active { left: Some(left) } => left as f64 / MS,
            _ => f64::NAN,
        }
    }),
    // Which task, then the loads of three tasks on a vCPU whose slice is about to end, and what is left of the slices
    // of vCPUs 1 to 3: the vCPU that the task goes to.
    function("vmig_goes_to", 7..=7, |of| {
        let loads = [of[1], of[2], of[3]];
        let core = pushed(&loads, &of[4..]);
        let task = of[0] as u64;
        core.0.vcpu_of(task).map_or(f64::NAN, f64::from)
    }),
    // What is left of the slice of the task's vCPU, or -1 if that is descheduled: 0 it stays, 1 PUSH, 2 PULL.
    function("vmig_mechanism", 1..=1, |of| mechanism(of[0])),
];

fn run(of: &[f64]) -> Run {
    Run {
        n: of[0],
        migrations: of[1],
        cost: of[2],
        alone: of[3],
    }
}

fn ns(ms: f64) -> u64 {
    (ms * MS).round() as u64
}

/// A core that has heard vCPU 0 beat at these times.
fn monitored(beats: &[f64]) -> Core {
    let mut core = Core::new(MigraterParams::default(), 1);
    for beat in beats {
        core.heartbeat(0, ns(*beat), None);
    }
    core
}

/// Slices of this length, ns, all alike.
const SLICE: u64 = 12_000_000;
/// When the decision is made.
const NOW: u64 = 100_000_000;

/// A core in which vCPU 0 has `left[0]` of its slice of 12 ms left, and so on; negative: descheduled.
fn sliced(left: &[f64]) -> Core {
    let mut core = Core::new(MigraterParams::default(), left.len() as u32);
    let beat = core.params().heartbeat;
    for (vcpu, left) in (0..).zip(left) {
        // A whole slice, an equally long absence, and the present slice up to now, or one that is over.
        let begun = match *left < 0.0 {
            true => NOW - 2 * SLICE,
            false => NOW + ns(*left) - SLICE,
        };
        let mut now = begun - 2 * SLICE;
        core.heartbeat(vcpu, now - SLICE, None);
        while now <= begun - SLICE {
            core.heartbeat(vcpu, now, None);
            now += beat;
        }
        let end = NOW.min(begun + SLICE - beat);
        let mut now = begun;
        while now <= end {
            core.heartbeat(vcpu, now, None);
            now += beat;
        }
    }
    core
}

/// The same with tasks 0, 1 … with these I/O loads (percent) on vCPU 0, after a decision; and why each task that moved
/// did.
fn decided(loads: &[f64], left: &[f64]) -> (Core, Vec<Why>) {
    let mut core = sliced(left);
    for (task, load) in (0..).zip(loads) {
        core.task_appeared(task, 0, 0, NOW);
        core.io_sampled(task, (*load * 10.0) as u64);
    }
    let moves = core.decide(NOW);
    (core, moves.iter().map(|it| it.why).collect())
}

fn pushed(loads: &[f64], others: &[f64]) -> (Core, Vec<Why>) {
    let mut left = vec![0.3];
    left.extend(others);
    decided(loads, &left)
}

fn mechanism(left: f64) -> f64 {
    let (_, why) = decided(&[90.0], &[left, 9.0]);
    match why.first() {
        None => 0.0,
        Some(Why::Push) => 1.0,
        Some(Why::Pull) => 2.0,
        Some(_) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_brought_into_the_state_that_is_asked_for() {
        let core = sliced(&[0.3, 9.0, -1.0]);
        let left = |vcpu| match core.activity(vcpu, NOW) {
            Activity::Active { left } => left,
            _ => None,
        };
        // Slices end with their last beat, up to one beat before they really do.
        assert!((0..=300_000).contains(&left(0).unwrap_or(u64::MAX)));
        assert!((8_700_000..=9_000_000).contains(&left(1).unwrap_or(0)));
        assert!(matches!(core.activity(2, NOW), Activity::Inactive { .. }));
    }
}
