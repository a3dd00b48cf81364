// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of vMigrater, with defaults and where they come from.
//!
//! The papers state the heartbeat, the PUSH threshold and the detector's window; what they leave open is marked as
//! assumed, with the reason for the value.

use super::{monitor, slices};
use corun_model::time::{MS, SEC, US};
use corun_model::{Nanos, Parameter, Value};

/// The settings. Shares are in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigraterParams {
    /// Period of the heartbeats, ns; 50 µs to 100 ms.
    pub heartbeat: Nanos,
    /// A vCPU that is silent for longer was descheduled, ns; more than `heartbeat`. It does not follow the spread of
    /// beats: a beat that comes a heartbeat late is too rare to show in a spread, steal time shows it, and a longer gap
    /// would miss short absences.
    pub gap: Nanos,
    /// PUSH: a slice with less than this left is about to end, ns. Two heartbeats as in the paper (§3.4), and fixed:
    /// the authors' program adapts it to the bytes that applications report, but a guest has no such measure; and the
    /// cost of slices that end early is learnt where it arises, in their prediction (`slices` = 0).
    pub push: Nanos,
    /// A vCPU with at least this left of its slice is worth moving to, ns; at least `push`.
    pub worth: Nanos,
    /// How many past slices predict the present one, by their median; 1 to [`MOST_SLICES`]. 0: of a few rules, the one
    /// that would have lost least lately predicts.
    pub slices: usize,
    /// By which part of its prediction a slice may outlast it before the prediction is taken to be void, thousandths.
    pub overrun: u64,
    /// The detector's window, ns of a task's time on active vCPUs.
    pub window: Nanos,
    /// A task in I/O for at least this much of a window becomes I/O-bound, thousandths.
    pub enter: u64,
    /// One in I/O for less than this no longer is, thousandths; at most `enter`.
    pub leave: u64,
    /// If no vCPU was descheduled for this long, pCPUs are not shared, ns.
    pub unshared: Nanos,
    /// Period of an idle vCPU's heartbeats, ns. If it is no more than `heartbeat`, idle vCPUs beat as others do.
    pub idle: Nanos,
    /// A longer silence than this means a suspended VM, not a descheduled vCPU, ns.
    pub suspended: Nanos,
}

/// The most slices that a prediction looks at.
pub const MOST_SLICES: usize = 7;

impl Default for MigraterParams {
    fn default() -> Self {
        let heartbeat = 300 * US;
        Self {
            heartbeat,
            gap: 2 * heartbeat,
            push: 2 * heartbeat,
            worth: 2 * MS,
            slices: 1,
            overrun: 500,
            window: 5 * MS,
            enter: 300,
            leave: 100,
            unshared: SEC,
            idle: 3 * MS,
            suspended: 10 * SEC,
        }
    }
}

impl MigraterParams {
    /// The same with another heartbeat, and with what follows from it.
    #[must_use]
    pub fn beating_every(self, heartbeat: Nanos) -> Self {
        let times = |length: Nanos| length.saturating_mul(heartbeat) / self.heartbeat.max(1);
        let push = times(self.push);
        Self {
            heartbeat,
            gap: times(self.gap),
            push,
            worth: self.worth.max(push.saturating_add(heartbeat)),
            ..self
        }
    }
}

/// Its numbers that cannot be set.
pub fn constants() -> Vec<Parameter> {
    let of = Parameter::fixed_number;
    vec![
        of(
            "corun_policies::vmigrater::monitor::BRIEF",
            "an absence of less than one part in so many of the last one is an interruption and ends no slice",
            monitor::BRIEF,
            "as divisor",
            "assumed: others' slices do not vary by as much, what a host's own threads need is far shorter",
        ),
        of(
            "corun_policies::vmigrater::monitor::MOST_BRIEF",
            "after so many interruptions in a row such absences end slices",
            u64::from(monitor::MOST_BRIEF),
            "absences",
            "assumed: by then they are a new custom of the host's",
        ),
        of(
            "corun_policies::vmigrater::slices::FADING",
            "where the rule is chosen that would have lost least lately, a loss fades by one part in so many with each \
             slice",
            slices::FADING,
            "as divisor",
            "assumed: some ten slices decide, so that a host whose slices change is followed within a fraction of a second",
        ),
    ]
}

/// The table of them, with defaults.
pub fn parameters() -> Vec<Parameter> {
    let default = MigraterParams::default();
    let time = |key, meaning, value, source, tried| {
        Parameter::new(key, meaning, Value::Time(value), source, tried)
    };
    let share = |key, meaning, value: u64, source, tried| {
        Parameter::new(
            key,
            meaning,
            Value::Number(value as f64, "‰"),
            source,
            tried,
        )
    };
    let mut all = vec![
        time(
            "vm.*.guest.heartbeat",
            "period of a vCPU's heartbeats",
            default.heartbeat,
            "vMigrater, ATC 2018, §3.2; dissertation §2.4.1",
            "50 µs to 10 ms",
        ),
        time(
            "vmigrater::MigraterParams::gap",
            "silence from which on a vCPU was descheduled",
            default.gap,
            "the papers: longer than a heartbeat; assumed two, so that one late beat is no slice's end",
            "100 µs to 20 ms",
        ),
        time(
            "vmigrater::MigraterParams::push",
            "rest of a slice at which its I/O-bound tasks leave",
            default.push,
            "vMigrater, ATC 2018, §3.4: two heartbeats",
            "100 µs to 20 ms",
        ),
        time(
            "vmigrater::MigraterParams::worth",
            "rest of a slice that makes a vCPU worth moving to",
            default.worth,
            "the authors' program (github.com/hku-systems/vMigrater): 2000 µs",
            "the default only",
        ),
        time(
            "vmigrater::MigraterParams::window",
            "a task's time on active vCPUs in which its I/O is measured",
            default.window,
            "vMigrater, ATC 2018, §3.3",
            "the default only",
        ),
        time(
            "vm.*.guest.heartbeat_idle",
            "period of an idle vCPU's heartbeats",
            default.idle,
            "assumed: not the papers', whose vCPUs all compute. A beat wakes an idle vCPU: two switches on the host",
            "300 µs (as the papers have it), 3 and 100 ms",
        ),
        time(
            "vmigrater::MigraterParams::unshared",
            "without a descheduling for so long nothing is shared, and vMigrater off",
            default.unshared,
            "assumed: many slices of tens of ms (dissertation §2.4.1)",
            "the default only",
        ),
        time(
            "vmigrater::MigraterParams::suspended",
            "a longer silence is a suspended VM, after which all is learnt anew",
            default.suspended,
            "assumed: no host's scheduler keeps a vCPU waiting for seconds",
            "the default only",
        ),
    ];
    all.extend([
        Parameter::new(
            "vm.*.guest.predict_from",
            "past slices whose median predicts the present one; 0: the rule that would have lost least lately",
            Value::Number(default.slices as f64, "slices"),
            "vMigrater, ATC 2018, §3.2: the previous one",
            "0 to 3",
        ),
        share(
            "vmigrater::MigraterParams::overrun",
            "by how much of itself a slice may outlast its prediction",
            default.overrun,
            "assumed; the authors' program: to 18 ms for slices of 11 ms, 636 ‰",
            "the default only",
        ),
        share(
            "vmigrater::MigraterParams::enter",
            "share of a window in I/O that makes a task I/O-bound",
            default.enter,
            "assumed: the papers give no number; tasks at half a disk's pace count, computing ones do not",
            "the default only",
        ),
        share(
            "vmigrater::MigraterParams::leave",
            "share below which it no longer is",
            default.leave,
            "assumed: well below the one to enter, so that no task flaps",
            "the default only",
        ),
    ]);
    all
}
