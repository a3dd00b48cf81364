// SPDX-License-Identifier: GPL-2.0-only
//! The host's cgroups, as given in a scenario.

use corun_model::{NEUTRAL_WEIGHT, Nanos};
use corun_scenario::{Case, CgroupKeys, CpuMax};
use corun_sim::load::{Cgroup, Cgroups, Quota};

/// The cgroups that follow from what is given for groups and VMs. A VM with a weight has a cgroup of its own, as on a
/// host (`cpu.weight`); one for which nothing is given is in the root, where its vCPUs count one by one.
pub fn cgroups(case: &Case) -> Cgroups {
    let outer = case.groups.iter();
    let mut all: Vec<Cgroup> = outer.map(|group| of(group.weight, &group.keys)).collect();
    let mut of_vms = Vec::new();
    for vm in &case.vms {
        let own = vm.cgroup.or(vm.weight.map(|_| CgroupKeys::default()));
        of_vms.push(own.map(|_| all.len()));
        all.extend(own.map(|keys| of(vm.weight.unwrap_or(NEUTRAL_WEIGHT), &keys)));
    }
    let of_vcpus = case.vms.iter();
    let of_vcpus = of_vcpus.map(|vm| vm.vcpu_max.map(|max| quota(max, 0)));
    let of_vcpus = of_vcpus.collect();
    Cgroups {
        all,
        of_vms,
        of_vcpus,
    }
}

fn of(weight: u32, keys: &CgroupKeys) -> Cgroup {
    Cgroup {
        weight,
        idle: keys.idle,
        quota: keys.max.map(|max| quota(max, keys.burst)),
        within: keys.within,
    }
}

fn quota(max: CpuMax, burst: Nanos) -> Quota {
    Quota {
        time: max.time,
        period: max.period,
        burst,
    }
}
