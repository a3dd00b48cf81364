// SPDX-License-Identifier: GPL-2.0-only
//! Files that an observer given to the simulation writes while a run goes on.
//!
//! A run does not stop when its file cannot be written: it goes on without it and fails at its end, with the first
//! failure. Half a file is none: what is written has a temporary name until it is whole, and is removed if anything but
//! SIGKILL ends the command before.

use crate::outputs::Unfinished;
use anyhow::Context;
use corun_sim::host::Observer;
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The writer, and why it has stopped.
struct Shared<T> {
    writer: T,
    failed: Option<io::Error>,
}

/// A file that is being written by a `T`.
pub struct Watched<T> {
    option: &'static str,
    file: PathBuf,
    unfinished: Unfinished,
    shared: Rc<RefCell<Shared<T>>>,
}

impl<T> Watched<T> {
    /// Creates the file, which is named by `option`; `begin` makes the writer.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(
        option: &'static str,
        file: &Path,
        begin: impl FnOnce(File) -> io::Result<T>,
    ) -> anyhow::Result<Self> {
        let begun =
            Unfinished::begin(file).and_then(|(unfinished, to)| Ok((unfinished, begin(to)?)));
        let begun = begun.with_context(|| format!("{option}: cannot write {}", file.display()));
        let (unfinished, writer) = begun?;
        Ok(Self {
            option,
            file: file.to_path_buf(),
            unfinished,
            shared: Watcher::new(writer).0,
        })
    }

    /// What writes into it all that the simulation tells.
    pub fn observer(&self) -> Box<dyn Observer>
    where
        Watcher<T>: Observer + 'static,
    {
        Box::new(Watcher(self.shared.clone()))
    }

    /// The run is over.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn close(self) -> anyhow::Result<()> {
        let failed = self.shared.borrow_mut().failed.take();
        failed
            .map_or_else(|| self.unfinished.finish(), Err)
            .with_context(|| format!("{}: cannot write {}", self.option, self.file.display()))
    }
}

/// Passes on what it hears until writing fails.
pub struct Watcher<T>(Rc<RefCell<Shared<T>>>);

impl<T> Watcher<T> {
    /// With nobody else looking at the writer.
    pub fn new(writer: T) -> Self {
        let failed = None;
        Self(Rc::new(RefCell::new(Shared { writer, failed })))
    }

    /// Why nothing is written any more, if so.
    #[cfg(test)]
    pub fn failed(&self) -> Option<String> {
        self.0.borrow().failed.as_ref().map(ToString::to_string)
    }

    /// Writes, unless that has failed before.
    pub fn write(&self, write: impl FnOnce(&mut T) -> io::Result<()>) {
        let shared = &mut *self.0.borrow_mut();
        if shared.failed.is_none() {
            shared.failed = write(&mut shared.writer).err();
        }
    }
}
