// SPDX-License-Identifier: GPL-2.0-only
//! Real-time tasks of one priority: a line per pCPU, turns by slice, and as few lines as possible
//! that hold more than one task.
//!
//! A woken task goes where it ran last, unless a real-time task has that pCPU and another pCPU has
//! none in its line (`select_task_rq_rt()`, `find_lowest_rq()`). A pCPU with more than one gives
//! some away; a pCPU that has lost its last one takes some (`push_rt_task()`, `pull_rt_task()`).
//! Tasks of equal priority are not moved otherwise.

use corun_model::{Nanos, PcpuId, PcpuSet, TaskId, Topology};
use std::collections::VecDeque;

/// The line of a pCPU.
#[derive(Debug, Default)]
struct Line {
    /// The current task is a member.
    tasks: VecDeque<TaskId>,
    current: Option<TaskId>,
    /// Up to when the current task's time is charged.
    charged: Nanos,
    /// Did a real-time task have the pCPU until the current pick?
    had_pcpu: bool,
}

/// A task of the host.
#[derive(Debug)]
struct Member {
    realtime: bool,
    allowed: PcpuSet,
    /// The pCPU it is or was on last.
    last: Option<PcpuId>,
    /// Ticks left of its slice.
    left: Nanos,
}

/// All lines.
#[derive(Debug)]
pub(super) struct Queues {
    topology: Topology,
    lines: Vec<Line>,
    tasks: Vec<Member>,
    /// A slice in ticks.
    slice: Nanos,
}

impl Queues {
    pub(super) fn new(topology: Topology, slice: Nanos) -> Self {
        Self {
            lines: (0..topology.pcpus()).map(|_| Line::default()).collect(),
            topology,
            tasks: Vec::new(),
            slice,
        }
    }

    pub(super) fn add(&mut self, realtime: bool, allowed: PcpuSet, last: Option<PcpuId>) {
        self.tasks.push(Member {
            realtime,
            allowed,
            last,
            left: self.slice,
        });
    }

    pub(super) fn is_realtime(&self, task: TaskId) -> bool {
        self.tasks[task.index()].realtime
    }

    /// Where `task` is or was last.
    pub(super) fn last(&self, task: TaskId) -> Option<PcpuId> {
        self.tasks[task.index()].last
    }

    pub(super) fn current(&self, cpu: PcpuId) -> Option<TaskId> {
        self.lines[cpu.index()].current
    }

    /// Did a real-time task get `cpu` at its last pick?
    pub(super) fn had_pcpu(&self, cpu: PcpuId) -> bool {
        self.lines[cpu.index()].had_pcpu
    }

    pub(super) fn is_empty(&self, cpu: PcpuId) -> bool {
        self.lines[cpu.index()].tasks.is_empty()
    }

    /// The next task on `cpu`.
    pub(super) fn first(&self, cpu: PcpuId) -> Option<TaskId> {
        self.lines[cpu.index()].tasks.front().copied()
    }

    pub(super) fn join(&mut self, task: TaskId, cpu: PcpuId) {
        self.lines[cpu.index()].tasks.push_back(task);
        self.tasks[task.index()].last = Some(cpu);
    }

    pub(super) fn leave(&mut self, task: TaskId, cpu: PcpuId) {
        let line = &mut self.lines[cpu.index()];
        line.tasks.retain(|&other| other != task);
        if line.current == Some(task) {
            line.current = None;
        }
    }

    /// The time of the current task since it was charged last; `None` if there is none.
    pub(super) fn charge(&mut self, cpu: PcpuId, now: Nanos) -> Option<Nanos> {
        let line = &mut self.lines[cpu.index()];
        line.current?;
        let time = now.saturating_sub(line.charged);
        line.charged = now;
        Some(time)
    }

    pub(super) fn set_current(&mut self, cpu: PcpuId, next: Option<TaskId>, now: Nanos) {
        let line = &mut self.lines[cpu.index()];
        (line.current, line.charged) = (next, now);
        line.had_pcpu = next.is_some();
    }

    /// A tick of the current task (`task_tick_rt()`). True if another one's turn has come.
    pub(super) fn tick(&mut self, cpu: PcpuId) -> bool {
        let Some(current) = self.current(cpu) else {
            return false;
        };
        let member = &mut self.tasks[current.index()];
        member.left = member.left.saturating_sub(1);
        if member.left > 0 {
            return false;
        }
        member.left = self.slice;
        self.rotate(cpu)
    }

    /// Sends the current task to the end of its line. True if there are others in it.
    pub(super) fn rotate(&mut self, cpu: PcpuId) -> bool {
        let line = &mut self.lines[cpu.index()];
        if line.tasks.len() < 2 {
            return false;
        }
        if let Some(current) = line.current {
            line.tasks.retain(|&other| other != current);
            line.tasks.push_back(current);
        }
        true
    }

    /// The pCPU for `task`, which wakes up and was on `last`; woken from `here`.
    pub(super) fn place(&self, task: TaskId, last: PcpuId, here: PcpuId) -> PcpuId {
        match self.current(last) {
            Some(_) => self.lowest(task, last, here).unwrap_or(last),
            None => last,
        }
    }

    /// A pCPU without real-time tasks that `task` may use: `last` if it is one, else the nearest to
    /// it (`find_lowest_rq()`).
    fn lowest(&self, task: TaskId, last: PcpuId, here: PcpuId) -> Option<PcpuId> {
        let allowed = &self.tasks[task.index()].allowed;
        let free = |cpu: &PcpuId| allowed.contains(*cpu) && self.is_empty(*cpu);
        if free(&last) {
            return Some(last);
        }
        let topology = &self.topology;
        let near: [&dyn Fn(PcpuId) -> bool; 4] = [
            &|cpu| topology.core(cpu) == topology.core(last),
            &|cpu| topology.llc(cpu) == topology.llc(last),
            &|cpu| topology.node(cpu) == topology.node(last),
            &|_| true,
        ];
        near.iter().find_map(|near| {
            let open = |cpu: &PcpuId| near(*cpu) && free(cpu);
            Some(here)
                .filter(open)
                .or_else(|| topology.all().find(open))
        })
    }

    /// A task that waits behind the one that has `cpu`, and the pCPU to give it to.
    pub(super) fn pushable(&self, cpu: PcpuId) -> Option<(TaskId, PcpuId)> {
        let line = &self.lines[cpu.index()];
        let current = line.current?;
        line.tasks
            .iter()
            .filter(|&&task| task != current)
            .find_map(|&task| Some((task, self.lowest(task, cpu, cpu)?)))
    }

    /// A task that waits behind a real-time task on `from` and may use `to`. If no real-time task
    /// has `from` (it is throttled, or about to switch), its tasks are left to it.
    pub(super) fn pullable(&self, from: PcpuId, to: PcpuId) -> Option<TaskId> {
        let line = &self.lines[from.index()];
        let current = line.current?;
        let may =
            |task: &&TaskId| **task != current && self.tasks[task.index()].allowed.contains(to);
        line.tasks.iter().find(may).copied()
    }
}
