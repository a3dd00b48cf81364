// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's threads: which of them come under its care, and which leave it.

use super::Daemon;
use crate::detector::Sighting;
use crate::guest::GuestError;
use crate::heart::lock;
use crate::migrater::Loss;
use crate::selection::{Left, movable};
use crate::state::Before;
use corun_model::Nanos;
use corun_model::time::SEC;
use corun_system::clock;
use corun_system::procfs::ThreadKey;

/// A thread that was not I/O-bound for this long gets its mask back. Assumed: long against the pauses of a task that
/// does I/O, short against what people wait for.
const FORGIVEN: Nanos = SEC;
/// How long a thread that is left alone is remembered, for the status.
const REMEMBERED: Nanos = 10 * SEC;

impl Daemon {
    /// The detector has something to say.
    pub(super) fn seen(&mut self, sighting: Sighting) -> Result<(), GuestError> {
        match sighting {
            Sighting::Candidate(tid) => self.candidate_seen(tid),
            Sighting::Heir { tid, root, vcpu } => {
                self.heir_seen(tid, root, vcpu);
                Ok(())
            }
        }
    }

    /// A thread seems to be I/O-bound: it comes under the daemon's care if it may be moved, and is remembered as left
    /// alone if it may not.
    fn candidate_seen(&mut self, tid: u32) -> Result<(), GuestError> {
        let now = clock::now();
        let Some(tgid) = self.proc.any_thread(tid).process() else {
            return Ok(());
        };
        let Some(stat) = self.proc.thread(tgid, tid).stat() else {
            return Ok(());
        };
        let start = stat.start;
        let key = ThreadKey { tgid, tid, start };
        if lock(&self.migrater).knows(&key) || self.refused.contains(&key) {
            return Ok(());
        }
        self.judge_candidate(&key, stat.parent);
        let verdict = match self.options.selection.refuses(&self.proc, &key, &stat) {
            Some(left) => Err(left),
            None => {
                let ticks = self.proc.ticks().unwrap_or(start);
                movable(&self.proc, &self.sys, &key, &self.vcpus, ticks)
            }
        };
        let before = match verdict {
            Ok(before) => before,
            Err(Left::Own | Left::Gone) => return Ok(()),
            Err(left) => {
                self.left.insert(key, (left, now));
                return Ok(());
            }
        };
        if self.reason_not_to_work().is_some() {
            self.sharing.probe(now);
            return Ok(());
        }
        self.enrol(key, before, stat.cpu, now)
    }

    /// Takes a thread, which last ran on `cpu`, under the daemon's care: what it had `before` is on disk first.
    fn enrol(
        &mut self,
        key: ThreadKey,
        before: Before,
        cpu: u32,
        now: Nanos,
    ) -> Result<(), GuestError> {
        self.state
            .enrol(&[(key, before)])
            .map_err(|cause| self.failed(cause))?;
        let added = lock(&self.migrater).add(key, before, cpu, now);
        match added {
            Ok(()) => self.set_pace(now),
            Err(error) => {
                self.notes
                    .push(format!("thread {} cannot be watched: {error}", key.tid));
                self.state
                    .forget(&[key])
                    .map_err(|cause| self.failed(cause))?;
            }
        }
        Ok(())
    }

    /// Looks after threads that have gone, changed, or do no I/O any more.
    pub(super) fn look_after_threads(&mut self, now: Nanos) -> Result<(), GuestError> {
        let (keys, idle) = {
            let migrater = lock(&self.migrater);
            (migrater.keys(), migrater.unbound_for(FORGIVEN, now))
        };
        let unfit = |key: &&ThreadKey| match self.proc.thread(key.tgid, key.tid).stat() {
            // It may have changed its name (exec), its user or its cgroup.
            Some(stat) => self
                .options
                .selection
                .refuses(&self.proc, key, &stat)
                .is_some(),
            None => true,
        };
        let unfit: Vec<ThreadKey> = keys.iter().filter(unfit).copied().collect();
        // What could not be given back is tried again now.
        let stuck = self.state.stuck_keys();
        self.release(&[idle, unfit, stuck].concat())?;
        self.left
            .retain(|_, (_, at)| now.saturating_sub(*at) < REMEMBERED);
        self.refused.retain(|key| self.proc.is_there(key));
        Ok(())
    }

    fn release(&mut self, keys: &[ThreadKey]) -> Result<(), GuestError> {
        {
            let mut migrater = lock(&self.migrater);
            keys.iter().for_each(|key| migrater.remove(key));
        }
        let given = self.state.give_back(keys);
        let is_free = |key: &&ThreadKey| !self.state.is_stuck(key);
        let free: Vec<ThreadKey> = keys.iter().filter(is_free).copied().collect();
        self.end_pins(&free);
        given.map_err(|cause| self.failed(cause))
    }

    /// A thread that these create from now on inherits nothing of ours.
    fn end_pins(&self, keys: &[ThreadKey]) {
        let (now, mut migrater) = (clock::now(), lock(&self.migrater));
        keys.iter()
            .for_each(|key| migrater.pins.given_back(key, now));
    }

    pub(super) fn release_all(&mut self) -> Result<(), GuestError> {
        let keys = lock(&self.migrater).keys();
        self.release(&keys)
    }

    /// Gives back or forgets threads that are out of our hands; those that somebody else has placed, or
    /// that the kernel does not let us move, are not tried again. One whose mask cannot be given back stays written down:
    /// it is tried again each second, and at the end.
    pub(super) fn forget_lost(&mut self) -> Result<(), GuestError> {
        let lost = std::mem::take(&mut lock(&self.migrater).lost);
        let mut forgotten = Vec::new();
        for (key, loss) in lost {
            if loss != Loss::Gone {
                self.refused.insert(key);
            }
            match loss {
                Loss::Refused => {
                    let given = self.state.give_back(&[key]);
                    given.map_err(|cause| self.failed(cause))?;
                }
                Loss::Foreign => self.state.loosen(&key),
                Loss::Gone => {}
            }
            if loss == Loss::Gone || !self.state.is_stuck(&key) {
                forgotten.push(key);
            }
        }
        self.end_pins(&forgotten);
        self.state
            .forget(&forgotten)
            .map_err(|cause| self.failed(cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Source;
    use crate::testing::{Sleeper, daemon_in};
    use corun_model::PcpuId;
    use corun_system::affinity;

    #[test]
    fn a_lost_thread_that_cannot_be_freed_stays_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut daemon) = daemon_in(folder.path(), Source::Proc) else {
            return; // it may not work here
        };
        let (stuck, freed) = (Sleeper::new(), Sleeper::new());
        let all = affinity::get(0).unwrap();
        let lost = |task: &Sleeper| {
            affinity::pin(task.id(), all.iter().next().unwrap()).unwrap();
            (task.key(), Loss::Refused)
        };
        let before = |allowed| Before {
            allowed,
            free: false,
            since: 0,
        };
        // No machine has a vCPU with that number, so the kernel refuses such a mask.
        let nowhere = [PcpuId(511)].into_iter().collect();
        let threads = [(stuck.key(), before(nowhere)), (freed.key(), before(all))];
        daemon.state.enrol(&threads).unwrap();
        lock(&daemon.migrater).lost = vec![lost(&stuck), lost(&freed)];
        daemon.forget_lost().unwrap();
        let written = std::fs::read_to_string(folder.path().join("state.json")).unwrap();
        let is_written = |task: &Sleeper| written.contains(&format!("\"tid\":{},", task.id()));
        assert!(is_written(&stuck) && !is_written(&freed), "{written}");
        let notes = daemon.status(clock::now(), None).notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("cannot be given back"), "{notes:?}");
        assert_eq!(affinity::get(freed.id()).unwrap(), all);
    }

    /// One thread is no reason to leave all others to the host.
    #[test]
    fn a_mask_that_cannot_be_given_back_does_not_end_the_daemon_and_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut daemon) = daemon_in(folder.path(), Source::Proc) else {
            return; // it may not work here
        };
        let (stuck, all) = (Sleeper::new(), affinity::get(0).unwrap());
        if all.len() < 2 {
            return; // every mask is a single vCPU here
        }
        let before = Before {
            allowed: [PcpuId(511)].into_iter().collect(),
            free: false,
            since: 0,
        };
        daemon.enrol(stuck.key(), before, 0, 0).unwrap();
        affinity::pin(stuck.id(), all.iter().next().unwrap()).unwrap();
        daemon.release_all().unwrap();
        // It is in nobody's care, and still written down.
        assert!(lock(&daemon.migrater).keys().is_empty());
        daemon.look_after_threads(clock::now()).unwrap();
        assert_eq!(daemon.state.stuck_keys(), [stuck.key()]);
        let error = daemon.finish().unwrap_err().to_string();
        let named = format!("thread {} of process", stuck.id());
        assert!(error.starts_with(&named), "{error}");
        affinity::free(stuck.id()).unwrap();
        daemon.look_after_threads(clock::now()).unwrap();
        assert_eq!(daemon.state.stuck().len(), 0);
    }
}
