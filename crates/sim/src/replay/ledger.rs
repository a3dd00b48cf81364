// SPDX-License-Identifier: GPL-2.0-only
//! What a replay achieved, and how far it can be trusted: counts kept while it runs.

use corun_model::Nanos;

/// A replay's own accounts, in addition to the host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Per VM, in the order of their ids.
    pub vms: Vec<VmReplay>,
    /// Wake-ups that came before the task had blocked, so that it did not block.
    pub early: u64,
    /// Tasks released from a cycle of tasks that waited for each other: more than a few mean that
    /// the recording contradicts itself.
    pub released: u64,
    /// Wake-ups whose recorded waker never ran in the recording; replayed as coming from outside.
    pub unknown_wakers: u64,
}

/// What a VM's vCPUs did of the demand that was recorded. Counted from the end of the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmReplay {
    /// Work done, ns of CPU.
    pub work: Nanos,
    /// Of that, work beyond the recorded demand, ns of CPU.
    pub beyond: Nanos,
    /// Bursts completed.
    pub bursts: u64,
    /// vCPU time after the recorded demand was used up, ns summed over vCPUs: what the VM did then
    /// was more of the same ([`super::Beyond::Repeat`]) or nothing ([`super::Beyond::Wait`]), not
    /// what was recorded. A vCPU that wanted a pCPU during the whole second half of the
    /// recording never counts: its demand has no visible end. Counts from the beginning of the
    /// run, without a warm-up's reset.
    pub exhausted: Nanos,
}
