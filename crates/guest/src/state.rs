// SPDX-License-Identifier: GPL-2.0-only
//! Which threads may have been moved and what they were allowed before, in memory and in a file: so
//! that it is given back when the daemon ends, and after a crash by `corun guest restore` or by the
//! next start.
//!
//! A thread is written down before it is moved for the first time, the file whole or not at all (rename). The vCPU it
//! was moved to last is not written down: that changes every few milliseconds. What a crash left is recognised by its
//! shape instead: a mask of a single vCPU, on a thread that had many when it was written down. Any other mask is
//! somebody else's will, and stays. Threads that a moved one has created since have inherited its mask. While the
//! daemon works it frees them itself, and writes down the time up to which it has done so: after a crash only younger
//! threads are heirs.

mod moved;
mod stuck;
mod widened;

use corun_model::PcpuSet;
use corun_system::affinity;
use corun_system::files::{self, Lock};
use corun_system::procfs::{Proc, ThreadKey};
use corun_system::rights;
use moved::Moved;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
pub use stuck::Stuck;
pub(crate) use stuck::in_words;

/// What to give back to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// The vCPUs it was allowed.
    pub(crate) allowed: PcpuSet,
    /// These were all there can be, or all that its cpuset has: then it is set free instead of being set to them, so
    /// that it may also use vCPUs that were plugged in since.
    pub(crate) free: bool,
    /// When it was written down, clock ticks since boot: what its process created after that inherited.
    pub(crate) since: u64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    key: ThreadKey,
    #[serde(flatten)]
    before: Before,
}

#[derive(Default, Serialize, Deserialize)]
struct Content {
    /// Of which boot: numbers of threads mean nothing in another one.
    boot: Option<String>,
    threads: Vec<Line>,
    /// Heirs that began before, clock ticks since boot, have been freed.
    #[serde(default)]
    looked: u64,
}

/// All threads that may have been moved.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    proc: Proc,
    threads: BTreeMap<ThreadKey, Before>,
    /// Of these, those that could not be given back what they had at the last try.
    stuck: BTreeMap<ThreadKey, Stuck>,
    looked: u64,
    /// Held as long as we are at work.
    _lock: Lock,
}

/// Is a daemon at work with this state file?
///
/// # Errors
/// If the caller may not know.
pub(crate) fn is_in_use(path: &Path) -> io::Result<bool> {
    Lock::is_taken(path)
}

impl State {
    /// Begins: gives back what a daemon before left. Returns how many threads that concerned. Those that cannot be
    /// given back are [stuck](State::stuck), and are tried again: refusing to start because of them would not help.
    ///
    /// # Errors
    /// If another daemon is at work, or the file cannot be read or written.
    pub(crate) fn open(path: &Path, proc: &Proc) -> io::Result<(Self, usize)> {
        let lock = Lock::take(path)?.ok_or_else(|| {
            let error = "another `corun guest` is at work with this file";
            io::Error::new(io::ErrorKind::ResourceBusy, error)
        })?;
        let content: Content = match files::read_own(path)? {
            Some(text) => serde_json::from_slice(&text).map_err(nonsense)?,
            None => Content::default(),
        };
        let ours = content.boot == proc.boot();
        let lines = content.threads.into_iter().filter(|_| ours);
        let mut state = Self {
            path: path.to_path_buf(),
            proc: proc.clone(),
            threads: lines.map(|line| (line.key, line.before)).collect(),
            stuck: BTreeMap::new(),
            looked: if ours { content.looked } else { 0 },
            _lock: lock,
        };
        let left = state.restore()?;
        Ok((state, left))
    }

    /// Writes the file whole or not at all. It need not survive a power failure: the threads do not, either.
    fn write(&self) -> io::Result<()> {
        let line = |(&key, &before): (&ThreadKey, &Before)| Line { key, before };
        let content = Content {
            boot: self.proc.boot(),
            threads: self.threads.iter().map(line).collect(),
            looked: self.looked,
        };
        files::replace(&self.path, &serde_json::to_vec(&content)?)
    }

    /// Writes threads down, before they are moved.
    ///
    /// # Errors
    /// If the file cannot be written: then none of them may be moved.
    pub(crate) fn enrol(&mut self, threads: &[(ThreadKey, Before)]) -> io::Result<()> {
        if threads.is_empty() {
            return Ok(());
        }
        for (key, before) in threads {
            self.threads.insert(*key, *before);
            self.stuck.remove(key);
        }
        self.write().inspect_err(|_| {
            for (key, _) in threads {
                self.threads.remove(key);
            }
        })
    }

    /// Threads that could not be given back what they had: they are still written down.
    pub(crate) fn stuck(&self) -> impl ExactSizeIterator<Item = &Stuck> {
        self.stuck.values()
    }

    /// Which these are.
    pub(crate) fn stuck_keys(&self) -> Vec<ThreadKey> {
        self.stuck.keys().copied().collect()
    }

    /// Is this one of them?
    pub(crate) fn is_stuck(&self, key: &ThreadKey) -> bool {
        self.stuck.contains_key(key)
    }

    /// Gives threads back what they had, and forgets those that are not [stuck](State::stuck).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn give_back(&mut self, keys: &[ThreadKey]) -> io::Result<()> {
        let before = self.threads.len();
        self.give_back_each(keys);
        match self.threads.len() == before {
            true => Ok(()),
            false => self.write(),
        }
    }

    /// Gives threads back what they had, and forgets them in memory. One whose mask cannot be set does not hold up the
    /// others, and stays written down. Returns how many masks were set.
    fn give_back_each(&mut self, keys: &[ThreadKey]) -> usize {
        let mut count = 0;
        for key in keys {
            let Some(before) = self.threads.get(key).copied() else {
                continue;
            };
            match set_back(&self.proc, key, &before) {
                Ok(given) => {
                    self.remove(key);
                    count += usize::from(given);
                }
                Err(error) => self.note_stuck(key, &before, &error),
            }
        }
        count
    }

    fn note_stuck(&mut self, key: &ThreadKey, before: &Before, error: &io::Error) {
        let stuck = Stuck {
            key: *key,
            allowed: before.allowed,
            why: rights::in_words(error),
        };
        self.stuck.insert(*key, stuck);
    }

    fn remove(&mut self, key: &ThreadKey) {
        self.threads.remove(key);
        self.stuck.remove(key);
    }

    /// Makes the kernel forget where a thread was pinned, if the thread was lost to us because the kernel widened its
    /// mask. If that cannot be done, the thread is [stuck](State::stuck).
    pub(crate) fn loosen(&mut self, key: &ThreadKey) {
        let Some(before) = self.threads.get(key).copied() else {
            return;
        };
        if let Err(error) = widened::loosen(&self.proc, key, &before) {
            self.note_stuck(key, &before, &error);
        }
    }

    /// Forgets threads without touching them: they have gone, or somebody else has set their masks.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn forget(&mut self, gone: &[ThreadKey]) -> io::Result<()> {
        let before = self.threads.len();
        gone.iter().for_each(|key| self.remove(key));
        match self.threads.len() == before {
            true => Ok(()),
            false => self.write(),
        }
    }

    /// Heirs that began before `time`, clock ticks since boot, have been freed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn looked(&mut self, time: u64) -> io::Result<()> {
        self.looked = time;
        match self.threads.is_empty() {
            true => Ok(()),
            false => self.write(),
        }
    }

    /// Gives back what they had to all threads that are written down, and removes the file. Returns how many threads
    /// that concerned. If some are [stuck](State::stuck), the file stays, with those only, for another try.
    ///
    /// # Errors
    /// If the file cannot be written or removed.
    pub(crate) fn give_back_all(&mut self) -> io::Result<usize> {
        let keys: Vec<ThreadKey> = self.threads.keys().copied().collect();
        let given = self.give_back_each(&keys);
        self.end_file().map(|()| given)
    }

    /// The same after a crash, also for those that inherited from them.
    fn restore(&mut self) -> io::Result<usize> {
        let moved = Moved {
            threads: self.threads.clone(),
            looked: self.looked,
        };
        let keys: Vec<ThreadKey> = self.threads.keys().copied().collect();
        let given = self.give_back_each(&keys);
        // From here on nobody inherits anything.
        let heirs = match moved.threads.is_empty() {
            true => 0,
            false => moved.free_heirs(&self.proc),
        };
        self.end_file().map(|()| given + heirs)
    }

    /// Removes the file, which is no longer needed, unless there are threads.
    fn end_file(&self) -> io::Result<()> {
        if !self.threads.is_empty() {
            return self.write();
        }
        files::remove(&self.path)
    }
}

/// The file does not show which threads are to be given what, nor which program wrote it.
fn nonsense(cause: serde_json::Error) -> io::Error {
    let message = format!(
        "is not what corun guest has written ({cause}): look at it, then remove it; whoever it named keeps its mask \
         until it is set (`taskset`) or started anew"
    );
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// May a thread use one vCPU only, or none, because that one was unplugged while it slept?
pub(crate) fn is_pinned(tid: u32) -> bool {
    affinity::get(tid).is_ok_and(|vcpus| vcpus.len() <= 1)
}

/// Is this very thread there, and may its mask be set? If the kernel lets nobody set it, it did not let us either: such
/// a thread was never moved.
fn is_settable(proc: &Proc, key: &ThreadKey) -> bool {
    let stat = proc.thread(key.tgid, key.tid).stat();
    stat.is_some_and(|stat| stat.start == key.start && !stat.is_fixed)
}

/// Gives a thread back what it had, if it is there and has a mask as we set them. Returns whether it did.
pub(crate) fn set_back(proc: &Proc, key: &ThreadKey, before: &Before) -> io::Result<bool> {
    if !is_settable(proc, key) {
        return Ok(false);
    }
    if !is_pinned(key.tid) {
        return widened::loosen(proc, key, before).map(|()| false);
    }
    let result = match before.free {
        true => affinity::free(key.tid),
        false => affinity::set(key.tid, &before.allowed),
    };
    match result {
        Err(error) if affinity::is_gone(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests;
