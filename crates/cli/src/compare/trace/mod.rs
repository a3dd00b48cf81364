// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run for its timeline (docs/timeline.md says what its tracks mean).
//!
//! The simulator reports to an [`Observer`] what happens; a [`Scene`] knows the tracks for it and writes them through a
//! [`Timeline`](corun_report::timeline::Timeline), whose memory does not grow with the run.

mod lanes;
mod names;
mod scene;
mod shares;

#[cfg(test)]
mod tests;

use super::runs::with_unit;
use super::watched::{Watched, Watcher};
use crate::failure::Invalid;
use corun_model::{Nanos, TaskId, VmId, time};
use corun_report::timeline::Window;
use corun_sim::host::{
    Counter, Instant, Lane, Observer, Span, Task, TaskSpec, TaskState, VcpuActivity,
};
use scene::Scene;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where a timeline goes, and how much of the run.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Write the timeline of the run, for ui.perfetto.dev (docs/timeline.md); the run must be a
    /// single one
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// Begin the timeline at this time of the run, warm-up included: seconds, or a number with a
    /// unit such as 500ms [default: 0]
    #[arg(long, value_name = "TIME", requires = "trace")]
    trace_from: Option<String>,

    /// Length of the timeline [default: to the end of the run]
    #[arg(long, value_name = "TIME", requires = "trace")]
    trace_for: Option<String>,
}

impl Options {
    /// The part of a run that lasts until `end` that is to be written.
    ///
    /// # Errors
    /// [`Invalid`] if a time cannot be read, or nothing of the run is in the window.
    pub fn window(&self, end: Nanos) -> anyhow::Result<Window> {
        let from = read("--trace-from", self.trace_from.as_deref())?.unwrap_or(0);
        let length = read("--trace-for", self.trace_for.as_deref())?.unwrap_or(Nanos::MAX);
        if length == 0 {
            return Err(Invalid::error("--trace-for: it is 0; accepted: more"));
        }
        if from >= end {
            return Err(Invalid::error(format!(
                "--trace-from: it is {}, but the run ends at {}",
                time::show(from),
                time::show(end)
            )));
        }
        let until = from.saturating_add(length);
        Ok(Window { from, until })
    }

    /// Begins the timeline of a run that lasts until `end` on a host with `pcpus` pCPUs, if one is
    /// wanted.
    ///
    /// # Errors
    /// As [`Options::window`]; or if the file cannot be written.
    pub fn begin(&self, pcpus: u32, end: Nanos) -> anyhow::Result<Option<Trace>> {
        let Some(file) = &self.trace else {
            return Ok(None);
        };
        create(file, pcpus, self.window(end)?).map(Some)
    }
}

/// A time on the command line; a bare number means seconds.
fn read(option: &str, text: Option<&str>) -> anyhow::Result<Option<Nanos>> {
    let Some(text) = text else { return Ok(None) };
    let time = time::parse(&with_unit(text)).ok_or_else(|| {
        Invalid::error(format!(
            "{option}: {text:?} is no time; accepted: seconds, or a number with ns, us, ms, s or min"
        ))
    })?;
    Ok(Some(time))
}

/// A timeline that is being written.
pub type Trace = Watched<Scene<BufWriter<File>>>;

fn create(file: &Path, pcpus: u32, window: Window) -> anyhow::Result<Trace> {
    Watched::create("--trace", file, |out| {
        let out = BufWriter::with_capacity(1 << 16, out);
        Ok(Scene::new(out, pcpus, window))
    })
}

impl<W: Write> Watcher<Scene<W>> {
    /// Passes events to the scene, until the window is over.
    fn tell(&self, tell: impl FnOnce(&mut Scene<W>) -> io::Result<()>) {
        self.write(|scene| match scene.is_over() {
            true => Ok(()),
            false => tell(scene),
        });
    }
}

impl<W: Write> Observer for Watcher<Scene<W>> {
    fn task(&mut self, id: TaskId, spec: &TaskSpec) {
        self.tell(|scene| scene.task(id, spec));
    }

    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        self.tell(|scene| scene.state(now, id, task.state, old));
    }

    fn thread_name(&mut self, vm: VmId, thread: u32, name: &str) {
        self.tell(|scene| {
            scene.lanes.thread(vm, thread, name);
            Ok(())
        });
    }

    fn device_name(&mut self, vm: VmId, device: u32, name: &str) {
        self.tell(|scene| {
            scene.lanes.device(vm, device, name);
            Ok(())
        });
    }

    fn guest_thread(&mut self, now: Nanos, vcpu: TaskId, thread: Option<u32>) {
        self.tell(|scene| scene.guest_thread(now, vcpu, thread));
    }

    fn vcpu_activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) {
        self.tell(|scene| scene.activity(now, vcpu, activity));
    }

    fn span_begin(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.tell(|scene| scene.span_begin(now, lane, kind, name));
    }

    fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.tell(|scene| scene.span_end(now, lane, kind, name));
    }

    fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) {
        self.tell(|scene| scene.instant(now, lane, kind));
    }

    fn counter(&mut self, now: Nanos, counter: Counter, value: u64) {
        self.tell(|scene| scene.counter(now, counter, value));
    }

    fn finish(&mut self, now: Nanos) {
        self.write(|scene| scene.finish(now));
    }
}
