// SPDX-License-Identifier: GPL-2.0-only
//! What happens to tasks in queues, callback by callback: to those that are parked for a quota, and those that other
//! CPUs move meanwhile.

use crate::conf::{GroupConf, Knobs};
use crate::layout::{CpuCtx, MAX_PCPUS, TaskStruct};
use crate::native::{Kick, Native, Services};
use corun_model::time::{MS, SEC};
use corun_model::{Gang, Nanos, PcpuId, PcpuSet, Placement, Slots, VmId, VmPlan};
use std::collections::{BTreeMap, BTreeSet};

/// The queue of the tasks that are parked on pCPU 0.
const PARKED: u64 = MAX_PCPUS as u64;

/// Queues in order of virtual time; of equals, the task that came first goes first.
#[derive(Default)]
struct Host {
    queues: BTreeMap<u64, BTreeSet<(u64, u64, usize)>>,
    /// Where each task is in them.
    places: BTreeMap<usize, (u64, u64, u64)>,
    arrivals: u64,
    /// How many tasks were looked at in queues.
    looked_at: usize,
    /// The delay of the timer that was started last.
    delay: Nanos,
    /// Tasks that got another slice.
    kept: Vec<usize>,
    /// If set, moves fail: what happens to the books of pCPU 0 while the runqueue is unlocked for the move.
    unlocked: Option<fn(&mut CpuCtx)>,
    books: Option<*mut CpuCtx>,
}

impl Host {
    fn put(&mut self, task: usize, queue: u64, vtime: u64) {
        self.take(task);
        self.arrivals += 1;
        let place = (vtime, self.arrivals, task);
        self.queues.entry(queue).or_default().insert(place);
        self.places.insert(task, (queue, vtime, self.arrivals));
    }

    fn take(&mut self, task: usize) -> bool {
        let Some((queue, vtime, arrival)) = self.places.remove(&task) else {
            return false;
        };
        let queue = self.queues.entry(queue).or_default();
        queue.remove(&(vtime, arrival, task))
    }

    fn waiting(&self, queue: u64) -> usize {
        self.queues.get(&queue).map_or(0, BTreeSet::len)
    }
}

impl Services for Host {
    fn claim_idle(&mut self, _cpu: u32) -> bool {
        false
    }
    fn queue_length(&mut self, queue: u64) -> u32 {
        self.waiting(queue) as u32
    }
    fn move_first(&mut self, queue: u64) -> bool {
        let head = self.next_queued(queue, None);
        head.is_some_and(|task| self.take(task))
    }
    fn next_queued(&mut self, queue: u64, after: Option<usize>) -> Option<usize> {
        self.looked_at += 1;
        let queue = self.queues.get(&queue)?;
        let next = match after {
            None => queue.first(),
            Some(task) => {
                let (_, vtime, arrival) = self.places.get(&task)?;
                queue.range((*vtime, arrival + 1, 0)..).next()
            }
        };
        next.map(|(_, _, task)| *task)
    }
    fn move_queued(&mut self, task: usize, _cpu: u32) -> bool {
        match (self.unlocked, self.books) {
            (Some(comes), Some(books)) => {
                // SAFETY: books of a pCPU of the context whose callback is under way on this thread.
                comes(unsafe { &mut *books });
                false
            }
            _ => self.take(task),
        }
    }
    fn requeue(&mut self, task: usize, queue: u64, vtime: u64) -> bool {
        let waits = self.take(task);
        if waits {
            self.put(task, queue, vtime);
        }
        waits
    }
    fn insert(&mut self, task: usize, queue: u64, _slice: Nanos, vtime: u64) {
        self.put(task, queue, vtime);
    }
    fn insert_next(&mut self, _task: usize, _cpu: u32, _slice: Nanos) {}
    fn insert_local(&mut self, _task: usize, _slice: Nanos) {}
    fn kick(&mut self, _cpu: u32, _how: Kick) {}
    fn set_slice(&mut self, task: usize, _slice: Nanos) {
        self.kept.push(task);
    }
    fn start_timer(&mut self, _timer: u32, delay: Nanos) {
        self.delay = delay;
    }
}

/// A host of this many pCPUs with this many tasks that sleep, each in the cgroup that `group` gives.
fn host(pcpus: u32, tasks: u32, group: impl Fn(u32) -> u32) -> Native<Host> {
    host_of((pcpus, pcpus), tasks, group)
}

/// The same with this many pCPU numbers, of which the first `online` are on-line.
fn host_of((pcpus, online): (u32, u32), tasks: u32, group: impl Fn(u32) -> u32) -> Native<Host> {
    let knobs = Knobs {
        slice: 3 * MS,
        wakeup_gran: MS,
        sleeper_credit: 3 * MS,
        max_lead: 6 * MS,
        balance_interval: 4 * MS,
        online: PcpuSet::first(online),
        pcpus,
        placement: 0,
        slice_timer: 0,
        groups: 1,
        gangs: 0,
        cores: 0,
        tasks: 0,
        micro: 0,
        llcs: 1,
        online_pcpus: online,
        pad: 0,
        sibling: [0; MAX_PCPUS],
        llc: [0; MAX_PCPUS],
    };
    let mut native = Native::new(knobs, Host::default());
    for number in 0..tasks {
        let task = TaskStruct {
            id: 100 + number,
            weight: 100,
            group: group(number),
            allowed: PcpuSet::first(online),
            ..TaskStruct::default()
        };
        native.add_task(task, 0);
    }
    native
}

/// On each pCPU a cgroup weighs what it weighs on the host: off-line pCPUs do not count.
#[test]
fn what_a_turn_costs_does_not_hang_on_pcpus_that_are_off_line() {
    let cost = |numbers| {
        let mut native = host_of((numbers, 4), 1, |_| 1);
        let weighs = GroupConf {
            weight: 1024,
            ..GroupConf::default()
        };
        native.configure_group(0, weighs);
        wake(&mut native, 0, 1);
        native.dispatch(1, 0, None);
        native.running(1, 0, 0);
        native.stopping(1 + 8 * MS, 0, 0, false);
        native.task(0).ctx.vtime
    };
    assert_eq!([4, 64, 512].map(cost), [2 * MS; 3]);
}

fn quota(quota: Nanos, period: Nanos) -> GroupConf {
    GroupConf {
        quota,
        period,
        weight: 1024,
        limited: 1,
        ..GroupConf::default()
    }
}

/// Wakes `task` on pCPU 0.
fn wake(native: &mut Native<Host>, task: usize, now: Nanos) {
    native.select_cpu(now, 0, task, 0, None);
    native.enqueue(now, 0, task);
}

/// The cgroup in the first place owes this much.
fn owes(native: &mut Native<Host>, debt: Nanos) {
    // SAFETY: a cgroup's books, and nobody is at work on them now.
    unsafe { (*native.groups()).left = -(debt as i64) };
}

/// To the watchdog a parked task is ready all the time, however often it is taken out of its queue to be changed. Any
/// user may do that with threads of their own, so it must not keep a task parked.
#[test]
fn a_parked_task_that_is_changed_again_and_again_is_released_in_time() {
    let mut native = host(1, 1, |_| 1);
    native.configure_group(0, quota(MS, SEC));
    wake(&mut native, 0, 1);
    native.running(1, 0, 0);
    native.stopping(2, 0, 0, false);
    owes(&mut native, 10 * SEC);
    wake(&mut native, 0, 3);
    assert_eq!(native.services().waiting(PARKED), 1, "it is parked");
    for now in [1900 * MS, 3800 * MS] {
        native.services().take(0);
        native.enqueue(now, 0, 0);
    }
    native.release(4100 * MS, 0);
    assert_eq!(native.services().waiting(PARKED), 0, "it is still parked");
    assert_eq!(native.services().waiting(0), 1);
}

/// At the end of a slot of strict co-scheduling all pCPUs try to open the next one, and one of them is the first. The
/// others look again soon: the first may find no reason to call them, and nothing else would.
#[test]
fn who_comes_second_to_open_a_slot_looks_again() {
    let mut native = host(1, 1, |_| 0);
    let strict = VmPlan {
        gang: Gang::Strict(Slots::default()),
        ..VmPlan::placed(VmId(0), Placement::Free)
    };
    native.task(0).vcpu_of = 7;
    native.configure_vm(7, &strict, None, &PcpuSet::first(1));
    wake(&mut native, 0, 1);
    native.a_slot_is_being_opened(true);
    native.services().delay = 0;
    native.dispatch(1, 0, None);
    assert_eq!(native.services().waiting(0), 1);
    let again = native.services().delay;
    assert!((1..=MS).contains(&again), "{again}");
    native.a_slot_is_being_opened(false);
    native.timer(1 + again, 0);
    native.dispatch(1 + again, 0, None);
    assert_eq!(native.services().waiting(0), 0);
}

/// A turn has taken all of a quota and ends with most of it unused: a parked task gets that soon, not in the next
/// period. If the turn uses all of it, nobody looks before the next period.
#[test]
fn who_is_parked_has_what_a_turn_did_not_need() {
    for (ran, back) in [(MS, true), (2 * MS, false)] {
        let mut native = host(1, 2, |_| 1);
        native.configure_group(0, quota(2 * MS, 100 * MS));
        wake(&mut native, 0, 1);
        native.dispatch(1, 0, None);
        native.running(1, 0, 0);
        wake(&mut native, 1, 2);
        assert_eq!(native.services().waiting(PARKED), 1, "it is parked");
        assert!(native.services().delay <= 5 * MS, "while a turn has some");
        native.stopping(1 + ran, 0, 0, false);
        native.release(6 * MS, 0);
        let host = native.services();
        assert_eq!(host.waiting(PARKED), usize::from(!back));
        assert!(back || host.delay > 90 * MS, "next in {} ns", host.delay);
    }
}

/// Many tasks wait for a quota that is used up for long, and a few for one that is refilled all the time.
#[test]
fn a_release_looks_at_those_that_are_due_and_no_others() {
    const MANY: u32 = 500;
    const FEW: u32 = 20;
    let mut native = host(1, MANY + FEW, |number| if number < MANY { 1 } else { 2 });
    native.configure_group(0, quota(MS, SEC));
    native.configure_group(1, quota(MS, 2 * MS));
    for task in [0, MANY as usize] {
        wake(&mut native, task, 1);
        native.running(1, 0, task);
        native.stopping(2 * MS, 0, task, false);
    }
    owes(&mut native, 10 * SEC);
    for task in 0..(MANY + FEW) as usize {
        wake(&mut native, task, 2 * MS);
    }
    let parked = native.services().waiting(PARKED);
    assert_eq!(parked, (MANY + FEW) as usize);
    native.services().looked_at = 0;
    native.release(5 * MS, 0);
    let host = native.services();
    assert_eq!(host.waiting(PARKED), MANY as usize, "the few are released");
    assert!(host.looked_at < 3 * FEW as usize, "{}", host.looked_at);
    assert!(host.delay > SEC / 2, "next in {} ns", host.delay);
}

/// Tasks whose quota is used up again when they are due stay parked, behind others.
#[test]
fn who_is_due_and_has_nothing_left_is_passed_over_once() {
    const MANY: u32 = 100;
    let mut native = host(1, MANY, |_| 1);
    native.configure_group(0, quota(MS, 10 * MS));
    wake(&mut native, 0, 1);
    native.running(1, 0, 0);
    native.stopping(2 * MS, 0, 0, false);
    for task in 0..MANY as usize {
        wake(&mut native, task, 3 * MS);
    }
    owes(&mut native, 50 * MS);
    native.services().looked_at = 0;
    native.release(11 * MS, 0);
    let host = native.services();
    assert_eq!(host.waiting(PARKED), MANY as usize);
    // Before that, each is looked at for what it is owed.
    assert!(host.looked_at <= 3 * MANY as usize, "{}", host.looked_at);
    assert!(host.delay > 100 * MS, "next in {} ns", host.delay);
}

/// Two tasks of these cgroups are parked on pCPU 0, where another one runs on for 20 ms; then both are due.
fn two_are_due(groups: [u32; 2], leads: [i64; 2]) -> Native<Host> {
    let mut native = host(1, 3, |number| {
        groups.get(number as usize).copied().unwrap_or(0)
    });
    wake(&mut native, 2, 1);
    native.services().take(2);
    native.running(1, 0, 2);
    for place in 0..2 {
        native.configure_group(place, quota(MS, 10 * MS));
        // SAFETY: a cgroup's books, and nobody is at work on them now.
        unsafe {
            let books = native.groups().add(place);
            (*books).left = 0;
            (*books).period_end = 10 * MS;
        }
    }
    // SAFETY: a pCPU's books, and nobody is at work on them now.
    unsafe { (*native.cpus()).vnow = SEC };
    for (task, lead) in leads.into_iter().enumerate() {
        wake(&mut native, task, 1);
        native.task(task).ctx.vtime = SEC.wrapping_add_signed(lead);
    }
    assert_eq!(native.services().waiting(PARKED), 2, "they are parked");
    // SAFETY: as above.
    unsafe { (*native.cpus()).vnow = SEC + 20 * MS };
    native
}

/// A task that is owed much stays parked, since its own quota is in debt for long: that does not keep another task from
/// coming as near to the clock as if it had slept.
#[test]
fn who_stays_parked_is_no_measure_for_who_returns() {
    let back_at = |debt: i64| {
        let mut native = two_are_due([1, 2], [-60 * MS as i64, MS as i64]);
        // SAFETY: a cgroup's books, and nobody is at work on them now.
        unsafe { (*native.groups()).left = -debt };
        native.release(11 * MS, 0);
        let host = native.services();
        (host.waiting(PARKED), host.places[&1])
    };
    let ((both, beside), (one, alone)) = (back_at(0), back_at(10 * SEC as i64));
    assert_eq!((both, one), (0, 1));
    assert_eq!(
        beside.1,
        SEC + 21 * MS,
        "it goes after one that is owed 60 ms"
    );
    assert!(alone.1 < SEC + 20 * MS, "{alone:?}");
}

/// A task that returns and is changed before it runs (its affinity, say) keeps the place that it was given.
#[test]
fn who_is_changed_after_a_release_has_waited_all_the_same() {
    let mut native = two_are_due([1, 1], [MS as i64, MS as i64]);
    native.release(11 * MS, 0);
    let given = native.services().places[&0];
    assert!(given.0 == 0 && given.1 < SEC + 20 * MS, "{given:?}");
    native.services().take(0);
    native.enqueue(12 * MS, 0, 0);
    let placed = native.services().places[&0];
    assert_eq!((placed.0, placed.1), (given.0, given.1));
}

/// A pCPU looks for a task to pull. The move fails, and while the kernel had the runqueue unlocked for it, a task that
/// woke was given the pCPU: then the pCPU's own task must not keep it.
#[test]
fn who_was_given_the_pcpu_during_a_look_elsewhere_has_it() {
    for comes in [true, false] {
        let mut native = host(2, 4, |_| 0);
        for (task, cpu) in [(0, 0), (1, 1), (2, 1), (3, 1)] {
            native.task(task).cpu = cpu as i32;
            native.task(task).allowed = [PcpuId(cpu)].into_iter().collect();
            native.select_cpu(1, cpu, task, cpu, None);
            native.enqueue(1, cpu, task);
            native.task(task).allowed = PcpuSet::first(2);
        }
        for (task, cpu) in [(0, 0), (1, 1)] {
            native.services().take(task);
            native.running(2, cpu, task);
        }
        let books = native.cpus();
        // SAFETY: a pCPU's books, and nobody is at work on them now.
        unsafe { (*books).busier_by = u32::MAX };
        native.services().books = Some(books);
        native.services().unlocked = Some(if comes { |c| c.runs = 0 } else { |_| () });
        native.dispatch(10 * MS, 0, Some(0));
        let kept = !native.services().kept.is_empty();
        assert_eq!(kept, !comes);
    }
}
