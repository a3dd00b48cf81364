// SPDX-License-Identifier: GPL-2.0-only
//! The vCPU monitor: the slices of a vCPU, as seen from inside the guest.
//!
//! Problem: a guest is not told when its vCPUs run. But a timer on a vCPU can only go off while the vCPU runs, so a
//! pause in regular beats shows when it was away (vMigrater, ATC 2018, §3.2, Figure 7; dissertation §2.4.1):
//!
//! ```text
//! beats     t1 |        | t2  t3  t4  t5 |          | t6  t7
//!              descheduled     slice       descheduled
//! ```
//!
//! The slice began with the first beat after a gap (t2) and ended with the last one before the next
//! (t5); that length predicts the present slice (or several do: [`slices`](super::slices)), of which
//! (t5 − t2) − (t7 − t6) is left at t7. The vCPU was away for t6 − t5, which predicts when it comes back
//! next time (dissertation, second property).
//!
//! Both ends of a slice are known only to within a beat. Where the host reports the time that it took (steal time), the
//! gap ended when the timer could go off at last, and began earlier by the time stolen: that is exact. Steal time also
//! tells a vCPU that was held up by its own guest from one that was descheduled.
//!
//! A slice known by beats is too short, by half a heartbeat on average, and the paper's threshold for what is left of
//! it, which only beats can look at, allows for that (§3.4). The end of a slice that is known exactly would be noticed
//! half a heartbeat later: of 40 heartbeats, when one is left instead of two, which is less than many requests take. So
//! half a heartbeat less is taken to be left of it, and tasks leave at the beat next to the threshold.

use super::params::MigraterParams;
use super::slices::Slices;
use corun_model::Nanos;

/// What a vCPU is taken to be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its heart beats. `left` is what is left of its slice, ns; `None`: it is not known, or not
    /// descheduled at all.
    Active {
        /// Rest of the slice.
        left: Option<Nanos>,
    },
    /// Descheduled. `back` is when it is expected to be back, ns from now (0: any moment now);
    /// `None`: it is not known.
    Inactive {
        /// Rest of its absence.
        back: Option<Nanos>,
    },
    /// Not there: off-line, or no beat yet.
    Absent,
}

/// What a beat said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The slice goes on.
    Regular,
    /// The vCPU was descheduled and is back.
    Rescheduled,
    /// It was away for a moment, and its slice goes on.
    Interrupted,
    /// The first one, or the first since the VM was suspended or the vCPU off-line.
    First,
}

/// The monitor of one vCPU.
#[derive(Clone, Debug, Default)]
pub struct Monitor {
    /// When it last beat.
    last: Option<Nanos>,
    /// How much later than a heartbeat after that the next one is to come: the vCPU idles.
    rest: Nanos,
    /// Steal time then, where it is known.
    stolen: Option<Nanos>,
    /// The present slice's start, and whether that was seen (rather than the first beat).
    start: Nanos,
    seen_start: bool,
    slices: Slices,
    /// How long it was away last time.
    away: Option<Nanos>,
    /// When it was last found to have been away.
    rescheduled: Option<Nanos>,
    /// Absences in a row that were taken to be interruptions.
    brief: u32,
}

/// An absence of less than this part of the last one is an interruption. Assumed: other vCPUs' slices do not vary by as
/// much, and what a host's own threads need is far shorter.
pub(super) const BRIEF: u64 = 4;
/// After this many interruptions in a row, they are taken to be how the host schedules now.
pub(super) const MOST_BRIEF: u32 = 3;

impl Monitor {
    /// A beat at `now`, with the vCPU's steal time so far where the host tells it, both ns.
    pub fn beat(&mut self, params: &MigraterParams, now: Nanos, stolen: Option<Nanos>) -> Beat {
        let newly = match (stolen, self.stolen) {
            (Some(now), Some(before)) => now.checked_sub(before),
            _ => None,
        };
        self.stolen = stolen;
        let Some(last) = self.last.replace(now) else {
            self.start = now;
            return Beat::First;
        };
        let rest = std::mem::take(&mut self.rest);
        let Some(silence) = now.checked_sub(last).filter(|it| *it <= params.suspended) else {
            *self = Self::default();
            (self.last, self.stolen, self.start) = (Some(now), stolen, now);
            return Beat::First;
        };
        // An idle vCPU uses nothing of a slice up.
        self.start = if rest > 0 { now } else { self.start };
        let silence = silence.saturating_sub(rest);
        // Less than half a beat stolen is the host's own work: interrupts, a kernel thread (assumed).
        let descheduled = newly.is_none_or(|newly| newly > params.heartbeat / 2);
        if silence <= params.gap || !descheduled {
            return Beat::Regular;
        }
        // Without steal time it was active up to its last beat, as far as is known.
        let away = newly.map_or(silence, |newly| newly.min(silence));
        if self.is_interruption(params, away) {
            self.brief += 1;
            self.start = self.start.saturating_add(away).min(now);
            self.rescheduled = Some(now);
            return Beat::Interrupted;
        }
        self.brief = 0;
        let ended = now - away;
        // A vCPU that idled and had to wait for its pCPU when it woke up had no slice that ended.
        if self.seen_start && rest == 0 {
            let length = ended.saturating_sub(self.start);
            self.slices.add(params, length, away);
        }
        (self.start, self.seen_start) = (now, true);
        self.away = Some(away);
        self.rescheduled = Some(now);
        Beat::Rescheduled
    }

    /// The vCPU, which has just beaten, idles: its next beat comes `rest` later than it would. Until then its silence
    /// says nothing, and it is there for any thread that wants it.
    pub fn rests(&mut self, rest: Nanos) {
        self.rest = rest;
        self.start = self.last.unwrap_or(self.start);
    }

    /// Does its slice go on after it was `away`? It does if a host's own thread had its pCPU for a moment (EEVDF gives
    /// a vCPU the rest of its slice then), or the guest held up its own beats. If that counted as the end of a slice,
    /// two short slices would spoil the predictions, and the next slice's end would catch tasks. Only the rule that
    /// learns from its losses (`slices` = 0) is guarded against that: the medians are the papers', which know no
    /// interruptions.
    fn is_interruption(&self, params: &MigraterParams, away: Nanos) -> bool {
        let usual = self.away.filter(|_| self.seen_start);
        params.slices == 0 && self.brief < MOST_BRIEF && usual.is_some_and(|it| away < it / BRIEF)
    }

    /// The predicted length of the present slice, ns; `None` before one was seen.
    pub fn slice(&self, params: &MigraterParams) -> Option<Nanos> {
        self.slices.predict(params)
    }

    /// What is left of a slice when it begins, as [`Monitor::activity`] tells it.
    pub fn whole(&self, params: &MigraterParams) -> Option<Nanos> {
        let slice = self.slice(params)?;
        Some(slice.saturating_sub(self.beyond_beats(params)))
    }

    /// By how much slices are longer than beats alone would show, on average.
    fn beyond_beats(&self, params: &MigraterParams) -> Nanos {
        match self.stolen {
            Some(_) => params.heartbeat / 2,
            None => 0,
        }
    }

    /// How long the vCPU was away last time, ns.
    pub fn away(&self) -> Option<Nanos> {
        self.away
    }

    /// When it was last found to have been away.
    pub fn rescheduled(&self) -> Option<Nanos> {
        self.rescheduled
    }

    /// What the vCPU is doing at `now`.
    pub fn activity(&self, params: &MigraterParams, now: Nanos) -> Activity {
        let Some(last) = self.last else {
            return Activity::Absent;
        };
        let silence = now.saturating_sub(last).saturating_sub(self.rest);
        if silence > params.gap {
            let back = self.away.map(|away| away.saturating_sub(silence));
            return Activity::Inactive { back };
        }
        let left = match (self.seen_start, self.slice(params)) {
            (true, Some(slice)) => {
                let left = left_of(params, slice, now.saturating_sub(self.start));
                Some(left.saturating_sub(self.beyond_beats(params)))
            }
            _ => None,
        };
        Activity::Active { left }
    }
}

/// What is left of a slice predicted to last `slice`, when `elapsed` of it is over.
///
/// A slice that outlasts its prediction is about to end, at any moment; if it outlasts it by far, the prediction was
/// wrong. How long it goes on is not known then, and a whole slice is assumed, for as long as nothing takes the pCPU.
/// (The authors' program begins to count anew there, so that tasks leave a vCPU once a slice that nobody else wants.)
fn left_of(params: &MigraterParams, slice: Nanos, elapsed: Nanos) -> Nanos {
    let void = slice.saturating_add(slice.saturating_mul(params.overrun) / 1000);
    match elapsed {
        _ if elapsed < slice => slice - elapsed,
        _ if elapsed < void => 0,
        _ => slice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, SEC, US};
    use proptest::prelude::*;

    const T: Nanos = 300 * US;

    /// Beats every 300 µs from `from` for `length`; returns the last.
    fn run(monitor: &mut Monitor, from: Nanos, length: Nanos) -> Nanos {
        run_with(&MigraterParams::default(), monitor, from, length)
    }

    fn run_with(
        params: &MigraterParams,
        monitor: &mut Monitor,
        from: Nanos,
        length: Nanos,
    ) -> Nanos {
        let beats = (0..=length / T).map(|beat| from + beat * T);
        beats
            .inspect(|now| {
                monitor.beat(params, *now, None);
            })
            .last()
            .unwrap_or(from)
    }

    #[test]
    fn the_workflow_of_figure_7() {
        let params = MigraterParams::default();
        let mut monitor = Monitor::default();
        let t1 = 5 * MS;
        let t2 = 16 * MS;
        let t5 = t2 + 3 * T;
        let t6 = t5 + 12 * MS;
        let t7 = t6 + T;
        assert_eq!(monitor.beat(&params, t1, None), Beat::First);
        assert_eq!(monitor.beat(&params, t2, None), Beat::Rescheduled);
        assert_eq!(monitor.slice(&params), None);
        for t in [t2 + T, t2 + 2 * T, t5] {
            assert_eq!(monitor.beat(&params, t, None), Beat::Regular);
        }
        assert_eq!(monitor.beat(&params, t6, None), Beat::Rescheduled);
        assert_eq!(monitor.slice(&params), Some(t5 - t2));
        assert_eq!(monitor.away(), Some(t6 - t5));
        monitor.beat(&params, t7, None);
        let left = Some((t5 - t2) - (t7 - t6));
        assert_eq!(monitor.activity(&params, t7), Activity::Active { left });
    }

    #[test]
    fn a_silent_vcpu_is_away_and_comes_back_as_last_time() {
        let params = MigraterParams::default();
        let mut monitor = Monitor::default();
        run(&mut monitor, 0, 3 * MS);
        let last = run(&mut monitor, 14 * MS, 11 * MS);
        let active = monitor.activity(&params, last + params.gap);
        assert!(matches!(active, Activity::Active { left: None }));
        // It was away from 3 to 14 ms.
        assert_eq!(
            monitor.activity(&params, last + 4 * MS),
            Activity::Inactive { back: Some(7 * MS) }
        );
        assert_eq!(
            monitor.activity(&params, last + 12 * MS),
            Activity::Inactive { back: Some(0) }
        );
    }

    #[test]
    fn steal_time_makes_the_ends_exact_and_tells_a_late_beat_from_a_lost_pcpu() {
        let params = MigraterParams::default();
        let mut monitor = Monitor::default();
        monitor.beat(&params, 0, Some(0));
        // Away from 0.2 to 10.2 ms; the beat due at 0.3 comes at 10.2.
        monitor.beat(&params, 10_200 * US, Some(10 * MS));
        assert_eq!(monitor.away(), Some(10 * MS));
        // 2 ms late, but nothing stolen: interrupts were off.
        assert_eq!(
            monitor.beat(&params, 12_200 * US, Some(10 * MS)),
            Beat::Regular
        );
        monitor.beat(&params, 12_500 * US, Some(10 * MS));
        // Away from 12.7 ms to 20 ms.
        monitor.beat(&params, 20 * MS, Some(17_300 * US));
        assert_eq!(monitor.slice(&params), Some(2_500 * US));
    }

    /// What is left of a slice at the beat that finds it to end, with and without steal time.
    #[test]
    fn an_exact_slice_is_found_to_end_at_the_beat_next_to_the_threshold() {
        let params = MigraterParams::default();
        let pushed_at = |slice: Nanos, told: bool| {
            let mut monitor = Monitor::default();
            for turn in 0..3 {
                for beat in 0..slice.div_ceil(T) {
                    let now = 2 * turn * slice + beat * T;
                    monitor.beat(&params, now, told.then_some(turn * slice));
                    let ends = matches!(monitor.activity(&params, now),
                        Activity::Active { left: Some(left) } if left < params.push);
                    if turn == 2 && ends {
                        return slice - beat * T;
                    }
                }
            }
            0
        };
        assert_eq!(
            (pushed_at(40 * T, false), pushed_at(40 * T, true)),
            (2 * T, 2 * T)
        );
        // The paper's.
        let left = 11 * MS - 35 * T;
        assert_eq!(
            (pushed_at(11 * MS, false), pushed_at(11 * MS, true)),
            (left, left)
        );
        // Hardly more than 40 heartbeats.
        let longer = 40 * T + 10 * US;
        assert_eq!(pushed_at(longer, true), 2 * T + 10 * US);
    }

    #[test]
    fn a_vcpu_that_rests_is_there_and_has_its_slice_before_it() {
        let params = MigraterParams::default();
        let mut monitor = Monitor::default();
        run(&mut monitor, 0, 3 * MS);
        run(&mut monitor, 14 * MS, 6 * MS);
        let last = run(&mut monitor, 34 * MS, 3 * MS);
        monitor.rests(9 * T);
        let whole = Activity::Active { left: Some(6 * MS) };
        assert_eq!(monitor.activity(&params, last), whole);
        assert!(matches!(
            monitor.activity(&params, last + 11 * T),
            Activity::Active { .. }
        ));
        assert!(matches!(
            monitor.activity(&params, last + 12 * T),
            Activity::Inactive { .. }
        ));
        assert_eq!(
            monitor.beat(&params, last + 10 * T, None),
            Beat::Regular,
            "as it was to"
        );
        assert_eq!(monitor.activity(&params, last + 10 * T), whole);
        monitor.rests(9 * T);
        assert_eq!(
            monitor.beat(&params, last + 12 * T, None),
            Beat::Regular,
            "sooner than it was to"
        );
        monitor.rests(9 * T);
        // It had to wait for its pCPU when it woke up, which no slice came before.
        let woken = last + 40 * T;
        assert_eq!(monitor.beat(&params, woken, None), Beat::Rescheduled);
        assert_eq!(monitor.away(), Some(19 * T));
        assert_eq!(monitor.slice(&params), Some(6 * MS));
        assert_eq!(monitor.activity(&params, woken), whole);
    }

    #[test]
    fn a_prediction_is_the_median_of_as_many_slices_as_are_asked_for() {
        let three = MigraterParams {
            slices: 3,
            ..MigraterParams::default()
        };
        let mut monitor = Monitor::default();
        let mut now = 0;
        for length in [3 * MS, 3 * MS, 12 * MS, 6 * MS] {
            now = run(&mut monitor, now + 10 * MS, length);
        }
        // The first has no known start; the last is not over.
        run(&mut monitor, now + 10 * MS, 0);
        assert_eq!(monitor.slice(&three), Some(6 * MS));
        assert_eq!(monitor.slice(&MigraterParams::default()), Some(6 * MS));
    }

    /// Slices of 11 ms by turns, one of them with a pause of 1 ms in it; how long each is said to last when
    /// the next begins.
    fn interrupted(slices: usize) -> Vec<Nanos> {
        let params = MigraterParams {
            slices,
            ..MigraterParams::default()
        };
        let (mut monitor, mut said) = (Monitor::default(), Vec::new());
        for turn in 1..8u64 {
            let begin = turn * 22 * MS;
            said.extend(monitor.slice(&params));
            for beat in 0..36 {
                let held_up = turn == 4 && (20..24).contains(&beat);
                if !held_up {
                    monitor.beat(&params, begin + beat * T, None);
                }
            }
        }
        said
    }

    #[test]
    fn a_slice_that_is_interrupted_goes_on() {
        let whole = 10_500 * US;
        let spoilt = |said: &[Nanos]| said.iter().filter(|it| **it + 2 * MS < whole).count();
        assert!(spoilt(&interrupted(1)) > 0 && spoilt(&interrupted(3)) > 0);
        assert_eq!(spoilt(&interrupted(0)), 0, "{:?}", interrupted(0));
    }

    #[test]
    fn interruptions_that_go_on_are_the_hosts_slices() {
        let params = MigraterParams {
            slices: 0,
            ..MigraterParams::default()
        };
        let mut monitor = Monitor::default();
        run_with(&params, &mut monitor, 0, 3 * MS);
        let mut now = run_with(&params, &mut monitor, 60 * MS, 11 * MS);
        for _ in 0..9 {
            now = run_with(&params, &mut monitor, now + 5 * MS, 3 * MS);
        }
        assert_eq!(monitor.slice(&params), Some(3 * MS));
        assert_eq!(monitor.away(), Some(5 * MS));
    }

    #[test]
    fn a_slice_that_outlasts_its_prediction_ends_any_moment_and_then_is_another() {
        let params = MigraterParams::default();
        assert_eq!(left_of(&params, 10 * MS, 4 * MS), 6 * MS);
        assert_eq!(left_of(&params, 10 * MS, 12 * MS), 0);
        assert_eq!(left_of(&params, 10 * MS, 15 * MS), 10 * MS);
        assert_eq!(left_of(&params, Nanos::MAX, 0), Nanos::MAX);
    }

    #[test]
    fn a_suspended_vm_and_a_clock_that_jumps_back_begin_anew() {
        let params = MigraterParams::default();
        let mut monitor = Monitor::default();
        run(&mut monitor, 0, 3 * MS);
        let last = run(&mut monitor, 10 * MS, 3 * MS);
        run(&mut monitor, last + 10 * MS, 0);
        assert!(monitor.slice(&params).is_some());
        let hours = 7200 * SEC;
        assert_eq!(monitor.beat(&params, hours, None), Beat::First);
        assert_eq!(monitor.slice(&params), None);
        assert_eq!(monitor.beat(&params, hours - SEC, None), Beat::First);
    }

    proptest! {
        /// Steady slices are predicted up to a beat at either end, wherever they begin.
        #[test]
        fn steady_slices_are_predicted(
            slice in 2_000u64..30_000,
            away in 1_000u64..60_000,
            phase in 0u64..300,
            slices in 0usize..=7,
        ) {
            let params = MigraterParams { slices, ..MigraterParams::default() };
            let (slice, away) = (slice * US, away * US);
            let mut monitor = Monitor::default();
            let mut next = phase * US;
            for round in 0..4u64 {
                let begin = round * (slice + away);
                // A timer that was due while the vCPU was away goes off when it is back.
                next = next.max(begin);
                while next < begin + slice {
                    monitor.beat(&params, next, None);
                    next += T;
                }
            }
            let predicted = monitor.slice(&params).unwrap_or(0);
            prop_assert!(predicted <= slice && predicted + T >= slice, "{predicted} of {slice}");
            let gone = monitor.away().unwrap_or(0);
            prop_assert!(gone >= away && gone <= away + T, "{gone} of {away}");
        }

        /// Whatever is heard, whenever: no panic, and nothing is left of more than a slice.
        #[test]
        fn any_beats_will_do(beats in prop::collection::vec((any::<u64>(), any::<Option<u64>>()), 0..60)) {
            let params = MigraterParams::default();
            let mut monitor = Monitor::default();
            for (now, stolen) in beats {
                monitor.beat(&params, now, stolen);
                if let Activity::Active { left: Some(left) } = monitor.activity(&params, now) {
                    prop_assert!(Some(left) <= monitor.slice(&params));
                }
            }
        }
    }
}
