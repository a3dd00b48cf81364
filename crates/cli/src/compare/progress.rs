// SPDX-License-Identifier: GPL-2.0-only
//! How far the runs are: a bar on a terminal, one line elsewhere, nothing if not wanted.

use crate::output;
use corun_model::{Nanos, time};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// Progress of all runs together, in virtual time.
pub struct Progress(ProgressBar);

impl Progress {
    /// `runs` runs which take `total` virtual time together, on `threads` threads.
    pub fn new(runs: usize, total: Nanos, threads: usize, quiet: bool) -> Self {
        let target = target(!quiet);
        if !quiet && target.is_hidden() {
            let threads = threads.min(runs);
            let (runs, threads) = (counted(runs, "run"), counted(threads, "thread"));
            output::note(&format!(
                "{runs}, {} of virtual time, on {threads}",
                time::show(total)
            ));
        }
        let bar = ProgressBar::with_draw_target(Some(total / time::MS), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3} % {eta:>4} left") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Progress of one run; hears the run's time.
    pub fn of_run(&self) -> impl FnMut(Nanos) + '_ {
        let mut told = 0;
        move |now| {
            let now = now / time::MS;
            self.0.inc(now.saturating_sub(told));
            told = told.max(now);
        }
    }

    /// All runs are over.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
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
