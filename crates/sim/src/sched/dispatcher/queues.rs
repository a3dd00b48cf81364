// SPDX-License-Identifier: GPL-2.0-only
//! sched_ext's queues and idle mask: what the dispatcher's calls act on.
//!
//! A dispatch queue (DSQ) is ordered by virtual time, equals by order of insertion; each pCPU also has a local FIFO. A
//! queue holds the tasks that wait for one pCPU, tens rather than thousands: a sorted ring of numbers in contiguous
//! memory is faster than a tree. Actions that concern the host (kicks, timers, moves between runqueues) are collected
//! and passed on when the callback has returned.

use corun_dispatcher::{Build, Callback, Kick, MAX_PCPUS, Services, passes};
use corun_model::{Nanos, PcpuId, TaskId};
use std::collections::VecDeque;
use std::marker::PhantomData;

/// Place in a queue: virtual time shifted by [`ZERO`], order of insertion.
type Place = (u64, u64);

/// Where virtual time zero lies among places. Virtual times wrap: early in a run a task with credit
/// is at a time below zero; the kernel's comparison allows for that (`time_before64`).
const ZERO: u64 = 1 << 63;

/// A task as sched_ext sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct ScxTask {
    /// Slice left, ns.
    pub slice: Nanos,
    /// Running: up to when the slice is charged.
    pub charged: Nanos,
    queued: Option<(u32, Place)>,
}

/// Which build of the dispatcher a host is scheduled by.
pub trait Kind {
    /// The build.
    const BUILD: Build;
}

/// The build that finds pCPUs by an index: fast on large hosts.
#[derive(Clone, Copy, Debug)]
pub enum Indexed {}

/// The build with a tap: what passes the tap is counted.
#[derive(Clone, Copy, Debug)]
pub enum Counted {}

/// The build that is most like the kernel's: its instructions can be counted.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

impl Kind for Indexed {
    const BUILD: Build = Build::Indexed;
}

impl Kind for Counted {
    const BUILD: Build = Build::Tapped;
}

impl Kind for Plain {
    const BUILD: Build = Build::Plain;
}

/// Called after each callback has returned, with the time when it was made.
pub type Watch = Box<dyn FnMut(Callback, Nanos)>;

/// All queues of a host.
pub(super) struct Queues<K> {
    kind: PhantomData<K>,
    /// What passed the tap, if that is counted.
    pub exchanges: u64,
    /// The build that is to be fast does not look at it.
    pub watch: Option<Watch>,
    pub tasks: Vec<ScxTask>,
    /// The pCPU that dispatches.
    pub dispatching: u32,
    /// To be passed on to the host.
    pub kicks: Vec<(u32, Kick)>,
    pub timer_starts: Vec<(u32, Nanos)>,
    pub moves: Vec<(usize, u32)>,
    queues: Vec<VecDeque<(Place, u32)>>,
    local: Vec<VecDeque<usize>>,
    idle: Vec<bool>,
    direct: Option<usize>,
    order: u64,
}

impl<K> Queues<K> {
    pub fn new(pcpus: usize) -> Self {
        Self {
            kind: PhantomData,
            exchanges: 0,
            watch: None,
            tasks: Vec::new(),
            dispatching: 0,
            kicks: Vec::new(),
            timer_starts: Vec::new(),
            moves: Vec::new(),
            // The queues of the pCPUs, then those of the tasks parked there.
            queues: vec![VecDeque::new(); 2 * pcpus],
            local: vec![VecDeque::new(); pcpus],
            idle: vec![true; pcpus],
            direct: None,
            order: 0,
        }
    }

    pub fn add_task(&mut self) {
        self.tasks.push(ScxTask::default());
    }

    /// Is there nothing to be passed on to the host?
    pub fn nothing_asked(&self) -> bool {
        self.moves.is_empty() && self.kicks.is_empty() && self.timer_starts.is_empty()
    }

    pub fn set_idle(&mut self, cpu: PcpuId, idle: bool) {
        self.idle[cpu.index()] = idle;
    }

    /// The head of the local queue of `cpu`.
    pub fn take_local(&mut self, cpu: PcpuId) -> Option<TaskId> {
        self.local[cpu.index()].pop_front().map(TaskId::from)
    }

    /// If select_cpu inserted `task` directly, it goes to the local queue of `cpu`.
    pub fn put_direct(&mut self, task: TaskId, cpu: PcpuId) -> bool {
        let direct = self.direct.take() == Some(task.index());
        if direct {
            self.push_local(task.index(), cpu.0);
        }
        direct
    }

    fn push_local(&mut self, task: usize, cpu: u32) {
        self.local[cpu as usize].push_back(task);
        self.moves.push((task, cpu));
    }

    /// The index of a queue among all; out of range if there is no such queue.
    fn place(&self, queue: u64) -> usize {
        let queue = queue as usize;
        match queue.checked_sub(MAX_PCPUS) {
            Some(cpu) => self.local.len() + cpu,
            None => queue,
        }
    }

    /// Puts a task into a queue by virtual time.
    fn put(&mut self, task: usize, queue: u64, vtime: u64) {
        let at = self.place(queue);
        let Some(waiting) = self.queues.get_mut(at) else {
            return;
        };
        let place = (vtime.wrapping_add(ZERO), self.order);
        self.order += 1;
        let before = waiting.partition_point(|(other, _)| *other < place);
        waiting.insert(before, (place, task as u32));
        self.tasks[task].queued = Some((at as u32, place));
        // A parked task waits for no pCPU.
        if at < self.local.len() {
            self.moves.push((task, queue as u32));
        }
    }

    /// Takes a task out of the queue it is in.
    fn unqueue(&mut self, task: usize) -> bool {
        let Some((queue, place)) = self.tasks[task].queued.take() else {
            return false;
        };
        let queue = &mut self.queues[queue as usize];
        let at = queue.partition_point(|(other, _)| *other < place);
        queue.remove(at).is_some()
    }
}

impl<K: Kind> Services for Queues<K> {
    const BUILD: Build = K::BUILD;

    #[inline]
    fn returned(&mut self, callback: Callback, now: Nanos) {
        if K::BUILD == Build::Indexed {
            return;
        }
        if let Some(watch) = &mut self.watch {
            watch(callback, now);
        }
    }

    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        self.exchanges += u64::from(passes(kind, value));
        value
    }

    fn tap_out(&mut self, _kind: u32, _value: u64) {
        self.exchanges += 1;
    }

    fn claim_idle(&mut self, cpu: u32) -> bool {
        self.idle.get_mut(cpu as usize).is_some_and(std::mem::take)
    }

    fn queue_length(&mut self, queue: u64) -> u32 {
        self.queues
            .get(self.place(queue))
            .map_or(0, |queue| queue.len() as u32)
    }

    fn move_first(&mut self, queue: u64) -> bool {
        let queue = self.queues.get(self.place(queue));
        let Some(&(_, task)) = queue.and_then(VecDeque::front) else {
            return false;
        };
        self.move_queued(task as usize, self.dispatching)
    }

    fn next_queued(&mut self, queue: u64, after: Option<usize>) -> Option<usize> {
        let queue = self.queues.get(self.place(queue))?;
        let at = match after {
            None => 0,
            Some(task) => {
                let (_, place) = self.tasks[task].queued?;
                queue.partition_point(|(other, _)| *other <= place)
            }
        };
        queue.get(at).map(|&(_, task)| task as usize)
    }

    fn move_queued(&mut self, task: usize, cpu: u32) -> bool {
        let moved = self.unqueue(task);
        if moved {
            self.push_local(task, cpu);
        }
        moved
    }

    fn insert(&mut self, task: usize, queue: u64, slice: Nanos, vtime: u64) {
        self.tasks[task].slice = slice;
        self.put(task, queue, vtime);
    }

    fn requeue(&mut self, task: usize, queue: u64, vtime: u64) -> bool {
        let moved = self.unqueue(task);
        if moved {
            self.put(task, queue, vtime);
        }
        moved
    }

    fn insert_next(&mut self, task: usize, cpu: u32, slice: Nanos) {
        self.tasks[task].slice = slice;
        self.local[cpu as usize].push_front(task);
        self.moves.push((task, cpu));
        self.kicks.push((cpu, Kick::Preempt));
    }

    fn insert_local(&mut self, task: usize, slice: Nanos) {
        self.tasks[task].slice = slice;
        self.direct = Some(task);
    }

    fn kick(&mut self, cpu: u32, how: Kick) {
        self.kicks.push((cpu, how));
    }

    fn set_slice(&mut self, task: usize, slice: Nanos) {
        self.tasks[task].slice = slice;
    }

    fn start_timer(&mut self, timer: u32, delay: Nanos) {
        self.timer_starts.push((timer, delay));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_times_before_zero_come_first() {
        let mut queues = Queues::<Indexed>::new(1);
        (0..3).for_each(|_| queues.add_task());
        // Soon after the start, credit takes a virtual time below zero, where it wraps.
        queues.insert(0, 0, 0, 5);
        queues.insert(1, 0, 0, 0u64.wrapping_sub(5));
        queues.insert(2, 0, 0, 0);
        let first = queues.next_queued(0, None);
        let second = queues.next_queued(0, first);
        assert_eq!((first, second), (Some(1), Some(2)));
    }
}
