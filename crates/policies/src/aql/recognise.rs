// SPDX-License-Identifier: GPL-2.0-only
//! vTRS for all vCPUs of a host: keeps what is remembered of each, and reports which signals are missing.

use super::kind::Type;
use super::vtrs::{Cursors, Limits, Recognition};
use crate::wanting::{self, Wanting};
use corun_model::{Signals, Snapshot, Status, TaskId, TaskSeen};
use std::collections::BTreeMap;

/// What is remembered of a vCPU.
#[derive(Clone, Debug, Default)]
struct Known {
    recognition: Recognition,
    wanting: Wanting,
}

/// Every vCPU's recognition.
#[derive(Clone, Debug, Default)]
pub struct Recogniser {
    /// In the order of their numbers; kept from period to period, so that nothing is built anew for them.
    vcpus: Vec<(TaskId, Known)>,
    /// What the host reported in the last period, of any vCPU; `None`: nothing yet.
    told: Option<Signals>,
}

impl Recogniser {
    /// A monitoring period is over. vCPUs that are not there any more are forgotten.
    pub fn look(&mut self, seen: &Snapshot, limits: &Limits) {
        self.update_members(seen);
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        let told = vcpus.map(|vcpu| vcpu.signals).reduce(Signals::or);
        self.told = told.or(self.told);
        for vm in &seen.vms {
            let exits = vm.vcpus.iter().filter_map(|vcpu| vcpu.signals.pause_exits);
            let exits = exits.reduce(u64::saturating_add);
            for vcpu in &vm.vcpus {
                let at = self.place(vcpu.task);
                let Some((_, known)) = at.and_then(|at| self.vcpus.get_mut(at)) else {
                    continue;
                };
                if vcpu.run > 0 {
                    let cursors = Cursors::of(&vcpu.signals, exits, limits);
                    known.recognition.sample(cursors);
                }
                if let Some(part) = wanted(vcpu, limits) {
                    known.wanting.note(part);
                }
            }
        }
    }

    /// vCPUs come and go.
    fn update_members(&mut self, seen: &Snapshot) {
        let there = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        let mut there: Vec<TaskId> = there.map(|vcpu| vcpu.task).collect();
        there.sort_unstable();
        if self
            .vcpus
            .iter()
            .map(|(task, _)| *task)
            .eq(there.iter().copied())
        {
            return;
        }
        let mut before: BTreeMap<TaskId, Known> = self.vcpus.drain(..).collect();
        let known = |task: TaskId| (task, before.remove(&task).unwrap_or_default());
        self.vcpus = there.into_iter().map(known).collect();
    }

    /// Where a vCPU is among those that are known: mostly where its number says, as they are given in sequence.
    fn place(&self, task: TaskId) -> Option<usize> {
        let (first, _) = self.vcpus.first()?;
        let is_there = |at: &usize| self.vcpus.get(*at).is_some_and(|(it, _)| *it == task);
        let in_sequence = task.index().checked_sub(first.index()).filter(is_there);
        let search = || self.vcpus.binary_search_by_key(&task, |(it, _)| *it);
        in_sequence.or_else(|| search().ok())
    }

    fn known(&self, task: TaskId) -> Option<&Known> {
        self.vcpus.get(self.place(task)?).map(|(_, known)| known)
    }

    /// A vCPU's type.
    pub fn of(&self, task: TaskId) -> Type {
        self.wanting(task).0
    }

    /// A vCPU's type, and whether it has wanted to run lately.
    pub fn wanting(&self, task: TaskId) -> (Type, bool) {
        self.known(task).map_or((Type::UNKNOWN, true), |known| {
            (known.recognition.decided(), known.wanting.counts())
        })
    }

    /// A vCPU's cursors, means over the window.
    pub fn cursors(&self, task: TaskId) -> Cursors {
        self.known(task)
            .map_or_else(Cursors::default, |known| known.recognition.means())
    }

    /// What a policy that goes by types takes a vCPU to be.
    pub fn name(&self, task: TaskId) -> &'static str {
        self.of(task).kind.name()
    }

    /// The status of a policy that goes by types: what it does not know, for people.
    pub fn status(&self) -> Status {
        let Some(told) = &self.told else {
            return Status::default();
        };
        let missing = [
            (
                told.io_events.is_none(),
                "I/O events: no vCPU is recognised as IOInt",
            ),
            (
                told.pause_exits.is_none(),
                "pause-loop exits: no vCPU is recognised as ConSpin",
            ),
            (
                told.llc.is_none(),
                "cache misses (no performance counters): vCPUs that compute are of unknown type and \
                 taken to be agnostic",
            ),
        ];
        let missing = missing.iter().filter(|(is, _)| *is);
        let note = |(_, what): &(bool, &str)| format!("this host does not report {what}");
        Status {
            notes: missing.map(note).collect(),
            ..Status::default()
        }
    }
}

/// For which part of the period a vCPU wanted to run; `None`: a quota kept it from pCPUs, so nothing is known. With as
/// much I/O as makes it IOInt it counts for the whole period, however little it computes for that.
fn wanted(vcpu: &TaskSeen, limits: &Limits) -> Option<u32> {
    let wanted = vcpu.run + vcpu.ready;
    let all = wanted + vcpu.wait;
    let is_io = (vcpu.signals.io_events).is_some_and(|events| events >= limits.io_events);
    match is_io {
        true => Some(wanting::FULL),
        false => (all > 0).then(|| wanting::part(wanted, all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;
    use corun_model::VmSeen;

    /// What was seen of a vCPU is its own wherever it is listed, until it has gone.
    #[test]
    fn vcpus_come_go_and_change_places() {
        let limits = super::super::Calibration::default().limits;
        let mut recogniser = Recogniser::default();
        // Of the tasks 100n and 100n + 1 of VM n, the second does I/O in each period, the first nothing.
        let mut look = |vms: &[usize]| {
            let all = snapshot(4, &[2; 3]).vms;
            let mut vms: Vec<VmSeen> = vms.iter().map(|&vm| all[vm].clone()).collect();
            for vcpu in vms.iter_mut().flat_map(|vm| &mut vm.vcpus) {
                let io = u64::from(vcpu.task.0 % 2) * limits.io_events;
                (vcpu.run, vcpu.signals.io_events) = (1, Some(io));
            }
            let seen = Snapshot {
                vms,
                ..snapshot(4, &[])
            };
            recogniser.look(&seen, &limits);
            let tasks = [0, 1, 100, 101, 200, 201];
            tasks.map(|task| recogniser.name(TaskId(task)))
        };
        for _ in 0..3 {
            assert_eq!(look(&[2, 0]), ["unknown"; 6]);
        }
        let (u, io) = ("unknown", "IOInt");
        assert_eq!(look(&[0, 1, 2]), [u, io, u, u, u, io]);
        for _ in 0..2 {
            assert_eq!(look(&[1, 2]), [u, u, u, u, u, io]);
        }
        assert_eq!(look(&[0, 2, 1]), [u, u, u, io, u, io]);
    }
}
