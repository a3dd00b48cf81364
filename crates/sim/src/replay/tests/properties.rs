// SPDX-License-Identifier: GPL-2.0-only
//! What holds for any recording, contradictory ones included.

use super::make::{burst, recording, replay, replay_with, vcpu};
use crate::replay::{Beyond, Options};
use corun_model::{TaskId, VmId};
use corun_recording::{AtEnd, BurstEnd, Recording, Task, WakeCause};
use proptest::prelude::*;

/// Long enough for any of these recordings to be done.
const LONG: u64 = 1_000_000;

fn cause() -> impl Strategy<Value = WakeCause> {
    let task = (0u32..5, 0u64..300).prop_map(|(waker, waker_work)| WakeCause::Task {
        waker: TaskId(waker),
        waker_work,
    });
    let external = (0u64..200).prop_map(|delay| WakeCause::External { delay });
    prop_oneof![3 => task, 1 => external, 1 => Just(WakeCause::AtStart)]
}

fn bursts() -> impl Strategy<Value = Vec<(WakeCause, u64, u64)>> {
    prop::collection::vec((cause(), 0u64..100, 0u64..120), 0..6)
}

/// A task whose bursts follow each other; anything may wake them.
fn task(number: u32, bursts: &[(WakeCause, u64, u64)], end: BurstEnd) -> Task {
    let mut at = 0;
    let made = bursts.iter().map(|&(wake, gap, work)| {
        at += gap;
        burst(wake, at, work)
    });
    let mut task = vcpu(number, made.collect());
    if let Some(last) = task.bursts.last_mut() {
        last.end = end;
    }
    if end == BurstEnd::Exited {
        task.at_end = AtEnd::Exited;
    }
    task
}

fn any_recording(ends: Vec<BurstEnd>, duration: u64) -> impl Strategy<Value = Recording> {
    let tasks = prop::collection::vec((bursts(), prop::sample::select(ends)), 1..5);
    (tasks, 1u32..4).prop_map(move |(tasks, pcpus)| {
        let tasks = tasks.iter().enumerate();
        let tasks = tasks.map(|(number, (bursts, end))| task(number as u32, bursts, *end));
        recording(pcpus, duration, tasks.collect())
    })
}

proptest! {
    /// Every burst gets its wake-up sooner or later and is done, and nothing else is.
    #[test]
    fn all_recorded_work_is_done(
        recording in any_recording(vec![BurstEnd::Blocked('S'), BurstEnd::Exited], LONG),
        rotate: bool,
        meet: bool,
    ) {
        let options = Options {
            beyond: Beyond::Wait,
            meeting: meet.then_some(VmId(0)).into_iter().collect(),
            ..Options::default()
        };
        let (outcome, report) = replay_with(&recording, options, rotate);
        let order = crate::replay::replay_order(&recording);
        for (id, (_, _, totals)) in order.iter().zip(&outcome.tasks) {
            let recorded: u64 = recording.tasks[id.index()].bursts.iter().map(|b| b.work).sum();
            prop_assert_eq!(totals.run, recorded);
            prop_assert_eq!(totals.run + totals.ready + totals.wait, LONG);
        }
        let bursts: usize = recording.tasks.iter().map(|task| task.bursts.len()).sum();
        prop_assert_eq!(report.vms[0].bursts, bursts as u64);
        prop_assert_eq!(report.vms[0].beyond, 0);
    }

    /// However it ends, and however often it is repeated: times add up, two runs are equal, and
    /// the replay ends.
    #[test]
    fn times_add_up(
        recording in any_recording(
            vec![BurstEnd::Blocked('S'), BurstEnd::Exited, BurstEnd::RecordingEnded],
            3_000,
        ),
        repeat: bool,
    ) {
        let beyond = if repeat { Beyond::Repeat } else { Beyond::Wait };
        let (outcome, report) = replay(&recording, beyond, true);
        for (_, _, totals) in &outcome.tasks {
            prop_assert_eq!(totals.run + totals.ready + totals.wait, recording.duration());
        }
        let run: u64 = outcome.tasks.iter().map(|(_, _, totals)| totals.run).sum();
        prop_assert_eq!(report.vms[0].work, run);
        let again = replay(&recording, beyond, true);
        prop_assert_eq!(&outcome.tasks, &again.0.tasks);
        prop_assert_eq!(report, again.1);
    }
}
