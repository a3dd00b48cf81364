// SPDX-License-Identifier: GPL-2.0-only
//! cgroups as the dispatcher's table has them; in the kernel, dispatcher/platform/cgroup.h reads it there.

use crate::load::{Cgroup, Cgroups};
use corun_dispatcher::{GROUP_IDLE, GROUP_NEUTRAL, GroupConf, MAX_GROUPS};
use corun_model::VmId;

/// The dispatcher's table, and each VM's place in it plus 1. What does not fit is in the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    pub table: Vec<GroupConf>,
    of_vms: Vec<Option<usize>>,
}

impl Groups {
    pub fn of(said: &Cgroups) -> Self {
        let mut table: Vec<GroupConf> = Vec::new();
        for group in said.all.iter().take(MAX_GROUPS) {
            let outer = group.within.and_then(|at| table.get(at));
            let limited = group.quota.is_some() || outer.is_some_and(|outer| outer.limited != 0);
            let parent = group.within.filter(|_| outer.is_some());
            table.push(conf(group, parent, limited));
        }
        Self {
            of_vms: said.of_vms.clone(),
            table,
        }
    }

    /// What tasks of this VM name their cgroup by; 0: none.
    pub fn of_vm(&self, vm: Option<VmId>) -> u32 {
        let place = vm.and_then(|vm| *self.of_vms.get(vm.index())?);
        place
            .filter(|&place| place < self.table.len())
            .map_or(0, number)
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
