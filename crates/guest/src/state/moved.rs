// SPDX-License-Identifier: GPL-2.0-only
//! Which threads inherited a moved thread's mask, as far as /proc shows it after a crash.

use super::{Before, is_pinned, set_back};
use corun_system::procfs::{Proc, ThreadKey};
use std::collections::BTreeMap;

/// Threads that a daemon before had moved, and up to when it freed their heirs itself.
pub(super) struct Moved {
    pub(super) threads: BTreeMap<ThreadKey, Before>,
    pub(super) looked: u64,
}

/// Processes: the parent of each, and when it began.
pub(super) type Processes = BTreeMap<u32, (u32, u64)>;

pub(super) fn processes(proc: &Proc) -> Processes {
    let told = |tgid| {
        let stat = proc.thread(tgid, tgid).stat()?;
        Some((tgid, (stat.parent, stat.start)))
    };
    proc.processes().into_iter().filter_map(told).collect()
}

impl Moved {
    /// Frees the heirs; those that may not be touched stay as they are. Returns how many.
    pub(super) fn free_heirs(&self, proc: &Proc) -> usize {
        let (mut count, processes) = (0, processes(proc));
        for &tgid in processes.keys() {
            for tid in proc.process(tgid).threads() {
                if !is_pinned(tid) {
                    continue;
                }
                let Some(stat) = proc.thread(tgid, tid).stat() else {
                    continue;
                };
                let start = stat.start;
                let key = ThreadKey { tgid, tid, start };
                if let Some(before) = self.inherited(&key, &processes) {
                    count += usize::from(set_back(proc, &key, &before).unwrap_or(false));
                }
            }
        }
        count
    }

    /// What a thread that is pinned to one vCPU has inherited, if anything. For that, a thread of its process or of one
    /// above must have been written down, and it and the processes in between must be younger than that.
    pub(super) fn inherited(&self, key: &ThreadKey, processes: &Processes) -> Option<Before> {
        if self.threads.contains_key(key) || key.start < self.looked {
            return None;
        }
        let (mut tgid, mut oldest) = (key.tgid, key.start);
        // By its number, a process that began while they were listed may be its own ancestor.
        for _ in 0..processes.len() {
            let of_process = |(known, before): &(&ThreadKey, &Before)| {
                known.tgid == tgid && oldest >= before.since
            };
            if let Some((_, before)) = self.threads.iter().find(of_process) {
                return Some(*before);
            }
            let (parent, start) = processes.get(&tgid)?;
            (tgid, oldest) = (*parent, oldest.min(*start));
        }
        None
    }
}
