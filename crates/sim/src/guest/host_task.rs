// SPDX-License-Identifier: GPL-2.0-only
//! Host tasks that are no vCPUs: daemons, emulator threads, iothreads.

use crate::host::{Host, Profile};
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
    profile: Profile,
}

/// Owners of working sets from here on are host tasks; those before are guest threads.
const OWNERS: u32 = 1 << 31;

impl HostTask {
    pub fn new(index: u32, task: TaskId, code: Code, rng: Rng) -> Self {
        Self {
            task,
            code,
            rng,
            left: 0,
            profile: Profile::new(OWNERS | index),
        }
    }

    pub fn run(&self, host: &mut Host) {
        host.step_after(self.task, self.left);
    }

    pub fn stop(&mut self, done: Nanos) {
        self.left = self.left.saturating_sub(done);
    }

    /// The step that was ordered is done.
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
                Op::Memory(memory) => {
                    self.profile.memory = memory;
                    host.set_profile(self.task, self.profile);
                }
                Op::Mix(mix) => {
                    self.profile.mix = Some(mix);
                    host.set_profile(self.task, self.profile);
                }
                Op::Exit => return host.block(self.task),
                // Others were refused; `Code::current` follows loops itself.
                _ => {}
            }
        }
    }
}
