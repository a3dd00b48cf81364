// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that sleep but owe: they stay on their runqueue as *ghosts* until they would be picked (EEVDF's
//! `DELAY_DEQUEUE`, [`Order::leave`]).
//!
//! What placement and balancing see of them, according to `fair.c` and `pelt.c` of 6.12 and 7.2.13:
//!
//! - A ghost's weight counts in its runqueue's and its VM's load, and its own load grows, as if it were ready
//!   (`on_rq` and `load.weight` stay). It is not runnable, so `runnable_avg` does not include it.
//! - It counts wherever the kernel asks whether the current task is alone (`cfs_rq->nr_running`, `h_nr_queued`,
//!   `rq->nr_running`): at the end of a slice, for the timer that ends one, and when the task yields. So a pCPU with a
//!   ghost picks after each slice, and lets the ghost go as soon as it is due and owes nothing.
//! - It counts in `rq->nr_running`, by which groups of pCPUs are found to be overloaded. Where the kernel looks for
//!   runqueues from which a task could be moved, a ghost counts in 6.12 (`h_nr_queued`) but not in 7.2
//!   (`h_nr_runnable`).
//! - Balancing moves it as it moves ready tasks; in 7.2 only where load is to be moved
//!   (`can_migrate_task()`). It wakes up where it has been moved to.
//! - In 7.2 a task that owes, ghost or not, is not moved at the first attempt (`task_is_ineligible_on_dst_cpu()`).

use super::moving::Amount;
use super::state::Runqueue;
use super::weights::Group;
use super::{Fair, Order};
use crate::host::Host;
use corun_model::{Nanos, PcpuId, TaskId};

impl<O: Order> Fair<O> {
    /// `task` has just left the runqueue of `cpu`. Does it stay as a ghost?
    pub(super) fn stays_as_ghost(&mut self, task: TaskId, cpu: PcpuId) -> bool {
        let stays = self.order.bound_to(task) == Some(cpu);
        if stays {
            self.enter_ghost(task, cpu);
        }
        stays
    }

    fn enter_ghost(&mut self, task: TaskId, cpu: PcpuId) {
        self.books.link(task, cpu);
        self.books.task_mut(task).ghost = Some(cpu);
        self.books.weights[cpu.index()] += self.books.task(task).weight;
        self.books.rq_mut(cpu).ghosts += 1;
        self.crowd(cpu, true);
        self.count_idle(task, cpu, true);
    }

    fn quit_ghost(&mut self, task: TaskId, now: Nanos) -> Option<PcpuId> {
        let cpu = self.books.task(task).ghost?;
        self.books.age_rq(cpu, now);
        self.books.age_task(task, now);
        self.books.unlink(task, cpu);
        self.books.task_mut(task).ghost = None;
        self.books.weights[cpu.index()] -= self.books.task(task).weight;
        self.books.rq_mut(cpu).ghosts -= 1;
        self.crowd(cpu, false);
        self.count_idle(task, cpu, false);
        Some(cpu)
    }

    /// `task` is no ghost any more, if it was one: it sleeps, or is about to join its runqueue.
    pub(super) fn end_ghost(&mut self, task: TaskId, now: Nanos) {
        if self.quit_ghost(task, now).is_some() {
            self.count_in_group(task, false, now);
        }
    }

    /// Takes notice of ghosts that the order has let go.
    pub(super) fn end_released(&mut self, now: Nanos) {
        while let Some(task) = self.order.released() {
            self.end_ghost(task, now);
            // The task may be back on a runqueue already.
            if self.books.task(task).on.is_none() {
                self.leave_level(task, now);
            }
        }
    }

    /// Only ghosts are on the runqueue of `cpu`: whatever they owe, they would be picked.
    pub(super) fn end_all_ghosts(&mut self, cpu: PcpuId, now: Nanos) {
        if self.books.rq(cpu).ghosts > 0 {
            let next = self.order.pick(cpu);
            debug_assert_eq!(next, None, "only ghosts are left on {cpu}");
            self.end_released(now);
        }
    }

    /// Is it a ghost that balancing may not move where `amount` is to be moved?
    pub(super) fn may_not_move_ghost(&self, task: TaskId, amount: Amount) -> bool {
        let by_load = matches!(amount, Amount::Load(_));
        self.books.task(task).ghost.is_some() && self.tuning.sees_ghosts_asleep && !by_load
    }

    /// Moves a ghost to another runqueue, where it stays one.
    pub(super) fn move_ghost(&mut self, host: &mut Host, task: TaskId, to: PcpuId, quiet: bool) {
        let now = host.now();
        let Some(from) = self.quit_ghost(task, now) else {
            return;
        };
        self.update_from_afar(host, from);
        self.update_from_afar(host, to);
        let part = self.books.task(task).part();
        self.order.move_ghost(task, from, to);
        self.books.carry(&part, from, to);
        self.enter_level(task, to, None, now);
        self.enter_ghost(task, to);
        self.books.task_mut(task).last = Some(to);
        match self.books.rq(to).current {
            _ if quiet => {}
            Some(_) => _ = self.keep_stop_timer(host, to),
            // `to` picks, and lets the ghost go if no other task is there: otherwise `to` would seem to be busy.
            None => host.resched(to, None),
        }
    }

    /// How many tasks balancing believes could be moved from there.
    pub(super) fn movable(&self, rq: &Runqueue) -> u32 {
        match self.tuning.sees_ghosts_asleep {
            true => rq.all(),
            false => rq.queued(),
        }
    }

    /// May `task` go from `from` to `to` at the first attempt to balance? Not if it owes and others are queued
    /// there. For vCPUs in a group the kernel's rule concerns their siblings only; that is left out.
    pub(super) fn may_go_at_once(&self, task: TaskId, from: PcpuId, to: PcpuId) -> bool {
        !self.tuning.sees_ghosts_asleep
            || self.books.rq(to).queued() == 0
            || self.is_in_group(task)
            || self.order.owes_nothing(from, task)
    }

    fn is_in_group(&self, task: TaskId) -> bool {
        let vm = self.books.task(task).vm;
        vm.and_then(|vm| self.groups.get(vm))
            .is_some_and(Group::is_group)
    }
}

#[cfg(test)]
mod tests {
    use super::super::decay::FULL;
    use super::super::state::{Member, RunqueueAccounts};
    use super::super::{Fair, Join, Leave, Order};
    use super::{Amount, Runqueue};
    use crate::host::{Event, Host, TaskState};
    use crate::load::Load;
    use crate::sched::HostScheduler;
    use crate::sched::eevdf::{EevdfParams, fair};
    use crate::testing::{Job, Jobs, host};
    use corun_model::{PcpuId, PcpuSet, TaskId, time::MS, time::SEC};

    const CPU: PcpuId = PcpuId(0);
    const TASK: TaskId = TaskId(0);

    fn eevdf(name: &str) -> Fair<impl Order> {
        fair(
            EevdfParams::preset(name, 2).unwrap(),
            &host("1n1l2c1t", 250),
        )
    }

    /// One task, which is a ghost.
    fn ghost(books: &mut RunqueueAccounts) {
        let mut member = Member::new(FULL, None, PcpuSet::first(2));
        member.ghost = Some(CPU);
        books.tasks.push(member);
    }

    #[test]
    fn the_load_of_a_ghost_grows_and_it_is_not_runnable() {
        let mut books = RunqueueAccounts::new(1, MS, 1024);
        ghost(&mut books);
        books.age_task(TASK, SEC);
        let part = books.task(TASK).part();
        assert!(
            part.load > FULL / 1025 && part.runnable == 0,
            "{}",
            part.load
        );
        books.task_mut(TASK).ghost = None;
        books.age_task(TASK, 2 * SEC);
        assert_eq!(books.task(TASK).load(), 0);
    }

    /// A hog runs on a pCPU that also has a ghost: two are queued. Could the ghost be moved?
    #[test]
    fn a_ghost_is_queued_but_nobody_to_be_moved_in_7_x() {
        let seen = |name| {
            let mut rq = Runqueue::new(MS, 1024);
            (rq.nr, rq.ghosts) = (1, 1);
            (rq.queued(), eevdf(name).movable(&rq))
        };
        assert_eq!((seen("6.12"), seen("7.x")), ((2, 2), (2, 1)));
    }

    #[test]
    fn only_load_takes_ghosts_along_in_7_x() {
        let stays = |name, amount| {
            let mut sched = eevdf(name);
            ghost(&mut sched.books);
            sched.may_not_move_ghost(TASK, amount)
        };
        let amounts = [Amount::Tasks(1), Amount::Util(1), Amount::Load(1)];
        assert_eq!(amounts.map(|amount| stays("6.12", amount)), [false; 3]);
        assert_eq!(
            amounts.map(|amount| stays("7.x", amount)),
            [true, true, false]
        );
    }

    /// Two tasks of one pCPU; the one that runs owes when it falls asleep. Its ghost is moved to the other pCPU, which
    /// idles: that one picks, lets it go, and is idle for any pCPU that looks.
    #[test]
    fn a_pcpu_does_not_seem_busy_for_a_ghost() {
        let (mut sched, to) = (eevdf("6.12"), PcpuId(1));
        let mut host = Host::new(host("1n1l2c1t", 250), None);
        for task in [TASK, TaskId(1)] {
            ghost(&mut sched.books);
            sched.books.task_mut(task).ghost = None;
            sched.order.add(FULL, None);
            sched.order.join(CPU, task, Join::New);
        }
        sched.order.set_current(CPU, Some(TASK));
        sched.order.charge(CPU, MS);
        sched.order.leave(CPU, TASK, Leave::Sleeps);
        assert!(sched.stays_as_ghost(TASK, CPU));
        sched.move_ghost(&mut host, TASK, to, false);
        assert!(!sched.crowds.idle().contains(to));
        let next = host.events.pop().map(|(_, event)| event);
        assert_eq!(next, Some(Event::Resched(to)));
        assert_eq!(sched.order.pick(to), None);
        sched.end_released(0);
        assert!(sched.crowds.idle().contains(to));
    }

    /// A hog runs on one of two pCPUs, which also has the ghost of a task that was first there and ran for 1 ms.
    fn hog_and_ghost(name: &str) -> (Fair<impl Order>, Host) {
        let (mut sched, mut host) = (eevdf(name), Host::new(host("1n1l2c1t", 250), None));
        let jobs = [Job::hog().on("0"), Job::hog().on("0")];
        for spec in Jobs::new(jobs.into(), 1).tasks() {
            let task = host.add_task(spec);
            sched.add(&mut host, task);
            host.make_ready(task);
            sched.wake(&mut host, task, None);
        }
        let first = sched.pick(&mut host, CPU).unwrap();
        host.put_on(first, CPU);
        host.advance(MS);
        sched.block(&mut host, first, CPU);
        host.take_off(first, TaskState::Waiting);
        let hog = sched.pick(&mut host, CPU).unwrap();
        host.put_on(hog, CPU);
        let rq = sched.books.rq(CPU);
        assert_eq!((rq.nr, rq.ghosts), (1, 1));
        while host.events.pop().is_some() {}
        host.resched_done(CPU);
        (sched, host)
    }

    fn is_called(host: &mut Host) -> bool {
        let mut events = std::iter::from_fn(|| host.events.pop());
        events.any(|(_, event)| event == Event::Resched(CPU))
    }

    /// `update_curr()` returns early if `nr_running` (6.12; since 6.14 `nr_queued`) is 1, and a ghost counts
    /// there. Otherwise a pCPU with a lone hog would never pick, and the ghost would weigh for good.
    #[test]
    fn a_slice_ends_beside_a_ghost() {
        for name in ["6.12", "7.x"] {
            let (mut sched, mut host) = hog_and_ghost(name);
            host.advance(12 * MS);
            sched.tick(&mut host, CPU);
            assert!(is_called(&mut host), "{name}");
            sched.pick(&mut host, CPU);
            assert_eq!(sched.books.rq(CPU).ghosts, 0, "{name}");
        }
    }

    /// `yield_task_fair()` does nothing for a task that is alone, ghosts included (`rq->nr_running`).
    #[test]
    fn a_yielding_task_is_not_alone_with_a_ghost() {
        for name in ["6.12", "7.x"] {
            let (mut sched, mut host) = hog_and_ghost(name);
            host.advance(2 * MS);
            let hog = sched.books.rq(CPU).current.unwrap();
            sched.yield_pcpu(&mut host, hog, CPU, None);
            assert!(is_called(&mut host), "{name}");
        }
    }
}
