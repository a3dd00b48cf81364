// SPDX-License-Identifier: GPL-2.0-only
//! The present state of the host: which scheduler is in charge, how busy it is, whether corun has
//! the rights, and sees the host's processes.
//!
//! How busy is too busy is assumed, not measured: a switch of schedulers stops every task for a moment and moves it
//! over, which takes longer the more tasks there are, and a daemon that cannot get its pages cannot vouch for anything.
//! An overcommitted host is always under CPU pressure; that alone is no finding.

use super::{Check, Finding, Host, Severity};
use crate::{namespaces, sched_ext};
use corun_model::{PcpuSet, Topology, counted};

pub(super) const CHECKS: &[Check] = &[
    nobody_else,
    kvm_there,
    privileges,
    hosts_numbers,
    few_pcpus,
    not_overrun,
    memory_to_work,
];

fn nobody_else(host: &Host<'_>) -> Option<Finding> {
    let read = |file: &str| host.text(&format!("{}/{file}", sched_ext::ROOT));
    let state = read("state")?;
    let ops = read("root/ops").unwrap_or_default();
    (state != "disabled").then(|| Finding {
        id: "other-scheduler",
        severity: Severity::Impossible,
        what: format!("another sched_ext scheduler is {state}: {ops}"),
        why: "there can be only one",
        remedy: if ops == "corun" {
            "change its policy with `corun policy NAME`, or end it first"
        } else {
            "stop it first, such as with `systemctl stop scx` or `scxctl stop`"
        },
    })
}

fn kvm_there(host: &Host<'_>) -> Option<Finding> {
    let missing = !host.exists("/sys/module/kvm");
    missing.then(|| Finding {
        id: "kvm",
        severity: Severity::Dangerous,
        what: "KVM is not loaded".into(),
        why: "a dispatcher loaded before KVM cannot tell vCPUs from other threads",
        remedy: "load it before corun: `modprobe kvm_intel` or `modprobe kvm_amd`",
    })
}

/// Bits of the capabilities that loading a scheduler takes (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

/// May a process load programs into the kernel, according to its `status`? `None`: that does not say.
pub(super) fn may_load(status: &str) -> Option<bool> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let have = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(have & CAP_SYS_ADMIN != 0 || have & CAP_PERFMON_AND_BPF == CAP_PERFMON_AND_BPF)
}

fn privileges(host: &Host<'_>) -> Option<Finding> {
    let enough = may_load(&host.text("/proc/self/status")?)?;
    (!enough).then(|| Finding {
        id: "privileges",
        severity: Severity::Impossible,
        what: "not enough privileges to load a scheduler".into(),
        why: "the kernel lets only the administrator change its scheduler",
        remedy: "run as root, or with CAP_BPF and CAP_PERFMON",
    })
}

fn hosts_numbers(host: &Host<'_>) -> Option<Finding> {
    (!namespaces::numbers_are_the_kernels_below(host.root)).then(|| Finding {
        id: "pid-namespace",
        severity: Severity::Impossible,
        what: "this process is in a PID namespace of its own, such as a container's".into(),
        why: "the dispatcher knows VMs by the host's process numbers, which mean other processes here, or none: \
              policies would act on the wrong ones, and nobody would watch how long vCPUs wait",
        remedy: "run it in the host's PID namespace: --pid=host (Docker, Podman), hostPID: true (Kubernetes)",
    })
}

fn few_pcpus(host: &Host<'_>) -> Option<Finding> {
    let list = host.text("/sys/devices/system/cpu/online")?;
    list.parse::<PcpuSet>().is_err().then(|| Finding {
        id: "pcpus",
        severity: Severity::Impossible,
        what: format!(
            "pCPUs {list} are online, corun handles numbers below {}",
            Topology::MAX_PCPUS
        ),
        why: "the dispatcher's tables have a fixed size",
        remedy: "take the others offline, or build corun with a larger MAX_PCPUS",
    })
}

/// Tasks running, ready or in disk wait per pCPU, mean of a minute, from which on it is better to
/// wait (assumed: the overcommitment that KubeVirt defaults to, with every vCPU busy).
const MOST_LOAD: f64 = 10.0;

fn not_overrun(host: &Host<'_>) -> Option<Finding> {
    let text = host.text("/proc/loadavg")?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let online = host.text("/sys/devices/system/cpu/online")?;
    let pcpus = online.parse::<PcpuSet>().ok()?.len();
    (load > MOST_LOAD * f64::from(pcpus)).then(|| Finding {
        id: "load",
        severity: Severity::Dangerous,
        what: format!("the load is {load:.0} on {}", counted(pcpus, "pCPU")),
        why: "all tasks are moved over at once: the more are ready, the longer all of them stand still",
        remedy: "switch when less is going on",
    })
}

/// Share of time in which all tasks waited for memory, percent of the last 10 s, from which on a host
/// thrashes (assumed).
const MOST_STALLED: f64 = 10.0;

fn memory_to_work(host: &Host<'_>) -> Option<Finding> {
    let text = host.text("/proc/pressure/memory")?;
    let stalled = crate::safety::pressure::share(&text, "full")?;
    (stalled > MOST_STALLED).then(|| Finding {
        id: "memory-pressure",
        severity: Severity::Dangerous,
        what: format!("all tasks waited for memory {stalled:.0} % of the last 10 s"),
        why: "a daemon that waits for its own pages can neither watch nor end in time",
        remedy: "free memory, or switch when less is going on",
    })
}
