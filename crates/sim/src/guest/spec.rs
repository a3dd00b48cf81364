// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario says about VMs and host tasks.

use super::{EmulatorParams, GuestParams};
use crate::device::disk::Share;
use crate::workload::{Program, Statement};
use corun_model::{Nanos, PcpuSet, VmId};

/// The most vCPUs of a VM (KVM's limit on x86).
pub const MOST_VCPUS: u32 = 4096;
/// The most VMs, and the most threads of one VM.
pub const MOST: usize = 1 << 20;

/// A VM.
#[derive(Clone, Debug)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// Number of vCPUs, 1 to [`MOST_VCPUS`].
    pub vcpus: u32,
    /// Weight against other VMs (`cpu.weight`), 1–10000; `None`: its vCPUs count one by one.
    pub weight: Option<u32>,
    /// Weight of each vCPU, 1–10000, 100 = nice 0.
    pub vcpu_weight: u32,
    /// pCPUs its vCPUs may use; all that exist if none of these does.
    pub allowed: PcpuSet,
    /// The same for each vCPU, from the first on; those without an entry may use `allowed`.
    pub vcpu_allowed: Vec<PcpuSet>,
    /// Its core-scheduling cookie: only VMs with the same one may share a core; 0 is a cookie like
    /// any other.
    pub cookie: u64,
    /// The most pCPU time it gets, in percent of one pCPU; 0: no limit. For Xen's Credit only.
    pub cap: u32,
    /// Are its vCPUs real-time tasks, if the scheduler knows such?
    pub realtime: bool,
    /// The host slice that its vCPU threads ask for (`sched_attr::sched_runtime`), ns; `None`: the
    /// scheduler's own. For EEVDF since 6.12 only.
    pub slice: Option<Nanos>,
    /// What runs in it; may be empty.
    pub threads: Vec<ThreadSpec>,
    /// Its kernel.
    pub params: GuestParams,
    /// Its place on a disk; a VM whose programs read or write needs one.
    pub disk: Option<DiskUse>,
    /// Its emulator's thread; without one the emulator's work takes time, but no pCPU.
    pub emulator: Option<EmulatorParams>,
}

impl VmSpec {
    /// A VM of `vcpus` vCPUs, which may use the pCPUs `allowed`. Nothing runs in it, and all else is as by default:
    /// vCPUs of neutral weight that count one by one, no limits, no disk, no emulator.
    pub fn new(name: impl Into<String>, vcpus: u32, allowed: PcpuSet) -> Self {
        Self {
            name: name.into(),
            vcpus,
            weight: None,
            vcpu_weight: 100,
            allowed,
            vcpu_allowed: Vec::new(),
            cookie: 0,
            cap: 0,
            realtime: false,
            slice: None,
            threads: Vec::new(),
            params: GuestParams::default(),
            disk: None,
            emulator: None,
        }
    }
}

/// A VM's place on one of the host's disks: an image of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// Which disk.
    pub disk: usize,
    /// Size of the image in bytes, at least [`corun_model::guests::SMALLEST_IMAGE`]. Images lie one behind another.
    pub size: u64,
    /// Its share of the disk.
    pub share: Share,
}

/// A guest thread.
#[derive(Clone, Debug)]
pub struct ThreadSpec {
    /// Its name within the VM.
    pub name: String,
    /// What it does.
    pub program: Program,
    /// The vCPU it is bound to, if it is.
    pub vcpu: Option<u32>,
}

/// A task of the host that is no vCPU: a daemon, or a helper thread of a VM.
#[derive(Clone, Debug)]
pub struct HostTaskSpec {
    /// Its name.
    pub name: String,
    /// The VM that it works for (iothread, emulator thread), if it does.
    pub helper_of: Option<VmId>,
    /// Own weight, 1–10000, 100 = nice 0.
    pub weight: u32,
    /// pCPUs it may use; all that exist if none of these does.
    pub allowed: PcpuSet,
    /// What it does: compute, sleep, memory, mix and loop only.
    pub program: Program,
}

impl HostTaskSpec {
    /// Does its program use only what host tasks can do?
    ///
    /// # Errors
    /// If it has other statements.
    pub fn check(&self) -> Result<(), GuestError> {
        fn allowed(statement: &Statement) -> bool {
            match statement {
                Statement::Compute(_)
                | Statement::Sleep(_)
                | Statement::Memory(_)
                | Statement::Mix(_) => true,
                Statement::Loop(_, body) => body.iter().all(allowed),
                _ => false,
            }
        }
        let all = self.program.statements().iter().all(allowed);
        if all && self.program.queues().is_empty() {
            return Ok(());
        }
        let message = "its program has other statements than compute, sleep, memory, mix and loop";
        Err(GuestError::new(format!("host task {}", self.name), message))
    }
}

/// What is wrong with the VMs or host tasks, beyond a single program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {message}")]
pub struct GuestError {
    /// Which VM, thread or host task.
    pub subject: String,
    /// The scenario key at fault, if there is a certain one: `port` of a client.
    pub key: Option<&'static str>,
    /// Which of the VM's threads, counted from 0 as in its [`VmSpec`], if it is a certain one.
    pub thread: Option<usize>,
    /// What was seen and what is accepted.
    pub message: String,
}

impl GuestError {
    pub(super) fn new(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            key: None,
            thread: None,
            message: message.into(),
        }
    }

    /// The same about this key.
    pub(super) fn about(self, key: &'static str) -> Self {
        let key = Some(key);
        Self { key, ..self }
    }

    /// The same about this thread, if it is a certain one.
    pub(super) fn of_thread(self, thread: Option<usize>) -> Self {
        Self { thread, ..self }
    }
}
