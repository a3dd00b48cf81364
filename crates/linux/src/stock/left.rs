// SPDX-License-Identifier: GPL-2.0-only
//! What an earlier daemon has left behind, and what cannot be given back.

use corun_model::{PcpuSet, counted};
use corun_system::procfs::ThreadKey;
use std::io;
use std::path::PathBuf;

/// What a thread had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Had {
    /// All pCPUs of its cpuset, whatever these are.
    AllPcpus,
    /// These pCPUs.
    Pcpus(PcpuSet),
    /// A slice, or the scheduler's own.
    Slice,
}

impl std::fmt::Display for Had {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AllPcpus => f.write_str("all pCPUs"),
            Self::Pcpus(pcpus) => write!(f, "pCPUs {pcpus}"),
            Self::Slice => f.write_str("its slice"),
        }
    }
}

/// A thread that cannot be given back what it had.
#[derive(Debug, thiserror::Error)]
#[error("thread {} of process {} cannot be given back {had}: {cause}", key.tid, key.tgid)]
pub struct Stuck {
    pub(crate) key: ThreadKey,
    pub(crate) had: Had,
    pub(crate) cause: io::Error,
}

/// Why not all was taken back.
#[derive(Debug)]
pub(crate) enum NotBack {
    /// A thread has kept something, which stays written down.
    Thread(Stuck),
    /// Everything was taken back, but that cannot be written down.
    File(io::Error),
}

/// What a daemon before has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// For how many threads.
    pub(crate) threads: usize,
    /// Why not all of that could be taken back: the first failure.
    pub(crate) stuck: Option<Stuck>,
    /// The file did not say what was changed, and is called so now.
    pub(crate) unreadable: Option<PathBuf>,
}

impl Left {
    /// For people, a sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let threads = counted(self.threads, "thread");
        let back = match &self.stuck {
            _ if self.threads == 0 => None,
            None => Some(format!(
                "took back what an earlier daemon had left of {threads}"
            )),
            Some(why) => Some(format!(
                "not all that an earlier daemon had left of {threads} could be taken back, which is tried again at the \
                 end: {why}"
            )),
        };
        let unknown = self.unreadable.as_ref().map(|kept| {
            format!(
                "what an earlier daemon had changed of threads is not known: its file could not be understood, and is \
                 kept as {}",
                kept.display()
            )
        });
        back.into_iter().chain(unknown).collect()
    }
}
