// SPDX-License-Identifier: GPL-2.0-only
//! CFS's runqueue: the task that got least, by weight, goes first.
//!
//! Tasks are sorted by virtual runtime. The period in which all of them run is divided by weight
//! (`sched_slice()`); a tick that finds the slice used up, or the task too far ahead, ends it
//! (`check_preempt_tick()`), so slices are rounded up to ticks. A woken task is placed a little
//! behind the others (`place_entity()`) and preempts if it is behind by more than the wake-up
//! granularity (`check_preempt_wakeup()`).
//!
//! 2.6.33 has the granularity smaller for a task that wakes others often, so that it preempts sooner
//! (`ADAPTIVE_GRAN`). 2.6.33's `sched_yield()` did nothing but charge, and it had no `yield_to()`; here
//! a yield sets the `skip` buddy of later kernels on all of them, and the `next` buddy if it is to somebody.

use super::params::CfsParams;
use crate::sched::fair::{Forest, Generation, Join, Leave, Order, Root, virtual_time};
use corun_model::{Nanos, PcpuId, TaskId};

#[derive(Clone, Copy, Debug)]
struct Entity {
    weight: u64,
    /// Virtual runtime; relative to the runqueue's least while the task is being moved.
    vruntime: i64,
    /// Time it had a pCPU since it was given one, and in all.
    ran: Nanos,
    total: Nanos,
    /// `total` when it woke up, and when it last woke another task since then.
    started: Nanos,
    woke: Option<Nanos>,
    /// Time that it has a pCPU between waking others, on average (`avg_wakeup`).
    between: Nanos,
}

impl Entity {
    /// `update_avg()`: an eighth towards the new value.
    fn average(&mut self, sample: Nanos) {
        let step = (sample as i64 - self.between as i64) >> 3;
        self.between = self.between.saturating_add_signed(step);
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// The members but the current task, by vruntime.
    tree: Root,
    current: Option<TaskId>,
    nr: u64,
    weight: u64,
    /// The least vruntime, never going back.
    min_vruntime: i64,
    /// Whom a wake-up took the pCPU from, to get it back; to whom somebody yielded; who yielded.
    last: Option<TaskId>,
    next: Option<TaskId>,
    skip: Option<TaskId>,
}

/// The runqueues of all pCPUs.
#[derive(Debug)]
pub(crate) struct CfsOrder {
    params: CfsParams,
    entities: Vec<Entity>,
    queues: Vec<Queue>,
    forest: Forest,
}

impl CfsOrder {
    pub(super) fn new(params: CfsParams, pcpus: usize) -> Self {
        Self {
            params,
            entities: Vec::new(),
            queues: (0..pcpus).map(|_| Queue::default()).collect(),
            forest: Forest::default(),
        }
    }

    fn entity(&self, task: TaskId) -> &Entity {
        &self.entities[task.index()]
    }

    /// How many tasks share one latency (`sched_nr_latency`).
    fn crowd(&self) -> u64 {
        self.params
            .latency
            .div_ceil(self.params.min_granularity.max(1))
    }

    /// `sched_slice()` for a member, or for one about to become one.
    fn slice_as(&self, cpu: PcpuId, task: TaskId, member: bool) -> Nanos {
        let (queue, own) = (&self.queues[cpu.index()], self.entity(task).weight);
        let (nr, weight) = match member {
            true => (queue.nr, queue.weight),
            false => (queue.nr + 1, queue.weight + own),
        };
        let period = match nr > self.crowd() {
            true => nr.saturating_mul(self.params.min_granularity),
            false => self.params.latency,
        };
        (u128::from(period) * u128::from(own) / u128::from(weight.max(1))) as Nanos
    }

    /// `update_min_vruntime()`.
    fn advance_min(&mut self, cpu: PcpuId) {
        let queue = &self.queues[cpu.index()];
        let first = self.forest.first(queue.tree);
        let least = [queue.current, first]
            .into_iter()
            .flatten()
            .map(|task| self.entity(task).vruntime)
            .min();
        let queue = &mut self.queues[cpu.index()];
        queue.min_vruntime =
            least.map_or(queue.min_vruntime, |least| least.max(queue.min_vruntime));
    }

    /// `place_entity()`.
    fn placed(&self, cpu: PcpuId, task: TaskId, why: Join) -> i64 {
        let min = self.queues[cpu.index()].min_vruntime;
        let entity = self.entity(task);
        match why {
            Join::Moved => min + entity.vruntime,
            Join::New if self.params.start_debit => {
                min + virtual_time(self.slice_as(cpu, task, false), entity.weight)
            }
            Join::New => min,
            Join::Woken(last) => {
                let credit = match self.params.gentle_fair_sleepers {
                    true => self.params.latency / 2,
                    false => self.params.latency,
                };
                let own = match last == cpu {
                    true => entity.vruntime,
                    false => entity.vruntime - self.queues[last.index()].min_vruntime + min,
                };
                own.max(min - credit as i64)
            }
        }
    }

    fn insert(&mut self, cpu: PcpuId, task: TaskId) {
        let vruntime = self.entity(task).vruntime;
        self.forest
            .insert(&mut self.queues[cpu.index()].tree, task, vruntime, 0);
    }

    /// Is `task` ahead of `other` by more than the granularity, in the virtual time of `other`
    /// (`wakeup_preempt_entity()`)? `None`: it is not ahead at all.
    fn ahead(&self, task: TaskId, other: TaskId) -> Option<bool> {
        self.ahead_by(task, other, self.params.wakeup_granularity)
    }

    fn ahead_by(&self, task: TaskId, other: TaskId, granularity: Nanos) -> Option<bool> {
        let lead = self.entity(task).vruntime - self.entity(other).vruntime;
        let gran = virtual_time(granularity, self.entity(other).weight);
        (lead > 0).then_some(lead > gran)
    }

    /// By how much `woken` must be behind `current` to preempt it (`wakeup_gran()`): 2.6.33 lets the
    /// current task run for as long as the woken one is expected to run until it wakes another.
    fn granularity(&self, cpu: PcpuId, current: TaskId, woken: TaskId) -> Nanos {
        let most = self.params.wakeup_granularity;
        if self.params.generation != Generation::Linux2_6_33 {
            return most;
        }
        let nr = self.queues[cpu.index()].nr;
        let expected = self.entity(woken).between.saturating_mul(2 * nr);
        expected.saturating_sub(self.entity(current).ran).min(most)
    }

    fn clear_buddies(&mut self, cpu: PcpuId, task: TaskId) {
        let queue = &mut self.queues[cpu.index()];
        queue.last = queue.last.filter(|&buddy| buddy != task);
        queue.next = queue.next.filter(|&buddy| buddy != task);
        queue.skip = queue.skip.filter(|&buddy| buddy != task);
    }
}

impl Order for CfsOrder {
    fn add(&mut self, weight: u64, _slice: Option<Nanos>) {
        self.entities.push(Entity {
            weight,
            vruntime: 0,
            ran: 0,
            total: 0,
            started: 0,
            woke: None,
            between: self.params.wakeup_granularity,
        });
        self.forest.add();
    }

    fn reweigh(&mut self, task: TaskId, on: Option<PcpuId>, weight: u64) {
        let entity = &mut self.entities[task.index()];
        let old = std::mem::replace(&mut entity.weight, weight);
        if let Some(cpu) = on {
            let queue = &mut self.queues[cpu.index()];
            queue.weight = queue.weight - old + weight;
        }
    }

    fn charge(&mut self, cpu: PcpuId, time: Nanos) -> bool {
        if let Some(task) = self.queues[cpu.index()].current {
            let entity = &mut self.entities[task.index()];
            entity.ran += time;
            entity.total += time;
            entity.vruntime += virtual_time(time, entity.weight);
            self.advance_min(cpu);
        }
        false
    }

    fn join(&mut self, cpu: PcpuId, task: TaskId, why: Join) {
        self.entities[task.index()].vruntime = self.placed(cpu, task, why);
        self.insert(cpu, task);
        let entity = &mut self.entities[task.index()];
        if matches!(why, Join::Woken(_)) {
            entity.started = entity.total;
        }
        let weight = entity.weight;
        let queue = &mut self.queues[cpu.index()];
        queue.nr += 1;
        queue.weight += weight;
    }

    fn leave(&mut self, cpu: PcpuId, task: TaskId, why: Leave) {
        self.clear_buddies(cpu, task);
        let weight = self.entity(task).weight;
        let queue = &mut self.queues[cpu.index()];
        queue.nr -= 1;
        queue.weight -= weight;
        match queue.current == Some(task) {
            true => queue.current = None,
            false => self.forest.remove(&mut queue.tree, task),
        }
        let min = queue.min_vruntime;
        let entity = &mut self.entities[task.index()];
        match why {
            Leave::Moves => entity.vruntime -= min,
            Leave::Sleeps if entity.woke.take().is_none() => {
                entity.average(self.params.wakeup_granularity);
            }
            Leave::Sleeps => {}
        }
        self.advance_min(cpu);
    }

    fn pick(&mut self, cpu: PcpuId) -> Option<TaskId> {
        let queue = &self.queues[cpu.index()];
        let (tree, current, skip) = (queue.tree, queue.current, queue.skip);
        let buddies = [queue.last, queue.next];
        let first = self.forest.first(tree);
        // The current task counts as queued, behind those of the same vruntime.
        let (mut next, second) = match (first, current) {
            (Some(first), Some(current))
                if self.entity(current).vruntime < self.entity(first).vruntime =>
            {
                (current, Some(first))
            }
            (Some(first), current) => {
                let second = self.forest.second(tree);
                let sooner =
                    |a: TaskId, b: TaskId| self.entity(a).vruntime < self.entity(b).vruntime;
                let second = match (second, current) {
                    (Some(second), Some(current)) if sooner(current, second) => Some(current),
                    (second, current) => second.or(current),
                };
                (first, second)
            }
            (None, Some(current)) => (current, None),
            (None, None) => return None,
        };
        let left = next;
        if skip == Some(left)
            && let Some(second) = second
            && self.ahead(second, left) != Some(true)
        {
            next = second;
        }
        // The last one counts most: "someone really wants this to run".
        for buddy in buddies.into_iter().flatten() {
            if self.ahead(buddy, left) != Some(true) {
                next = buddy;
            }
        }
        self.clear_buddies(cpu, next);
        self.queues[cpu.index()].skip = None;
        Some(next)
    }

    fn set_current(&mut self, cpu: PcpuId, task: Option<TaskId>) {
        let queue = &mut self.queues[cpu.index()];
        if queue.current == task {
            // 2.6.33 put even a task it picked again back first, which began a new slice.
            if let Some(task) = task.filter(|_| self.params.generation == Generation::Linux2_6_33) {
                self.entities[task.index()].ran = 0;
            }
            return;
        }
        if let Some(task) = task {
            self.forest.remove(&mut queue.tree, task);
            self.entities[task.index()].ran = 0;
        }
        if let Some(old) = std::mem::replace(&mut queue.current, task) {
            self.insert(cpu, old);
        }
    }

    fn woke(&mut self, cpu: PcpuId) {
        if let Some(task) = self.queues[cpu.index()].current {
            let entity = &mut self.entities[task.index()];
            let since = entity.woke.unwrap_or(entity.started);
            entity.average(entity.total - since);
            entity.woke = Some(entity.total);
        }
    }

    fn preempts(&mut self, cpu: PcpuId, woken: TaskId) -> bool {
        let Some(current) = self.queues[cpu.index()].current else {
            return true;
        };
        let granularity = self.granularity(cpu, current, woken);
        if !self.params.wakeup_preemption
            || self.ahead_by(current, woken, granularity) != Some(true)
        {
            return false;
        }
        let crowded = self.queues[cpu.index()].nr >= self.crowd();
        self.queues[cpu.index()].last = crowded.then_some(current);
        true
    }

    fn tick(&mut self, cpu: PcpuId) -> bool {
        let queue = &self.queues[cpu.index()];
        let (Some(current), Some(first)) = (queue.current, self.forest.first(queue.tree)) else {
            return false;
        };
        let ideal = self.slice_as(cpu, current, true);
        let ran = self.entity(current).ran;
        if ran > ideal {
            // Or it would be picked again as somebody's favourite.
            self.clear_buddies(cpu, current);
            return true;
        }
        if ran < self.params.min_granularity {
            return false;
        }
        let lead = self.entity(current).vruntime - self.entity(first).vruntime;
        lead > ideal as i64
    }

    fn yields(&mut self, cpu: PcpuId) {
        let current = self.queues[cpu.index()].current;
        if let Some(task) = current {
            self.clear_buddies(cpu, task);
        }
        self.queues[cpu.index()].skip = current;
    }

    fn favour(&mut self, cpu: PcpuId, task: TaskId) {
        self.queues[cpu.index()].next = Some(task);
    }

    fn slice(&self, cpu: PcpuId, task: TaskId) -> Nanos {
        self.slice_as(cpu, task, true)
    }

    fn lead(&self, cpu: PcpuId, task: TaskId) -> i64 {
        let queue = &self.queues[cpu.index()];
        let waiting = match self.forest.first(queue.tree) {
            first if first == Some(task) => self.forest.second(queue.tree),
            first => first,
        };
        let others = [queue.current.filter(|&current| current != task), waiting];
        let vruntime = |task: TaskId| self.entity(task).vruntime;
        let least = others.into_iter().flatten().map(vruntime).min();
        least.map_or(i64::MIN, |least| vruntime(task) - least)
    }

    fn check(&self, cpu: PcpuId, members: usize) {
        let queue = &self.queues[cpu.index()];
        let queued = self.forest.count(queue.tree) + usize::from(queue.current.is_some());
        assert_eq!(
            (queued, queue.nr),
            (members, members as u64),
            "members of {cpu}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};

    /// Does a task preempt one that has run for 2 ms more, after so many times 10 us between which
    /// it woke others?
    fn preempts(preset: &str, wakes: u32) -> bool {
        let (cpu, waker, hog) = (PcpuId(0), TaskId(0), TaskId(1));
        let mut order = CfsOrder::new(CfsParams::preset(preset, 4).unwrap(), 1);
        order.add(1024, None);
        order.add(1024, None);
        order.join(cpu, waker, Join::New);
        order.set_current(cpu, Some(waker));
        order.charge(cpu, MS);
        for _ in 0..wakes {
            order.charge(cpu, 10 * US);
            order.woke(cpu);
        }
        order.leave(cpu, waker, Leave::Sleeps);
        order.entities[hog.index()].vruntime = order.entity(waker).vruntime;
        order.join(cpu, hog, Join::Woken(cpu));
        order.set_current(cpu, Some(hog));
        order.charge(cpu, 2 * MS);
        order.join(cpu, waker, Join::Woken(cpu));
        order.preempts(cpu, waker)
    }

    /// Who goes next on a pCPU that runs the first of two hogs, which is so far behind the other, if
    /// somebody yields to the other.
    fn next_if_favoured(lead: Nanos) -> Option<TaskId> {
        let (cpu, first, second) = (PcpuId(0), TaskId(0), TaskId(1));
        let mut order = CfsOrder::new(CfsParams::preset("4.x", 4).unwrap(), 1);
        order.add(1024, None);
        order.add(1024, None);
        order.join(cpu, first, Join::New);
        order.join(cpu, second, Join::New);
        order.entities[second.index()].vruntime = order.entity(first).vruntime;
        order.set_current(cpu, Some(second));
        order.charge(cpu, lead);
        order.set_current(cpu, Some(first));
        order.favour(cpu, second);
        order.pick(cpu)
    }

    /// The granularity is 3 ms.
    #[test]
    fn whom_somebody_yields_to_goes_next_unless_that_is_unfair() {
        assert_eq!(next_if_favoured(2 * MS), Some(TaskId(1)));
        assert_eq!(next_if_favoured(4 * MS), Some(TaskId(0)));
    }

    /// The granularity is 3 ms, in 2.6.33 less for who wakes others often.
    #[test]
    fn who_wakes_others_often_preempts_sooner() {
        assert!(!preempts("2.6.33", 0));
        assert!(!preempts("2.6.33", 1));
        assert!(preempts("2.6.33", 100));
        assert!(!preempts("4.x", 100));
    }
}
