// SPDX-License-Identifier: GPL-2.0-only
//! Idle groups (`cpu.idle`): which task gives way to which at a wake-up, whatever the order says.
//!
//! Linux compares the entities where the paths of two tasks part (`find_matching_se()`). If the current task's entity
//! is an idle group and the woken one's is not, the pCPU reschedules, and no slice protects the current task (since
//! 6.15; in 6.6 one does, `EevdfParams::protects_idle`); the other way round the current task is not preempted
//! (`check_preempt_wakeup_fair()` of 6.12). And a pCPU that has only tasks of idle groups is as good as an idle one for
//! a sleeper that looks for an idle pCPU (`sched_idle_cpu()` in `select_idle_sibling()`).
//!
//! `cpu.idle` came with 5.15; here all kernels have it, as they have quotas ([`bandwidth`](super::bandwidth)).
//! CFS of 5.15 to 6.5 gives idle groups shorter slices, too, and their sleepers less credit
//! (`CfsParams::idle_min_granularity`). Left out: that balancing and the placing of new tasks also take such a pCPU for
//! idle.

use super::weights::Groups;
use super::{Fair, Order};
use crate::load::Cgroups;
use corun_model::{PcpuId, TaskId};

/// Which groups are idle.
#[derive(Debug)]
pub(super) struct Ranks {
    /// By group, VMs' first.
    idle: Vec<bool>,
    /// By VM: the groups around it, outer ones first, and its own.
    paths: Vec<Vec<usize>>,
}

impl Ranks {
    /// The ranks of a host's groups; `None` if no group is idle.
    pub(super) fn of(cgroups: &Cgroups, groups: &Groups) -> Option<Box<Self>> {
        if !cgroups.all.iter().any(|group| group.idle) {
            return None;
        }
        let vms = cgroups.of_vms.len();
        let own = (0..vms).map(|vm| cgroups.of_vm(vm).is_some_and(|own| own.idle));
        let around = cgroups.all.iter().map(|group| group.idle);
        let path = |vm: usize| {
            let out = |at: &usize| groups.get(*at)?.within;
            let has_group = cgroups.of_vm(vm).is_some();
            let up = std::iter::successors(has_group.then_some(vm), out);
            let mut path: Vec<usize> = up.collect();
            path.reverse();
            path
        };
        Some(Box::new(Self {
            idle: own.chain(around).collect(),
            paths: (0..vms).map(path).collect(),
        }))
    }

    fn path(&self, vm: Option<usize>) -> &[usize] {
        let path = vm.and_then(|vm| self.paths.get(vm));
        path.map_or(&[], Vec::as_slice)
    }

    fn is_idle(&self, group: Option<&usize>) -> bool {
        group.is_some_and(|&group| self.idle.get(group) == Some(&true))
    }

    /// Is a task of this VM in an idle group at all?
    pub(super) fn is_within_idle(&self, vm: Option<usize>) -> bool {
        let mut path = self.path(vm).iter();
        path.any(|group| self.is_idle(Some(group)))
    }

    /// For two tasks of these VMs: is the entity of each, where their paths part, an idle group?
    fn where_they_part(&self, one: Option<usize>, other: Option<usize>) -> (bool, bool) {
        let (one, other) = (self.path(one), self.path(other));
        let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
        let at = |path: &[usize]| self.is_idle(path.get(common));
        (at(one), at(other))
    }
}

impl<O: Order> Fair<O> {
    /// Whether `woken` takes the pCPU `cpu` from its current task, where that follows from one of them being in an idle
    /// group. `None`: the order decides.
    pub(super) fn preempts_by_rank(&mut self, cpu: PcpuId, woken: TaskId) -> Option<bool> {
        let ranks = self.ranks.as_ref()?;
        let current = self.books.rq(cpu).current?;
        let vm = |task| self.books.task(task).vm;
        match ranks.where_they_part(vm(current), vm(woken)) {
            (true, false) => {
                self.order.unprotect(cpu);
                Some(true)
            }
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// `task` joins the runqueue of `cpu`, or leaves it: are only tasks of idle groups left there?
    pub(super) fn count_idle(&mut self, task: TaskId, cpu: PcpuId, joins: bool) {
        let Some(ranks) = &self.ranks else { return };
        if ranks.is_within_idle(self.books.task(task).vm) {
            let rq = self.books.rq_mut(cpu);
            rq.of_idle = match joins {
                true => rq.of_idle + 1,
                false => rq.of_idle.saturating_sub(1),
            };
        }
        let rq = self.books.rq(cpu);
        self.crowds.calm(cpu, rq.queued() == rq.of_idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Cgroup;

    /// VM 0 is idle in a slice, with VM 1 next to it; VM 2 is in an idle slice, VM 3 in the root.
    #[test]
    fn which_task_gives_way_to_which() {
        let group = |idle, within| Cgroup {
            weight: 100,
            idle,
            quota: None,
            within,
        };
        let cgroups = Cgroups {
            all: vec![
                group(false, None),
                group(true, None),
                group(true, Some(0)),
                group(false, Some(0)),
                group(false, Some(1)),
            ],
            of_vms: vec![Some(2), Some(3), Some(4), None],
            ..Cgroups::default()
        };
        let mut groups = Groups::of([None; 4].into_iter(), true);
        groups.know_cgroups(&cgroups);
        let ranks = Ranks::of(&cgroups, &groups).unwrap();
        let part = |one, other| ranks.where_they_part(Some(one), Some(other));
        assert_eq!(part(0, 1), (true, false));
        assert_eq!(part(1, 0), (false, true));
        assert_eq!(part(0, 2), (false, true), "the slices compare");
        assert_eq!(part(2, 3), (true, false));
        assert_eq!(part(0, 3), (false, false));
        assert_eq!(part(0, 0), (false, false));
        let within = [0, 1, 2, 3].map(|vm| ranks.is_within_idle(Some(vm)));
        assert_eq!(within, [true, false, true, false]);
        assert!(!ranks.is_within_idle(None));
        let plain = Cgroups {
            all: vec![group(false, None)],
            of_vms: vec![Some(0)],
            ..Cgroups::default()
        };
        assert!(Ranks::of(&plain, &groups).is_none());
    }
}
