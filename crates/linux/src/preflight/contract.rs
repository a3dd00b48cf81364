// SPDX-License-Identifier: GPL-2.0-only
//! What was promised to VMs that corun could not keep.
//!
//! A sched_ext scheduler replaces the kernel's accounts of `cpu.weight`, `cpu.max` and `cpu.idle`: unless
//! it keeps them itself, the files are there and mean nothing. corun's dispatcher does (group.h, quota.h).
//! Core-scheduling cookies it keeps under vsmtio only (cookie.h). Hosts whose VMs have them are refused under
//! every policy all the same: they, which cloud-hypervisor sets by default, have hung SMT hosts under any
//! sched_ext scheduler (sched-ext/scx issue 3715, open in July 2026).

use super::{Check, Finding, Host, Severity};

pub(super) const COOKIES: &str = "core-scheduling";

pub(super) const CHECKS: &[Check] = &[cookies];

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

/// The first few names, and how many more there are.
fn some(names: &[&str]) -> String {
    const SHOWN: usize = 5;
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
