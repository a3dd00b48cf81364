// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU a spinning vCPU yields to.
//!
//! A vCPU that spins in its kernel waits for a sibling to release a lock or flush its TLB. If the
//! CPU notices (a pause-loop exit), KVM looks for a sibling that wants a pCPU and has none, and
//! makes the scheduler let that go first (`kvm_vcpu_on_spin()` since Linux 4.14): in turn,
//! beginning behind the last one that was favoured. It passes over siblings that
//!
//! - were preempted in user mode, where no thread holds a kernel's lock;
//! - halted and were woken, or have an interrupt to take, if the host's kernel does not favour those
//!   ([`PleFavours`]);
//! - gave their pCPU up in the same way, being spinners themselves, every other time
//!   (`kvm_vcpu_eligible_for_directed_yield()`).

use super::vcpu::{Mode, Vcpu};
use super::vm::Vm;
use crate::host::Host;
use crate::load::Offered;
use corun_model::TaskId;

/// How many siblings KVM tries in vain before it gives up.
const TRIES: u32 = 3;

/// Which vCPUs KVM lets go first when a vCPU spins, by the first Linux that does so
/// (`virt/kvm/kvm_main.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PleFavours {
    /// vCPUs that were preempted in their kernel: `vcpu->preempted` is set only for vCPUs that did
    /// not halt (`kvm_sched_out()`). Since 4.14, which was the first to look at the mode.
    Preempted,
    /// Also vCPUs that halted and were woken since, whatever their mode: `vcpu->ready`, since 5.3.
    Woken,
    /// Also vCPUs that were preempted in user mode with an interrupt to take
    /// (`kvm_arch_dy_has_pending_interrupt()`). Since 5.13.
    Interrupted,
}

impl PleFavours {
    /// Every rule by the name that scenarios use.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("4.14", Self::Preempted),
        ("5.3", Self::Woken),
        ("5.13", Self::Interrupted),
    ];
}

/// Did a vCPU spin when it gave its pCPU up, and if so, may it be favoured nevertheless this time?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Yielding {
    #[default]
    No,
    /// The next spinner passes it over.
    PassedOver,
    /// The next spinner does not.
    Eligible,
}

impl Vcpu {
    /// May it be favoured? If it spun, the answer alternates.
    fn take_turn(&mut self) -> bool {
        let (eligible, next) = match self.yielding {
            Yielding::No => (true, Yielding::No),
            Yielding::PassedOver => (false, Yielding::Eligible),
            Yielding::Eligible => (true, Yielding::PassedOver),
        };
        self.yielding = next;
        eligible
    }
}

impl Vm {
    /// The CPU noticed that `vcpu`, which runs, spins. `offer` yields to a sibling, if the scheduler supports that.
    pub(super) fn on_spin(
        &mut self,
        host: &mut Host,
        vcpu: u32,
        offer: &mut dyn FnMut(&mut Host, TaskId) -> Offered,
    ) {
        let count = self.vcpus.len() as u32;
        let mut tries = TRIES;
        for step in 1..=count {
            let other = (self.favoured + step) % count;
            if other == vcpu || !self.may_help(other) || !self.vcpus[other as usize].take_turn() {
                continue;
            }
            match offer(host, self.vcpus[other as usize].task) {
                Offered::Taken => {
                    self.favoured = other;
                    self.vcpus[vcpu as usize].yielding = Yielding::PassedOver;
                    return;
                }
                Offered::Refused => {}
                Offered::Pointless => tries -= 1,
            }
            if tries == 0 {
                return;
            }
        }
    }

    /// Does `vcpu` want a pCPU, and could a spinner be waiting for what it would do there, as far as the host's kernel
    /// can see?
    fn may_help(&self, vcpu: u32) -> bool {
        let slot = &self.vcpus[vcpu as usize];
        if slot.mode != Mode::Ready {
            return false;
        }
        let rule = self.params.ple_favours;
        if slot.woken {
            return rule != PleFavours::Preempted;
        }
        let interrupted = rule == PleFavours::Interrupted && !slot.pending.is_empty();
        interrupted || self.in_kernel(slot)
    }

    /// Was it in its kernel when it lost its pCPU? System calls are not distinguished from a
    /// thread's work.
    fn in_kernel(&self, slot: &Vcpu) -> bool {
        let preemptible = |thread: u32| self.threads[thread as usize].preempt_off == 0;
        slot.overhead > 0 || !slot.current.is_some_and(preemptible)
    }
}
