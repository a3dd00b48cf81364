// SPDX-License-Identifier: GPL-2.0-only
//! TLB shootdowns: one vCPU waits, spinning in the kernel, for all others to flush.
//!
//! Problem: `munmap` and the like interrupt every vCPU that runs a thread of the process and wait
//! for each (`smp_call_function_many`). A descheduled vCPU answers only when it runs again, so one
//! preempted sibling vCPU stalls the caller for as long as the host pleases.
//!
//! A vCPU whose kernel idles is left out: it flushes when it leaves its idle task (lazy TLB). With
//! paravirtual flushes (Linux 4.16, `kvm_flush_tlb_multi`) one that the host has preempted is only
//! marked, and flushes when it is entered again.

use super::interrupts::Interrupt;
use super::thread::Doing;
use super::vcpu::Mode;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};

/// How a guest has other vCPUs flush their TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbFlush {
    /// An interrupt to each, and a wait for each. Linux on bare metal, and in guests before 4.16.
    Ipi,
    /// Preempted vCPUs are left a note for their next entry. Linux guests on KVM since 4.16.
    Paravirtual,
}

impl TlbFlush {
    /// Every kind by the name that scenarios use.
    pub const NAMES: [(&'static str, Self); 2] =
        [("ipi", Self::Ipi), ("paravirtual", Self::Paravirtual)];
}

impl Vm {
    /// The thread that has `vcpu` begins a shootdown.
    pub(super) fn shoot_down(&mut self, host: &mut Host, vcpu: u32, thread: u32) {
        self.stats.shootdowns += 1;
        let mut left = 0;
        for other in 0..self.vcpus.len() as u32 {
            let target = &mut self.vcpus[other as usize];
            if other == vcpu || target.current.is_none() {
                continue;
            }
            let preempted = target.mode != Mode::Running;
            if self.params.tlb_flush == TlbFlush::Paravirtual && preempted {
                target.overhead += self.params.flush;
                continue;
            }
            left += 1;
            self.send_ipi(host, vcpu, other, Interrupt::Flush { asked_by: thread });
        }
        self.tell_begin(host, thread, Span::IpiWait, 0);
        let state = &mut self.threads[thread as usize];
        (state.spun, state.ple_spun) = (0, 0);
        state.preempt_off += 1;
        state.doing = Doing::Flushing {
            left,
            since: host.now(),
        };
    }

    /// A vCPU has flushed for `asked_by`.
    pub(super) fn flushed(&mut self, asked_by: u32) {
        let state = &mut self.threads[asked_by as usize];
        if let Doing::Flushing { left, .. } = &mut state.doing {
            *left -= 1;
            if *left == 0 {
                self.dirty.push(state.vcpu);
            }
        }
    }

    /// The thread that waits for others to flush has its vCPU.
    pub(super) fn await_flushes(&mut self, host: &mut Host, vcpu: u32, thread: u32) -> Flow {
        let state = &mut self.threads[thread as usize];
        let Doing::Flushing { left: 0, since } = state.doing else {
            return self.pause_loop(host, vcpu, thread);
        };
        state.preempt_off -= 1;
        state.doing = Doing::Next;
        self.tell_end(host, thread, Span::IpiWait, 0);
        self.stats.shootdown_waits.record(host.now() - since);
        Flow::Again
    }
}
