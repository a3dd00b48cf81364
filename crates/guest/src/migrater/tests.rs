// SPDX-License-Identifier: GPL-2.0-only
//! Real threads, made-up beats: nothing here waits for a host to deschedule anything.

use super::*;
use crate::detector::sampled::Sampled;
use crate::heart::{lock, make as make_move};
use crate::testing::{Sleeper, was_free};
use corun_model::time::MS;
use corun_policies::vmigrater::Why;
use corun_system::procfs::Proc;

/// A migrater for a guest of two vCPUs that run in turns of 11 ms, and a thread on the first of them
/// that is always in I/O.
struct Guest {
    migrater: Migrater,
    now: Nanos,
}

impl Guest {
    fn new() -> Self {
        let params = MigraterParams::default();
        let vcpus = PcpuSet::first(2);
        let detector = Detector::Sampled(Sampled::new(Proc::default(), &params));
        let mut migrater = Migrater::new(params, vcpus, detector);
        migrater.at_work = true;
        Self { migrater, now: 0 }
    }

    fn add(&mut self, task: &Sleeper) {
        self.add_key(task.key());
    }

    fn add_key(&mut self, key: ThreadKey) {
        let before = was_free(PcpuSet::first(2));
        self.migrater.add(key, before, 0, self.now).unwrap();
        self.migrater.core.io_sampled(u64::from(key.tid), 1000);
    }

    /// Beats for `length`; all orders are given to `carry`.
    fn run(&mut self, length: Nanos, carry: &mut dyn FnMut(&mut Migrater, Order, Nanos)) {
        let end = self.now + length;
        while self.now < end {
            self.now += 300_000;
            let vcpu = u32::from(self.now / (11 * MS) % 2 == 1);
            for tid in self.migrater.tasks.keys() {
                self.migrater.core.io_sampled(u64::from(*tid), 1000);
            }
            for order in self.migrater.beat(vcpu, self.now) {
                carry(&mut self.migrater, order, self.now);
            }
        }
    }
}

fn make(migrater: &mut Migrater, order: Order, now: Nanos) {
    let outcome = order.carry_out(&Proc::default());
    assert!(migrater.done(&order, &outcome, 0, now));
}

fn has_two_cpus() -> bool {
    affinity::get(0).unwrap() == PcpuSet::first(2)
}

#[test]
fn a_thread_in_io_follows_the_vcpu_that_runs() {
    if !has_two_cpus() {
        return;
    }
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    guest.run(500 * MS, &mut make);
    let moves = guest.migrater.moves;
    assert!(
        moves.made() > 20 && moves.refused + moves.foreign == 0,
        "{moves:?}"
    );
    let mask = affinity::get(task.id()).unwrap();
    assert_eq!(mask.len(), 1);
    assert!(guest.migrater.counts().iter().all(|it| it.descheduled > 20));
    assert!(guest.migrater.shared().is_some());
}

#[test]
fn a_mask_that_somebody_sets_meanwhile_is_respected() {
    if !has_two_cpus() {
        return;
    }
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    let mut theirs = None;
    guest.run(200 * MS, &mut |migrater, order, now| {
        make(migrater, order, now);
        if theirs.is_none() && migrater.moves.made() > 2 {
            // Back to both, as `taskset` would.
            affinity::set(task.id(), &PcpuSet::first(2)).unwrap();
            theirs = Some(migrater.moves.made());
        }
    });
    assert_eq!(Some(guest.migrater.moves.made()), theirs);
    assert_eq!(guest.migrater.moves.foreign, 1);
    assert_eq!(guest.migrater.lost, [(task.key(), Loss::Foreign)]);
    assert_eq!(affinity::get(task.id()).unwrap(), PcpuSet::first(2));
    assert!(!guest.migrater.knows(&task.key()));
}

#[test]
fn a_thread_that_goes_in_the_middle_of_a_move_is_no_failure() {
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    let (id, mut task) = (task.id(), Some(task));
    guest.run(200 * MS, &mut |migrater, order, now| {
        drop(task.take());
        make(migrater, order, now);
    });
    assert!(task.is_none(), "never moved");
    assert_eq!(guest.migrater.moves, Moves::default());
    assert_eq!(guest.migrater.lost.len(), 1);
    let (key, loss) = guest.migrater.lost[0];
    assert_eq!((key.tid, loss), (id, Loss::Gone));
}

#[test]
fn a_move_to_a_vcpu_that_was_unplugged_is_refused() {
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    guest.run(200 * MS, &mut |migrater, order, now| {
        let nowhere = PcpuId(511);
        let error = affinity::pin(task.id(), nowhere).unwrap_err();
        assert!(migrater.done(&order, &Outcome::Refused(error), 0, now));
    });
    assert_eq!(guest.migrater.moves.refused, 1);
    assert_eq!(guest.migrater.lost, [(task.key(), Loss::Refused)]);
}

#[test]
fn beats_that_found_the_engine_taken_are_no_gap() {
    let mut guest = Guest::new();
    guest.migrater.beat(0, 0);
    let missed: Vec<Nanos> = (1..100).map(|beat| beat * 300_000).collect();
    guest.migrater.catch_up(0, &missed);
    guest.migrater.beat(0, 100 * 300_000);
    let counts = guest.migrater.counts();
    assert_eq!((counts[0].beats, counts[0].descheduled), (101, 0));
}

#[test]
fn an_absence_is_heard_if_the_first_beat_after_it_found_the_engine_taken() {
    let mut guest = Guest::new();
    // Where stolen time is known: this much as of the last gap.
    guest.migrater.stolen.insert(0, 7 * MS);
    guest.migrater.beat(0, 0);
    guest.migrater.beat(0, 300_000);
    guest.migrater.catch_up(0, &[11 * MS]);
    guest.migrater.beat(0, 11 * MS + 300_000);
    assert_eq!(guest.migrater.counts()[0].descheduled, 1);
}

#[test]
fn nothing_moves_while_the_daemon_stands_down() {
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    guest.migrater.at_work = false;
    guest.run(200 * MS, &mut |_, order, _| panic!("{order:?}"));
    assert!(guest.migrater.counts().iter().all(|it| it.descheduled > 5));
}

#[test]
fn a_move_that_takes_long_is_not_followed_by_another() {
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    let mut orders = Vec::new();
    guest.run(200 * MS, &mut |_, order, _| orders.push(order));
    assert_eq!(orders.len(), 1, "{orders:?}");
    let (took, outcome) = (5 * MS, Outcome::Made);
    assert!(guest.migrater.done(&orders[0], &outcome, took, guest.now));
    assert_eq!(guest.migrater.moves.longest_ns, took);
    guest.run(50 * MS, &mut |_, order, _| orders.push(order));
    assert_eq!(orders.len(), 2);
    assert!(matches!(orders[0].what.why, Why::Push | Why::Pull));
}

/// The first move that the migrater orders; it is not carried out.
fn first_order(guest: &mut Guest) -> Order {
    let mut orders = Vec::new();
    guest.run(200 * MS, &mut |_, order, _| orders.push(order));
    orders[0]
}

#[test]
fn a_move_that_is_made_after_its_thread_was_given_back_is_undone() {
    if !has_two_cpus() {
        return;
    }
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    let order = first_order(&mut guest);
    guest.migrater.remove(&task.key());
    let migrater = std::sync::Mutex::new(guest.migrater);
    make_move(&migrater, &Proc::default(), &order);
    assert_eq!(affinity::get(task.id()).unwrap(), PcpuSet::first(2));
    assert_eq!(lock(&migrater).moves.made(), 0);
}

#[test]
fn a_move_of_before_a_thread_was_given_back_is_none_of_after_it_came_again() {
    let (mut guest, task) = (Guest::new(), Sleeper::new());
    guest.add(&task);
    let old = first_order(&mut guest);
    guest.migrater.remove(&task.key());
    guest.add(&task);
    let now = guest.now;
    assert!(!guest.migrater.done(&old, &Outcome::Made, 0, now));
    assert_eq!(guest.migrater.tasks[&task.id()].pinned, None);
}

#[test]
fn a_thread_that_has_the_number_of_one_that_ended_is_not_moved() {
    let (mut guest, stranger) = (Guest::new(), Sleeper::new());
    let all = affinity::get(stranger.id()).unwrap();
    let start = stranger.key().start - 1;
    guest.add_key(ThreadKey {
        start,
        ..stranger.key()
    });
    let order = first_order(&mut guest);
    let outcome = order.carry_out(&Proc::default());
    assert!(matches!(outcome, Outcome::Refused(error) if affinity::is_gone(&error)));
    assert_eq!(affinity::get(stranger.id()).unwrap(), all);
}

#[test]
fn sixty_four_vcpus_and_a_suspended_vm() {
    let params = MigraterParams::default();
    let vcpus = PcpuSet::first(64);
    let detector = Detector::Sampled(Sampled::new(Proc::default(), &params));
    let mut migrater = Migrater::new(params, vcpus, detector);
    migrater.at_work = true;
    let hours = 3 * 3600 * 1000 * MS;
    for round in 0..100 {
        for vcpu in 0..64 {
            assert!(migrater.beat(vcpu, round * 300_000).is_empty());
        }
    }
    for vcpu in 0..64 {
        assert!(migrater.beat(vcpu, hours).is_empty());
        // A clock that goes back is as bad.
        assert!(migrater.beat(vcpu, hours / 2).is_empty());
    }
    assert_eq!(migrater.counts().len(), 64);
    assert!(
        migrater
            .counts()
            .iter()
            .all(|it| it.descheduled == 0 && it.beats == 102)
    );
}
