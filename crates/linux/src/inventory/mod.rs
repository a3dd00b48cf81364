// SPDX-License-Identifier: GPL-2.0-only
//! Which VMs run on this host, as far as that can be seen without asking their manager.
//!
//! A process with a thread that is named like a vCPU, and with an open vCPU of KVM ([`proof`]), is a VM: QEMU,
//! cloud-hypervisor, Firecracker and crosvm name them, each in its way ([`role`]). Its other threads are told apart by
//! their names, too: I/O threads, vhost workers, the emulator's own. Its identity comes from its command line, its
//! cgroup and what managers leave on disk ([`identity`]). Everything is read below a root directory, so that it can be
//! tried on trees that tests make. Processes come and go during a look: what cannot be read is left out this time.
//!
//! The dispatcher recognises vCPUs by what they do, not by their names (discovery.rs); this is for commands that look
//! at a host without it: `corun preflight`, `corun top`, `corun metrics`, `corun host --observe`.

pub mod identity;
pub mod proof;
pub mod role;

pub use identity::{Identity, Manager};
pub use proof::Proof;
pub use role::Role;

use corun_model::counted;
use corun_system::procfs::Proc;
use std::path::Path;

/// How many threads of a process are looked at. A user who may use /dev/kvm may have a hundred thousand beside one
/// vCPU; while they are looked at no promise is watched, and after 5 s of that all VMs are in fair order. KVM allows
/// 4096 vCPUs in a VM at most.
pub(crate) const MOST_THREADS: usize = 8192;
/// VMs that are looked at: as many as the dispatcher serves.
const MOST_MACHINES: usize = corun_dispatcher::MAX_VMS;

/// A thread of a VM. Numbers of threads are used again, but not with the same start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// When it started, clock ticks since boot.
    pub start: u64,
    /// What it is for.
    pub role: Role,
    /// Does it have or want a pCPU at the moment?
    pub runnable: bool,
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its process.
    pub tgid: u32,
    /// When that started, clock ticks since boot.
    pub start: u64,
    /// The evidence that it is one.
    pub proof: Proof,
    /// Its identity.
    pub identity: Identity,
    /// Its cgroup (v2) below the mount point.
    pub cgroup: Option<String>,
    /// vCPUs in their order, then the others.
    pub threads: Vec<Thread>,
    /// How many more it has, which are not looked at, since they began after too many others.
    pub beyond: usize,
}

impl Machine {
    /// Its vCPUs: their numbers and threads.
    pub fn vcpus(&self) -> impl Iterator<Item = (u32, &Thread)> {
        self.threads.iter().filter_map(|thread| match thread.role {
            Role::Vcpu(number) => Some((number, thread)),
            _ => None,
        })
    }
}

/// The VMs of the host whose files lie below `root`, by process id: all, except for what [`left_out`] reports.
pub fn machines(root: &Path) -> Vec<Machine> {
    let mut processes = Proc::below(root).processes();
    processes.sort_unstable();
    let found = processes.into_iter();
    let found = found.filter_map(|tgid| machine(root, tgid));
    found.take(MOST_MACHINES).collect()
}

/// What was not looked at in these VMs, which are all that [`machines`] has found; for people.
pub(crate) fn left_out<'a>(found: impl Iterator<Item = &'a Machine> + Clone) -> Vec<String> {
    let mut notes = Vec::new();
    if found.clone().count() >= MOST_MACHINES {
        notes.push(format!(
            "no more than {MOST_MACHINES} VMs are looked at, those with the lowest process numbers: others are left \
             alone"
        ));
    }
    let threads: usize = found.clone().map(|machine| machine.beyond).sum();
    let worst = found.max_by_key(|machine| machine.beyond);
    if let Some(worst) = worst.filter(|_| threads > 0) {
        notes.push(format!(
            "{} of VMs are not looked at, most of them of {:?}: the most for a process is {MOST_THREADS}",
            counted(threads, "thread"),
            worst.identity.name
        ));
    }
    notes
}

/// The VM that process `tgid` is, if it is one.
pub fn machine(root: &Path, tgid: u32) -> Option<Machine> {
    let process = Proc::below(root).process(tgid);
    let role = |tid| Some((tid, Role::of(&process.thread(tid).name()?)));
    let listed = process.some_threads(MOST_THREADS);
    let all_are_listed = listed.len() < MOST_THREADS;
    let roles: Vec<(u32, Role)> = listed.into_iter().filter_map(role).collect();
    // Most processes are not VMs: nothing else is read about these.
    if !roles.iter().any(|(_, role)| role.is_vcpu()) {
        return None;
    }
    let cgroup = process.cgroup();
    let proof = proof::of(root, &process, cgroup.as_deref())?;
    let thread = |(tid, role)| {
        let stat = process.thread(tid).stat()?;
        Some(Thread {
            tid,
            start: stat.start,
            role,
            runnable: stat.state == 'R',
        })
    };
    let mut threads: Vec<Thread> = roles.into_iter().filter_map(thread).collect();
    threads.sort_by_key(|thread| (thread.role, thread.tid));
    let count = || process.thread_count().unwrap_or(0) as usize;
    let beyond = if all_are_listed {
        0
    } else {
        count().saturating_sub(MOST_THREADS)
    };
    Some(Machine {
        tgid,
        start: process.start()?,
        proof,
        identity: identity::of(root, tgid, &process.words()?, cgroup.as_deref()),
        cgroup,
        threads,
        beyond,
    })
}

#[cfg(test)]
pub(crate) mod tests;
