// SPDX-License-Identifier: GPL-2.0-only
//! What was changed of threads, in memory and in a file: so that it is taken back when the daemon
//! ends, and by the next one if it crashed.
//!
//! A change is written down before it is made. It is taken back only where the thread still has what
//! was set: whoever changed it since knows better.

use super::thread;
use corun_model::{Nanos, PcpuSet};
use corun_system::affinity;
use corun_system::files::{self, Lock};
use corun_system::procfs::{Process, ThreadKey};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What can be set of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The pCPUs it may use.
    pub(crate) affinity: PcpuSet,
    /// The slice it asks for, ns; `None`: the scheduler's own, or it is not asked.
    pub(crate) slice: Option<Nanos>,
}

/// A thread of which something was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    tgid: u32,
    tid: u32,
    start: u64,
    before: Settings,
    now: Settings,
}

impl Changed {
    fn is(&self, key: &ThreadKey) -> bool {
        (self.tgid, self.tid, self.start) == (key.tgid, key.tid, key.start)
    }

    fn is_there(&self) -> bool {
        Process::here(self.tgid).thread(self.tid).start() == Some(self.start)
    }
}

/// What a daemon before has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Of so many threads.
    pub(crate) threads: usize,
    /// Why not all of that could be taken back: the first failure.
    pub(crate) stuck: Option<io::Error>,
    /// The file did not say what was changed, and is gone.
    pub(crate) unreadable: bool,
}

impl Left {
    /// For people, a sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let threads = self.threads;
        let back = match &self.stuck {
            _ if threads == 0 => None,
            None => Some(format!(
                "took back what a daemon before had left of {threads} threads"
            )),
            Some(why) => Some(format!(
                "not all that a daemon before had left of {threads} threads could be taken back, which is tried \
                 again at the end: {why}"
            )),
        };
        let unreadable = self.unreadable.then(|| {
            "what a daemon before had changed of threads is not known: its file could not be understood, and is \
             kept as .unreadable"
                .to_string()
        });
        back.into_iter().chain(unreadable).collect()
    }
}

/// All changes.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    changed: Vec<Changed>,
    /// The scheduler's own slice; `None`: slices cannot be set.
    own_slice: Option<Nanos>,
    /// Held as long as we are at work.
    _lock: Lock,
}

impl State {
    /// Begins: takes back what a daemon before left. Threads that cannot be set are tried again at the end; a
    /// file that says nothing is done with: refusing to start because of either would help nobody.
    ///
    /// # Errors
    /// If another daemon is at work, or the file cannot be read or written.
    pub(crate) fn open(path: &Path, own_slice: Option<Nanos>) -> io::Result<(Self, Left)> {
        let lock = Lock::take(path)?.ok_or_else(|| {
            let error = "another `corun host --backend fair` is at work";
            io::Error::new(io::ErrorKind::ResourceBusy, error)
        })?;
        let changed = match files::read(path) {
            Ok(text) => serde_json::from_slice(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
            Err(error) => return Err(error),
        };
        let unreadable = changed.is_none();
        if unreadable {
            // It may be somebody else's: the name is an option.
            fs::rename(path, path.with_extension("unreadable"))?;
        }
        let mut state = Self {
            path: path.to_path_buf(),
            changed: changed.unwrap_or_default(),
            own_slice,
            _lock: lock,
        };
        let (threads, stuck) = state.take_back();
        state.keep_file()?;
        let left = Left {
            threads,
            stuck,
            unreadable,
        };
        Ok((state, left))
    }

    fn write(&self) -> io::Result<()> {
        files::replace_durably(&self.path, &serde_json::to_vec(&self.changed)?)
    }

    /// Sets what is wanted of these threads, each once. Returns those for which it failed, with the
    /// reason; threads that have gone are none of them.
    pub(crate) fn set(
        &mut self,
        wanted: &[(ThreadKey, Settings)],
    ) -> io::Result<Vec<(ThreadKey, io::Error)>> {
        let mut due = Vec::new();
        for (key, wanted) in wanted {
            let known = self.changed.iter_mut().find(|changed| changed.is(key));
            match known {
                Some(known) if known.now == *wanted => continue,
                Some(known) => known.now = *wanted,
                None => match self.first(key, wanted) {
                    Some(first) if first.before != first.now => self.changed.push(first),
                    _ => continue,
                },
            }
            due.push((*key, *wanted));
        }
        self.changed.retain(Changed::is_there);
        if !due.is_empty() {
            self.write()?;
        }
        let make = |(key, wanted): (ThreadKey, Settings)| {
            let error = self.make(key.tid, &wanted).err()?;
            (error.raw_os_error() != Some(libc::ESRCH)).then_some((key, error))
        };
        Ok(due.into_iter().filter_map(make).collect())
    }

    /// A thread that nothing was changed of yet; `None` if it has gone.
    fn first(&self, key: &ThreadKey, wanted: &Settings) -> Option<Changed> {
        let before = Settings {
            affinity: affinity::get(key.tid).ok()?,
            slice: self.slice_of(key.tid).ok()?,
        };
        Some(Changed {
            tgid: key.tgid,
            tid: key.tid,
            start: key.start,
            before,
            now: *wanted,
        })
    }

    /// The slice that a thread asks for.
    fn slice_of(&self, tid: u32) -> io::Result<Option<Nanos>> {
        let slice = thread::slice(tid)?;
        Ok(slice.filter(|_| self.own_slice.is_some() && slice != self.own_slice))
    }

    fn make(&self, tid: u32, wanted: &Settings) -> io::Result<()> {
        if self.own_slice.is_some() && self.slice_of(tid)? != wanted.slice {
            thread::set_slice(tid, wanted.slice)?;
        }
        affinity::set(tid, &wanted.affinity)
    }

    /// Takes everything back. Returns how many threads that concerned.
    ///
    /// # Errors
    /// The first of those that could not be taken back, which the file still has, or why there is no file.
    pub(crate) fn restore(&mut self) -> io::Result<usize> {
        let (count, stuck) = self.take_back();
        self.keep_file()?;
        stuck.map_or(Ok(count), Err)
    }

    /// Takes back what can be; the rest stays on the list. Returns how many threads were there, and the first
    /// failure.
    fn take_back(&mut self) -> (usize, Option<io::Error>) {
        let all = std::mem::take(&mut self.changed);
        let (mut count, mut stuck) = (0, None);
        for changed in all.into_iter().filter(Changed::is_there) {
            count += 1;
            if let Err(error) = self.put_back(&changed) {
                stuck.get_or_insert(error);
                self.changed.push(changed);
            }
        }
        (count, stuck)
    }

    /// Gives a thread what it had, where it still has what was set.
    fn put_back(&self, changed: &Changed) -> io::Result<()> {
        let Changed {
            tid, before, now, ..
        } = changed;
        let affinity = match affinity::get(*tid).ok() == Some(now.affinity) {
            true => gone_is_fine(affinity::set(*tid, &before.affinity)),
            false => Ok(()),
        };
        if now.slice != before.slice && self.slice_of(*tid).ok() == Some(now.slice) {
            gone_is_fine(thread::set_slice(*tid, before.slice))?;
        }
        affinity
    }

    /// There is a file as long as there is something to take back.
    fn keep_file(&self) -> io::Result<()> {
        if !self.changed.is_empty() {
            return self.write();
        }
        files::remove(&self.path)
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}
