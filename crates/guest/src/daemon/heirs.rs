// SPDX-License-Identifier: GPL-2.0-only
//! Threads and processes that moved threads have created, and that inherit their masks: they are freed.
//!
//! BPF reports them when they are created, with the vCPU that they inherited. Besides, once a second, those that /proc
//! shows as created by moved threads, or by their heirs, are looked at. Each is judged once, when it is found: a thread
//! that has a single vCPU later has it because somebody wants that.

use super::Daemon;
use crate::guest::GuestError;
use crate::heart::lock;
use crate::pins::Heirlooms;
use crate::state::{is_pinned, set_back};
use corun_model::Nanos;
use corun_model::time::{MS, SEC};
use corun_system::affinity;
use corun_system::clock;
use corun_system::procfs::ThreadKey;
use std::collections::BTreeMap;
use std::ops::Range;

/// The unit of start times (USER_HZ).
const TICK: Nanos = 10 * MS;
/// The most that a fork takes from copying the mask to the start time, if its vCPU is not descheduled meanwhile; if it
/// is, the thread is not moved either. Assumed.
const FORK: Nanos = 50 * MS;
/// How long after its start a thread may be found, besides the second between two looks: its vCPU may be descheduled
/// before the thread is listed. Assumed.
const LATE: Nanos = 2 * SEC;

/// Which threads have been looked at.
#[derive(Debug, Default)]
pub(super) struct Heirs {
    /// By number: the start time, and when it was judged.
    judged: BTreeMap<u32, (u64, Nanos)>,
    /// How many were freed.
    pub(super) freed: u64,
    /// When the last look began.
    looked: Nanos,
    /// Threads that began before this time were looked at then.
    horizon: Nanos,
}

impl Heirs {
    fn is_judged(&self, key: &ThreadKey) -> bool {
        let judged = self.judged.get(&key.tid);
        judged.is_some_and(|(start, _)| *start == key.start)
    }
}

/// A thread, and what it may have inherited, if that is already known from its creator.
type Suspect = ((u32, u32), Option<Heirlooms>);

impl Daemon {
    /// The kernel has seen `root`, or an heir of it, create thread `tid`, which inherited `vcpu`.
    pub(super) fn heir_seen(&mut self, tid: u32, root: u32, vcpu: u32) {
        let mut heirlooms = {
            let pins = &lock(&self.migrater).pins;
            let roots = pins.numbered(root);
            pins.heirlooms(roots.as_slice(), &(0..Nanos::MAX))
        };
        // A vCPU to which we did not pin `root` is not our doing.
        heirlooms.retain(|pinned, _| *pinned == vcpu);
        if let Some(key) = self.key_of(tid) {
            self.judge(&key, &heirlooms);
        }
        lock(&self.migrater).detector.judged(tid, root);
    }

    fn key_of(&self, tid: u32) -> Option<ThreadKey> {
        let tgid = self.proc.any_thread(tid).process()?;
        let start = self.proc.thread(tgid, tid).start()?;
        Some(ThreadKey { tgid, tid, start })
    }

    /// Is this thread an heir of a moved thread of its own process or of process `parent`? It is about to be enrolled.
    pub(super) fn judge_candidate(&mut self, key: &ThreadKey, parent: u32) {
        if self.vcpus.len() < 2 {
            return; // everybody is pinned
        }
        let families = lock(&self.migrater).pins.families();
        for tgid in [key.tgid, parent] {
            if let Some(roots) = families.get(&tgid) {
                self.look_at(roots, (key.tgid, key.tid), None);
            }
        }
    }

    /// Looks for all heirs and frees them.
    pub(super) fn free_heirs(&mut self) -> Result<(), GuestError> {
        let (now, ticks) = (clock::now(), self.proc.ticks());
        let families = lock(&self.migrater).pins.families();
        for roots in families.values() {
            self.free_heirs_of(roots);
        }
        let horizon = self.heirs.looked.saturating_sub(LATE);
        (self.heirs.looked, self.heirs.horizon) = (now, horizon);
        self.heirs.judged.retain(|_, (_, at)| *at >= horizon);
        lock(&self.migrater).pins.forget_before(horizon);
        let looked = ticks.unwrap_or(0).saturating_sub(LATE / TICK);
        self.state
            .looked(looked)
            .map_err(|cause| self.failed(cause))
    }

    /// Frees the heirs of one process's moved threads.
    fn free_heirs_of(&mut self, roots: &[ThreadKey]) {
        let mut suspects: Vec<Suspect> = Vec::new();
        for root in roots {
            let children = self.proc.thread(root.tgid, root.tid).children().into_iter();
            suspects.extend(children.map(|tgid| ((tgid, tgid), None)));
        }
        if let Some(root) = roots.first() {
            let siblings = self.proc.process(root.tgid).threads().into_iter();
            suspects.extend(siblings.map(|tid| ((root.tgid, tid), None)));
        }
        while let Some((thread, inherited)) = suspects.pop() {
            let Some(heirlooms) = self.look_at(roots, thread, inherited) else {
                continue;
            };
            // The threads that it created before it was freed.
            let created = self.created_by(thread).into_iter();
            suspects.extend(created.map(|thread| (thread, Some(heirlooms.clone()))));
        }
    }

    /// The processes that a thread has created; for the first thread of its process, that process's threads as well.
    fn created_by(&self, (tgid, tid): (u32, u32)) -> Vec<(u32, u32)> {
        let children = self.proc.thread(tgid, tid).children().into_iter();
        let mut created: Vec<_> = children.map(|child| (child, child)).collect();
        if tgid == tid {
            let others = self.proc.process(tgid).threads().into_iter();
            created.extend(others.filter(|it| *it != tid).map(|it| (tgid, it)));
        }
        created
    }

    /// Judges a thread. Returns what others may have inherited from it in turn.
    fn look_at(
        &mut self,
        roots: &[ThreadKey],
        (tgid, tid): (u32, u32),
        inherited: Option<Heirlooms>,
    ) -> Option<Heirlooms> {
        if !is_pinned(tid) && !self.heirs.judged.contains_key(&tid) {
            return None;
        }
        let start = self.proc.thread(tgid, tid).start()?;
        let (key, born) = (ThreadKey { tgid, tid, start }, born(start));
        if born.end < self.heirs.horizon {
            return None;
        }
        let heirlooms = match inherited {
            Some(heirlooms) => heirlooms,
            None => lock(&self.migrater).pins.heirlooms(roots, &born),
        };
        if heirlooms.is_empty() || lock(&self.migrater).pins.has(&key) {
            return None;
        }
        self.judge(&key, &heirlooms);
        Some(heirlooms)
    }

    /// Frees a thread if it is pinned to a vCPU that it may have inherited, and if it has not been
    /// judged before.
    fn judge(&mut self, key: &ThreadKey, heirlooms: &Heirlooms) {
        if self.heirs.is_judged(key) || lock(&self.migrater).pins.has(key) {
            return;
        }
        let at = clock::now();
        self.heirs.judged.insert(key.tid, (key.start, at));
        let Ok(mask) = affinity::get(key.tid) else {
            return;
        };
        // Where the vCPU was unplugged, the mask is empty.
        let fits = |vcpu: &u32| mask.is_empty() || mask == affinity::only(*vcpu);
        let Some((_, before)) = heirlooms.iter().find(|(vcpu, _)| fits(vcpu)) else {
            return;
        };
        match set_back(&self.proc, key, before) {
            Ok(freed) => self.heirs.freed += u64::from(freed),
            Err(error) => self
                .notes
                .push(format!("thread {} cannot be freed: {error}", key.tid)),
        }
    }
}

/// When a thread with this start time may have been given its mask.
fn born(start: u64) -> Range<Nanos> {
    // Start times count suspended time, and pins do not.
    let suspended = clock::since_boot().saturating_sub(clock::now());
    let began = (start * TICK).saturating_sub(suspended);
    began.saturating_sub(FORK)..began + 2 * TICK
}

#[cfg(test)]
mod tests;
