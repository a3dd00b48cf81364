// SPDX-License-Identifier: GPL-2.0-only
//! Host tasks that are no vCPUs: daemons, emulator threads, iothreads.

use crate::host::Host;
use crate::rng::Rng;
use crate::workload::{Code, Op};
use corun_model::{Nanos, TaskId};

/// A host task in the run.
#[derive(Debug)]
pub(super) struct HostTask {
    pub task: TaskId,
    pub code: Code,
    pub rng: Rng,
    /// Work left of a `compute`.
    left: Nanos,
}

impl HostTask {
    pub fn new(task: TaskId, code: Code, rng: Rng) -> Self {
        Self {
            task,
            code,
            rng,
            left: 0,
        }
    }

    pub fn run(&self, host: &mut Host) {
        host.step_after(self.task, self.left);
    }

    pub fn stop(&mut self, done: Nanos) {
        self.left = self.left.saturating_sub(done);
    }

    /// What was ordered is done.
    pub fn step(&mut self, host: &mut Host, token: u64) {
        self.left = 0;
        loop {
            let op = self.code.current();
            self.code.done();
            match op {
                Op::Compute(length) => {
                    self.left = length.draw(&mut self.rng);
                    return host.step_after(self.task, self.left);
                }
                Op::Sleep(length) => {
                    let at = host.now() + length.draw(&mut self.rng);
                    host.load_timer(at, token);
                    return host.block(self.task);
                }
                Op::Exit => return host.block(self.task),
                // Others were refused; `Code::current` follows loops itself.
                _ => {}
            }
        }
    }
}
