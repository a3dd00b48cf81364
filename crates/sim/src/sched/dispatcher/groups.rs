// SPDX-License-Identifier: GPL-2.0-only
//! cgroups as the dispatcher's table holds them; in the kernel, dispatcher/platform/cgroup.h reads that table.

use crate::load::{Cgroup, Cgroups, Quota};
use corun_dispatcher::{GROUP_IDLE, GROUP_NEUTRAL, GroupConf, MAX_GROUPS};
use corun_model::VmId;

/// The dispatcher's table, and each VM's place in it plus 1. What does not fit is in the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    pub table: Vec<GroupConf>,
    of_vms: Vec<Option<usize>>,
    of_vcpus: Vec<Option<Quota>>,
}

impl Groups {
    /// The cgroups that are `said`. A VM that is in none of them but has a known weight gets one of its own in the
    /// root: on a host a VM's weight is a cgroup's, and virtual time in a cgroup differs from that without one
    /// (dispatcher/group.h).
    pub fn of(said: &Cgroups, weights: &[Option<u32>]) -> Self {
        let mut table: Vec<GroupConf> = Vec::new();
        for group in said.all.iter().take(MAX_GROUPS) {
            let outer = group.within.and_then(|at| table.get(at));
            let limited = group.quota.is_some() || outer.is_some_and(|outer| outer.limited != 0);
            let parent = group.within.filter(|_| outer.is_some());
            table.push(conf(group, parent, limited));
        }
        let mut of_vms = said.of_vms.clone();
        of_vms.resize(weights.len().max(of_vms.len()), None);
        for (place, weight) in of_vms.iter_mut().zip(weights) {
            if let (None, Some(weight), true) = (*place, *weight, table.len() < MAX_GROUPS) {
                *place = Some(table.len());
                table.push(conf(&Cgroup::weighing(weight), None, false));
            }
        }
        Self {
            of_vms,
            of_vcpus: said.of_vcpus.clone(),
            table,
        }
    }

    /// The number by which tasks of this VM name its cgroup; 0: none.
    pub fn of_vm(&self, vm: Option<VmId>) -> u32 {
        self.place_of(vm).map_or(0, number)
    }

    /// Adds to the table a cgroup that a vCPU of this VM with this weight has to itself; returns the number by which it
    /// is named. `None`: the vCPU has none, or there is no room for it.
    pub fn add_vcpu(&mut self, vm: Option<VmId>, weight: u32) -> Option<u32> {
        let own = *self.of_vcpus.get(vm?.index())?;
        let (own, around) = (own?, self.place_of(vm)?);
        if self.table.len() >= MAX_GROUPS {
            return None;
        }
        let group = Cgroup {
            quota: Some(own),
            ..Cgroup::weighing(weight)
        };
        self.table.push(conf(&group, Some(around), true));
        Some(number(self.table.len() - 1))
    }

    fn place_of(&self, vm: Option<VmId>) -> Option<usize> {
        let place = vm.and_then(|vm| *self.of_vms.get(vm.index())?);
        place.filter(|&place| place < self.table.len())
    }
}

/// A place plus 1.
fn number(place: usize) -> u32 {
    place as u32 + 1
}

fn conf(group: &Cgroup, parent: Option<usize>, limited: bool) -> GroupConf {
    let quota = group.quota;
    GroupConf {
        quota: quota.map_or(0, |quota| quota.time),
        period: quota.map_or(0, |quota| quota.period),
        burst: quota.map_or(0, |quota| quota.burst),
        weight: match group.idle {
            true => GROUP_IDLE,
            false => (group.weight * GROUP_NEUTRAL / 100).max(1),
        },
        parent: parent.map_or(0, number),
        limited: u32::from(limited),
        pad: 0,
    }
}
