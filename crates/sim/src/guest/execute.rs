// SPDX-License-Identifier: GPL-2.0-only
//! Executes the operations of programs on guest threads.

use super::thread::Doing;
use super::vm::{Flow, Vm};
use crate::host::Host;
use crate::workload::Op;

impl Vm {
    /// The thread that has `vcpu` begins its next operation.
    pub(super) fn execute(&mut self, host: &mut Host, vcpu: u32, thread: u32) -> Flow {
        let state = &mut self.threads[thread as usize];
        let op = state.code.current();
        match op {
            // These are tried again after the thread was woken.
            Op::MutexLock(mutex) => {
                self.lock_mutex(host, vcpu, thread, mutex);
            }
            Op::Send(queue) => self.send(host, vcpu, thread, queue),
            Op::Recv(queue) => self.receive(host, vcpu, thread, queue),
            Op::Wait { condition, mutex } => {
                self.wait_on(host, vcpu, thread, condition, mutex);
            }
            Op::ConditionBarrier { barrier, spin } => {
                return self.meet(host, vcpu, thread, barrier, spin);
            }
            Op::Every(period) => self.every(host, vcpu, thread, period),
            Op::Read(access) => self.read(host, vcpu, thread, access),
            Op::Write(access) => self.write(host, vcpu, thread, access),
            Op::Append { log, bytes } => self.append(host, vcpu, thread, log, bytes),
            Op::Request(port) => self.request(host, vcpu, thread, port),
            Op::Reply(port, size) => self.reply(host, vcpu, thread, port, size),
            Op::Transmit(port, size) => self.transmit(host, vcpu, thread, port, size),
            Op::Group { group, spin } => self.join_group(host, vcpu, thread, (group, spin)),
            Op::Exit => self.block(host, vcpu, thread, Doing::Exited),
            _ => {
                state.code.done();
                self.execute_once(host, vcpu, thread, op);
            }
        }
        Flow::Again
    }

    fn execute_once(&mut self, host: &mut Host, vcpu: u32, thread: u32, op: Op) {
        let state = &mut self.threads[thread as usize];
        match op {
            Op::Compute(length) => state.doing = Doing::Computing(length.draw(&mut state.rng)),
            Op::Sleep(length) => {
                let length = length.draw(&mut state.rng);
                self.sleep(host, vcpu, thread, length);
            }
            Op::Busy(length) => {
                let until = host.now() + length.draw(&mut state.rng);
                state.doing = Doing::Busy { until };
            }
            Op::Timer {
                timer,
                period,
                absolute,
            } => self.timer(host, vcpu, thread, (timer, period, absolute)),
            Op::Yield => self.yield_vcpu(vcpu, thread),
            Op::Signal(condition) => self.signal(host, vcpu, condition, false),
            Op::Broadcast(condition) => self.signal(host, vcpu, condition, true),
            Op::Shootdown => self.shoot_down(host, vcpu, thread),
            Op::Lock(lock) => self.want_lock(host, thread, lock),
            Op::Unlock(lock) => self.unlock(host, vcpu, thread, lock),
            Op::MutexUnlock(mutex) => self.unlock_mutex(host, vcpu, thread, mutex),
            Op::GroupDone(group) => self.leave_group(host, vcpu, group),
            Op::Barrier(barrier) => self.arrive(host, vcpu, thread, barrier),
            Op::SpinBarrier { barrier, spin } => {
                self.arrive_spinning(host, vcpu, thread, barrier, spin);
            }
            Op::Memory(memory) => {
                if let Some(profile) = &mut state.profile {
                    profile.memory = memory;
                }
            }
            Op::Mix(mix) => {
                if let Some(profile) = &mut state.profile {
                    profile.mix = Some(mix);
                }
            }
            Op::Count { unit, units } => self.stats.count(unit, units),
            // `Code::current` follows loops itself, and `execute` took the others.
            _ => debug_assert!(false, "{op:?} is not executed here"),
        }
    }
}
