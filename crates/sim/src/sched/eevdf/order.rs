// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF's runqueue: of the eligible tasks, the one whose virtual deadline is nearest.
//!
//! A task is given one slice after the other; each is due by a deadline one slice away in its
//! virtual time. A task that got more than its share waits until it is eligible again, see
//! [`queue`](super::queue). The current task is protected from woken ones for a slice while it is
//! eligible (`RUN_TO_PARITY`), unless they have a shorter slice (`PREEMPT_SHORT`). Until 6.16 such
//! a wake-up ends the protection for good where the woken task is eligible and due sooner, or the
//! current one is not eligible any more; since then the woken task has to be picked to preempt, or
//! only shortens the protection. Slices are the base slice or what a task asked for, 0.1 to 100 ms.
//!
//! Sleepers keep their lag, within limits (`PLACE_LAG`). A sleeper that owes (negative lag) leaves a *ghost* behind,
//! which is taken off when it would be picked (`DELAY_DEQUEUE`); if the task wakes before, it does so on the pCPU where
//! its ghost is. Ghosts count for the average and for whether there is a slice to be
//! timed; how placement and balancing see them: `fair::ghosts`. A wake-up preempts only if the woken task would be
//! picked: until 7.0 a ghost with an earlier deadline is in the way.
//!
//! The `next` buddy is the task that another yields to. With `PICK_BUDDY` it goes next if it is eligible; without, it
//! has no effect. Not modelled: that wake-ups set one (`NEXT_BUDDY`), which is off by default except in 6.19's first
//! releases.

mod rules;
#[cfg(test)]
mod tests;

use super::params::EevdfParams;
use super::queue::{Entity, Sums};
use crate::host::HostParams;
use crate::sched::fair::{Forest, Join, Leave, Order, Root, real_time, virtual_time};
use corun_model::{Nanos, PcpuId, TaskId, time::MS, time::US};
use rules::shorten;
use std::collections::BTreeMap;

/// The shortest time a slice timer is set to.
const LEAST_TIMER: Nanos = 10 * US;

#[derive(Debug, Default)]
struct Queue {
    /// The members and ghosts except the current task, by deadline.
    tree: Root,
    current: Option<TaskId>,
    /// The task that another yielded to.
    next: Option<TaskId>,
    /// Members, and ghosts.
    nr: u64,
    ghosts: u64,
    /// Sums over members and ghosts.
    sums: Sums,
    /// How many of them have which slice.
    slices: BTreeMap<Nanos, u32>,
}

impl Queue {
    fn count_in(&mut self, entity: &Entity) {
        self.sums.add(entity);
        *self.slices.entry(entity.slice).or_insert(0) += 1;
    }

    fn count_out(&mut self, entity: &Entity) {
        self.sums.remove(entity);
        if let Some(count) = self.slices.get_mut(&entity.slice) {
            *count -= 1;
            if *count == 0 {
                self.slices.remove(&entity.slice);
            }
        }
    }

    /// The shortest slice of all (`cfs_rq_min_slice()`).
    fn shortest(&self) -> Option<Nanos> {
        self.slices.keys().next().copied()
    }

    /// The longest one (`cfs_rq_max_slice()`).
    fn longest(&self) -> Option<Nanos> {
        self.slices.keys().next_back().copied()
    }
}

/// The runqueues of all pCPUs.
#[derive(Debug)]
pub(super) struct EevdfOrder {
    params: EevdfParams,
    tick: Nanos,
    entities: Vec<Entity>,
    /// Where a sleeping task's ghost is.
    ghosts: Vec<Option<PcpuId>>,
    /// Ghosts that are gone and have not been reported yet.
    released: Vec<TaskId>,
    queues: Vec<Queue>,
    forest: Forest,
}

impl EevdfOrder {
    pub(super) fn new(params: EevdfParams, host: &HostParams) -> Self {
        Self {
            params,
            tick: 1_000_000_000 / Nanos::from(host.hz.clamp(1, 10_000)),
            entities: Vec::new(),
            ghosts: Vec::new(),
            released: Vec::new(),
            queues: (0..host.topology.pcpus())
                .map(|_| Queue::default())
                .collect(),
            forest: Forest::default(),
        }
    }

    fn entity(&self, task: TaskId) -> &Entity {
        &self.entities[task.index()]
    }

    /// Vruntime and deadline of a task.
    #[cfg(test)]
    pub(super) fn state(&self, task: TaskId) -> (i64, i64) {
        let entity = self.entity(task);
        (entity.vruntime, entity.deadline)
    }

    #[cfg(test)]
    pub(super) fn ghosts_on(&self, cpu: PcpuId) -> u64 {
        self.queues[cpu.index()].ghosts
    }

    fn eligible(&self, cpu: PcpuId, task: TaskId) -> bool {
        self.queues[cpu.index()]
            .sums
            .eligible(self.entity(task).vruntime)
    }

    /// Puts a task in the tree and the sums.
    fn enter(&mut self, cpu: PcpuId, task: TaskId) {
        let entity = self.entities[task.index()];
        let queue = &mut self.queues[cpu.index()];
        queue.count_in(&entity);
        self.forest
            .insert(&mut queue.tree, task, entity.deadline, entity.vruntime);
    }

    /// Takes a task out of the tree, if it is not the current one, and the sums.
    fn quit(&mut self, cpu: PcpuId, task: TaskId) {
        let entity = self.entities[task.index()];
        let queue = &mut self.queues[cpu.index()];
        match queue.current == Some(task) {
            true => queue.current = None,
            false => self.forest.remove(&mut queue.tree, task),
        }
        queue.count_out(&entity);
    }

    /// A task is on its way to another runqueue.
    fn leave_with(&mut self, task: TaskId, lag: i64) {
        let entity = &mut self.entities[task.index()];
        entity.lag = lag;
        if self.params.keeps_rest {
            entity.deadline -= entity.vruntime;
            entity.relative_deadline = true;
        }
    }

    /// `task`, which is on the runqueue of `on` (`None`: on no runqueue), has another weight. `all`: does it keep
    /// everything it has in real time, even lag beyond the limits, and protection?
    fn set_weight(&mut self, task: TaskId, on: Option<PcpuId>, weight: u64, all: bool) {
        let old = self.entity(task).weight;
        let scale = |v: i64| (i128::from(v) * i128::from(old) / i128::from(weight.max(1))) as i64;
        let Some(cpu) = on.or(self.ghosts[task.index()]) else {
            let entity = &mut self.entities[task.index()];
            entity.lag = scale(entity.lag);
            if entity.relative_deadline {
                entity.deadline = scale(entity.deadline);
            }
            entity.weight = weight;
            return;
        };
        let is_current = self.queues[cpu.index()].current == Some(task);
        let lag = match all {
            true => self.queues[cpu.index()].sums.average() - self.entity(task).vruntime,
            false => self.lag(cpu, task),
        };
        self.quit(cpu, task);
        let average = self.queues[cpu.index()].sums.average();
        let inflated = self.queues[cpu.index()].sums.inflated(scale(lag), weight);
        let entity = &mut self.entities[task.index()];
        let (left, guard) = (
            entity.deadline - entity.vruntime,
            entity.protected - entity.vruntime,
        );
        entity.lag = scale(lag);
        entity.vruntime = average - inflated;
        entity.deadline = entity.vruntime + scale(left);
        entity.protected = match all || self.params.protect_shortest {
            true => entity.vruntime + scale(guard),
            false => entity.vruntime,
        };
        entity.weight = weight;
        match is_current {
            true => {
                let entity = *entity;
                self.queues[cpu.index()].count_in(&entity);
                self.queues[cpu.index()].current = Some(task);
            }
            false => self.enter(cpu, task),
        }
    }

    /// The task that another yielded to, if it may go now.
    fn favourite(&self, cpu: PcpuId) -> Option<TaskId> {
        let next = self.queues[cpu.index()]
            .next
            .filter(|_| self.params.pick_buddy)?;
        self.eligible(cpu, next).then_some(next)
    }
}

impl Order for EevdfOrder {
    fn add(&mut self, weight: u64, slice: Option<Nanos>) {
        let slice = match slice.filter(|_| self.params.task_slices) {
            Some(slice) => slice.clamp(100 * US, 100 * MS),
            None => self.params.base_slice,
        };
        self.entities.push(Entity {
            weight,
            slice,
            ..Entity::default()
        });
        self.ghosts.push(None);
        self.forest.add();
    }

    /// `reweight_entity()`: lag and the rest of the slice stay the same in real time. Until 6.16 the current task is
    /// protected as long as its deadline is the one it began with (`protect_slice()`), so this ends its protection; 7.0
    /// keeps what is left of it (ff38424030f9).
    fn reweigh(&mut self, task: TaskId, on: Option<PcpuId>, weight: u64) {
        self.set_weight(task, on, weight, false);
    }

    fn stretch(&mut self, cpu: PcpuId, task: TaskId, joins: Option<Join>, weight: u64) {
        self.set_weight(task, joins.is_none().then_some(cpu), weight, true);
    }

    fn charge(&mut self, cpu: PcpuId, time: Nanos) -> bool {
        let queue = &mut self.queues[cpu.index()];
        let Some(task) = queue.current else {
            return false;
        };
        let entity = &mut self.entities[task.index()];
        let delta = virtual_time(time, entity.weight);
        entity.vruntime += delta;
        queue.sums.advance(entity.weight, delta);
        let over = entity.vruntime >= entity.deadline;
        if over {
            entity.deadline = entity.vruntime + entity.virtual_slice();
        }
        let alone = queue.nr + queue.ghosts == 1;
        let ended = self.entity(task).vruntime >= self.entity(task).protected;
        let unprotected = match self.params.protect_shortest {
            true => ended,
            // did_preempt_short(): a shorter slice ended the protection before its time.
            false => ended && self.params.preempt_short && !self.eligible(cpu, task),
        };
        !alone && (over || unprotected)
    }

    fn join(&mut self, cpu: PcpuId, task: TaskId, why: Join) {
        if self.ghosts[task.index()] == Some(cpu) {
            self.revive_ghost(cpu, task);
            return;
        }
        self.put(cpu, task, why == Join::New);
        self.enter(cpu, task);
        self.queues[cpu.index()].nr += 1;
    }

    fn leave(&mut self, cpu: PcpuId, task: TaskId, why: Leave) {
        let queue = &mut self.queues[cpu.index()];
        queue.nr -= 1;
        queue.next = queue.next.filter(|&next| next != task);
        let owes = why == Leave::Sleeps && self.params.delay_dequeue && !self.eligible(cpu, task);
        // A task that owes is not alone: there are others, though all of them may be ghosts.
        if owes {
            self.ghosts[task.index()] = Some(cpu);
            let lag = self.lag(cpu, task);
            self.entities[task.index()].lag = lag;
            let entity = self.entities[task.index()];
            let queue = &mut self.queues[cpu.index()];
            queue.ghosts += 1;
            if queue.current == Some(task) {
                queue.current = None;
                self.forest
                    .insert(&mut queue.tree, task, entity.deadline, entity.vruntime);
            }
            return;
        }
        let lag = self.lag(cpu, task);
        self.quit(cpu, task);
        match why {
            Leave::Moves => self.leave_with(task, lag),
            Leave::Sleeps | Leave::Throttled => self.entities[task.index()].lag = lag,
        }
    }

    fn pick(&mut self, cpu: PcpuId) -> Option<TaskId> {
        self.next_of(cpu, true)
    }

    fn set_current(&mut self, cpu: PcpuId, task: Option<TaskId>) {
        let queue = &mut self.queues[cpu.index()];
        queue.next = queue.next.filter(|&next| Some(next) != task);
        if queue.current != task {
            if let Some(task) = task {
                self.forest.remove(&mut queue.tree, task);
            }
            if let Some(old) = std::mem::replace(&mut queue.current, task) {
                let entity = self.entities[old.index()];
                self.forest
                    .insert(&mut queue.tree, old, entity.deadline, entity.vruntime);
            }
            if let Some(task) = task {
                self.protect(cpu, task);
            }
        } else if let Some(task) = task
            && !self.params.slice_at_switch
            && !self.protected(task)
        {
            // Picked again after its slice: the next one begins.
            self.protect(cpu, task);
        }
    }

    fn preempts(&mut self, cpu: PcpuId, woken: TaskId) -> bool {
        let Some(current) = self.queues[cpu.index()].current else {
            return true;
        };
        if !self.params.wakeup_preemption {
            return false;
        }
        if !self.params.protect_shortest {
            let short = self.short_enough(cpu, woken, current);
            if short {
                let entity = &mut self.entities[current.index()];
                entity.protected = entity.vruntime;
            }
            return self.best(cpu, !short) == Some(woken);
        }
        let (new, old) = (self.entity(woken).slice, self.entity(current).slice);
        let short = self.params.preempt_short && new < old;
        let next = match self.params.settles_ghosts {
            true => self.next_of(cpu, !short),
            false => self.best(cpu, !short),
        };
        let preempts = next == Some(woken);
        let shortest = self.queues[cpu.index()].shortest().unwrap_or(new);
        let entity = &mut self.entities[current.index()];
        match (short, preempts) {
            (true, true) => entity.protected = entity.protected.min(entity.vruntime),
            (true, false) if self.params.run_to_parity => shorten(entity, shortest),
            _ => {}
        }
        preempts
    }

    /// `cancel_protect_slice()`, for a task in an idle group.
    fn unprotect(&mut self, cpu: PcpuId) {
        let current = self.queues[cpu.index()].current;
        if let Some(task) = current.filter(|_| !self.params.protects_idle) {
            let entity = &mut self.entities[task.index()];
            entity.protected = entity.protected.min(entity.vruntime);
        }
    }

    fn tick(&mut self, _cpu: PcpuId) -> bool {
        // charge(), which was called before, has decided everything.
        false
    }

    /// `yield_task_fair()`: forgo the rest of the slice in favour of the tasks on the task's own `cfs_rq`. In a cgroup
    /// these are its siblings; what the group has had, and when its slice ends, stays as it is.
    fn yields(&mut self, cpu: PcpuId, siblings: Option<&[TaskId]>) {
        let queue = &self.queues[cpu.index()];
        let Some(task) = queue.current else {
            return;
        };
        match siblings {
            Some([]) => {}
            Some(siblings) if (siblings.len() as u64) + 1 < queue.nr + queue.ghosts => {
                self.yield_within(cpu, task, siblings);
            }
            _ => self.yield_to_all(cpu, task),
        }
    }

    fn favour(&mut self, cpu: PcpuId, task: TaskId) {
        self.queues[cpu.index()].next = Some(task);
    }

    fn bound_to(&self, task: TaskId) -> Option<PcpuId> {
        self.ghosts[task.index()]
    }

    fn let_go(&mut self, cpu: PcpuId, task: TaskId) {
        if self.ghosts[task.index()] == Some(cpu) {
            self.release_ghost(cpu, task);
        }
    }

    fn released(&mut self) -> Option<TaskId> {
        self.released.pop()
    }

    fn move_ghost(&mut self, task: TaskId, from: PcpuId, to: PcpuId) {
        let lag = self.lag_of_ghost(from, task);
        self.quit(from, task);
        self.leave_with(task, lag);
        self.put(to, task, false);
        self.enter(to, task);
        self.ghosts[task.index()] = Some(to);
        self.queues[from.index()].ghosts -= 1;
        self.queues[to.index()].ghosts += 1;
    }

    fn owes_nothing(&self, cpu: PcpuId, task: TaskId) -> bool {
        self.eligible(cpu, task)
    }

    fn stop_after(&self, cpu: PcpuId) -> Option<Nanos> {
        let task = self.queues[cpu.index()]
            .current
            .filter(|_| self.params.hrtick)?;
        let entity = self.entity(task);
        // Until 6.16 a slice ends at the deadline, however long it is protected (`hrtick_start_fair()`).
        let end = match self.params.run_to_parity && self.params.protect_shortest {
            true => entity.protected.min(entity.deadline),
            false => entity.deadline,
        };
        Some(real_time(end - entity.vruntime, entity.weight).max(LEAST_TIMER))
    }

    fn check(&self, cpu: PcpuId, members: usize) {
        let queue = &self.queues[cpu.index()];
        let held = self.forest.count(queue.tree) + usize::from(queue.current.is_some());
        assert_eq!(queue.nr, members as u64, "members of {cpu}");
        assert_eq!(held as u64, queue.nr + queue.ghosts, "ghosts of {cpu}");
        assert!(held == 0 || queue.sums.weight() > 0);
        // Some task is always eligible: the least vruntime cannot be beyond the average.
        assert_eq!(held > 0, self.best(cpu, true).is_some(), "a pick on {cpu}");
    }
}
