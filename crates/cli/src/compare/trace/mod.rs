// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run for its timeline (docs/timeline.md says what its tracks mean).
//!
//! The simulator tells an [`Observer`] what happens; a [`Scene`] knows the tracks for it and writes
//! them through a [`Timeline`](corun_report::timeline::Timeline), whose memory does not grow with
//! the run.

mod lanes;
mod names;
mod scene;
mod shares;

#[cfg(test)]
mod tests;

use crate::failure::Invalid;
use anyhow::Context;
use corun_model::{Nanos, TaskId, VmId, time};
use corun_report::timeline::Window;
use corun_sim::host::{
    Counter, Instant, Lane, Observer, Span, Task, TaskSpec, TaskState, VcpuActivity,
};
use scene::Scene;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

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
    /// The part of a run that lasts until `end` which shall be written.
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
        Trace::create(file, pcpus, self.window(end)?).map(Some)
    }
}

/// A time on the command line; a bare number means seconds.
fn read(option: &str, text: Option<&str>) -> anyhow::Result<Option<Nanos>> {
    let Some(text) = text else { return Ok(None) };
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = time::parse(&format!("{text}{}", if bare { "s" } else { "" }));
    let time = parsed.ok_or_else(|| {
        Invalid::error(format!(
            "{option}: {text:?} is no time; accepted: seconds, or a number with ns, us, ms, s or min"
        ))
    })?;
    Ok(Some(time))
}

/// A timeline that is being written.
pub struct Trace {
    file: PathBuf,
    shared: Rc<RefCell<Shared<BufWriter<File>>>>,
}

struct Shared<W: Write> {
    scene: Scene<W>,
    /// The first failure; the run goes on without a timeline and fails at its end.
    failed: Option<io::Error>,
}

impl Trace {
    fn create(file: &Path, pcpus: u32, window: Window) -> anyhow::Result<Self> {
        let out = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
        let scene = Scene::new(BufWriter::with_capacity(1 << 16, out), pcpus, window);
        Ok(Self {
            file: file.to_path_buf(),
            shared: Rc::new(RefCell::new(Shared {
                scene,
                failed: None,
            })),
        })
    }

    /// What the simulation tells.
    pub fn observer(&self) -> Box<dyn Observer> {
        Box::new(Watcher(self.shared.clone()))
    }

    /// The run is over.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn close(self) -> anyhow::Result<()> {
        match self.shared.borrow_mut().failed.take() {
            None => Ok(()),
            Some(error) => {
                Err(error).with_context(|| format!("cannot write {}", self.file.display()))
            }
        }
    }
}

/// Passes on what it hears until writing fails or the window is over.
struct Watcher<W: Write>(Rc<RefCell<Shared<W>>>);

impl<W: Write> Watcher<W> {
    fn write(&self, write: impl FnOnce(&mut Scene<W>) -> io::Result<()>) {
        let shared = &mut *self.0.borrow_mut();
        if shared.failed.is_none() && !shared.scene.is_over() {
            shared.failed = write(&mut shared.scene).err();
        }
    }
}

impl<W: Write> Observer for Watcher<W> {
    fn task(&mut self, id: TaskId, spec: &TaskSpec) {
        self.write(|scene| scene.task(id, spec));
    }

    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        self.write(|scene| scene.state(now, id, task.state, old));
    }

    fn thread_name(&mut self, vm: VmId, thread: u32, name: &str) {
        self.write(|scene| {
            scene.lanes.thread(vm, thread, name);
            Ok(())
        });
    }

    fn device_name(&mut self, vm: VmId, device: u32, name: &str) {
        self.write(|scene| {
            scene.lanes.device(vm, device, name);
            Ok(())
        });
    }

    fn guest_thread(&mut self, now: Nanos, vcpu: TaskId, thread: Option<u32>) {
        self.write(|scene| scene.guest_thread(now, vcpu, thread));
    }

    fn vcpu_activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) {
        self.write(|scene| scene.activity(now, vcpu, activity));
    }

    fn span_begin(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.write(|scene| scene.span_begin(now, lane, kind, name));
    }

    fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.write(|scene| scene.span_end(now, lane, kind, name));
    }

    fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) {
        self.write(|scene| scene.instant(now, lane, kind));
    }

    fn counter(&mut self, now: Nanos, counter: Counter, value: u64) {
        self.write(|scene| scene.counter(now, counter, value));
    }

    fn finish(&mut self, now: Nanos) {
        let shared = &mut *self.0.borrow_mut();
        if shared.failed.is_none() {
            shared.failed = shared.scene.finish(now).err();
        }
    }
}
