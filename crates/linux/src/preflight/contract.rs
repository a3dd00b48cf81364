// SPDX-License-Identifier: GPL-2.0-only
//! Promises to VMs that corun could not keep.
//!
//! A sched_ext scheduler replaces the kernel's enforcement of `cpu.weight`, `cpu.max` and `cpu.idle`: unless it
//! enforces them itself, the files are there and mean nothing. corun's dispatcher does (group.h, quota.h). It heeds
//! core-scheduling cookies under vsmtio only (cookie.h). Hosts where any task has a cookie are refused under every
//! policy nevertheless: on SMT hosts cookies have hung the whole host within milliseconds under every sched_ext
//! scheduler, with SysRq dead (sched-ext/scx issue 3715, open in July 2026; 7.1.3; which other kernels is not known).
//! cloud-hypervisor gives cookies to its vCPUs by default, but those of any task are enough.
//!
//! That no task has one yet says little: when a host boots, VMs start after corun. So no cookie can be made while corun
//! is in charge (tags.rs); this looks for cookies made before, and for kernels where they cannot be prevented.

use super::{Check, Finding, Host, Severity, kernel};
use crate::inventory::{Machine, identity};
use crate::smt;
use corun_system::procfs::Proc;
use std::io;

pub(crate) const COOKIES: &str = "core-scheduling";

pub(super) const CHECKS: &[Check] = &[cookies];

const WHY: &str = "core scheduling has hung SMT hosts under every sched_ext scheduler";

pub(super) fn cookies(host: &Host<'_>) -> Option<Finding> {
    if host.text("/sys/devices/system/cpu/smt/active")? != "1" {
        return None;
    }
    let tagged = tagged(host);
    if !tagged.is_empty() {
        return Some(with_cookies(&tagged));
    }
    // Checked for VMs only: the cookies of other processes can be read, or some profile hides them, and few have any.
    let is_hidden = |vm: &&Machine| vm.vcpus().any(|(_, thread)| hides(host, thread.tid));
    let hidden = host.vms.iter().filter(is_hidden);
    let hidden: Vec<String> = hidden.map(|vm| vm.identity.name.clone()).collect();
    if !hidden.is_empty() {
        return Some(cannot_tell(&hidden));
    }
    cannot_be_kept_away(host).then(at_any_time)
}

fn hides(host: &Host<'_>, tid: u32) -> bool {
    (host.cookie)(tid).is_err_and(|why: io::Error| !smt::is_gone(&why))
}

/// The owners of tasks that have cookies; VMs by their names.
fn tagged(host: &Host<'_>) -> Vec<String> {
    let proc = Proc::below(host.root);
    let mut processes = proc.processes();
    processes.sort_unstable();
    let has = |tid: &u32| (host.cookie)(*tid).is_ok_and(|cookie| cookie != 0);
    let tagged = processes
        .into_iter()
        .filter(|tgid| proc.process(*tgid).threads().iter().any(has));
    let name = |tgid: u32| {
        let vm = host.vms.iter().find(|vm| vm.tgid == tgid);
        let vm = vm.map(|vm| vm.identity.name.clone());
        vm.unwrap_or_else(|| {
            let command = proc.thread(tgid, tgid).name().unwrap_or_default();
            format!("process {tgid} ({})", identity::presentable(&command))
        })
    };
    tagged.map(name).collect()
}

/// Can the kernel make cookies, and not be kept from it?
fn cannot_be_kept_away(host: &Host<'_>) -> bool {
    let has = |name| {
        let symbols = host.symbols();
        symbols.is_some_and(|symbols| kernel::has_any(symbols, &[name]))
    };
    has("sched_core_share_pid") && !has("security_task_prctl")
}

/// These have cookies.
fn with_cookies(names: &[String]) -> Finding {
    Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: format!(
            "SMT is on and tasks have core-scheduling cookies: {}",
            some(names)
        ),
        why: WHY,
        remedy: "start these without it (cloud-hypervisor: --cpus …,core_scheduling=off), or switch \
                 SMT off",
    }
}

/// These may have some: being refused a look proves nothing.
fn cannot_tell(names: &[String]) -> Finding {
    Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: format!(
            "SMT is on and it cannot be told whether vCPUs have core-scheduling cookies: {}",
            some(names)
        ),
        why: WHY,
        remedy: "run this with CAP_SYS_PTRACE, as root and corun.service have it, or switch SMT off",
    }
}

/// No task has one, but any may have one at any time.
fn at_any_time() -> Finding {
    Finding {
        id: COOKIES,
        severity: Severity::Dangerous,
        what: "SMT is on and nothing can keep tasks from making core-scheduling cookies: this kernel has no \
               security_task_prctl"
            .into(),
        why: WHY,
        remedy: "boot a kernel built with CONFIG_SECURITY=y or without CONFIG_SCHED_CORE, or switch SMT off",
    }
}

/// The first few names, and the number of the others.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
