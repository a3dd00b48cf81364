// SPDX-License-Identifier: GPL-2.0-only
//! How far the runs are: a bar on a terminal, one line elsewhere, nothing if not wanted.

use crate::output;
use corun_model::{Nanos, time};
use corun_sim::Simulation;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

/// How often a run has reported before it is judged whether it will be long: some ten seconds.
const JUDGED_AFTER: u64 = 512;
/// A run of this many events takes an hour or more.
const MANY: u128 = 10_000_000_000;
/// A run of this many takes half a minute, which is reported if there are this many [in a virtual second](CROWDED).
const SOME: u128 = 100_000_000;
/// More than hundreds of pCPUs produce if each works in steps of microseconds.
const CROWDED: u128 = 100_000_000;

/// Progress of all runs together, in virtual time.
pub struct Progress {
    bar: ProgressBar,
    /// What was said once.
    told: Mutex<Vec<String>>,
}

impl Progress {
    /// `runs` runs, which take `total` virtual time together, on `threads` threads.
    pub fn new(runs: usize, total: Nanos, threads: usize, quiet: bool) -> Self {
        if !quiet && target(true).is_hidden() {
            let threads = threads.min(runs);
            let (runs, threads) = (counted(runs, "run"), counted(threads, "thread"));
            output::note(&format!(
                "{runs}, {} of virtual time, on {threads}",
                time::show(total)
            ));
        }
        Self::further(total, quiet)
    }

    /// More such runs, shown only by the bar: elsewhere a line for the first ones is enough.
    pub fn further(total: Nanos, quiet: bool) -> Self {
        let target = target(!quiet);
        let bar = ProgressBar::with_draw_target(Some(total / time::MS), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3} % {eta:>4} left") {
            bar.set_style(style);
        }
        Self {
            bar,
            told: Mutex::default(),
        }
    }

    /// Progress of one run, until `end`; it receives the run's time.
    pub fn of_run(&self, name: String, end: Nanos) -> impl FnMut(Nanos) + '_ {
        let mut told = 0;
        let mut heard = 0;
        move |now| {
            heard += 1;
            if heard == JUDGED_AFTER
                && let Some(events) = expected(heard, now, end)
            {
                let so_far = heard * Simulation::HEARD_EVERY / 1_000_000;
                let note = format!(
                    "{name}: {so_far} million events took only {} of virtual time, and the whole run will take some {} \
                     million: whatever does very little at a time, such as `compute 1ns` in a loop, makes many",
                    time::show(now),
                    events / 1_000_000
                );
                self.bar.suspend(|| output::note(&note));
            }
            let now = now / time::MS;
            self.bar.inc(now.saturating_sub(told));
            told = told.max(now);
        }
    }

    /// Says once what several runs may have to say.
    pub fn note_once(&self, note: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&note) {
            self.bar.suspend(|| output::note(&note));
            told.push(note);
        }
    }

    /// All runs are over.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The events of a run until `end`, if they are very many; the run is at `now` after having `heard` reports.
fn expected(heard: u64, now: Nanos, end: Nanos) -> Option<u128> {
    let events = u128::from(heard * Simulation::HEARD_EVERY);
    let in_time = |time: Nanos| events * u128::from(time) / u128::from(now.max(1));
    let all = in_time(end);
    let many = all > MANY || all > SOME && in_time(time::SEC) > CROWDED;
    many.then_some(all)
}

/// Where a bar is drawn: on a terminal, if it is wanted.
pub fn target(wanted: bool) -> ProgressDrawTarget {
    match wanted && std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    }
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, SEC};

    #[test]
    fn runs_of_very_many_events_are_told_of() {
        // 33.6 million events in 10 ms are 33.6 thousand million in 10 s; in a second, a hundredth of that.
        assert_eq!(expected(512, 10 * MS, 10 * SEC), Some(33_554_432_000));
        assert_eq!(expected(512, SEC, 10 * SEC), None);
        // A thread that computes for 1 ns at a time, for 300 ms: most of a minute.
        assert_eq!(expected(512, 35 * MS, 300 * MS), Some(287_609_417));
        assert_eq!(expected(512, 35 * MS, 100 * MS), None, "as good as over");
    }
}
