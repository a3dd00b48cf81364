// SPDX-License-Identifier: GPL-2.0-only
//! TLB shootdowns: one vCPU waits, spinning in the kernel, for all others to flush.
//!
//! Problem: `munmap` and the like interrupt every vCPU that runs a thread of the process and wait
//! for each (`smp_call_function_many`). A descheduled vCPU answers only when it runs again, so one
//! preempted sibling vCPU stalls the caller for as long as the host keeps it off its pCPU.
//!
//! Which vCPUs are interrupted:
//!
//! - Those that run a thread, always.
//! - In older kernels, also those that idle: the idle task keeps the page tables of the last thread ("lazy TLB"), so
//!   its vCPU is interrupted like others. That vCPU then lets them go (`leave_mm()`), and is not interrupted again
//!   until it has run a thread. An interrupt to a halted vCPU wakes it, and the caller waits
//!   until the host has found it a pCPU. Linux until 4.13 does so (arch/x86/mm/tlb.c); from 4.14 on, CPUs with
//!   PCID let go when they begin to idle (`tlb_defer_switch_to_init_mm()`), and since 4.20 no idle CPU is interrupted:
//!   it flushes when it leaves its idle task. But where page tables themselves are freed, as by `munmap()` of a large
//!   area, idle ones are interrupted as before.
//! - With paravirtual flushes (Linux 4.16, `kvm_flush_tlb_multi`), not those that the host has preempted: they are only
//!   marked, and flush when they are entered again. A halted vCPU counts as preempted.

use super::interrupts::Interrupt;
use super::thread::Doing;
use super::vcpu::Mode;
use super::vm::{Flow, Vm};
use crate::host::{Host, Span};

/// How a guest makes other vCPUs flush their TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbFlush {
    /// An interrupt to each vCPU that does not idle, and a wait for each. Linux since 4.14, unless it has
    /// paravirtual flushes or, until 4.19, a CPU without PCID.
    Ipi,
    /// The same, also to those that idle, once in each idle period. Linux until 4.13, and later where page
    /// tables are freed.
    IpiLazy,
    /// Preempted vCPUs are left a note for their next entry. Linux guests on KVM since 4.16.
    Paravirtual,
}

impl TlbFlush {
    /// Every kind by the name that scenarios use.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("ipi", Self::Ipi),
        ("ipi-lazy", Self::IpiLazy),
        ("paravirtual", Self::Paravirtual),
    ];
}

impl Vm {
    /// The thread that has `vcpu` begins a shootdown.
    pub(super) fn shoot_down(&mut self, host: &mut Host, vcpu: u32, thread: u32) {
        self.stats.shootdowns += 1;
        let mut left = 0;
        for other in 0..self.vcpus.len() as u32 {
            let target = &mut self.vcpus[other as usize];
            let lazy = self.params.tlb_flush == TlbFlush::IpiLazy && target.tlb_loaded;
            if other == vcpu || (target.current.is_none() && !lazy) {
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

    /// `vcpu` has flushed for `asked_by`; if it idles it lets the page tables go.
    pub(super) fn flushed(&mut self, vcpu: u32, asked_by: u32) {
        let slot = &mut self.vcpus[vcpu as usize];
        slot.tlb_loaded = slot.current.is_some();
        let state = &mut self.threads[asked_by as usize];
        if let Doing::Flushing { left, .. } = &mut state.doing {
            *left -= 1;
            if *left == 0 {
                self.dirty.push(state.vcpu);
            }
        }
    }

    /// The thread that waits for others to flush is on its vCPU.
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
