// SPDX-License-Identifier: GPL-2.0-only
//! What was promised to VMs that corun could not keep.
//!
//! A sched_ext scheduler replaces the kernel's accounts of `cpu.weight`, `cpu.max` and `cpu.idle`: unless
//! it keeps them itself, the files are there and mean nothing. corun's dispatcher does (group.h, quota.h).
//! Core-scheduling cookies it keeps under vsmtio only (cookie.h). Hosts whose VMs have them are refused under
//! every policy all the same: they, which cloud-hypervisor sets by default, have hung SMT hosts under any
//! sched_ext scheduler (sched-ext/scx issue 3715, open in July 2026).

use super::{Check, Finding, Host, Severity};
use crate::inventory::Machine;
use crate::smt;
use std::io;

pub(super) const COOKIES: &str = "core-scheduling";

pub(super) const CHECKS: &[Check] = &[cookies];

const WHY: &str = "core scheduling has hung SMT hosts under every sched_ext scheduler";

fn cookies(host: &Host<'_>) -> Option<Finding> {
    if host.text("/sys/devices/system/cpu/smt/active")? != "1" {
        return None;
    }
    let of = |found: &dyn Fn(io::Result<u64>) -> bool| -> Vec<&str> {
        let has = |vm: &&Machine| {
            vm.vcpus()
                .any(|(_, thread)| found((host.cookie)(thread.tid)))
        };
        let vms = host.vms.iter().filter(has);
        vms.map(|vm| vm.identity.name.as_str()).collect()
    };
    let tagged = of(&|cookie| cookie.is_ok_and(|cookie| cookie != 0));
    if !tagged.is_empty() {
        return Some(with_cookies(&tagged));
    }
    let hidden = of(&|cookie| cookie.is_err_and(|why| !smt::is_gone(&why)));
    (!hidden.is_empty()).then(|| cannot_tell(&hidden))
}

/// These VMs have cookies.
fn with_cookies(names: &[&str]) -> Finding {
    Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: format!(
            "SMT is on and vCPUs have core-scheduling cookies: {}",
            some(names)
        ),
        why: WHY,
        remedy: "start these VMs without it (cloud-hypervisor: --cpus …,core_scheduling=off), or switch \
                 SMT off",
    }
}

/// These may have some: that one may not look says nothing.
fn cannot_tell(names: &[&str]) -> Finding {
    Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: format!(
            "SMT is on and it cannot be told whether vCPUs have core-scheduling cookies: {}",
            some(names)
        ),
        why: WHY,
        remedy: "look with CAP_SYS_PTRACE, as root and corun.service have it, or switch SMT off",
    }
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
