// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher as a Rust type: its state, and the host that it works for.
//!
//! [`Native`] owns the tables that the kernel's build keeps in BPF maps. A host [configures it](configure), makes
//! [callbacks] as the kernel would, and does what the dispatcher [asks of it](services) meanwhile; [`context`] connects
//! the two languages.

mod builds;
mod callbacks;
mod configure;
mod context;
mod services;

pub use services::{Build, Callback, Kick, Services, passes};

use crate::conf::Knobs;
use crate::layout::{CpuCtx, GangCtx, GroupCtx, TaskStruct, VmCtx};
use context::Inner;

/// The dispatcher with its state, and the host it works for.
pub struct Native<S: Services> {
    inner: Box<Inner<S>>,
}

impl<S: Services> Native<S> {
    /// A dispatcher that knows no task yet.
    pub fn new(knobs: Knobs, services: S) -> Self {
        let mut native = Self {
            inner: Inner::new(knobs, services),
        };
        if knobs.gangs != 0 {
            native.make_room_for_gangs();
        }
        if knobs.groups != 0 {
            native.make_room_for_groups();
        }
        native
    }

    /// The host that the dispatcher works for.
    pub fn services(&mut self) -> &mut S {
        &mut self.inner.services
    }

    /// What the dispatcher knows of a task.
    pub fn task(&mut self, task: usize) -> &mut TaskStruct {
        &mut self.inner.tasks[task]
    }

    /// The same, for reading only.
    pub fn peek(&self, task: usize) -> &TaskStruct {
        &self.inner.tasks[task]
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.inner.tasks.len()
    }

    /// What the dispatcher knows of a pCPU.
    pub fn cpu(&self, cpu: u32) -> &CpuCtx {
        &self.inner.cpus[cpu as usize]
    }

    /// The VM in a slot of the table.
    pub fn vm(&self, slot: usize) -> &VmCtx {
        &self.inner.vms[slot]
    }

    /// The table of VMs as C has it, for tests that change it during a callback.
    #[cfg(test)]
    pub(crate) fn vms(&mut self) -> *mut VmCtx {
        self.inner.context.vms
    }

    /// The same for pCPUs.
    #[cfg(test)]
    pub(crate) fn cpus(&mut self) -> *mut CpuCtx {
        self.inner.context.cpus
    }

    /// The same for cgroups.
    #[cfg(test)]
    pub(crate) fn groups(&mut self) -> *mut GroupCtx {
        self.inner.groups.as_mut_ptr()
    }

    /// What is known of the gang of the VM in a slot of the table, if there are gangs.
    pub fn gang(&self, slot: usize) -> Option<&GangCtx> {
        self.inner.gangs.get(slot)
    }

    /// What is known of the cgroup in a place of the table, if there are cgroups.
    pub fn group(&self, place: usize) -> Option<&GroupCtx> {
        self.inner.groups.get(place)
    }
}

// SAFETY: the pointers in the context lead into the same box; the thread-local on the C side is set
// anew by every call.
unsafe impl<S: Services + Send> Send for Native<S> {}
