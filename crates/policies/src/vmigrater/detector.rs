// SPDX-License-Identifier: GPL-2.0-only
//! The task detector: which tasks are I/O-bound, within milliseconds.
//!
//! Problem: a burst of I/O may be over before `top` or `iotop` has noticed it. So the time that a task spends in I/O
//! requests is summed up from the events of their beginning and end, and judged window by window (5 ms; vMigrater, ATC
//! 2018, §3.3). A task becomes I/O-bound at one share of a window and stays so until it falls below a lower share.
//!
//! A window counts only time for which the task's vCPU was active. Otherwise the problem would hide itself: a task
//! whose vCPU is descheduled issues nothing, and would look as if it computed. How much of a window the task computed
//! is not asked: the paper has no such rule, requests do not show it, and a task that waits for its data for a third of
//! the time loses that third like any other. A vCPU that idled meanwhile counts as active: it may have waited for its
//! pCPU each time it woke up, but its task did not compute. Where there are no events, samples of a share do
//! ([`Detector::sampled`]).

use super::params::MigraterParams;
use corun_model::Nanos;

/// The detector of one task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detector {
    /// Requests under way.
    under_way: u32,
    /// The time up to which all is accounted for.
    at: Nanos,
    /// I/O since the last beat of its vCPU; the next beat tells whether it counts.
    pending: Nanos,
    beat: Nanos,
    /// This window so far: active time, and I/O in it.
    active: Nanos,
    io: Nanos,
    /// I/O in the last complete window, thousandths.
    load: u64,
    bound: bool,
}

impl Detector {
    /// A task first seen at `now`.
    pub fn new(now: Nanos) -> Self {
        Self {
            at: now,
            beat: now,
            ..Self::default()
        }
    }

    fn account(&mut self, now: Nanos) {
        if self.under_way > 0 {
            self.pending += now.saturating_sub(self.at);
        }
        self.at = self.at.max(now);
    }

    /// A request of the task begins.
    pub fn io_started(&mut self, now: Nanos) {
        self.account(now);
        self.under_way = self.under_way.saturating_add(1);
    }

    /// A request of the task has ended; an end without a beginning (the detector started in between) does not count.
    pub fn io_ended(&mut self, now: Nanos) {
        self.account(now);
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The task's vCPU is known to have been active since its last beat, or to have had nothing to do, or (`active`
    /// false) to have been away, or the task has come to another vCPU.
    pub fn beat(&mut self, params: &MigraterParams, now: Nanos, active: bool) {
        self.account(now);
        let passed = now.saturating_sub(self.beat);
        self.beat = now;
        let io = std::mem::take(&mut self.pending).min(passed);
        if !active {
            return;
        }
        self.active = self.active.saturating_add(passed);
        self.io = self.io.saturating_add(io);
        if self.active >= params.window.max(1) {
            let share = u128::from(self.io) * 1000 / u128::from(self.active);
            (self.active, self.io) = (0, 0);
            self.sampled(params, share as u64);
        }
    }

    /// The share of some time that the task was in I/O, thousandths.
    pub fn sampled(&mut self, params: &MigraterParams, share: u64) {
        self.load = share;
        self.bound = share
            >= if self.bound {
                params.leave
            } else {
                params.enter
            };
    }

    /// Is the task I/O-bound?
    pub fn bound(&self) -> bool {
        self.bound
    }

    /// Its I/O load: the share of the last window in I/O, thousandths.
    pub fn load(&self) -> u64 {
        self.load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};
    use proptest::prelude::*;

    const T: Nanos = 250 * US;

    /// A window of 5 ms, in each beat of which the task is in I/O for this long.
    fn window(detector: &mut Detector, from: Nanos, io: Nanos) -> Nanos {
        let params = MigraterParams::default();
        for beat in 0..20 {
            let begin = from + beat * T;
            detector.io_started(begin);
            detector.io_ended(begin + io);
            detector.beat(&params, begin + T, true);
        }
        from + 20 * T
    }

    #[test]
    fn a_task_enters_at_one_share_of_a_window_and_leaves_below_another() {
        let mut detector = Detector::new(0);
        let now = window(&mut detector, 0, 74 * US);
        assert_eq!((detector.bound(), detector.load()), (false, 296));
        let now = window(&mut detector, now, 75 * US);
        assert_eq!((detector.bound(), detector.load()), (true, 300));
        let now = window(&mut detector, now, 25 * US);
        assert!(detector.bound(), "a tenth keeps it");
        window(&mut detector, now, 24 * US);
        assert!(!detector.bound());
    }

    #[test]
    fn one_window_is_enough() {
        let params = MigraterParams::default();
        let mut detector = Detector::new(0);
        detector.io_started(0);
        for beat in 1..20 {
            detector.beat(&params, beat * T, true);
            assert!(!detector.bound());
        }
        detector.beat(&params, 5 * MS, true);
        assert!(detector.bound());
        assert_eq!(detector.load(), 1000);
    }

    #[test]
    fn the_time_a_vcpu_was_away_says_nothing_of_its_tasks() {
        let params = MigraterParams::default();
        let mut detector = Detector::new(0);
        let now = window(&mut detector, 0, 200 * US);
        detector.beat(&params, now + 40 * MS, false);
        assert!(detector.bound(), "away without I/O");
        let mut idle = Detector::new(0);
        idle.io_started(4 * MS);
        idle.beat(&params, 40 * MS, false);
        idle.io_ended(40 * MS);
        idle.beat(&params, 45 * MS, true);
        assert!(!idle.bound(), "away in the middle of a request");
    }

    #[test]
    fn overlapping_requests_count_once() {
        let params = MigraterParams::default();
        let mut detector = Detector::new(0);
        detector.io_started(0);
        detector.io_started(MS);
        detector.io_ended(2 * MS);
        detector.io_ended(3 * MS);
        detector.io_ended(3 * MS);
        detector.beat(&params, 5 * MS, true);
        assert_eq!(detector.load(), 600);
    }

    proptest! {
        /// Events in any order at any time: no panic, and no more than all of a window in I/O.
        #[test]
        fn never_more_than_all(events in prop::collection::vec((0u8..4, any::<u64>()), 0..100)) {
            let params = MigraterParams::default();
            let mut detector = Detector::new(0);
            for (event, now) in events {
                match event {
                    0 => detector.io_started(now),
                    1 => detector.io_ended(now),
                    event => detector.beat(&params, now, event == 2),
                }
                prop_assert!(detector.load() <= 1000);
            }
        }
    }
}
