// SPDX-License-Identifier: GPL-2.0-only
//! cgroups of the host, as far as they divide its CPU time.
//!
//! A VM may have a cgroup of its own, and that may be within others (`machine.slice`). The keys are those
//! of the kernel's cgroup v2 (Documentation/admin-guide/cgroup-v2.rst): `cpu.weight`, `cpu.idle`,
//! `cpu.max`, `cpu.max.burst`. corun's dispatcher heeds them all, and so do CFS and EEVDF. With real-time VMs (`rr`),
//! CFS knows only the weights of VMs' own cgroups, as if all of these were in the root; Xen's Credit treats their
//! `cpu.max` as caps.
//!
//! Within its VM's cgroup each vCPU may have a cgroup to itself, as libvirt makes them (`vcpu0`, `vcpu1` …), which
//! limits that vCPU by itself (libvirt's `<quota>`). It weighs what the vCPU weighs.

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
    /// `cpu.idle`: its members run when no other task wants to.
    pub idle: bool,
    /// `cpu.max`; `None`: no limit.
    pub quota: Option<Quota>,
    /// The cgroup around it, an earlier one in the list; `None`: the root.
    pub within: Option<usize>,
}

/// The cgroups of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// All cgroups except the root and those of single vCPUs, outer ones first.
    pub all: Vec<Cgroup>,
    /// Each VM's own cgroup; `None`, or no entry: its tasks are in the root.
    pub of_vms: Vec<Option<usize>>,
    /// By VM: the limit of the cgroup that each of its vCPUs has to itself. `None`, or no entry: they have none.
    pub of_vcpus: Vec<Option<Quota>>,
}

impl Cgroup {
    /// A cgroup in the root with this weight.
    pub fn weighing(weight: u32) -> Self {
        Self {
            weight,
            idle: false,
            quota: None,
            within: None,
        }
    }
}

impl Quota {
    /// The quota as a cap, in whole percent of one pCPU, at least 1.
    pub fn percent(&self) -> u32 {
        let (time, period) = (u128::from(self.time), u128::from(self.period.max(1)));
        let percent = (time * 100 + period / 2) / period;
        u32::try_from(percent).unwrap_or(u32::MAX).max(1)
    }
}

impl Cgroups {
    /// `cpu.weight` of a VM's own cgroup, if it has one.
    pub fn weight_of(&self, vm: usize) -> Option<u32> {
        self.of_vm(vm).map(|group| group.weight)
    }

    /// The cgroups if nothing is known but the weights of VMs' own ones.
    #[must_use]
    pub fn weights_only(&self) -> Self {
        let plain = |group: &Cgroup| Cgroup {
            weight: group.weight,
            idle: false,
            quota: None,
            within: None,
        };
        Self {
            all: self.all.iter().map(plain).collect(),
            of_vms: self.of_vms.clone(),
            of_vcpus: Vec::new(),
        }
    }

    /// The limit of the cgroup that each vCPU of a VM has to itself, if they have such cgroups.
    pub fn of_each_vcpu(&self, vm: usize) -> Option<Quota> {
        self.of_vcpus.get(vm).copied().flatten()
    }

    /// A VM's own cgroup, if it has one.
    pub fn of_vm(&self, vm: usize) -> Option<&Cgroup> {
        self.all.get(self.of_vms.get(vm).copied().flatten()?)
    }
}
