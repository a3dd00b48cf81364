// SPDX-License-Identifier: GPL-2.0-only
//! Threads that serve a VM and are no vCPUs: I/O threads, vhost workers, the emulator's own.
//!
//! Problem: a VM is as slow as the thread that completes its I/O. Their weights need nothing from
//! corun: they are in their VM's cgroup, whose weight and quota the dispatcher divides (dispatcher/group.h). But a
//! policy that gives VMs pCPUs of their own names only vCPUs; helpers would run anywhere, wait behind the long slices
//! of other VMs' pools, and disturb those.
//!
//! How: under pools a helper is in the pool that most of its VM's vCPUs are in, where it has the pool's slice
//! (AQL_Sched, Teabe et al., EuroSys 2016, §3.5 divides the host into pools by the slices that VMs need). Under every
//! other placement helpers have no settings: they go to the least loaded pCPU that they may use. They have no part in a
//! gang: they are in no VM's table, are never co-stopped, and no slot waits for them. Their pool follows from the plan
//! for their VM's vCPUs, so the helpers of a VM outside a canary are in fair order, too.

use crate::descriptors;
use crate::discovery::Vm;
use crate::inventory::Role;
use crate::pidfd;
use corun_dispatcher::TaskConf;
use corun_system::procfs::{Process, ThreadKey};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

/// How many helpers of a VM are put into its pool; if there are more, the rest are in fair order. A VMM has a handful;
/// each costs the daemon a descriptor.
const MOST: usize = 64;

/// A thread that serves a VM.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) key: ThreadKey,
    pub(crate) role: Role,
    pub(crate) pidfd: OwnedFd,
    /// What the dispatcher has been told about it.
    pub(crate) told: TaskConf,
}

/// Brings the helpers of a VM up to date with `threads`, those that its process has: a thread that
/// has gone, or has turned out to be one of its `vcpus`, is forgotten. Returns for how many threads nothing can
/// be set, since no descriptor is left.
pub(crate) fn refresh(
    helpers: &mut Vec<Helper>,
    vcpus: &BTreeSet<u32>,
    process: &Process,
    tgid: u32,
    threads: &[u32],
) -> usize {
    let mut left_out = 0;
    helpers.retain_mut(|helper| {
        let tid = helper.key.tid;
        // Threads are named after they have begun.
        let role = process.thread(tid).name().map(|name| Role::of(&name));
        helper.role = role.unwrap_or(helper.role);
        !vcpus.contains(&tid) && process.thread(tid).start() == Some(helper.key.start)
    });
    for &tid in threads {
        if helpers.len() >= MOST {
            break;
        }
        if !vcpus.contains(&tid) && !helpers.iter().any(|helper| helper.key.tid == tid) {
            match open(process, tgid, tid) {
                Ok(helper) => helpers.extend(helper),
                Err(why) => left_out += usize::from(descriptors::are_all_taken(&why)),
            }
        }
    }
    helpers.sort_by_key(|helper| (helper.role, helper.key.tid));
    left_out
}

/// The helper that thread `tid` is; `None` if it has gone, or is named as a vCPU.
///
/// # Errors
/// Why there is no descriptor for it.
fn open(process: &Process, tgid: u32, tid: u32) -> io::Result<Option<Helper>> {
    let role = process.thread(tid).name().map(|name| Role::of(&name));
    let Some(role) = role.filter(|role| !role.is_vcpu()) else {
        return Ok(None);
    };
    let pidfd = pidfd::open_thread(tid)?;
    // Read after the descriptor was opened: if the thread is still there, both mean the same one.
    let start = process.thread(tid).start();
    Ok(start.map(|start| Helper {
        key: ThreadKey { tgid, tid, start },
        role,
        pidfd,
        told: TaskConf::default(),
    }))
}

/// The settings of a VM's helpers, which follow from those of the VM.
pub(crate) fn wanted(vm: &Vm) -> TaskConf {
    let placement = vm.told.map_or(0, |told| told.placement);
    TaskConf::of_helper(placement, vm.vcpus.iter().filter_map(|vcpu| vcpu.told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_system::procfs::Proc;
    use std::time::{Duration, Instant};

    /// To search a list of them for each thread takes 1,250,000,000 comparisons.
    #[test]
    fn fifty_thousand_threads_are_no_work() {
        let root = tempfile::tempdir().unwrap();
        let process = Proc::at(root.path()).process(7);
        let threads: Vec<u32> = (0..50_000).collect();
        let vcpus: BTreeSet<u32> = threads.iter().copied().collect();
        let began = Instant::now();
        let mut helpers = Vec::new();
        assert_eq!(refresh(&mut helpers, &vcpus, &process, 7, &threads), 0);
        assert!(helpers.is_empty());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}
