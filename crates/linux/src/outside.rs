// SPDX-License-Identifier: GPL-2.0-only
//! What a policy sees of vCPUs where the dispatcher is not in charge: VMs and vCPUs by numbers given here, and their
//! times as the kernel counts them for every thread.

use crate::vcpu_own::Own;
use corun_model::{Nanos, PcpuSet, Signals, TaskId, TaskSeen, Turns, VmId};
use corun_system::procfs::Counted;
use std::collections::BTreeMap;

/// Processes and threads as policies count them, in the order in which they were first seen. The
/// kernel reuses its numbers, these are not reused: a key is a number with the start time of its
/// process or thread. Those that have gone are forgotten, since observation may last for weeks.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    vms: Given<VmId>,
    tasks: Given<TaskId>,
}

impl Numbers {
    pub(crate) fn vm(&mut self, key: (u32, u64)) -> VmId {
        self.vms.number(key, VmId)
    }

    pub(crate) fn task(&mut self, key: (u32, u64)) -> TaskId {
        self.tasks.number(key, TaskId)
    }

    /// All have been looked at: forgets those that were not asked for since the last time.
    pub(crate) fn looked(&mut self) {
        self.vms.looked();
        self.tasks.looked();
    }
}

/// Numbers of one kind.
#[derive(Debug)]
struct Given<Id> {
    /// With the look that saw them last.
    known: BTreeMap<(u32, u64), (Id, u64)>,
    next: u32,
    looks: u64,
}

impl<Id> Default for Given<Id> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            next: 0,
            looks: 0,
        }
    }
}

impl<Id: Copy> Given<Id> {
    fn number(&mut self, key: (u32, u64), of: impl Fn(u32) -> Id) -> Id {
        let next = &mut self.next;
        let new = || {
            let id = of(*next);
            *next = next.wrapping_add(1); // 0 is long forgotten by then
            (id, 0)
        };
        let known = self.known.entry(key).or_insert_with(new);
        known.1 = self.looks;
        known.0
    }

    fn looked(&mut self) {
        let look = self.looks;
        self.known.retain(|_, (_, seen)| *seen == look);
        self.looks += 1;
    }
}

/// A vCPU in a period of `elapsed` ns in which it `did` this. How its turns went is not known.
pub(crate) fn task_seen(
    (task, own): (TaskId, Own),
    allowed: PcpuSet,
    did: Counted,
    signals: Signals,
    elapsed: Nanos,
) -> TaskSeen {
    TaskSeen {
        task,
        allowed,
        weight: own.weight,
        quota: own.quota,
        run: did.run,
        ready: did.ready,
        wait: elapsed.saturating_sub(did.run + did.ready),
        turns: Turns::default(),
        signals,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_gone_is_forgotten_and_its_number_is_not_given_again() {
        let mut numbers = Numbers::default();
        let stays = numbers.vm((1, 1));
        for start in 0..1000 {
            assert_eq!(numbers.vm((1, 1)), stays);
            assert_eq!(numbers.vm((2, start)).0, 1 + start as u32);
            assert_eq!(numbers.task((2, start)).0, start as u32);
            numbers.looked();
        }
        assert_eq!((numbers.vms.known.len(), numbers.tasks.known.len()), (2, 1));
    }
}
