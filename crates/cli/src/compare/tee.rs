// SPDX-License-Identifier: GPL-2.0-only
//! Several observers of one run: each hears everything, in the order given.

use corun_model::{Nanos, PcpuId, TaskId, VmId};
use corun_sim::host::{
    Counter, Instant, Lane, Observer, Span, Task, TaskSpec, TaskState, VcpuActivity, Waker,
};

/// All of them as one; `None` if there are none.
pub fn together(mut all: Vec<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
    match all.len() {
        0 | 1 => all.pop(),
        _ => Some(Box::new(Tee(all))),
    }
}

struct Tee(Vec<Box<dyn Observer>>);

impl Observer for Tee {
    fn task(&mut self, id: TaskId, spec: &TaskSpec) {
        self.0.iter_mut().for_each(|it| it.task(id, spec));
    }

    fn state(&mut self, now: Nanos, id: TaskId, task: &Task, old: TaskState) {
        self.0
            .iter_mut()
            .for_each(|it| it.state(now, id, task, old));
    }

    fn woken(&mut self, now: Nanos, id: TaskId, task: &Task, by: Option<Waker>) {
        self.0.iter_mut().for_each(|it| it.woken(now, id, task, by));
    }

    fn put_aside(&mut self, now: Nanos, id: TaskId, task: &Task) {
        self.0.iter_mut().for_each(|it| it.put_aside(now, id, task));
    }

    fn queued(&mut self, now: Nanos, id: TaskId, task: &Task, from: Option<PcpuId>, to: PcpuId) {
        self.0
            .iter_mut()
            .for_each(|it| it.queued(now, id, task, from, to));
    }

    fn thread_name(&mut self, vm: VmId, thread: u32, name: &str) {
        self.0
            .iter_mut()
            .for_each(|it| it.thread_name(vm, thread, name));
    }

    fn device_name(&mut self, vm: VmId, device: u32, name: &str) {
        self.0
            .iter_mut()
            .for_each(|it| it.device_name(vm, device, name));
    }

    fn guest_thread(&mut self, now: Nanos, vcpu: TaskId, thread: Option<u32>) {
        self.0
            .iter_mut()
            .for_each(|it| it.guest_thread(now, vcpu, thread));
    }

    fn vcpu_activity(&mut self, now: Nanos, vcpu: TaskId, activity: VcpuActivity) {
        self.0
            .iter_mut()
            .for_each(|it| it.vcpu_activity(now, vcpu, activity));
    }

    fn span_begin(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.0
            .iter_mut()
            .for_each(|it| it.span_begin(now, lane, kind, name));
    }

    fn span_end(&mut self, now: Nanos, lane: Lane, kind: Span, name: &str) {
        self.0
            .iter_mut()
            .for_each(|it| it.span_end(now, lane, kind, name));
    }

    fn instant(&mut self, now: Nanos, lane: Lane, kind: Instant) {
        self.0.iter_mut().for_each(|it| it.instant(now, lane, kind));
    }

    fn counter(&mut self, now: Nanos, counter: Counter, value: u64) {
        self.0
            .iter_mut()
            .for_each(|it| it.counter(now, counter, value));
    }

    fn finish(&mut self, now: Nanos) {
        self.0.iter_mut().for_each(|it| it.finish(now));
    }
}
