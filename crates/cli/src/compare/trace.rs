// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run for its timeline.

use anyhow::Context;
use corun_model::{Nanos, TaskId};
use corun_report::timeline::{State, Timeline};
use corun_sim::host::{Observer, Task, TaskState};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A timeline that is being written.
pub struct Trace {
    file: PathBuf,
    shared: Rc<RefCell<Shared>>,
}

struct Shared {
    timeline: Timeline<BufWriter<File>>,
    /// The first failure; the run goes on without a timeline and fails at its end.
    failed: Option<io::Error>,
}

impl Trace {
    /// Begins the timeline of a host with `pcpus` pCPUs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(file: &Path, pcpus: u32) -> anyhow::Result<Self> {
        let begin = || Timeline::new(BufWriter::new(File::create(file)?), pcpus);
        let timeline = begin().with_context(|| format!("cannot write {}", file.display()))?;
        let failed = None;
        Ok(Self {
            file: file.to_path_buf(),
            shared: Rc::new(RefCell::new(Shared { timeline, failed })),
        })
    }

    /// What the host tells.
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

struct Watcher(Rc<RefCell<Shared>>);

impl Watcher {
    fn write(&self, write: impl FnOnce(&mut Timeline<BufWriter<File>>) -> io::Result<()>) {
        let shared = &mut *self.0.borrow_mut();
        if shared.failed.is_none() {
            shared.failed = write(&mut shared.timeline).err();
        }
    }
}

impl Observer for Watcher {
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, _: TaskState) {
        let name = &task.spec.name;
        let state = match task.state {
            TaskState::Waiting => State::Waiting,
            TaskState::Ready => State::Ready,
            TaskState::Running(cpu) => State::Running(cpu),
        };
        self.write(|timeline| {
            if !timeline.knows(id) {
                // vCPUs are called after their VM: `web/0`.
                let vm_name = name.rsplit_once('/').map_or(name.as_str(), |(vm, _)| vm);
                timeline.task(id, name, task.vm().map(|vm| (vm, vm_name)))?;
            }
            timeline.state(now, id, name, state)
        });
    }

    fn finish(&mut self, now: Nanos) {
        self.write(|timeline| timeline.finish(now));
    }
}
