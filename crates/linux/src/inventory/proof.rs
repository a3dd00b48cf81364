// SPDX-License-Identifier: GPL-2.0-only
//! Is a process with a thread that is named like a vCPU a VM?
//!
//! Problem: any user may name threads so. If that were believed, VMs would be spread over pCPUs by
//! vCPUs that never run, or VMs would be shown that do not exist. How: a process that runs a vCPU
//! has a descriptor of KVM's for it open, and the kernel shows that in /proc (`kvm-vcpu:` in
//! virt/kvm/kvm_main.c). Looking there takes CAP_SYS_PTRACE where VMs run as other users. A process
//! without it (`corun metrics`, any user's `corun top`) believes names except those of processes
//! from users' sessions: users cannot leave their own slice by themselves.

use corun_system::procfs::Process;
use std::path::Path;

/// The evidence for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It has a vCPU of KVM's; or there is no KVM here, and names are all there is.
    Kvm,
    /// Only its threads' names, and that it does not run in a user's session.
    Names,
}

/// The proof for `process`, which has such a thread; `None`: it is no VM.
pub(super) fn of(root: &Path, process: &Process, cgroup: Option<&str>) -> Option<Proof> {
    if !root.join("sys/module/kvm").exists() {
        return Some(Proof::Kvm);
    }
    match process.has_open("anon_inode:kvm-vcpu") {
        Some(true) => Some(Proof::Kvm),
        Some(false) => None,
        None => {
            let of_a_session = cgroup.is_some_and(|path| path.starts_with("/user.slice/"));
            let may_be = !of_a_session || process.user() == Some(0);
            may_be.then_some(Proof::Names)
        }
    }
}
