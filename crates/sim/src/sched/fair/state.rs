// SPDX-License-Identifier: GPL-2.0-only
//! The books: what is known about each task and each pCPU, whatever the order of the runqueues.

use super::decay::{Average, Decay, FULL};
use crate::event_queue::EventId;
use corun_model::{Nanos, PcpuId, PcpuSet, TaskId, time::MS};

/// A task.
#[derive(Debug)]
pub(crate) struct Member {
    /// Own weight, and what the task counts at present: its part of its VM's weight if the VM has
    /// one.
    pub(crate) own: u64,
    pub(crate) weight: u64,
    /// What it counts without the groups around its VM, and what the order of its runqueue was
    /// told.
    pub(crate) inner: u64,
    pub(crate) told: u64,
    pub(crate) vm: Option<usize>,
    /// pCPUs it may use at present, and those it was bound to.
    pub(crate) allowed: PcpuSet,
    pub(crate) given: PcpuSet,
    /// The runqueue it is on, or is a ghost on while it sleeps.
    pub(crate) on: Option<PcpuId>,
    pub(crate) ghost: Option<PcpuId>,
    /// Do its averages stand still?
    pub(crate) frozen: bool,
    /// The runqueue it is or was on last; `None` before its first wake-up.
    pub(crate) last: Option<PcpuId>,
    /// When it was last seen on a pCPU.
    pub(crate) ran_at: Nanos,
    /// Share of time on a runqueue, as a ghost included and not, and on a pCPU, of [`FULL`].
    pub(crate) queued: Average,
    pub(crate) runnable: Average,
    pub(crate) util: Average,
    /// Neighbours in its runqueue's list.
    before: Option<TaskId>,
    after: Option<TaskId>,
    /// A pCPU it used before, where it may find its way back to (`recent_used_cpu`).
    pub(crate) recent: Option<PcpuId>,
    /// The task that it woke last, and how often that changed, for `wake_wide()`.
    pub(crate) wakee: Option<TaskId>,
    pub(crate) flips: u32,
    pub(crate) flips_since: Nanos,
}

impl Member {
    pub(crate) fn new(weight: u64, vm: Option<usize>, allowed: PcpuSet) -> Self {
        Self {
            own: weight,
            weight,
            inner: weight,
            told: weight,
            vm,
            allowed,
            given: allowed,
            on: None,
            ghost: None,
            frozen: false,
            last: None,
            ran_at: 0,
            queued: Average::default(),
            runnable: Average::default(),
            util: Average::default(),
            before: None,
            after: None,
            recent: None,
            wakee: None,
            flips: 0,
            flips_since: 0,
        }
    }

    /// What it adds to its runqueue's averages.
    pub(crate) fn part(&self) -> Part {
        Part {
            load: self.load(),
            util: self.util.value,
            runnable: self.runnable.value,
        }
    }

    /// Its load: weight by the share of time it was on a runqueue.
    pub(crate) fn load(&self) -> u64 {
        ((u128::from(self.weight) * u128::from(self.queued.value)) >> 20) as u64
    }
}

/// A pCPU that shares its core with no other and that no higher class uses (`SCHED_LOAD_SCALE`).
pub(crate) const WHOLE: u64 = 1024;

/// A core of several threads in 2.6.33 (`smt_gain` in `SD_SIBLING_INIT`), which shares it among them
/// (`default_scale_smt_power()`).
pub(crate) const CORE: u64 = 1178;

/// The time after which a higher class's time counts half (`sched_avg_period()`: half of
/// `sysctl_sched_time_avg`, 1 s).
const ABOVE_PERIOD: Nanos = 500 * MS;

/// A task's part of its runqueue's averages, which moves with it.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) load: u64,
    pub(crate) util: u64,
    pub(crate) runnable: u64,
}

/// A pCPU's runqueue. The current task is a member.
#[derive(Debug)]
pub(crate) struct Runqueue {
    pub(crate) nr: u32,
    pub(crate) ghosts: u32,
    /// How many of them are in idle groups, if there are such groups.
    pub(crate) of_idle: u32,
    /// Tasks of a higher class that are ready or running on this pCPU.
    pub(crate) above: u32,
    /// Time that a higher class had, older times counting less, and up to when that is booked; and
    /// what of the pCPU is left to this class, in parts of [`WHOLE`].
    above_time: Nanos,
    above_since: Nanos,
    pub(crate) power: u64,
    /// The same if no higher class uses the pCPU.
    whole: u64,
    pub(crate) current: Option<TaskId>,
    /// Up to when the current task's time is charged.
    pub(crate) charged: Nanos,
    /// Sum of the members' and ghosts' (and, depending on the generation, sleepers') loads.
    pub(crate) load: Average,
    /// Share of time it was busy, of [`FULL`], moved tasks' part included.
    pub(crate) util: Average,
    /// How many tasks were ready or running, times [`FULL`], moved tasks' part included.
    pub(crate) runnable: Average,
    /// `rq->cpu_load[]`: the load averaged over 1, 2, 4, 8, 16 ticks.
    pub(crate) ticked: [u64; 5],
    /// Since when it idles, if it does, and how long it idles on average (`rq->avg_idle`).
    pub(crate) idle_since: Option<Nanos>,
    pub(crate) mean_idle: Nanos,
    /// How long searches for an idle pCPU took on average (`avg_scan_cost`).
    pub(crate) mean_search: Nanos,
    pub(crate) next_balance: Nanos,
    /// Active balancing: the pCPU to push a task to at the next pick.
    pub(crate) push_to: Option<PcpuId>,
    /// The timer that ends a slice between ticks.
    pub(crate) stop_timer: EventId,
    /// Another task shall get the pCPU as soon as it enters the kernel (`TIF_NEED_RESCHED_LAZY`).
    pub(crate) lazy: bool,
    newest: Option<TaskId>,
    oldest: Option<TaskId>,
}

impl Runqueue {
    pub(crate) fn new(mean_idle: Nanos, whole: u64) -> Self {
        Self {
            nr: 0,
            ghosts: 0,
            of_idle: 0,
            above: 0,
            above_time: 0,
            above_since: 0,
            power: whole,
            whole,
            current: None,
            charged: 0,
            load: Average::default(),
            util: Average::default(),
            runnable: Average::default(),
            ticked: [0; 5],
            idle_since: Some(0),
            mean_idle,
            mean_search: 0,
            next_balance: 0,
            push_to: None,
            stop_timer: EventId::NONE,
            lazy: false,
            newest: None,
            oldest: None,
        }
    }

    /// A task moves here with its part of the averages except the load.
    pub(crate) fn gain(&mut self, part: &Part) {
        self.util.value = (self.util.value + part.util).min(FULL);
        self.runnable.value += part.runnable;
    }

    /// A task moves away with it.
    pub(crate) fn lose(&mut self, part: &Part) {
        self.util.value = self.util.value.saturating_sub(part.util);
        self.runnable.value = self.runnable.value.saturating_sub(part.runnable);
    }

    /// Nothing runs and nothing wants to, and no ghost is to be let go (`idle_cpu()`).
    pub(crate) fn idle(&self) -> bool {
        self.queued() == 0
    }

    /// Number of members and ghosts (`cfs_rq->nr_running`, later `nr_queued`; `h_nr_queued`).
    pub(crate) fn of_this_class(&self) -> u32 {
        self.nr + self.ghosts
    }

    /// Number of ready and running tasks of all classes.
    pub(crate) fn all(&self) -> u32 {
        self.nr + self.above
    }

    /// The same with ghosts (`rq->nr_running`).
    pub(crate) fn queued(&self) -> u32 {
        self.all() + self.ghosts
    }

    /// A higher class had the pCPU for `time` until now (`sched_rt_avg_update()`).
    pub(crate) fn book_above(&mut self, time: Nanos, now: Nanos) {
        self.above_time += time;
        self.halve_above(now);
    }

    fn halve_above(&mut self, now: Nanos) {
        let times = now.saturating_sub(self.above_since) / ABOVE_PERIOD;
        self.above_since += times * ABOVE_PERIOD;
        self.above_time = self.above_time.checked_shr(times as u32).unwrap_or(0);
    }

    /// Brings `power` up to date (`update_cpu_power()`).
    pub(crate) fn update_power(&mut self, now: Nanos) {
        self.halve_above(now);
        let total = ABOVE_PERIOD + now.saturating_sub(self.above_since);
        let left = total.saturating_sub(self.above_time) * WHOLE / total;
        self.power = (self.whole * left / WHOLE).max(1);
    }

    /// Load per task here, none without tasks (`cpu_avg_load_per_task()`).
    pub(crate) fn load_per_task(&self, load: u64) -> u64 {
        load.checked_div(u64::from(self.nr)).unwrap_or(0)
    }

    /// `rq->cpu_load[]` at a tick.
    pub(crate) fn book_tick(&mut self, load: u64) {
        for (n, ticked) in self.ticked.iter_mut().enumerate() {
            let old = *ticked * ((1 << n) - 1);
            // Rounded up on the way up, so that the average gets there.
            let round = if load > *ticked { (1 << n) - 1 } else { 0 };
            *ticked = (old + load + round) >> n;
        }
    }
}

/// All tasks and runqueues.
#[derive(Debug)]
pub(crate) struct RunqueueAccounts {
    pub(crate) tasks: Vec<Member>,
    pub(crate) rqs: Vec<Runqueue>,
    /// Per pCPU, the sum of its members' and ghosts' weights: next to each other in memory, since balancing adds those
    /// of whole domains.
    pub(crate) weights: Vec<u64>,
    decay: Decay,
}

impl RunqueueAccounts {
    pub(crate) fn new(pcpus: usize, mean_idle: Nanos, whole: u64) -> Self {
        Self {
            tasks: Vec::new(),
            rqs: (0..pcpus)
                .map(|_| Runqueue::new(mean_idle, whole))
                .collect(),
            weights: vec![0; pcpus],
            decay: Decay::new(),
        }
    }

    pub(crate) fn decay(&self) -> &Decay {
        &self.decay
    }

    pub(crate) fn task(&self, task: TaskId) -> &Member {
        &self.tasks[task.index()]
    }

    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut Member {
        &mut self.tasks[task.index()]
    }

    pub(crate) fn rq(&self, cpu: PcpuId) -> &Runqueue {
        &self.rqs[cpu.index()]
    }

    pub(crate) fn rq_mut(&mut self, cpu: PcpuId) -> &mut Runqueue {
        &mut self.rqs[cpu.index()]
    }

    /// Sum of the members' and ghosts' weights.
    pub(crate) fn weight(&self, cpu: PcpuId) -> u64 {
        self.weights[cpu.index()]
    }

    /// Brings a task's averages up to date. Call before its state changes.
    pub(crate) fn age_task(&mut self, task: TaskId, now: Nanos) {
        let member = &mut self.tasks[task.index()];
        if member.frozen {
            return;
        }
        let running = member
            .on
            .is_some_and(|cpu| self.rqs[cpu.index()].current == Some(task));
        let full = |on| if on { FULL } else { 0 };
        let ready = member.on.is_some();
        let queued = ready || member.ghost.is_some();
        member.queued.advance(full(queued), now, &self.decay);
        member.runnable.advance(full(ready), now, &self.decay);
        member.util.advance(full(running), now, &self.decay);
    }

    /// A task's averages go on from where they stood still, if they were frozen.
    pub(crate) fn thaw(&mut self, task: TaskId, now: Nanos) {
        let member = &mut self.tasks[task.index()];
        if !std::mem::replace(&mut member.frozen, false) {
            return;
        }
        for average in [&mut member.queued, &mut member.runnable, &mut member.util] {
            *average = Average::starting_at(average.value, now);
        }
    }

    /// Brings a runqueue's averages up to date. Call before its members change.
    pub(crate) fn age_rq(&mut self, cpu: PcpuId, now: Nanos) {
        let rq = &mut self.rqs[cpu.index()];
        let busy = if rq.current.is_some() { FULL } else { 0 };
        rq.load.advance(self.weights[cpu.index()], now, &self.decay);
        rq.util.advance(busy, now, &self.decay);
        rq.runnable
            .advance(u64::from(rq.nr) * FULL, now, &self.decay);
    }

    /// A task's part of the averages goes with it. Both runqueues are up to date.
    pub(crate) fn carry(&mut self, part: &Part, from: PcpuId, to: PcpuId) {
        let rq = self.rq_mut(from);
        rq.load.value = rq.load.value.saturating_sub(part.load);
        rq.lose(part);
        let rq = self.rq_mut(to);
        rq.load.value += part.load;
        rq.gain(part);
    }

    /// Lists a task as the newest of its runqueue.
    pub(crate) fn link(&mut self, task: TaskId, cpu: PcpuId) {
        let newest = self.rqs[cpu.index()].newest.replace(task);
        self.tasks[task.index()].before = None;
        self.tasks[task.index()].after = newest;
        match newest {
            Some(other) => self.tasks[other.index()].before = Some(task),
            None => self.rqs[cpu.index()].oldest = Some(task),
        }
    }

    /// Takes a task off its runqueue's list.
    pub(crate) fn unlink(&mut self, task: TaskId, cpu: PcpuId) {
        let member = &mut self.tasks[task.index()];
        let (before, after) = (member.before.take(), member.after.take());
        match before {
            Some(other) => self.tasks[other.index()].after = after,
            None => self.rqs[cpu.index()].newest = after,
        }
        match after {
            Some(other) => self.tasks[other.index()].before = before,
            None => self.rqs[cpu.index()].oldest = before,
        }
    }

    /// The first of a runqueue's members and ghosts, in the order in which they last joined or got the pCPU, newest or
    /// oldest first.
    pub(crate) fn members(&self, cpu: PcpuId, newest_first: bool) -> Option<TaskId> {
        let rq = &self.rqs[cpu.index()];
        if newest_first { rq.newest } else { rq.oldest }
    }

    /// The next one after `task` in [`Self::members`].
    pub(crate) fn next_member(&self, task: TaskId, newest_first: bool) -> Option<TaskId> {
        let member = &self.tasks[task.index()];
        if newest_first {
            member.after
        } else {
            member.before
        }
    }

    /// Checks the books of a runqueue; for debug builds.
    pub(crate) fn check(&self, cpu: PcpuId) -> usize {
        let rq = self.rq(cpu);
        let (mut count, mut ghosts, mut weight, mut current) = (0usize, 0, 0, false);
        let mut at = self.members(cpu, true);
        while let Some(task) = at {
            let member = self.task(task);
            let listed = member.on.or(member.ghost);
            assert_eq!(listed, Some(cpu), "{task} is listed on {cpu}");
            assert!(member.allowed.contains(cpu), "{task} may not be on {cpu}");
            current |= rq.current == Some(task);
            weight += member.weight;
            match member.on {
                Some(_) => count += 1,
                None => ghosts += 1,
            }
            at = self.next_member(task, true);
        }
        assert_eq!(count, rq.nr as usize, "members of {cpu}");
        assert_eq!(ghosts, rq.ghosts, "ghosts of {cpu}");
        assert_eq!(weight, self.weight(cpu), "weight of {cpu}");
        assert_eq!(current, rq.current.is_some(), "current task of {cpu}");
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_per_task_is_none_without_tasks() {
        let mut rq = Runqueue::new(0, WHOLE);
        assert_eq!(rq.load_per_task(512), 0);
        rq.nr = 3;
        assert_eq!(rq.load_per_task(3072), 1024);
    }
}
