// SPDX-License-Identifier: GPL-2.0-only
//! What this kernel can do, and which of the known bugs it has.
//!
//! Four bugs can hang a host when a scheduler comes or goes:
//!
//! 1. CVE-2026-43392 ([`enable_starves`]). Enabling starves while ordinary tasks saturate the host, which is what an
//!    overcommitted host is. Fixed by b06ccbabe250, in 7.0, 6.19.10, 6.18.20 and 6.12.78. Recognised by the release, or
//!    by a symbol of the fix, since distributions backport.
//! 2. CVE-2026-43482 ([`exit_wedges`]). Preemption at the wrong moment wedges the way out, and with it every fallback.
//!    Fixed by 83236b2e43db, in the same releases. Recognised like the first: both fixes went into every stable kernel
//!    together.
//! 3. RCU starves on the way out ([`exit_starves_rcu`]; no number). Where nothing keeps ordinary tasks from starving
//!    those of a sched_ext scheduler, a vCPU that starts while the scheduler leaves is an ordinary task already and
//!    runs ahead of RCU's thread, which is not one yet; the kernel waits for RCU before it goes on
//!    (`scx_ops_disable_workfn()` in kernel/sched/ext.c of Linux 6.12: `percpu_down_write()`), and so for ever if the
//!    vCPU computes. Five of six handovers of the testbed hung there (`policy balance` in testbed/e2e), and none of
//!    three with a real-time priority for that thread. Fixed by the deadline server that 7.2 has, and 6.12 has not.
//!    Recognised by a function of that server.
//! 4. Enabling beside a watch for pressure ([`enable_beside_pressure`]; no number). a5b98009f16d ("sched/psi: fix
//!    race between file release and pressure write", 7.1-rc2, and stable kernels since 7.0.10 and 6.18.33) has a
//!    process that sets up such a watch start a thread under `cgroup_mutex`; enabling a scheduler stops forks and
//!    then takes that mutex, and no process on the host gets any further (sched-ext/scx issue 3716: systemd's
//!    watches at boot, beside which corun.service starts). Fixed by fadeedd7cfc5, in 7.2 and stable kernels since
//!    August 2026. Recognised by the release, unless the function that the fix added is there.

use super::{Check, Finding, Host, Severity};
use crate::sched_ext;
use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;

pub(super) const CHECKS: &[Check] = &[
    sched_ext_there,
    calls_there,
    type_information,
    lockdown,
    isolated,
    enable_starves,
    exit_wedges,
    exit_starves_rcu,
    enable_beside_pressure,
    realtime,
];

fn sched_ext_there(host: &Host<'_>) -> Option<Finding> {
    if host.exists(sched_ext::ROOT) {
        return None;
    }
    let release = release(host);
    let named = release.as_deref().unwrap_or("this kernel");
    let what = match (config(host, "CONFIG_SCHED_CLASS_EXT"), version(host)) {
        (_, Some(version)) if version < (6, 12, 0) => {
            format!("{named} is older than 6.12 and has no sched_ext")
        }
        (Some(false), _) => format!("{named} is built without CONFIG_SCHED_CLASS_EXT"),
        _ => "this kernel has no sched_ext".to_string(),
    };
    Some(Finding {
        id: "sched-ext",
        severity: Severity::Impossible,
        what,
        why: "corun schedules through it",
        remedy: "boot Linux 6.12 or newer built with CONFIG_SCHED_CLASS_EXT=y, or use --backend fair or \
                 --observe",
    })
}

/// The kernel's functions that the dispatcher cannot do without (dispatcher/platform/kfuncs.h), with the names that
/// they have had: one of each will do. They are not an interface that is kept for ever.
const CALLS: [&[&str]; 14] = [
    &["scx_bpf_create_dsq"],
    &["scx_bpf_dsq_insert", "scx_bpf_dispatch"],
    &["scx_bpf_dsq_insert_vtime", "scx_bpf_dispatch_vtime"],
    &["scx_bpf_dsq_move_to_local", "scx_bpf_consume"],
    &["scx_bpf_dsq_move", "scx_bpf_dispatch_from_dsq"],
    &[
        "scx_bpf_dsq_move_set_vtime",
        "scx_bpf_dispatch_from_dsq_set_vtime",
    ],
    &["scx_bpf_dsq_move_vtime", "scx_bpf_dispatch_vtime_from_dsq"],
    &["scx_bpf_dsq_nr_queued"],
    &["scx_bpf_kick_cpu"],
    &["scx_bpf_test_and_clear_cpu_idle"],
    &["scx_bpf_task_cpu"],
    &["bpf_iter_scx_dsq_new"],
    &["bpf_iter_scx_dsq_next"],
    &["bpf_iter_scx_dsq_destroy"],
];

fn calls_there(host: &Host<'_>) -> Option<Finding> {
    let symbols = host.symbols()?;
    let known: BTreeSet<&str> = names_of(symbols)
        .filter(|name| name.contains("scx_"))
        .collect();
    // Where none is shown nothing is known.
    let shown = known.iter().any(|name| name.starts_with("scx_bpf_"));
    let lacks = |names: &&[&str]| !names.iter().any(|name| known.contains(name));
    let missing: Vec<String> = CALLS
        .into_iter()
        .filter(lacks)
        .map(|names| names.join(" or "))
        .collect();
    (shown && !missing.is_empty()).then(|| Finding {
        id: "kfuncs",
        severity: Severity::Impossible,
        what: format!("this kernel's sched_ext has no {}", missing.join(", no ")),
        why: "the dispatcher calls them, and the kernel may rename or drop any",
        remedy: "boot a kernel from Linux 6.12 on that this corun knows, or use --backend fair or --observe",
    })
}

fn type_information(host: &Host<'_>) -> Option<Finding> {
    let missing = !host.exists("/sys/kernel/btf/vmlinux");
    missing.then(|| Finding {
        id: "btf",
        severity: Severity::Impossible,
        what: "this kernel has no type information (/sys/kernel/btf/vmlinux)".into(),
        why: "the dispatcher is fitted to the kernel's structs with it",
        remedy: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y",
    })
}

/// `security/lockdown`: at `confidentiality`, BPF programs may not read kernel memory.
fn lockdown(host: &Host<'_>) -> Option<Finding> {
    let modes = host.text("/sys/kernel/security/lockdown")?;
    modes.contains("[confidentiality]").then(|| Finding {
        id: "lockdown",
        severity: Severity::Impossible,
        what: "the kernel is locked down for confidentiality".into(),
        why: "BPF programs may read no kernel memory then, and vCPUs cannot be told from other threads",
        remedy: "boot with lockdown=integrity or none",
    })
}

/// `scx_enable()` refuses on hosts with isolated domains.
fn isolated(host: &Host<'_>) -> Option<Finding> {
    let list = host.text("/sys/devices/system/cpu/isolated")?;
    let asked = host.text("/proc/cmdline")?.contains("isolcpus=");
    (asked && !list.is_empty()).then(|| Finding {
        id: "isolcpus",
        severity: Severity::Impossible,
        what: format!("pCPUs {list} are isolated by isolcpus="),
        why: "the kernel enables no sched_ext scheduler alongside isolated scheduling domains",
        remedy: "boot without isolcpus=, and keep VMs off these pCPUs with cpusets instead",
    })
}

fn enable_starves(host: &Host<'_>) -> Option<Finding> {
    lacks_fixes(host).map(|what| Finding {
        id: "cve-2026-43392",
        severity: Severity::Dangerous,
        what,
        why: "on a host saturated with ordinary tasks, switching to a sched_ext scheduler may starve and \
              hang the host",
        remedy: "boot 6.12.78, 6.18.20, 6.19.10, 7.0 or newer, or switch while the host is idle",
    })
}

fn exit_wedges(host: &Host<'_>) -> Option<Finding> {
    lacks_fixes(host).map(|what| Finding {
        id: "cve-2026-43482",
        severity: Severity::Dangerous,
        what,
        why: "a scheduler that is thrown out may never leave: the way back to the kernel's own scheduler \
              is not safe",
        remedy: "boot 6.12.78, 6.18.20, 6.19.10, 7.0 or newer",
    })
}

fn exit_starves_rcu(host: &Host<'_>) -> Option<Finding> {
    let symbols = host.symbols()?;
    let has_sched_ext = has_any(symbols, &["scx_bpf_kick_cpu"]);
    let starves =
        has_sched_ext && !has_any(symbols, &["ext_server_init"]) && !rcu_is_real_time(host);
    starves.then(|| Finding {
        id: "rcu-starves",
        severity: Severity::Dangerous,
        what: "here ordinary tasks may starve those of a sched_ext scheduler, and RCU's thread is one of these".into(),
        why: "a VM that starts at the moment when the host is handed back can prevent that for ever, and hang the host",
        remedy: "chrt --fifo --pid 1 $(pgrep -x 'rcu_(preempt|sched)'), or boot with rcutree.kthread_prio=1, or a \
                 newer kernel (7.2 keeps this from happening)",
    })
}

/// `CONFIG_PREEMPT_RT`. A timer of BPF that is started under a runqueue's lock takes memory, which such a kernel may not
/// give there (mm/slub.c, kmalloc_nolock()).
fn realtime(host: &Host<'_>) -> Option<Finding> {
    let is = host.text("/sys/kernel/realtime")? == "1";
    is.then(|| Finding {
        id: "realtime",
        severity: Severity::Dangerous,
        what: "this is a real-time kernel (PREEMPT_RT), on which corun was never tried".into(),
        why: "the dispatcher's timers may not start there: slices then end with ticks, and what has used up its quota \
              waits for up to a second",
        remedy: "boot a kernel without PREEMPT_RT, or use --backend fair",
    })
}

fn enable_beside_pressure(host: &Host<'_>) -> Option<Finding> {
    let symbols = host.symbols()?;
    let all_there = ["scx_bpf_kick_cpu", "psi_trigger_create"];
    let has_both = all_there.iter().all(|name| has_any(symbols, &[name]));
    let mended = has_any(symbols, &["psi_trigger_create_rtpoll_worker"]);
    let deadlocks = has_both && !mended && forks_under_cgroup_mutex(version(host)?);
    let release = release(host)?;
    deadlocks.then(|| Finding {
        id: "psi-trigger",
        severity: Severity::Dangerous,
        what: format!("kernel {release} watches pressure without the fix of August 2026"),
        why: "a program that sets up a watch for pressure (systemd does at boot, systemd-oomd) at the moment when a \
              scheduler is enabled keeps the host from ever starting another process",
        remedy: "boot 7.2 or newer, or a stable kernel with `sched/psi: Create the psimon kthread outside of \
                 cgroup_mutex`",
    })
}

/// Do kernels of this version have that bug, unless it was fixed in them? Distributions name theirs by the first of a
/// series (Ubuntu's 7.0.0 has it). 6.12 is not reported: it took both commits within weeks, and 6.12.117 has the fix.
fn forks_under_cgroup_mutex(version: (u32, u32, u32)) -> bool {
    match version {
        (6, 18, patch) => patch >= 33,
        version => ((7, 0, 0)..(7, 2, 0)).contains(&version),
    }
}

/// Does the thread that drives RCU's grace periods go before all ordinary tasks?
fn rcu_is_real_time(host: &Host<'_>) -> bool {
    // Of what follows the name in `stat`, proc(5).
    const POLICY: usize = 38;
    const FIFO_OR_RR: [&str; 2] = ["1", "2"];
    let Ok(processes) = fs::read_dir(host.path("/proc")) else {
        return false;
    };
    let stats = processes.flatten().filter_map(|process| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        host.text(&format!("/proc/{number}/stat"))
    });
    let mut of_rcu = stats.filter(|stat| {
        let names = ["(rcu_preempt)", "(rcu_sched)"];
        names.iter().any(|name| stat.contains(name))
    });
    of_rcu.any(|stat| {
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let policy = fields.split_whitespace().nth(POLICY);
        policy.is_some_and(|policy| FIFO_OR_RR.contains(&policy))
    })
}

/// The evidence that this kernel has the bugs; `None` if it has sched_ext and the fixes, or no sched_ext.
fn lacks_fixes(host: &Host<'_>) -> Option<String> {
    if !host.exists(sched_ext::ROOT) {
        return None;
    }
    let release = release(host)?;
    let fixed = match version(host)? {
        (6, 12, patch) => patch >= 78,
        (6, 18, patch) => patch >= 20,
        (6, 19, patch) => patch >= 10,
        version => version >= (7, 0, 0),
    };
    let lacks = !fixed && !has_fix(host);
    lacks.then(|| format!("kernel {release} is older than the fix"))
}

/// The fix brought functions of its own: enabling goes through a worker.
fn has_fix(host: &Host<'_>) -> bool {
    let symbols = host.symbols().unwrap_or_default();
    has_any(symbols, &["scx_enable_workfn", "scx_root_enable_workfn"])
}

/// Is any of these functions in the kernel, whose functions `symbols` lists?
pub(super) fn has_any(symbols: &str, names: &[&str]) -> bool {
    names_of(symbols).any(|name| names.contains(&name))
}

/// The names in a list as `/proc/kallsyms`: address, kind, name.
fn names_of(symbols: &str) -> impl Iterator<Item = &str> {
    symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
}

/// Such as `6.12.57+deb13-amd64`.
pub(super) fn release(host: &Host<'_>) -> Option<String> {
    host.text("/proc/sys/kernel/osrelease")
}

fn version(host: &Host<'_>) -> Option<(u32, u32, u32)> {
    let release = release(host)?;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    // A release candidate of x.y has no third number that counts.
    let third = numbers.next().flatten();
    let plain = release.split('.').nth(2).is_some();
    Some((major, minor, third.filter(|_| plain).unwrap_or(0)))
}

/// Is an option set in the kernel's configuration? `None` if there is none to read.
fn config(host: &Host<'_>, option: &str) -> Option<bool> {
    let running = || {
        let file = fs::File::open(host.path("/proc/config.gz")).ok()?;
        let mut text = String::new();
        GzDecoder::new(file).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let installed = || host.text(&format!("/boot/config-{}", release(host)?));
    let text = running().or_else(installed)?;
    let set = |line: &str| line.strip_prefix(option).is_some_and(|rest| rest == "=y");
    Some(text.lines().any(set))
}
