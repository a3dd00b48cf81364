// SPDX-License-Identifier: GPL-2.0-only
//! cgroups of the host, as far as they divide its CPU time.
//!
//! A VM may have a cgroup of its own, and that may be within others (`machine.slice`). The keys are those
//! of the kernel's cgroup v2 (Documentation/admin-guide/cgroup-v2.rst): `cpu.weight`, `cpu.idle`,
//! `cpu.max`, `cpu.max.burst`. Only corun's dispatcher heeds them all; CFS and EEVDF know what VMs' own
//! cgroups weigh, as if all of these were in the root.

use corun_model::Nanos;

/// `cpu.max` and `cpu.max.burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// pCPU time in a period, of all its tasks together, ns; above 0.
    pub time: Nanos,
    /// Period, ns; above 0.
    pub period: Nanos,
    /// What may be saved up beyond that, ns.
    pub burst: Nanos,
}

/// A cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// `cpu.weight`, 1–10000.
    pub weight: u32,
    /// `cpu.idle`: its members run when nobody else wants to.
    pub idle: bool,
    /// `cpu.max`; `None`: no limit.
    pub quota: Option<Quota>,
    /// The cgroup around it, an earlier one in the list; `None`: the root.
    pub within: Option<usize>,
}

/// Those of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// All there are besides the root, outer ones first.
    pub all: Vec<Cgroup>,
    /// Each VM's own; `None`, or none said: its tasks are in the root.
    pub of_vms: Vec<Option<usize>>,
}

impl Cgroups {
    /// `cpu.weight` of a VM's own cgroup, if it has one.
    pub fn weight_of(&self, vm: usize) -> Option<u32> {
        let own = self.of_vms.get(vm).copied().flatten()?;
        self.all.get(own).map(|group| group.weight)
    }
}
