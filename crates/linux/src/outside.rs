// SPDX-License-Identifier: GPL-2.0-only
//! What a policy is shown of vCPUs where the dispatcher is not in charge: numbers of its own for VMs and
//! vCPUs, and of their time what the kernel counts for everybody.

use crate::proc::Counted;
use corun_model::{Nanos, PcpuSet, Signals, TaskId, TaskSeen, Turns, VmId};
use std::collections::BTreeMap;

/// Processes and threads as policies count them, in the order in which they were first seen. The kernel
/// uses its numbers again, these are not: a key is a number with the start of who bears it.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    vms: BTreeMap<(u32, u64), VmId>,
    tasks: BTreeMap<(u32, u64), TaskId>,
}

impl Numbers {
    pub(crate) fn vm(&mut self, key: (u32, u64)) -> VmId {
        let next = VmId(self.vms.len() as u32);
        *self.vms.entry(key).or_insert(next)
    }

    pub(crate) fn task(&mut self, key: (u32, u64)) -> TaskId {
        let next = TaskId(self.tasks.len() as u32);
        *self.tasks.entry(key).or_insert(next)
    }
}

/// A vCPU in a period of `elapsed` ns in which it `did` this. How its turns went, nobody tells.
pub(crate) fn task_seen(
    task: TaskId,
    allowed: PcpuSet,
    did: Counted,
    signals: Signals,
    elapsed: Nanos,
) -> TaskSeen {
    TaskSeen {
        task,
        allowed,
        run: did.run,
        ready: did.ready,
        wait: elapsed.saturating_sub(did.run + did.ready),
        turns: Turns::default(),
        signals,
    }
}
