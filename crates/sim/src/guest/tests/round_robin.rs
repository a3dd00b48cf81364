// SPDX-License-Identifier: GPL-2.0-only
//! A host scheduler for tests: first come, first served per pCPU, with one slice for all.

use crate::event_queue::EventId;
use crate::host::Host;
use crate::sched::HostScheduler;
use corun_model::{Nanos, PcpuId, TaskId};
use std::collections::VecDeque;

#[derive(Default)]
struct Queue {
    ready: VecDeque<TaskId>,
    slice_over: bool,
    timer: Option<EventId>,
}

pub(super) struct RoundRobin {
    slice: Nanos,
    queues: Vec<Queue>,
    /// For how long guests that go by the host's limit may retain their contexts.
    retention: Nanos,
    /// Do retentions end for a vCPU that wants to run?
    gives_way: bool,
}

impl RoundRobin {
    pub fn new(slice: Nanos) -> Self {
        Self {
            slice,
            queues: Vec::new(),
            retention: 0,
            gives_way: false,
        }
    }

    /// The same, but guests are told that they may retain their contexts for `retention`.
    pub fn telling(self, retention: Nanos) -> Self {
        Self { retention, ..self }
    }

    /// The same, but retentions end for a vCPU that wants to run there.
    pub fn giving_way(self) -> Self {
        Self {
            gives_way: true,
            ..self
        }
    }

    /// Tasks are dealt out, by their numbers, to the pCPUs they may use.
    fn home(host: &Host, task: TaskId) -> PcpuId {
        let allowed = host.task(task).spec.allowed;
        let nth = task.0 % allowed.len();
        allowed.iter().nth(nth as usize).unwrap()
    }

    fn let_go(&mut self, host: &mut Host, cpu: PcpuId) {
        self.queues[cpu.index()].slice_over = true;
        host.resched(cpu, Some(cpu));
    }
}

impl HostScheduler for RoundRobin {
    fn add(&mut self, host: &mut Host, _task: TaskId) {
        self.queues.resize_with(host.pcpus(), Queue::default);
        for cpu in host.all_pcpus().collect::<Vec<_>>() {
            host.retain_on(cpu, self.retention, self.gives_way);
        }
    }

    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<PcpuId>) {
        let cpu = Self::home(host, task);
        self.queues[cpu.index()].ready.push_back(task);
        host.queue_on(task, cpu);
        if host.current(cpu).is_none() {
            host.resched(cpu, waker);
        }
    }

    fn block(&mut self, _host: &mut Host, _task: TaskId, _cpu: PcpuId) {}

    fn pick(&mut self, host: &mut Host, cpu: PcpuId) -> Option<TaskId> {
        let current = host.current(cpu);
        let queue = &mut self.queues[cpu.index()];
        if current.is_some() && !queue.slice_over {
            return current;
        }
        queue.slice_over = false;
        queue.ready.extend(current);
        let next = queue.ready.pop_front();
        if let Some(timer) = queue.timer.take() {
            host.cancel(timer);
        }
        if next.is_some() {
            let at = host.now() + self.slice;
            queue.timer = Some(host.sched_timer(at, u64::from(cpu.0)));
        }
        next
    }

    fn tick(&mut self, _host: &mut Host, _cpu: PcpuId) {}

    fn timer(&mut self, host: &mut Host, token: u64) {
        let cpu = PcpuId(token as u32);
        self.queues[cpu.index()].timer = None;
        self.let_go(host, cpu);
    }

    fn yield_pcpu(
        &mut self,
        host: &mut Host,
        _task: TaskId,
        cpu: PcpuId,
        _to: Option<TaskId>,
    ) -> bool {
        self.let_go(host, cpu);
        true
    }
}
