// SPDX-License-Identifier: GPL-2.0-only
//! May corun take over this host's scheduling? Each finding says what, why it matters, and a remedy.

use crate::sched_ext;
use corun_model::{PcpuSet, Topology};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Something in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short name that stays.
    pub id: &'static str,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n  why: {}\n  remedy: {}",
            self.what, self.why, self.remedy
        )
    }
}

/// Looks at this host. Empty: nothing is in the way.
pub fn check() -> Vec<Finding> {
    check_in(Path::new("/"))
}

fn check_in(root: &Path) -> Vec<Finding> {
    let checks: [fn(&Path) -> Option<Finding>; 6] = [
        sched_ext_there,
        nobody_else,
        type_information,
        kvm_there,
        privileges,
        few_pcpus,
    ];
    checks.iter().filter_map(|check| check(root)).collect()
}

fn at(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn sched_ext_there(root: &Path) -> Option<Finding> {
    let missing = !at(root, sched_ext::ROOT).exists();
    missing.then(|| Finding {
        id: "sched-ext",
        what: "this kernel has no sched_ext".into(),
        why: "corun schedules through it",
        remedy: "boot Linux 6.12 or newer built with CONFIG_SCHED_CLASS_EXT=y",
    })
}

fn nobody_else(root: &Path) -> Option<Finding> {
    let read = |file: &str| fs::read_to_string(at(root, sched_ext::ROOT).join(file)).ok();
    let state = read("state")?;
    let ops = read("root/ops").unwrap_or_default();
    (state.trim() != "disabled").then(|| Finding {
        id: "other-scheduler",
        what: format!(
            "another sched_ext scheduler is {}: {}",
            state.trim(),
            ops.trim()
        ),
        why: "there can be only one",
        remedy: if ops.trim() == "corun" {
            "change its policy with `corun policy NAME`, or end it first"
        } else {
            "stop it first, such as with `systemctl stop scx` or `scxctl stop`"
        },
    })
}

fn type_information(root: &Path) -> Option<Finding> {
    let missing = !at(root, "/sys/kernel/btf/vmlinux").exists();
    missing.then(|| Finding {
        id: "btf",
        what: "this kernel has no type information (/sys/kernel/btf/vmlinux)".into(),
        why: "the dispatcher is fitted to the kernel's structs by it",
        remedy: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y",
    })
}

fn kvm_there(root: &Path) -> Option<Finding> {
    let missing = !at(root, "/sys/module/kvm").exists();
    missing.then(|| Finding {
        id: "kvm",
        what: "KVM is not loaded".into(),
        why: "a dispatcher loaded before KVM cannot tell vCPUs from other threads",
        remedy: "load it before corun: `modprobe kvm_intel` or `modprobe kvm_amd`",
    })
}

/// Bits of the capabilities that loading a scheduler takes (linux/capability.h).
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;

fn privileges(root: &Path) -> Option<Finding> {
    let status = fs::read_to_string(at(root, "/proc/self/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let have = u64::from_str_radix(line.trim(), 16).ok()?;
    let enough = have & CAP_SYS_ADMIN != 0 || have & CAP_PERFMON_AND_BPF == CAP_PERFMON_AND_BPF;
    (!enough).then(|| Finding {
        id: "privileges",
        what: "not enough privileges to load a scheduler".into(),
        why: "the kernel lets only the administrator exchange it",
        remedy: "run as root, or with CAP_BPF and CAP_PERFMON",
    })
}

fn few_pcpus(root: &Path) -> Option<Finding> {
    let list = online_in(root)?;
    list.parse::<PcpuSet>().is_err().then(|| Finding {
        id: "pcpus",
        what: format!(
            "pCPUs {list} are online, corun handles numbers below {}",
            Topology::MAX_PCPUS
        ),
        why: "the dispatcher's tables have a fixed size",
        remedy: "take the others offline, or write to us",
    })
}

fn online_in(root: &Path) -> Option<String> {
    let list = fs::read_to_string(at(root, "/sys/devices/system/cpu/online")).ok()?;
    Some(list.trim().to_string())
}

/// The pCPUs that are online; `None` if there are more than corun handles.
pub(crate) fn online() -> Option<PcpuSet> {
    online_in(Path::new("/"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = at(root.path(), path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    const GOOD: [(&str, &str); 5] = [
        ("/sys/kernel/sched_ext/state", "disabled\n"),
        ("/sys/kernel/btf/vmlinux", ""),
        ("/sys/module/kvm/x", ""),
        ("/proc/self/status", "CapEff:\t000001ffffffffff\n"),
        ("/sys/devices/system/cpu/online", "0-7\n"),
    ];

    fn findings(changed: &[(&str, &str)]) -> Vec<&'static str> {
        let files: Vec<_> = GOOD.iter().chain(changed).copied().collect();
        let root = host(&files);
        check_in(root.path())
            .iter()
            .map(|finding| finding.id)
            .collect()
    }

    #[test]
    fn a_good_host_has_no_findings() {
        assert!(findings(&[]).is_empty());
    }

    #[test]
    fn what_may_be_in_the_way() {
        let other = [
            ("/sys/kernel/sched_ext/state", "enabled\n"),
            ("/sys/kernel/sched_ext/root/ops", "lavd\n"),
        ];
        assert_eq!(findings(&other), ["other-scheduler"]);
        let ours = [GOOD[0], ("/sys/kernel/sched_ext/root/ops", "corun\n")];
        assert!(findings(&ours).is_empty(), "one that has left says nothing");
        let poor = [("/proc/self/status", "CapEff:\t0000000000000000\n")];
        assert_eq!(findings(&poor), ["privileges"]);
        assert_eq!(
            findings(&[("/sys/devices/system/cpu/online", "0-600\n")]),
            ["pcpus"]
        );
    }

    #[test]
    fn an_empty_host_has_findings_that_help() {
        let root = host(&[]);
        let findings = check_in(root.path());
        let ids: Vec<_> = findings.iter().map(|finding| finding.id).collect();
        assert_eq!(ids, ["sched-ext", "btf", "kvm"]);
        assert!(findings[0].to_string().contains("remedy: boot Linux 6.12"));
    }
}
