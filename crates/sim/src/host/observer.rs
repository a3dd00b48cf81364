// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run as it happens: the timeline writer's side of the host.

use super::{Task, TaskState};
use corun_model::{Nanos, PcpuId, TaskId};

/// Hears of everything that a timeline shows.
pub trait Observer {
    /// A task entered `task.state`; before, it was in `old`.
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState);
    /// A ready task was put on the runqueue of `to`: it woke up (`from` is `None`), or was moved.
    fn queued(&mut self, now: Nanos, id: TaskId, task: &Task, from: Option<PcpuId>, to: PcpuId) {
        let _ = (now, id, task, from, to);
    }
    /// The run is over.
    fn finish(&mut self, now: Nanos);
}
