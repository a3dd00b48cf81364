// SPDX-License-Identifier: GPL-2.0-only
//! Watching a run as it happens: the timeline writer's side of the host.

use super::{Task, TaskState};
use corun_model::{Nanos, TaskId};

/// Hears of everything that a timeline shows.
pub trait Observer {
    /// A task entered `task.state`; before, it was in `old`.
    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState);
    /// The run is over.
    fn finish(&mut self, now: Nanos);
}
