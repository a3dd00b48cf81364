// SPDX-License-Identifier: GPL-2.0-only
//! Small recordings whose replay can be worked out by hand.

use super::make::{after, burst, by, recording, replay, replay_at, replay_with, vcpu};
use crate::Outcome;
use crate::host::Costs;
use crate::load::Load;
use crate::replay::Beyond::{Repeat, Wait};
use crate::replay::{Options, Replay, Spinning};
use corun_model::time::US;
use corun_model::{Nanos, PcpuId, VmId};
use corun_recording::WakeCause::AtStart;
use corun_recording::{BurstEnd, Recording, Role};

/// Run, ready and wait time of each task.
fn times(outcome: &Outcome) -> Vec<(Nanos, Nanos, Nanos)> {
    let of = |(_, _, totals): &(String, bool, crate::host::Totals)| {
        (totals.run, totals.ready, totals.wait)
    };
    outcome.tasks.iter().map(of).collect()
}

fn end(recording: &mut Recording, task: usize, end: BurstEnd) {
    recording.tasks[task].bursts.last_mut().unwrap().end = end;
}

#[test]
fn two_tasks_hand_over_to_each_other() {
    let a = vec![burst(AtStart, 0, 100), burst(by(1, 50), 150, 70)];
    let b = vec![burst(by(0, 100), 100, 50), burst(by(0, 170), 220, 30)];
    let recording = recording(1, 300, vec![vcpu(0, a), vcpu(1, b)]);
    // 0-100 a, 100-150 b, 150-220 a, 220-250 b: each wakes the other as it blocks.
    let (outcome, report) = replay(&recording, Wait, false);
    assert_eq!(times(&outcome), [(170, 0, 130), (80, 0, 220)]);
    let vm = report.vms[0];
    assert_eq!((vm.work, vm.bursts, vm.beyond), (250, 4, 0));
    assert_eq!((report.early, report.released), (0, 0));
    assert!((outcome.vms[0].achieved.throughput - 250.0 / 300.0).abs() < 1e-12);
}

#[test]
fn the_wakee_waits_for_the_work_of_its_waker() {
    // On one pCPU the waker did 100 within 400; on two it does not wait for the other.
    let a = vec![burst(AtStart, 0, 100)];
    let b = vec![burst(by(0, 60), 360, 10)];
    let hog = vec![burst(AtStart, 0, 300)];
    let recording = recording(2, 500, vec![vcpu(0, a), vcpu(1, b), vcpu(2, hog)]);
    let (outcome, _) = replay(&recording, Wait, false);
    // b is woken at 60 and waits for a's pCPU until 100.
    assert_eq!(times(&outcome)[1], (10, 40, 450));
}

#[test]
fn what_can_have_been_spinning_is_left_out_at_the_other_extreme() {
    let mut a = vcpu(0, vec![burst(AtStart, 0, 100)]);
    (a.observed.run, a.observed.contested) = (100, 40);
    let b = vcpu(1, vec![burst(by(0, 50), 50, 10)]);
    let recording = recording(2, 500, vec![a, b]);
    let options = Options {
        beyond: Wait,
        spinning: Spinning::Waste,
        ..Options::default()
    };
    // Three fifths of a's time were work: it wakes b at 30 instead of at 50.
    let (outcome, report) = replay_with(&recording, options, false);
    assert_eq!(times(&outcome), [(60, 0, 440), (10, 0, 490)]);
    assert_eq!(report.vms[0].work, 70);
}

/// The time that a switch, a preemption and a migration take is not work of the task that begins then.
#[test]
fn what_it_costs_to_begin_is_not_work() {
    let (switch, migration, preemption) = (2 * US, 5 * US, 10 * US);
    let costs = Costs {
        switch,
        migration,
        preemption,
        ..Costs::NONE
    };
    let options = Options {
        beyond: Wait,
        ..Options::default()
    };
    let at = |tasks| {
        replay_at(
            &recording(1, 1000 * US, tasks),
            options.clone(),
            true,
            costs,
        )
    };
    // With ticks every 100 us the two take turns: ten, of which the last eight follow a preemption.
    let hog = || vec![burst(AtStart, 0, 1000 * US)];
    let (_, report) = at(vec![vcpu(0, hog()), vcpu(1, hog())]);
    assert_eq!(report.vms[0].work, 1000 * US - 10 * switch - 8 * preemption);
    // The first goes on at 200 us, has done 150 us of work at 264 us and 170 at 284, where it wakes the others, and is
    // done at 294. The hog is back until the tick at 300, then they come one after the other.
    let first = vec![burst(AtStart, 0, 180 * US)];
    let third = vec![burst(by(0, 150 * US), 150 * US, US)];
    let fourth = vec![burst(by(0, 170 * US), 170 * US, US)];
    let tasks = vec![
        vcpu(0, first),
        vcpu(1, hog()),
        vcpu(2, third),
        vcpu(3, fourth),
    ];
    let (outcome, _) = at(tasks);
    let ends = times(&outcome);
    assert_eq!(ends[0].0, 180 * US + 2 * switch + preemption);
    assert_eq!(ends[2], (3 * US, 36 * US, 961 * US));
    assert_eq!(ends[3], (3 * US, 19 * US, 978 * US));
}

/// Two tasks that meet at barriers, at which now one comes first and now the other.
#[test]
fn siblings_meet_where_one_wakes_the_other_if_told_so() {
    // Recorded on one pCPU: 0-100 a, 100-300 b, which wakes a at 200, 300-500 a, which wakes b at 350, 500-600 b.
    let a = vec![burst(AtStart, 0, 100), burst(by(1, 100), 200, 200)];
    let b = vec![burst(AtStart, 0, 200), burst(by(0, 150), 350, 100)];
    // The work done by a given time on two pCPUs, where both have come to the first barrier at 100.
    let done = |meeting: &[VmId], end: Nanos| {
        let tasks = vec![vcpu(0, a.clone()), vcpu(1, b.clone())];
        let recording = Recording {
            end,
            ..recording(2, 600, tasks)
        };
        let options = Options {
            beyond: Wait,
            meeting: meeting.iter().copied().collect(),
            ..Options::default()
        };
        let (outcome, report) = replay_with(&recording, options, false);
        let ran = times(&outcome)
            .iter()
            .map(|(run, ..)| *run)
            .collect::<Vec<_>>();
        (ran, report.released)
    };
    // a comes to the second one at 150, and b at 200.
    assert_eq!(done(&[], 180).0, [180, 180]);
    assert_eq!(done(&[VmId(0)], 180).0, [150, 180]);
    // b, which comes last, goes on at once, and only then is a done with its 300.
    assert_eq!(done(&[], 300).0, [300, 300]);
    assert_eq!(done(&[VmId(0)], 300).0, [250, 300]);
    assert_eq!(done(&[VmId(0)], 600), (vec![300, 300], 0));
}

#[test]
fn an_early_wakeup_is_remembered() {
    let a = vec![burst(AtStart, 0, 100)];
    let b = vec![burst(AtStart, 0, 60), burst(by(0, 40), 120, 50)];
    let recording = recording(2, 200, vec![vcpu(0, a), vcpu(1, b)]);
    let (outcome, report) = replay(&recording, Wait, false);
    assert_eq!(times(&outcome), [(100, 0, 100), (110, 0, 90)]);
    assert_eq!((report.early, outcome.tasks[1].2.switches), (1, 1));
}

#[test]
fn delays_from_outside_count_from_the_block() {
    let a = vec![
        burst(after(15), 15, 10),
        burst(after(25), 50, 5),
        burst(after(0), 60, 5),
    ];
    let recording = recording(1, 100, vec![vcpu(0, a)]);
    let (outcome, _) = replay(&recording, Wait, false);
    assert_eq!(times(&outcome), [(20, 0, 80)]);
    assert_eq!(outcome.tasks[0].2.switches, 3);
}

#[test]
fn a_chain_of_wakeups() {
    let a = vec![burst(after(10), 10, 20)];
    let b = vec![burst(by(0, 20), 30, 20)];
    let c = vec![burst(by(1, 0), 31, 20)];
    let recording = recording(1, 100, vec![vcpu(0, a), vcpu(1, b), vcpu(2, c)]);
    let (outcome, _) = replay(&recording, Wait, false);
    // c is woken as b begins, at 30, and runs from 50 to 70.
    assert_eq!(times(&outcome)[2], (20, 20, 60));
}

#[test]
fn a_point_at_a_seam_belongs_to_the_burst_of_its_time() {
    // a wakes b with 50 ns of work done: before it blocked at 50, or just after it was woken.
    let start = |woken: Nanos| {
        let a = vec![burst(AtStart, 0, 50), burst(after(100), 150, 50)];
        let b = vec![burst(by(0, 50), woken, 10)];
        let recording = recording(2, 300, vec![vcpu(0, a), vcpu(1, b)]);
        let (outcome, _) = replay(&recording, Wait, false);
        times(&outcome)[1]
    };
    assert_eq!(start(50), (10, 0, 290));
    // The second is woken while a is on a pCPU, at 150: the block before it counts the same.
    assert_eq!(start(160), (10, 0, 290));
    let late = vec![burst(AtStart, 0, 50), burst(after(250), 300, 50)];
    let b = vec![burst(by(0, 50), 301, 10)];
    let recording = recording(2, 290, vec![vcpu(0, late), vcpu(1, b)]);
    assert_eq!(times(&replay(&recording, Wait, false).0)[1], (0, 0, 290));
}

/// A vCPU that was held up when recorded, and was busy at the end.
fn held_up() -> Recording {
    let a = vec![burst(AtStart, 0, 100), burst(after(500), 900, 100)];
    let mut recording = recording(1, 1000, vec![vcpu(0, a)]);
    end(&mut recording, 0, BurstEnd::RecordingEnded);
    recording
}

#[test]
fn exhausted_demand_waits() {
    let (outcome, report) = replay(&held_up(), Wait, false);
    assert_eq!(times(&outcome), [(200, 0, 800)]);
    let vm = report.vms[0];
    assert_eq!((vm.work, vm.beyond, vm.exhausted), (200, 0, 300));
}

#[test]
fn exhausted_demand_repeats() {
    let (outcome, report) = replay(&held_up(), Repeat, false);
    // The cut burst and the first are one: it goes on from 700 to 800.
    assert_eq!(times(&outcome), [(300, 0, 700)]);
    let vm = report.vms[0];
    assert_eq!((vm.work, vm.beyond, vm.exhausted), (300, 100, 300));
}

#[test]
fn repeated_wakeups_stay_in_their_turn() {
    // b needs a every time, but a's turns are shorter.
    let a = vec![burst(AtStart, 0, 100)];
    let b = vec![burst(by(0, 50), 500, 80)];
    let mut recording = recording(2, 1000, vec![vcpu(0, a), vcpu(1, b)]);
    end(&mut recording, 0, BurstEnd::RecordingEnded);
    let (outcome, report) = replay(&recording, Repeat, false);
    // a comes to its point at 50, 150, … 950: ten turns, of which b does the last only in part.
    assert_eq!(times(&outcome)[1].0, 9 * 80 + 50);
    assert_eq!(report.released, 0);
}

#[test]
fn a_hog_goes_on_for_ever() {
    let mut recording = recording(1, 1000, vec![vcpu(0, vec![burst(AtStart, 0, 10)])]);
    end(&mut recording, 0, BurstEnd::RecordingEnded);
    for beyond in [Wait, Repeat] {
        let (outcome, report) = replay(&recording, beyond, false);
        assert_eq!(times(&outcome), [(1000, 0, 0)]);
        assert_eq!((report.vms[0].work, report.vms[0].exhausted), (1000, 0));
    }
}

#[test]
fn tasks_are_born_and_exit() {
    let parent = vec![burst(AtStart, 0, 100)];
    let child = vec![burst(by(0, 30), 30, 20), burst(after(10), 60, 5)];
    let mut recording = recording(2, 200, vec![vcpu(0, parent), vcpu(1, child)]);
    recording.tasks[1].at_start = corun_recording::AtStart::Unborn;
    end(&mut recording, 1, BurstEnd::Exited);
    let (outcome, report) = replay(&recording, Wait, false);
    assert_eq!(times(&outcome), [(100, 0, 100), (25, 0, 175)]);
    assert_eq!(report.vms[0].bursts, 3);
}

#[test]
fn circles_and_wakers_that_never_ran_are_broken() {
    let a = vec![burst(by(1, 10), 5, 10)];
    let b = vec![burst(by(0, 10), 5, 10)];
    let c = vec![burst(by(7, 10), 5, 10)];
    let tasks = vec![vcpu(0, a), vcpu(1, b), vcpu(2, c)];
    let recording = recording(1, 100, tasks);
    let (outcome, report) = replay(&recording, Wait, false);
    assert!(times(&outcome).iter().all(|&(run, _, _)| run == 10));
    assert_eq!((report.released, report.unknown_wakers), (1, 1));
}

#[test]
fn tasks_have_the_pcpus_of_the_host_that_they_are_replayed_on() {
    let busy = |number| vcpu(number, vec![burst(AtStart, 0, 100)]);
    let mut recording = recording(2, 500, vec![busy(0), busy(1)]);
    recording.tasks[0].first_pcpu = Some(PcpuId(1));
    (recording.tasks[1].role, recording.tasks[1].comm) = (Role::Host, "ksoftirqd/1".to_string());
    recording.vms[0].vcpus.pop();
    for pcpus in [1, 2, 64] {
        let tasks = Replay::new(&recording, pcpus, Options::default()).tasks();
        assert_eq!(tasks[0].allowed.len() as u32, pcpus);
        assert_eq!(tasks[0].last_on, (pcpus > 1).then_some(PcpuId(1)));
        // A task whose pCPU does not exist any more runs on those that do.
        assert_eq!(tasks[1].allowed.len(), 1);
        assert_eq!(tasks[1].allowed.contains(PcpuId(1)), pcpus > 1);
    }
}
