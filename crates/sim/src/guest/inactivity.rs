// SPDX-License-Identifier: GPL-2.0-only
//! The meter of I/O inactivity (vMigrater): threads that have I/O to do while the vCPU they are on
//! waits for a pCPU. The exact definition is at [`crate::load::IoAchieved::inactivity`].

use super::block::Block;
use super::thread::Doing;
use super::vcpu::Mode;
use super::vm::Vm;
use corun_model::Nanos;

/// The meter's state.
#[derive(Debug, Default)]
pub(super) struct Inactivity {
    /// Thread time so far.
    pub total: Nanos,
    since: Nanos,
    /// Threads that have been inactive since then.
    threads: u64,
}

impl Vm {
    /// Books I/O inactivity up to now and sees which threads are inactive from now on. To be called
    /// after every change of where a vCPU or an I/O thread is.
    pub(super) fn note_inactivity(&mut self, now: Nanos) {
        let Some(block) = &self.block else { return };
        let threads = block.io_threads().filter(|at| self.inactive(block, *at));
        let threads = threads.count() as u64;
        if let Some(block) = &mut self.block {
            let meter = &mut block.inactivity;
            meter.total += (now - meter.since) * meter.threads;
            meter.since = now;
            meter.threads = threads;
        }
    }

    fn inactive(&self, block: &Block, thread: u32) -> bool {
        let state = &self.threads[thread as usize];
        let vcpu = match state.doing {
            Doing::Off => block.delivery(thread),
            Doing::Exited => None,
            _ => Some(state.vcpu),
        };
        vcpu.is_some_and(|vcpu| self.vcpus[vcpu as usize].mode == Mode::Ready)
    }
}
