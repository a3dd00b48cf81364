// SPDX-License-Identifier: GPL-2.0-only
//! Who watches a run: a timeline (`--trace`), a recording (`--events`), or nobody.

use super::Args;
use super::events::Events;
use super::trace::Trace;
use crate::failure::Invalid;
use corun_sim::host::Observer;

/// What is being written of a run.
pub struct Watch {
    trace: Option<Trace>,
    events: Option<Events>,
}

impl Watch {
    /// Makes sure that only one run is watched; `selection` says how to select one of `runs`.
    ///
    /// # Errors
    /// If there are more.
    pub fn check(args: &Args, runs: usize, selection: &str) -> anyhow::Result<()> {
        let what = match (&args.trace, &args.events) {
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

    /// Begins what the command line asks for, of a host with `pcpus` pCPUs under `policy`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn create(args: &Args, pcpus: u32, policy: &str) -> anyhow::Result<Self> {
        let trace = args.trace.as_ref();
        let events = args.events.as_ref();
        Ok(Self {
            trace: trace.map(|file| Trace::create(file, pcpus)).transpose()?,
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
