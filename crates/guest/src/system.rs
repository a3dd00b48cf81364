// SPDX-License-Identifier: GPL-2.0-only
//! What sort of guest this is: its vCPUs, which other programs steer by stolen time, and whether stolen time can be
//! seen at all.

use corun_model::PcpuSet;
use corun_system::cpusets;
use corun_system::procfs::Proc;
use std::fs;
use std::path::{Path, PathBuf};

/// A mounted sysfs.
#[derive(Clone, Debug)]
pub(crate) struct Sys {
    root: PathBuf,
}

impl Default for Sys {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl Sys {
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn cpus(&self, name: &str) -> Option<PcpuSet> {
        let file = self.root.join("devices/system/cpu").join(name);
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// The vCPUs that are online.
    pub(crate) fn online(&self) -> Option<PcpuSet> {
        self.cpus("online")
    }

    /// The vCPUs that can ever be: those online and those that may be plugged in.
    pub(crate) fn possible(&self) -> Option<PcpuSet> {
        self.cpus("possible")
    }

    /// Does the kernel itself keep work off vCPUs that the host is short of? Returns what suggests that it does.
    ///
    /// Two at once would chase each other: the kernel folds work onto few vCPUs, the migrater spreads it. Known are the
    /// proposals for Linux of 2026 (`cpu_preferred_mask`): the module `steal_monitor`, and a list of preferred CPUs
    /// that is shorter than that of online CPUs.
    pub(crate) fn governor(&self) -> Option<String> {
        if self.root.join("module/steal_monitor").is_dir() {
            return Some("the kernel's steal_monitor is at work".to_string());
        }
        let (preferred, online) = (self.cpus("preferred")?, self.online()?);
        let folded = preferred.and(&online) != online;
        folded.then(|| format!("the kernel prefers vCPUs {preferred} of {online}"))
    }

    /// Is there a cgroup of this path, of either version? Where none are mounted, that is not known: `true`.
    pub(crate) fn has_cgroup(&self, path: &str) -> bool {
        let base = self.root.join("fs/cgroup");
        let path = path.trim_start_matches('/');
        let is_in = |mount: &Path| mount.join(path).is_dir();
        if base.join("cgroup.controllers").exists() {
            return is_in(&base);
        }
        // Version 1: a hierarchy for each controller, and one of version 2 alongside.
        let mounts: Vec<PathBuf> = fs::read_dir(&base)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        mounts.is_empty() || mounts.iter().any(|mount| is_in(mount))
    }

    /// The vCPUs that the cpuset of a thread allows, according to its cgroups; `None` if none says.
    pub(crate) fn cpuset(&self, cgroups: &[(String, String)]) -> Option<PcpuSet> {
        cpusets::of(&self.root, cgroups)
    }
}

/// Does the hypervisor report stolen time to the guest's kernel? `false`: none would be seen even if there were some.
pub(crate) fn tells_steal(proc: &Proc) -> bool {
    let seen = proc.stolen().is_some_and(|(all, _)| all > 0);
    seen || kvm_tells_steal()
}

/// KVM's feature bit for it (`KVM_FEATURE_STEAL_TIME`, Documentation/virt/kvm/x86/cpuid.rst).
#[cfg(target_arch = "x86_64")]
fn kvm_tells_steal() -> bool {
    use std::arch::x86_64::__cpuid;
    const HYPERVISOR: u32 = 1 << 31;
    const STEAL_TIME: u32 = 1 << 5;
    // SAFETY: every x86-64 processor has the instruction, and it has no effect other than its answer.
    #[allow(unused_unsafe)]
    unsafe {
        if __cpuid(1).ecx & HYPERVISOR == 0 {
            return false;
        }
        let name = __cpuid(0x4000_0000);
        let is_kvm = [name.ebx, name.ecx, name.edx]
            .map(u32::to_le_bytes)
            .concat()
            == b"KVMKVMKVM\0\0\0";
        is_kvm && __cpuid(0x4000_0001).eax & STEAL_TIME != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kvm_tells_steal() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_kernel_that_folds_work_is_recognised() {
        let root = tempfile::tempdir().unwrap();
        let sys = Sys::at(root.path());
        assert_eq!(sys.governor(), None);
        put(root.path(), "devices/system/cpu/online", "0-7\n");
        assert_eq!(sys.governor(), None, "an ordinary kernel");
        put(root.path(), "devices/system/cpu/preferred", "0-7\n");
        assert_eq!(sys.governor(), None, "all are preferred");
        put(root.path(), "devices/system/cpu/preferred", "0-3\n");
        assert!(sys.governor().unwrap().contains("0-3 of 0-7"));
        put(root.path(), "module/steal_monitor/refcnt", "0\n");
        assert!(sys.governor().unwrap().contains("steal_monitor"));
    }

    #[test]
    fn cgroups_of_both_versions_are_found() {
        let root = tempfile::tempdir().unwrap();
        let sys = Sys::at(root.path());
        assert!(sys.has_cgroup("/a"), "none are mounted");
        put(root.path(), "fs/cgroup/cpu/a/cgroup.procs", "");
        assert!(sys.has_cgroup("/a") && sys.has_cgroup("a/") && sys.has_cgroup("/"));
        assert!(!sys.has_cgroup("/b"));
        put(root.path(), "fs/cgroup/cgroup.controllers", "");
        put(root.path(), "fs/cgroup/b/cgroup.procs", "");
        assert!(sys.has_cgroup("/b") && sys.has_cgroup("/"));
        assert!(
            !sys.has_cgroup("/a"),
            "of version 2 all are in one hierarchy"
        );
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(!Sys::default().online().unwrap().is_empty());
    }
}
