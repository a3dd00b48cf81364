// SPDX-License-Identifier: GPL-2.0-only
//! Turns that are interrupted (dispatcher/turn.h).

use super::Dispatcher;
use crate::Simulation;
use crate::testing::{Does, Job, Jobs, host, run, run_shares, shared};
use corun_model::time::{MS, SEC, US};
use corun_model::{DispatcherParams, Nanos, PcpuId, TaskId};

/// Slices much longer than the time between two wake-ups.
fn long_slices() -> DispatcherParams {
    DispatcherParams {
        slice: 90 * MS,
        ..DispatcherParams::default()
    }
}

/// A task that sleeps, and now and then runs for a tenth of a millisecond.
fn wakes(sleep: Nanos) -> Job {
    Job::new(Does::Cycles {
        work: 100 * US,
        sleep,
        spread: 50,
    })
}

/// How long each of the first `hogs` tasks ran until it was the turn of another of them, leaving
/// out other tasks' runs in between. The first turn and the last one are not whole.
fn turns_of(runs: &[(Nanos, PcpuId, TaskId)], hogs: u32) -> Vec<Nanos> {
    let mut turns: Vec<(TaskId, Nanos)> = Vec::new();
    for pair in runs.windows(2) {
        let (at, _, task) = pair[0];
        let ran = pair[1].0 - at;
        match turns.last_mut() {
            _ if task.0 >= hogs => {}
            Some((last, sum)) if *last == task => *sum += ran,
            _ => turns.push((task, ran)),
        }
    }
    let whole = 1..turns.len() - 1;
    turns[whole].iter().map(|turn| turn.1).collect()
}

#[test]
fn who_is_interrupted_has_the_rest_of_its_turn() {
    let hogs = (0..3).map(|n| Job::hog().vcpu(0, n));
    let wakers = (0..2).map(|n| wakes(7 * MS).vcpu(1, n));
    let jobs = Jobs::new(hogs.chain(wakers).collect(), 1);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(long_slices(), &host);
    let (outcome, runs) = run(&host, sched, jobs, SEC, 6 * SEC);
    // At first all hogs have just woken: then they interrupt each other.
    let later = runs.partition_point(|run| run.0 < SEC);
    let turns = turns_of(&runs[later..], 3);
    assert!(turns.len() > 40, "{} turns", turns.len());
    let whole = |turn: &Nanos| (89 * MS..92 * MS).contains(turn);
    let broken: Vec<_> = turns.iter().filter(|turn| !whole(turn)).take(9).collect();
    assert!(broken.is_empty(), "{broken:?} ns");
    // A task that wakes hardly waits for a turn to end: turns do not all begin at the same virtual
    // time.
    let waits = &outcome.vms[1].ready_waits;
    let (most, longest) = (waits.quantile(0.99), waits.max());
    assert!(most < MS && longest < 10 * MS, "{most} and {longest} ns");
}

#[test]
fn no_slice_is_shorter_than_the_least() {
    let params = DispatcherParams {
        slice: 0,
        ..DispatcherParams::default()
    };
    let jobs = Jobs::new((0..2).map(|n| Job::hog().vcpu(n, 0)).collect(), 1);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(params, &host);
    let (_, runs) = run(&host, sched, jobs, 0, SEC);
    let turns = turns_of(&runs, 2);
    let (shortest, longest) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    let least = DispatcherParams::LEAST_SLICE;
    // Equals take turns: none has two of them.
    let whole = least..least + 10 * US;
    assert!(
        whole.contains(shortest) && whole.contains(longest),
        "{shortest} to {longest} ns"
    );
}

#[test]
fn micro_slices_are_spread() {
    let sched = |params: &_| Dispatcher::new(DispatcherParams::default(), params);
    shared::micro_slices_are_spread("corun", sched);
}

/// A task that is due takes its turn early: that does not advance the clock, since a task that sleeps for a moment
/// would otherwise be behind all that have not had their turn yet. And the early task is charged for it, even if it
/// sleeps for a moment.
#[test]
fn micro_slices_take_nothing_from_who_sleeps() {
    let cycles = |work, sleep| {
        Job::new(Does::Cycles {
            work,
            sleep,
            spread: 20,
        })
    };
    // A task that is nearly always busy; hogs; and one that does little.
    let hogs = (1..5).map(|vm| Job::hog().vcpu(vm, 0));
    let jobs = [cycles(300 * US, 60 * US).vcpu(0, 0)]
        .into_iter()
        .chain(hogs)
        .chain([cycles(2 * MS, 70 * MS).vcpu(5, 0)]);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let load = Box::new(Jobs::new(jobs.collect(), 1));
    let outcome = Simulation::new(host, Box::new(sched), load, None)
        .with_policy(shared::in_micro_slices(1, 5))
        .run(SEC, 11 * SEC, |_| {});
    let got = run_shares(&outcome);
    assert!(got[..5].iter().all(|&share| share > 0.18), "{got:?}");
    // Two of each 72 ms, or somewhat less, since it waits for its turns.
    assert!(got[5] > 0.024, "{got:?}");
}

#[test]
fn interruptions_cost_nobody_his_share() {
    // One is interrupted and its neighbours are not: they still get equal times.
    let hogs = (0..3).map(|n| Job::hog().vcpu(n, 0));
    let jobs = Jobs::new(hogs.chain([wakes(20 * MS)]).collect(), 1);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(long_slices(), &host);
    let (outcome, _) = run(&host, sched, jobs, 0, 20 * SEC);
    let got: Vec<Nanos> = outcome.tasks[..3].iter().map(|task| task.2.run).collect();
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(most - least <= 91 * MS, "{got:?}");
}

/// With long slices a task waits long for its turn: it keeps what it is owed for that while it halts for a moment,
/// however far turns of others have moved the clock meanwhile.
#[test]
fn who_halts_for_a_moment_keeps_what_it_is_owed() {
    let mut jobs = vec![Job::new(Does::Cycles {
        work: MS,
        sleep: 9 * MS,
        spread: 0,
    })];
    jobs.extend((1..6).map(|vm| Job::hog().vcpu(vm, 0)));
    let params = DispatcherParams {
        slice: 30 * MS,
        ..DispatcherParams::default()
    };
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(params, &host);
    let (outcome, _) = run(&host, sched, Jobs::new(jobs, 1), SEC, 21 * SEC);
    let got = outcome.tasks[0].2.run as f64 / (20 * SEC) as f64;
    assert!(got > 0.09, "{got} of a tenth");
}

/// Four on three pCPUs take turns at being alone, even with turns longer than the time between two looks of busy pCPUs.
#[test]
fn equals_have_equal_shares_with_long_slices() {
    for slice in [30 * MS, 60 * MS, 90 * MS] {
        let params = DispatcherParams {
            slice,
            ..DispatcherParams::default()
        };
        let jobs = Jobs::new((0..4).map(|vm| Job::hog().vcpu(vm, 0)).collect(), 1);
        let host = host("1n1l3c1t", 1000);
        let sched = Dispatcher::new(params, &host);
        let (outcome, _) = run(&host, sched, jobs, 2 * SEC, 32 * SEC);
        for share in run_shares(&outcome) {
            assert!((share - 0.75).abs() < 0.07, "{slice}: {share}");
        }
    }
}

/// Tasks that weigh little fit any difference of load: they do not get a turn of 30 ms for each move.
#[test]
fn who_weighs_little_has_no_turn_for_being_moved() {
    let light = (0..12).map(|n| Job::hog().weight(1).vcpu(0, n));
    let heavy = (1..13).map(|vm| Job::hog().vcpu(vm, 0));
    let params = DispatcherParams {
        slice: 30 * MS,
        ..DispatcherParams::default()
    };
    let jobs = Jobs::new(light.chain(heavy).collect(), 1);
    let host = host("1n1l8c1t", 1000);
    let sched = Dispatcher::new(params, &host);
    let (outcome, _) = run(&host, sched, jobs, 2 * SEC, 22 * SEC);
    let got: f64 = run_shares(&outcome)[..12].iter().sum();
    // 12 of 1,212 hundredths of eight pCPUs, 0.08; plus a turn of 50 us a second for each that would starve.
    assert!(got < 0.12, "{got}");
}

#[test]
fn who_runs_for_a_moment_moves_nobody_in_the_middle_of_a_turn() {
    // A daemon with the weight of nice -20, as heavy as all the others together.
    let daemon = wakes(50 * MS).weight(8668);
    let hogs = (0..6).map(|n| Job::hog().vcpu(n, 0));
    let wakers = (0..2).map(|n| wakes(7 * MS).vcpu(6, n));
    let jobs = Jobs::new(hogs.chain(wakers).chain([daemon]).collect(), 1);
    let host = host("1n1l2c1t", 1000);
    let sched = Dispatcher::new(long_slices(), &host);
    let (_, runs) = run(&host, sched, jobs, 2 * SEC, 22 * SEC);
    let turns: Vec<Nanos> = (0..2)
        .flat_map(|cpu| {
            let here: Vec<_> = runs
                .iter()
                .filter(|run| run.1 == PcpuId(cpu))
                .copied()
                .collect();
            turns_of(&here, 6)
        })
        .collect();
    let cut = turns.iter().filter(|turn| **turn < 85 * MS).count();
    assert!(
        turns.len() > 250 && cut * 50 < turns.len(),
        "{cut} of {}",
        turns.len()
    );
}

/// A task that is owed little still runs once a second, but so briefly that weights hold, however
/// long slices are and however many such tasks there are.
#[test]
fn a_starving_vcpu_has_a_short_turn() {
    for (slice, many) in [(3 * MS, 10), (90 * MS, 10), (3 * MS, 60), (90 * MS, 60)] {
        let params = DispatcherParams {
            slice,
            ..DispatcherParams::default()
        };
        let heavy = Job::hog().weight(10_000).vcpu(0, 0);
        let light = (0..many).map(|n| Job::hog().weight(1).vcpu(1 + n, 0));
        let jobs = Jobs::new([heavy].into_iter().chain(light).collect(), 1);
        let host = host("1n1l1c1t", 1000);
        let sched = Dispatcher::new(params, &host);
        let (outcome, _) = run(&host, sched, jobs, 10 * SEC, 30 * SEC);
        let shares = run_shares(&outcome);
        // A light one is owed a ten-thousandth, or what keeps it from starving: 50 us a second.
        assert!(shares[0] > 0.98, "slice {slice}, {many}: {shares:?}");
        for vm in &outcome.vms[1..] {
            let most = vm.ready_waits.max();
            assert!(most < 3 * SEC, "slice {slice}: ready for {most} ns");
            assert!(vm.vcpus[0].run > 0, "slice {slice}");
        }
    }
}

/// So many begin at once that a round of whole turns takes longer than the watchdog allows: 7.5 s. No task waits for
/// that long, not even one that comes late and is behind all of them, and all still get the same.
#[test]
fn of_hundreds_that_begin_at_once_nobody_starves() {
    let params = DispatcherParams {
        slice: 30 * MS,
        ..DispatcherParams::default()
    };
    let late = Job::new(Does::Cycles {
        work: MS,
        sleep: SEC,
        spread: 0,
    });
    let hogs = (0..250).map(|n| Job::hog().vcpu(n, 0));
    let jobs = Jobs::new(hogs.chain([late.vcpu(250, 0)]).collect(), 1);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(params, &host);
    let (outcome, _) = run(&host, sched, jobs, 0, 60 * SEC);
    let longest = outcome.vms.iter().map(|vm| vm.ready_waits.max()).max();
    assert!(longest < Some(3 * SEC), "{longest:?} ns");
    let shares = run_shares(&outcome);
    // Each has had some eight turns.
    for share in &shares[..250] {
        assert!((share * 250.0 - 1.0).abs() < 0.15, "{share}");
    }
}

/// A task that waits for more than a second because slices are as long, and is next by fair order,
/// has its slice, perhaps after a short turn.
#[test]
fn a_vcpu_that_waits_for_long_slices_has_one() {
    let params = DispatcherParams {
        slice: SEC,
        ..DispatcherParams::default()
    };
    let jobs = Jobs::new((0..3).map(|n| Job::hog().vcpu(n, 0)).collect(), 1);
    let host = host("1n1l1c1t", 1000);
    let sched = Dispatcher::new(params, &host);
    let (outcome, runs) = run(&host, sched, jobs, 0, 30 * SEC);
    let turns = turns_of(&runs, 3);
    let short = turns.iter().filter(|turn| **turn < 990 * MS).count();
    assert!(short <= 2 * 30 && turns.len() - short >= 27, "{turns:?}");
    for share in run_shares(&outcome) {
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
    }
}
