// SPDX-License-Identifier: GPL-2.0-only
//! Up to which level the groups around VMs count on a pCPU.
//!
//! In Linux tasks compete within a group: among the members of one, the groups around it decide nothing
//! (`find_matching_se()` goes up to where the paths of two tasks meet, and virtual time, slices and credit are those of
//! each `cfs_rq`). Here, where all tasks of a pCPU are on one runqueue ([`weights`](super::weights)), the same holds as
//! far as a group contains *all* tasks there, ghosts included: the innermost such group is the *top* of the pCPU, and
//! what a task counts in the order of the runqueue is its part of that group only. Its load, by which pCPUs are
//! balanced, is its part of everything (`task_h_load()`).
//!
//! Where the top changes, because a task from outside it joins or the last such task leaves, all tasks there are told
//! at once what they count. In Linux none of their `cfs_rq`s would change: so what each is owed, and what is left of
//! its slice, stays the same in pCPU time ([`Order::stretch`]).

use super::weights::Groups;
use super::{Fair, Join, Order};
use corun_model::{Nanos, PcpuId, TaskId};

/// What is known of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The pCPU on whose runqueue it is counted, as member or ghost.
    on: Option<PcpuId>,
    /// The group up to which it was last told what it counts.
    top: Option<usize>,
}

/// How many tasks of each group each pCPU has.
#[derive(Debug)]
pub(super) struct Levels {
    /// By VM: the groups around its own, inner ones first.
    around: Vec<Vec<usize>>,
    /// All groups, VMs' own included.
    groups: usize,
    /// The number of all tasks by pCPU, and of those in each group by pCPU and group.
    all: Vec<u32>,
    within: Vec<u32>,
    /// By pCPU.
    tops: Vec<Option<usize>>,
    /// By task.
    places: Vec<Place>,
}

impl Levels {
    /// The levels of a host with this many VMs and pCPUs; `None` if no VM's group is in another
    /// one.
    pub(super) fn of(groups: &Groups, vms: usize, pcpus: usize) -> Option<Box<Self>> {
        let out = |at: &usize| groups.get(*at)?.within;
        let around = (0..vms).map(|vm| std::iter::successors(out(&vm), out).collect());
        let around: Vec<Vec<usize>> = around.collect();
        if around.iter().all(Vec::is_empty) {
            return None;
        }
        let all = groups.len();
        Some(Box::new(Self {
            around,
            groups: all,
            all: vec![0; pcpus],
            within: vec![0; pcpus * all],
            tops: vec![None; pcpus],
            places: Vec::new(),
        }))
    }

    /// One more task.
    pub(super) fn add(&mut self) {
        self.places.push(Place::default());
    }

    /// The group up to which `task` was last told what it counts; `None`: all.
    pub(super) fn top_of(&self, task: TaskId) -> Option<usize> {
        self.places[task.index()].top
    }

    fn around(&self, vm: Option<usize>) -> &[usize] {
        let around = vm.and_then(|vm| self.around.get(vm));
        around.map_or(&[], Vec::as_slice)
    }

    /// A task of this VM comes or goes.
    fn count(&mut self, vm: Option<usize>, cpu: PcpuId, change: impl Fn(u32) -> u32) {
        let first = cpu.index() * self.groups;
        let around = vm.and_then(|vm| self.around.get(vm));
        for group in around.into_iter().flatten() {
            let count = &mut self.within[first + group];
            *count = change(*count);
        }
        let count = &mut self.all[cpu.index()];
        *count = change(*count);
    }

    /// Finds the top of `cpu` anew, on which a task of `vm` is. True if it has changed.
    fn find_top(&mut self, vm: Option<usize>, cpu: PcpuId) -> bool {
        let here = &self.within[cpu.index() * self.groups..][..self.groups];
        let all = self.all[cpu.index()];
        let top = self.around(vm).iter().find(|group| here[**group] == all);
        let top = top.copied();
        std::mem::replace(&mut self.tops[cpu.index()], top) != top
    }
}

impl<O: Order> Fair<O> {
    /// `task` is about to be on the runqueue of `cpu`, as a member that `joins` for this reason or as a ghost.
    pub(super) fn enter_level(
        &mut self,
        task: TaskId,
        cpu: PcpuId,
        joins: Option<Join>,
        now: Nanos,
    ) {
        let Some(levels) = &self.levels else {
            return;
        };
        let on = levels.places[task.index()].on;
        if on.is_some() && on != Some(cpu) {
            self.leave_level(task, now);
        }
        let vm = self.books.task(task).vm;
        if on != Some(cpu)
            && let Some(levels) = &mut self.levels
        {
            levels.places[task.index()].on = Some(cpu);
            levels.count(vm, cpu, |count| count + 1);
            if levels.find_top(vm, cpu) {
                self.stretch_all(cpu, now);
            }
        }
        if let Some(counts) = self.counts_below_top(task, cpu, now) {
            match joins {
                Some(_) => self.order.stretch(cpu, task, joins, counts),
                None => self.order.reweigh(task, None, counts),
            }
        }
    }

    /// `task` has left its runqueue, and is no ghost there.
    pub(super) fn leave_level(&mut self, task: TaskId, now: Nanos) {
        let Some(levels) = &mut self.levels else {
            return;
        };
        let Some(cpu) = levels.places[task.index()].on.take() else {
            return;
        };
        levels.count(self.books.task(task).vm, cpu, |count| {
            count.saturating_sub(1)
        });
        // If no task is left, the next one to come decides which the top is.
        let Some(other) = self.books.members(cpu, true) else {
            return;
        };
        if levels.find_top(self.books.task(other).vm, cpu) {
            self.stretch_all(cpu, now);
        }
    }

    /// The top of `cpu` has changed: tells all tasks there what they count.
    fn stretch_all(&mut self, cpu: PcpuId, now: Nanos) {
        let mut next = self.books.members(cpu, false);
        while let Some(task) = next {
            next = self.books.next_member(task, false);
            let Some(counts) = self.counts_below_top(task, cpu, now) else {
                continue;
            };
            match self.books.task(task).on {
                Some(_) => self.order.stretch(cpu, task, None, counts),
                None => self.order.reweigh(task, None, counts),
            }
        }
    }

    /// Checks that all tasks on the runqueue of `cpu` are counted, and were told what they count up to its top; for
    /// debug builds.
    pub(super) fn check_level(&self, cpu: PcpuId) {
        let Some(levels) = &self.levels else {
            return;
        };
        let mut count = 0;
        let mut next = self.books.members(cpu, true);
        while let Some(task) = next {
            next = self.books.next_member(task, true);
            let place = levels.places[task.index()];
            assert_eq!(place.on, Some(cpu), "{task} is counted");
            assert_eq!(place.top, levels.tops[cpu.index()], "top of {task}");
            count += 1;
        }
        assert_eq!(count, levels.all[cpu.index()], "tasks counted on {cpu}");
    }

    /// What `task` counts on the runqueue of `cpu`, if that is not what it was told last.
    fn counts_below_top(&mut self, task: TaskId, cpu: PcpuId, now: Nanos) -> Option<u64> {
        let levels = self.levels.as_mut()?;
        let top = levels.tops[cpu.index()];
        levels.places[task.index()].top = top;
        let member = self.books.task(task);
        let (vm, inner, told) = (member.vm?, member.inner, member.told);
        let decay = self.books.decay();
        let counts = self.groups.raise(vm, inner, top, now, decay)?;
        self.books.task_mut(task).told = counts;
        (counts != told).then_some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Cgroup, Cgroups};

    /// VM 0 is in a slice (group 5) within another (4), VM 1 in the outer one, VM 2 and tasks of the host in the root.
    fn levels() -> Levels {
        let group = |within| Cgroup {
            weight: 100,
            idle: false,
            quota: None,
            within,
        };
        let cgroups = Cgroups {
            all: vec![group(None), group(Some(0)), group(Some(1)), group(Some(0))],
            of_vms: vec![Some(2), Some(3), None],
            ..Cgroups::default()
        };
        let mut groups = Groups::of([None; 3].into_iter(), true);
        groups.know_cgroups(&cgroups);
        *Levels::of(&groups, 3, 2).unwrap()
    }

    #[test]
    fn the_innermost_group_that_has_all_is_the_top() {
        let (mut levels, cpu) = (levels(), PcpuId(1));
        let [outer, inner] = [Some(3), Some(4)];
        let mut joins = |vm| {
            levels.count(vm, cpu, |count| count + 1);
            (levels.find_top(vm, cpu), levels.tops[1])
        };
        assert_eq!(joins(Some(0)), (true, inner));
        assert_eq!(joins(Some(0)), (false, inner));
        assert_eq!(joins(Some(1)), (true, outer));
        assert_eq!(joins(None), (true, None));
        assert_eq!(joins(Some(2)), (false, None));
        for vm in [None, Some(2)] {
            levels.count(vm, cpu, |count| count - 1);
        }
        assert!(levels.find_top(Some(0), cpu));
        assert_eq!(levels.tops, [None, outer]);
    }

    #[test]
    fn without_groups_around_there_are_none() {
        let groups = Groups::of([Some(1), None].into_iter(), true);
        assert!(Levels::of(&groups, 2, 4).is_none());
    }
}
