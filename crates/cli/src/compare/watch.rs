// SPDX-License-Identifier: GPL-2.0-only
//! Who watches a run: a timeline (`--trace`), a recording (`--events`), the report, or nobody.

use super::events::{self, Events, Ran};
use super::spans::{Part, Spans};
use super::tee::together;
use super::trace::{self, Trace};
use crate::failure::Invalid;
use corun_model::Nanos;
use corun_report::detail::Timeline;
use corun_sim::host::Observer;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What shall be written of a run.
#[derive(clap::Args, Default)]
pub struct WatchArgs {
    #[command(flatten)]
    timeline: trace::Options,

    /// Write the run's scheduling events as text of ftrace, which this command also reads as a
    /// recording; the run must be a single one, and is written from its beginning to its end. Locks and what
    /// guests do are in --trace
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "trace_from", "trace_for"])]
    events: Option<PathBuf>,

    /// Spans that the report's timelines may have, of all runs together; 0: none.
    #[arg(skip)]
    pub spans: usize,

    /// Why what was asked for could not be written.
    #[arg(skip)]
    lost: Mutex<Option<anyhow::Error>>,
}

/// Spans of one run: enough to look for a while, and quick to draw.
const SPANS_OF_A_RUN: usize = 20_000;

impl WatchArgs {
    /// Makes sure that only one run is watched; `selection` says how to select one of `runs`.
    ///
    /// # Errors
    /// If there are more.
    pub fn check(&self, runs: usize, selection: &str) -> anyhow::Result<()> {
        let what = match (&self.timeline.trace, &self.events) {
            (Some(_), _) => "--trace: a timeline is",
            (_, Some(_)) => "--events: events are",
            _ => return Ok(()),
        };
        match runs {
            1 => Ok(()),
            _ => Err(Invalid::error(format!(
                "{what} of one run, but there are {runs}: select one with {selection}"
            ))),
        }
    }

    /// The options that name files, with these.
    pub fn files(&self) -> [(&'static str, Option<&PathBuf>); 2] {
        [
            ("--trace", self.timeline.trace.as_ref()),
            ("--events", self.events.as_ref()),
        ]
    }

    /// Was all written, now that the runs are over?
    ///
    /// # Errors
    /// If not; the runs' results are good nevertheless.
    pub fn written(&self) -> anyhow::Result<()> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.take().map_or(Ok(()), Err)
    }

    fn lose(&self, why: anyhow::Error) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Is one run to be written down?
    pub fn is_one(&self) -> bool {
        self.timeline.trace.is_some() || self.events.is_some()
    }

    /// The part of a run that the report's timeline shows, from `from` on, if `runs` runs have one.
    pub fn part(&self, from: Nanos, runs: usize) -> Option<Part> {
        let most = (self.spans / runs.max(1)).min(SPANS_OF_A_RUN);
        (most > 0).then_some(Part { from, most })
    }

    /// Makes sure that the part to be watched lies in a run that lasts until `end`.
    ///
    /// # Errors
    /// If it does not, or its times cannot be read.
    pub fn window(&self, end: Nanos) -> anyhow::Result<()> {
        self.timeline.window(end).map(|_| ())
    }
}

/// What is being recorded of a run.
pub struct Watch<'a> {
    options: &'a WatchArgs,
    trace: Option<Trace>,
    events: Option<Events>,
    spans: Option<Spans>,
}

impl<'a> Watch<'a> {
    /// Begins what is asked for, of a run until `end`; with `part` for the report.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create(
        options: &'a WatchArgs,
        ran: Ran<'_>,
        end: Nanos,
        part: Option<Part>,
    ) -> anyhow::Result<Self> {
        let events = options.events.as_ref();
        Ok(Self {
            options,
            trace: options.timeline.begin(ran.pcpus, end)?,
            events: events.map(|file| events::create(file, ran)).transpose()?,
            spans: part.map(|part| Spans::new(part, ran.pcpus)),
        })
    }

    /// The observer for the host.
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let trace = self.trace.as_ref().map(Trace::observer);
        let events = self.events.as_ref().map(Events::observer);
        let spans = self.spans.as_ref().map(Spans::observer);
        together(trace.into_iter().chain(events).chain(spans).collect())
    }

    /// The run is over. Returns what the report shows of it; for files see [`WatchArgs::written`].
    pub fn close(self) -> Option<Timeline> {
        let trace = self.trace.map_or(Ok(()), Trace::close);
        if let Err(why) = trace.and(self.events.map_or(Ok(()), Events::close)) {
            self.options.lose(why);
        }
        self.spans.map(Spans::timeline)
    }
}
