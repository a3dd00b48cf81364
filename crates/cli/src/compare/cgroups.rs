// SPDX-License-Identifier: GPL-2.0-only
//! The host's cgroups, as a scenario has them.

use corun_model::NEUTRAL_WEIGHT;
use corun_scenario::{Case, CgroupKeys};
use corun_sim::load::{Cgroup, Cgroups, Quota};

/// Of what is said of groups and VMs. A VM with a weight has a cgroup of its own, as a host's have
/// (`cpu.weight`); one of which nothing is said is in the root, where its vCPUs count one by one.
pub fn cgroups(case: &Case) -> Cgroups {
    let outer = case.groups.iter();
    let mut all: Vec<Cgroup> = outer.map(|group| of(group.weight, &group.keys)).collect();
    let mut of_vms = Vec::new();
    for vm in &case.vms {
        let own = vm.cgroup.or(vm.weight.map(|_| CgroupKeys::default()));
        of_vms.push(own.map(|_| all.len()));
        all.extend(own.map(|keys| of(vm.weight.unwrap_or(NEUTRAL_WEIGHT), &keys)));
    }
    Cgroups { all, of_vms }
}

fn of(weight: u32, keys: &CgroupKeys) -> Cgroup {
    Cgroup {
        weight,
        idle: keys.idle,
        quota: keys.max.map(|max| Quota {
            time: max.time,
            period: max.period,
            burst: keys.burst,
        }),
        within: keys.within,
    }
}
