// SPDX-License-Identifier: GPL-2.0-only
//! What was promised to VMs that corun could not keep.
//!
//! A sched_ext scheduler replaces the kernel's accounts of `cpu.max` and `cpu.idle`: unless it keeps
//! them itself, the files are there and mean nothing. corun keeps `cpu.weight` of the cgroup that a VM
//! has to itself, affinities and cpusets, which the kernel masks in; not quotas, not idle groups, not
//! weights further out. And core-scheduling cookies, which cloud-hypervisor sets by default, have hung
//! SMT hosts under any sched_ext scheduler (sched-ext/scx issue 3715, open in July 2026).

use super::{Check, Finding, Host, Severity};
use std::path::{Path, PathBuf};

pub(super) const COOKIES: &str = "core-scheduling";
pub(super) const QUOTA: &str = "cpu-max";
pub(super) const IDLE: &str = "cpu-idle";

pub(super) const CHECKS: &[Check] = &[cookies, quotas, idle_groups, outer_weights];

fn cookies(host: &Host<'_>) -> Option<Finding> {
    if host.text("/sys/devices/system/cpu/smt/active")? != "1" {
        return None;
    }
    let tagged = |vm: &&crate::inventory::Machine| {
        vm.vcpus().any(|(_, thread)| (host.cookie)(thread.tid) != 0)
    };
    let names: Vec<&str> = host
        .vms
        .iter()
        .filter(tagged)
        .map(|vm| vm.identity.name.as_str())
        .collect();
    (!names.is_empty()).then(|| Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: format!(
            "SMT is on and vCPUs have core-scheduling cookies: {}",
            some(&names)
        ),
        why: "core scheduling has hung SMT hosts under every sched_ext scheduler",
        remedy: "start these VMs without it (cloud-hypervisor: --cpus …,core_scheduling=off), or switch \
                 SMT off",
    })
}

fn quotas(host: &Host<'_>) -> Option<Finding> {
    let limited = |group: &Path| {
        let text = std::fs::read_to_string(group.join("cpu.max")).unwrap_or_default();
        !text.is_empty() && !text.starts_with("max")
    };
    let names = with_group(host, limited);
    (!names.is_empty()).then(|| Finding {
        id: QUOTA,
        severity: Severity::Dangerous,
        what: format!("VMs have a quota (cpu.max): {}", some(&names)),
        why: "no quota is enforced under a sched_ext scheduler that does not do so itself, and corun does \
              not yet: these VMs would get more than was sold",
        remedy: "lift the quotas, or stay with the kernel's scheduler: --backend fair, --observe",
    })
}

fn idle_groups(host: &Host<'_>) -> Option<Finding> {
    let idle = |group: &Path| {
        let text = std::fs::read_to_string(group.join("cpu.idle")).unwrap_or_default();
        text.trim() == "1"
    };
    let names = with_group(host, idle);
    (!names.is_empty()).then(|| Finding {
        id: IDLE,
        severity: Severity::Dangerous,
        what: format!("VMs are in idle groups (cpu.idle): {}", some(&names)),
        why: "corun knows no idle groups yet: these VMs would compete with all others",
        remedy: "give them a low cpu.weight instead",
    })
}

fn outer_weights(host: &Host<'_>) -> Option<Finding> {
    let weighted = |group: &Path| {
        let text = std::fs::read_to_string(group.join("cpu.weight")).unwrap_or_default();
        let slice = group.extension().is_some_and(|end| end == "slice");
        slice && !text.is_empty() && text.trim() != "100"
    };
    let names = with_group(host, weighted);
    (!names.is_empty()).then(|| Finding {
        id: "outer-weights",
        severity: Severity::Warning,
        what: format!("VMs are in slices with weights: {}", some(&names)),
        why: "corun compares VMs by the weight of their own cgroup, not by those of the slices around it",
        remedy: "put the weight on the VM's own cgroup",
    })
}

/// The VMs that are in a cgroup like this, at any depth.
fn with_group<'a>(host: &'a Host<'_>, like: impl Fn(&Path) -> bool) -> Vec<&'a str> {
    let mount = crate::cgroup::mount(host.root);
    let is_in = |vm: &&'a crate::inventory::Machine| {
        let (Some(mount), Some(path)) = (&mount, &vm.cgroup) else {
            return false;
        };
        let mut at: PathBuf = mount.join(path.trim_start_matches('/'));
        while at != *mount && at.starts_with(mount) {
            if like(&at) {
                return true;
            }
            if !at.pop() {
                break;
            }
        }
        false
    };
    let found = host.vms.iter().filter(is_in);
    found.map(|vm| vm.identity.name.as_str()).collect()
}

/// The first few names, and how many more there are.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
