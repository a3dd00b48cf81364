// SPDX-License-Identifier: GPL-2.0-only
//! CFS's runqueue: the task that got least time, by weight, goes first.
//!
//! Tasks are sorted by virtual runtime. The period in which all of them run is divided by weight
//! (`sched_slice()`); a tick that finds the slice used up, or the task too far ahead, ends it
//! (`check_preempt_tick()`), so slices are rounded up to ticks. Since 5.13 they have a least length, too. A woken task
//! is placed a little behind the others (`place_entity()`) and preempts if it is behind by more than the wake-up
//! granularity (`check_preempt_wakeup()`).
//!
//! In 2.6.33 the granularity is smaller for a task that wakes others often, so that it preempts sooner
//! (`ADAPTIVE_GRAN`). 2.6.33's `sched_yield()` did nothing but charge, and it had no `yield_to()`; here a yield sets
//! the `skip` buddy of later kernels in all of them, and the `next` buddy if it names a task to yield to.

#[cfg(test)]
mod tests;

use super::params::CfsParams;
use crate::sched::fair::{Forest, Generation, Join, Leave, Order, Root, virtual_time};
use corun_model::{Nanos, PcpuId, TaskId};

#[derive(Clone, Copy, Debug)]
struct Entity {
    weight: u64,
    /// Virtual runtime; relative to the runqueue's least while the task is being moved.
    vruntime: i64,
    /// For how long it has had a pCPU since it was given one, and in all.
    ran: Nanos,
    total: Nanos,
    /// The value of `total` when it woke up or, if later, last woke another task.
    started: Nanos,
    woke: Option<Nanos>,
    /// Time that it has a pCPU between waking others, on average (`avg_wakeup`).
    between: Nanos,
    /// Its own wake-up granularity; `None`: that of all tasks.
    granularity: Option<Nanos>,
    /// The VM in whose scheduling group it is.
    group: Option<usize>,
    /// Is it in an idle group?
    idle: bool,
    /// The pCPU it has to wake up on; `None`: placement chooses one.
    bound: Option<PcpuId>,
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
    /// The members except the current task, by vruntime.
    tree: Root,
    current: Option<TaskId>,
    nr: u64,
    /// Members of idle groups.
    idle: u64,
    weight: u64,
    /// The least vruntime, never going back.
    min_vruntime: i64,
    /// The task that a wake-up took the pCPU from and that is to get it back; the task that another yielded to; the
    /// task that yielded.
    last: Option<TaskId>,
    next: Option<TaskId>,
    skip: Option<TaskId>,
    /// The task that is to go next, whatever the order says.
    promised: Option<TaskId>,
    /// Did the last tick find the current task's turn over?
    over: bool,
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
        let share = u128::from(period) * u128::from(own) / u128::from(weight.max(1));
        (share as Nanos).max(self.least_slice(cpu, task))
    }

    /// The shortest slice (`BASE_SLICE`): shorter for idle groups while tasks of others are on the
    /// runqueue (`sched_idle_cfs_rq()`). Before 5.13 there was no such limit.
    fn least_slice(&self, cpu: PcpuId, task: TaskId) -> Nanos {
        let queue = &self.queues[cpu.index()];
        let among_idle = queue.nr > 0 && queue.nr == queue.idle;
        match self.params.idle_min_granularity {
            Some(least) if self.entity(task).idle && !among_idle => least,
            Some(_) => self.params.min_granularity,
            None => 0,
        }
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
                let own = match last == cpu {
                    true => entity.vruntime,
                    false => entity.vruntime - self.queues[last.index()].min_vruntime + min,
                };
                own.max(min - self.params.credit(entity.idle) as i64)
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

    /// Are groups compared, rather than tasks? 2.6.33 has no granularity for groups (`wakeup_gran()`).
    fn groups_compare(&self, woken: TaskId, current: TaskId) -> bool {
        let group = self.entity(woken).group;
        group.is_some() && group != self.entity(current).group
    }

    /// By how much `woken` must be behind `current` to preempt it (`wakeup_gran()`): 2.6.33 lets the
    /// current task run for as long as the woken one is expected to run until it wakes another. Where the woken task is
    /// represented by its group entity (`find_matching_se()`), which has no `avg_wakeup`, that is not at all.
    fn granularity(&self, cpu: PcpuId, current: TaskId, woken: TaskId) -> Nanos {
        let own = self.entity(woken).granularity;
        let most = own.unwrap_or(self.params.wakeup_granularity);
        if self.params.generation != Generation::Linux2_6_33 {
            return most;
        }
        if self.groups_compare(woken, current) {
            return 0;
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
        queue.promised = queue.promised.filter(|&next| next != task);
    }

    /// Gives `task` a wake-up granularity of its own, or the general one.
    pub(super) fn set_granularity(&mut self, task: TaskId, own: Option<Nanos>) {
        self.entities[task.index()].granularity = own;
    }

    /// `task` wakes up on this pCPU from now on, or (`None`) wherever is best.
    pub(super) fn bind(&mut self, task: TaskId, to: Option<PcpuId>) {
        self.entities[task.index()].bound = to;
    }

    /// `task`, which waits on the runqueue of `cpu`, is picked next.
    pub(super) fn promise(&mut self, cpu: PcpuId, task: TaskId) {
        self.queues[cpu.index()].promised = Some(task);
    }

    /// Did a tick find the turn of the current task of `cpu` over?
    pub(super) fn turn_is_over(&self, cpu: PcpuId) -> bool {
        self.queues[cpu.index()].over
    }

    /// The time `task` had a pCPU in all, as far as it is charged.
    pub(super) fn total(&self, task: TaskId) -> Nanos {
        self.entity(task).total
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
            granularity: None,
            group: None,
            idle: false,
            bound: None,
        });
        self.forest.add();
    }

    fn is_grouped(&mut self, vm: usize) {
        if let Some(entity) = self.entities.last_mut() {
            entity.group = Some(vm);
        }
    }

    fn is_idle(&mut self) {
        if let Some(entity) = self.entities.last_mut() {
            entity.idle = true;
        }
    }

    fn reweigh(&mut self, task: TaskId, on: Option<PcpuId>, weight: u64) {
        let entity = &mut self.entities[task.index()];
        let old = std::mem::replace(&mut entity.weight, weight);
        if let Some(cpu) = on {
            let queue = &mut self.queues[cpu.index()];
            queue.weight = queue.weight - old + weight;
        }
    }

    /// What a task is owed is how far it is behind the runqueue's least virtual time, or ahead of it; or was when it
    /// left.
    fn stretch(&mut self, cpu: PcpuId, task: TaskId, joins: Option<Join>, weight: u64) {
        let Entity {
            weight: old,
            vruntime,
            ..
        } = *self.entity(task);
        let zero = match joins {
            None => self.queues[cpu.index()].min_vruntime,
            Some(Join::Moved) => 0,
            Some(Join::Woken(last)) => self.queues[last.index()].min_vruntime,
            // It has had no time yet.
            Some(Join::New) => vruntime,
        };
        let lead = i128::from(vruntime - zero) * i128::from(old) / i128::from(weight.max(1));
        let queue = &mut self.queues[cpu.index()];
        let waits = joins.is_none() && queue.current != Some(task);
        if joins.is_none() {
            queue.weight = queue.weight - old + weight;
        }
        if waits {
            self.forest.remove(&mut queue.tree, task);
        }
        let entity = &mut self.entities[task.index()];
        (entity.weight, entity.vruntime) = (weight, zero + lead as i64);
        if waits {
            self.insert(cpu, task);
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
        let (weight, idle) = (entity.weight, entity.idle);
        let queue = &mut self.queues[cpu.index()];
        queue.nr += 1;
        queue.idle += u64::from(idle);
        queue.weight += weight;
    }

    fn leave(&mut self, cpu: PcpuId, task: TaskId, why: Leave) {
        self.clear_buddies(cpu, task);
        let Entity { weight, idle, .. } = *self.entity(task);
        let queue = &mut self.queues[cpu.index()];
        queue.nr -= 1;
        queue.idle -= u64::from(idle);
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
            Leave::Sleeps | Leave::Throttled => {}
        }
        self.advance_min(cpu);
    }

    fn pick(&mut self, cpu: PcpuId) -> Option<TaskId> {
        if let Some(next) = self.queues[cpu.index()].promised {
            self.clear_buddies(cpu, next);
            return Some(next);
        }
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
        // The last buddy counts most: "someone really wants this to run".
        for buddy in buddies.into_iter().flatten() {
            if self.ahead(buddy, left) != Some(true) {
                next = buddy;
            }
        }
        self.clear_buddies(cpu, next);
        Some(next)
    }

    fn set_current(&mut self, cpu: PcpuId, task: Option<TaskId>) {
        let queue = &mut self.queues[cpu.index()];
        queue.over = false;
        if queue.current == task {
            // 2.6.33 puts the current task back first even if it picks it again; that begins a new
            // slice.
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
            // Otherwise it might be picked again as a buddy.
            self.clear_buddies(cpu, current);
            self.queues[cpu.index()].over = true;
            return true;
        }
        if ran < self.params.min_granularity {
            return false;
        }
        let lead = self.entity(current).vruntime - self.entity(first).vruntime;
        let over = lead > ideal as i64;
        self.queues[cpu.index()].over = over;
        over
    }

    /// `set_skip_buddy()` goes up through all groups.
    fn yields(&mut self, cpu: PcpuId, _siblings: Option<&[TaskId]>) {
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

    fn is_far_ahead(&self, cpu: PcpuId, task: TaskId, other: TaskId, slices: u64) -> bool {
        let slices = slices * self.slice_as(cpu, task, true);
        let slices = virtual_time(slices, self.entity(task).weight);
        let gran = match self.params.generation {
            Generation::Linux2_6_33 if self.groups_compare(other, task) => 0,
            _ => self.params.wakeup_granularity,
        };
        let gran = virtual_time(gran, self.entity(other).weight);
        let lead = self.entity(task).vruntime - self.entity(other).vruntime;
        lead > slices + gran
    }

    fn bound_to(&self, task: TaskId) -> Option<PcpuId> {
        self.entity(task).bound
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
