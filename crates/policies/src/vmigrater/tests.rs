// SPDX-License-Identifier: GPL-2.0-only
//! The core as a whole: a guest in virtual time, with slices as a host would give them.

use super::*;
use corun_model::time::{MS, SEC, US};
use proptest::prelude::*;

/// A VM with `n` vCPUs on each pCPU, which take turns of `slice`, each vCPU from a phase of its
/// own; beats come while a vCPU runs, and task 1 is always in I/O.
struct Guest {
    core: Core,
    vcpus: u32,
    n: u64,
    slice: Nanos,
    next: Vec<Nanos>,
    moves: Vec<(Nanos, Move)>,
    /// In how many looks task 1 was on an active vCPU, and the number of looks.
    active: (u64, u64),
}

impl Guest {
    fn new(vcpus: u32, n: u64, slice: Nanos) -> Self {
        let mut core = Core::new(MigraterParams::default(), vcpus);
        core.task_appeared(1, 0, 0, 0);
        core.io_started(1, 0);
        Self {
            core,
            vcpus,
            n,
            slice,
            next: vec![0; vcpus as usize],
            moves: Vec::new(),
            active: (0, 0),
        }
    }

    /// Each vCPU's turns begin a part of the cycle after its predecessor's.
    fn runs(&self, vcpu: u32, now: Nanos) -> bool {
        let cycle = self.n * self.slice;
        let phase = cycle * u64::from(vcpu) / u64::from(self.vcpus);
        (now + cycle - phase) % cycle < self.slice
    }

    fn go(&mut self, until: Nanos) {
        for now in (0..until).step_by(50 * US as usize) {
            for vcpu in 0..self.vcpus {
                if now >= self.next[vcpu as usize] && self.runs(vcpu, now) {
                    self.core.heartbeat(vcpu, now, None);
                    self.next[vcpu as usize] = now + self.core.params().heartbeat;
                    let moves = self.core.decide(now);
                    self.moves.extend(moves.into_iter().map(|it| (now, it)));
                }
            }
            let on = self.core.vcpu_of(1).unwrap_or(0);
            self.active.0 += u64::from(self.runs(on, now));
            self.active.1 += 1;
        }
    }
}

#[test]
fn a_task_is_kept_active_with_about_the_fewest_moves() {
    for (vcpus, n) in [(2, 2), (4, 2), (12, 4), (12, 8)] {
        let mut guest = Guest::new(vcpus, n, 11 * MS);
        guest.go(2 * SEC);
        let (active, all) = guest.active;
        assert!(
            active * 100 >= all * 93,
            "{vcpus} vCPUs, {n} per pCPU: active {active} of {all}"
        );
        let late = guest.moves.iter().filter(|it| it.1.why == Why::Pull);
        let (late, all) = (late.count(), guest.moves.len());
        assert!(late * 4 <= all, "{late} of {all} moves came too late");
        let least = 2 * SEC / (11 * MS);
        assert!(
            guest.moves.len() as u64 <= 2 * least,
            "{} moves",
            guest.moves.len()
        );
    }
}

#[test]
fn nothing_moves_where_nothing_is_shared() {
    let mut guest = Guest::new(4, 1, 11 * MS);
    guest.go(2 * SEC);
    assert!(!guest.core.shared(2 * SEC));
    assert_eq!(guest.moves, []);
    assert_eq!(guest.core.io_bound(1), Some(true));
}

#[test]
fn a_task_has_settled_once_its_vcpu_was_active_for_a_heartbeat() {
    let mut guest = Guest::new(2, 2, 12 * MS);
    let mut until = 100 * MS;
    guest.go(until);
    let before = guest.moves.len();
    while guest.moves.len() == before {
        until += 50 * US;
        guest.go(until);
    }
    let sent = guest.moves[before].1;
    assert_eq!(sent.why, Why::Soon);
    let core = &mut guest.core;
    let t = core.params().heartbeat;
    let settled = |core: &Core| core.bound_tasks().all(|task| task.settled);
    assert!(!settled(core));
    let back = until + 2 * MS;
    assert_eq!(core.heartbeat(sent.to, back, None), Beat::Rescheduled);
    assert!(!settled(core), "it has hardly been there");
    assert_eq!(core.heartbeat(sent.to, back + t, None), Beat::Regular);
    assert!(settled(core));
}

#[test]
fn nothing_moves_on_one_vcpu() {
    let mut guest = Guest::new(1, 2, 11 * MS);
    guest.go(SEC);
    assert!(guest.core.shared(SEC));
    assert_eq!(guest.moves, []);
}

#[test]
fn tasks_that_compute_stay() {
    let mut guest = Guest::new(2, 2, 11 * MS);
    guest.core.io_ended(1, 0);
    guest.go(SEC);
    assert_eq!(guest.moves, []);
}

#[test]
fn after_a_suspension_all_is_learnt_anew() {
    let mut guest = Guest::new(2, 2, 11 * MS);
    guest.go(SEC);
    assert!(!guest.moves.is_empty());
    let later = 3 * 3600 * SEC;
    for vcpu in 0..2 {
        assert_eq!(guest.core.heartbeat(vcpu, later, None), Beat::First);
    }
    assert!(!guest.core.shared(later));
    assert_eq!(guest.core.decide(later), []);
}

#[test]
fn a_vcpu_gets_nothing_before_its_first_beat() {
    let mut guest = Guest::new(2, 2, 11 * MS);
    guest.go(SEC);
    assert_eq!(guest.core.activity(2, SEC), Activity::Absent);
    guest.core.heartbeat(2, SEC, None);
    assert_eq!(guest.core.activity(2, SEC), Activity::Active { left: None });
}

#[test]
fn the_heartbeat_scales_what_follows_from_it() {
    let slow = MigraterParams::default().beating_every(3 * MS);
    assert_eq!((slow.gap, slow.push), (6 * MS, 6 * MS));
    assert_eq!(slow.window, MigraterParams::default().window);
}

#[test]
fn an_idle_vcpu_beats_less_often_but_where_a_task_waits_for_its_disk() {
    let mut guest = Guest::new(4, 2, 12 * MS);
    guest.go(SEC);
    let core = &mut guest.core;
    let waits = core.vcpu_of(1).unwrap();
    assert_eq!(core.io_bound(1), Some(true));
    assert_eq!(core.idled(waits), 0);
    assert_eq!(core.idled((waits + 1) % 4), 2_700 * US);
    // Beats that come no more often anyhow are not put off.
    let slow = MigraterParams::default().beating_every(3 * MS);
    assert_eq!(Core::new(slow, 4).idled(0), 0);
}

/// A reader on a vCPU of its own, which waits for its pCPU each time that its disk wakes it.
#[test]
fn a_reader_whose_vcpu_always_wakes_late_is_found() {
    let bound = |told: bool| {
        let mut core = Core::new(MigraterParams::default(), 2);
        core.task_appeared(1, 0, 0, 0);
        core.io_started(1, 0);
        core.heartbeat(0, 0, None);
        for now in (1..=3).map(|turn| turn * 11 * MS) {
            core.io_ended(1, now);
            if told {
                core.woke_up(0, now);
            }
            assert_eq!(core.heartbeat(0, now, None), Beat::Rescheduled);
            core.idled(0);
            core.io_started(1, now + 5 * US);
        }
        core.io_bound(1)
    };
    assert_eq!((bound(true), bound(false)), (Some(true), Some(false)));
}

proptest! {
    /// Whatever input it gets, in whatever order: no panic, and only moves of known tasks between
    /// existing vCPUs.
    #[test]
    fn any_story_will_do(
        story in prop::collection::vec((0u8..8, 0u32..4, 0u64..4, 0u64..20 * MS), 0..300),
    ) {
        let mut core = Core::new(MigraterParams::default(), 3);
        let mut now = 0;
        for (what, vcpu, task, later) in story {
            now += later;
            match what {
                0 => core.task_appeared(task, vcpu, (later % 3) as u8, now),
                1 => core.task_gone(task),
                2 => core.task_located(task, vcpu, now),
                3 => core.io_started(task, now),
                4 => core.io_ended(task, now),
                5 => core.io_sampled(task, later % 1001),
                _ => {
                    core.heartbeat(vcpu, now, (what == 7).then_some(later));
                }
            }
            for it in core.decide(now) {
                prop_assert!(it.from != it.to && it.to < 4);
                prop_assert_eq!(core.vcpu_of(it.task), Some(it.to));
            }
        }
    }
}
