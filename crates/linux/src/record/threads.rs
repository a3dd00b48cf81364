// SPDX-License-Identifier: GPL-2.0-only
//! The names of threads, written before the first entry that mentions them.
//!
//! Threads that were there before are looked up in /proc, all at once at the beginning; the kernel reports new ones
//! when they are made.

use corun_recording::native::{Entry, Thread};
use corun_system::procfs::{Proc, Process};
use std::collections::HashMap;

/// Names of threads.
#[derive(Default)]
pub(super) struct Threads {
    known: HashMap<u32, (u32, String)>,
    told: Told,
}

/// Numbers of threads, a bit each: every event asks for two.
#[derive(Default)]
struct Told(Vec<u64>);

impl Told {
    /// Adds it; was it new?
    fn insert(&mut self, tid: u32) -> bool {
        let (word, bit) = (tid as usize / 64, 1 << (tid % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let Some(word) = self.0.get_mut(word) else {
            return false;
        };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl Threads {
    /// Looks up all threads of the host.
    pub(super) fn of_this_host() -> Self {
        let mut threads = Self::default();
        for tgid in Proc::default().processes() {
            let process = Process::here(tgid);
            for tid in process.threads() {
                if let Some(comm) = process.thread(tid).name() {
                    threads.known.insert(tid, (tgid, comm));
                }
            }
        }
        threads
    }

    /// A thread has been created or renamed. The entry that reports this has its name.
    pub(super) fn named(&mut self, tid: u32, tgid: Option<u32>, comm: String) {
        if tgid.is_some() {
            self.told.insert(tid);
        }
        let known = self.known.get(&tid).map(|(tgid, _)| *tgid);
        if let Some(tgid) = tgid.or(known) {
            self.known.insert(tid, (tgid, comm));
        }
    }

    /// What must be written before an entry that mentions this thread.
    pub(super) fn tell(&mut self, tid: u32) -> Option<Entry> {
        if tid == 0 || !self.told.insert(tid) {
            return None;
        }
        let (tgid, comm) = match self.known.get(&tid) {
            Some((tgid, comm)) => (*tgid, comm.clone()),
            None => look_up(tid)?,
        };
        Some(Entry::Thread(Thread { tid, tgid, comm }))
    }
}

/// Process and name of a thread whose start was not seen.
fn look_up(tid: u32) -> Option<(u32, String)> {
    let thread = Proc::default().any_thread(tid);
    Some((thread.process()?, thread.name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_once_and_anew_when_made_anew() {
        let me = std::process::id();
        let mut threads = Threads::default();
        let Some(Entry::Thread(thread)) = threads.tell(me) else {
            panic!("this process is there")
        };
        assert_eq!((thread.tid, thread.tgid), (me, me));
        assert_eq!(threads.tell(me), None);
        assert_eq!(threads.tell(0), None);
        // Its fork entry has the name.
        threads.named(5_000_000, Some(1), "a".to_string());
        assert_eq!(threads.tell(5_000_000), None);
        assert_eq!(threads.tell(5_000_001), None);
        let all = Threads::of_this_host();
        assert!(all.known.contains_key(&me));
    }
}
