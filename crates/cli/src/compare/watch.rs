// SPDX-License-Identifier: GPL-2.0-only
//! Who watches a run: a timeline (`--trace`), a recording (`--events`), or nobody.

use super::events::Events;
use super::trace::{self, Trace};
use crate::failure::Invalid;
use corun_model::Nanos;
use corun_sim::host::Observer;
use std::path::PathBuf;

/// What shall be written of a run.
#[derive(clap::Args, Default)]
pub struct WatchArgs {
    #[command(flatten)]
    timeline: trace::Options,

    /// Write the run's scheduling events as text of ftrace, which this command also reads as a
    /// recording; the run must be a single one
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    events: Option<PathBuf>,
}

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

    /// Makes sure that the part to be watched lies in a run that lasts until `end`.
    ///
    /// # Errors
    /// If it does not, or its times cannot be read.
    pub fn window(&self, end: Nanos) -> anyhow::Result<()> {
        self.timeline.window(end).map(|_| ())
    }
}

/// What is being written of a run.
pub struct Watch {
    trace: Option<Trace>,
    events: Option<Events>,
}

impl Watch {
    /// Begins what is asked for, of a host with `pcpus` pCPUs under `policy`, until `end`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create(
        options: &WatchArgs,
        pcpus: u32,
        policy: &str,
        end: Nanos,
    ) -> anyhow::Result<Self> {
        let events = options.events.as_ref();
        Ok(Self {
            trace: options.timeline.begin(pcpus, end)?,
            events: events
                .map(|file| Events::create(file, pcpus, policy))
                .transpose()?,
        })
    }

    /// What the host tells; the two exclude each other.
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let trace = self.trace.as_ref().map(Trace::observer);
        trace.or(self.events.as_ref().map(Events::observer))
    }

    /// The run is over.
    ///
    /// # Errors
    /// If a file could not be written.
    pub fn close(self) -> anyhow::Result<()> {
        self.trace.map_or(Ok(()), Trace::close)?;
        self.events.map_or(Ok(()), Events::close)
    }
}
