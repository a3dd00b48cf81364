// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling in the dispatcher: the papers' examples by hand, and what holds for any VMs.

use super::Dispatcher;
use super::tests::{Placed, number, pattern, run_gangs};
use crate::Outcome;
use crate::host::{HostParams, Totals};
use crate::load::{Pattern, Patterns};
use crate::testing::shared::{is_served, scenes};
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{
    Allotments, Boost, Claim, DispatcherParams, Gang, Nanos, PcpuId, Placement, Skew, Slots, TaskId,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Every gang mode but none.
fn gangs() -> [Gang; 7] {
    let filled = Slots {
        fill: true,
        ..Slots::default()
    };
    [
        Gang::Dynamic,
        Gang::Strict(Slots::default()),
        Gang::Strict(filled),
        Gang::Demand(Boost::default()),
        Gang::Relaxed(Skew::default()),
        Gang::RelaxedAll(Skew::default()),
        Gang::Asymmetric(Allotments {
            has: Claim::NEUTRAL,
            period: 100 * MS,
            neutral: 4 * MS,
        }),
    ]
}

/// What the vCPUs of `vms` VMs of `vcpus` hogs each get of a pCPU, and what idles of the host.
fn shares_of_hogs(gang: Gang, pcpus: u32, vms: u32, vcpus: u32) -> (Vec<f64>, f64) {
    let hogs = (0..vms * vcpus).map(|n| Pattern::hog(Some((n / vcpus, n % vcpus))));
    let load = Patterns::new(hogs.collect(), &vec![None; vms as usize], 1);
    let outcome = run_gangs(pcpus, load, Placement::Balance, gang, 10 * SEC);
    let share = |task: &(String, bool, Totals)| task.2.run as f64 / outcome.measured as f64;
    (
        outcome.tasks.iter().map(share).collect(),
        outcome.idle_share,
    )
}

#[test]
fn gangs_that_fill_the_host_share_it() {
    for gang in gangs() {
        for (pcpus, vms, vcpus) in [(4, 3, 4), (4, 2, 2), (1, 2, 1)] {
            let (shares, idle) = shares_of_hogs(gang, pcpus, vms, vcpus);
            let fair = f64::from(pcpus) / f64::from(vms * vcpus);
            let even = shares.iter().all(|share| (share - fair).abs() < 0.01);
            assert!(even && idle < 0.002, "{gang:?}: {shares:?}, idle {idle}");
        }
    }
}

/// Three VMs of five vCPUs on eight pCPUs: two do not fit beside each other.
#[test]
fn gangs_that_do_not_fit_beside_each_other() {
    for gang in gangs() {
        let (shares, idle) = shares_of_hogs(gang, 8, 3, 5);
        let of_vms = shares.chunks(5).map(|vm| vm.iter().sum::<f64>());
        match gang {
            // Each runs for a third of the time, and then leaves three pCPUs.
            Gang::Strict(Slots { fill: false, .. }) => {
                assert!(shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.01));
                assert!((idle - 3.0 / 8.0).abs() < 0.01, "{idle}");
            }
            Gang::Strict(_) => assert!(idle < 0.002, "{idle}"),
            Gang::RelaxedAll(_) => assert!(idle < 0.33, "{idle}"),
            _ => {
                let off = of_vms.map(|share| (share / (8.0 / 3.0) - 1.0).abs());
                assert!(
                    off.into_iter().all(|off| off < 0.15),
                    "{gang:?}: {shares:?}"
                );
                assert!(idle < 0.1, "{gang:?}: {idle}");
            }
        }
    }
}

/// The dispatcher with balance placement and a gang mode.
fn placed(params: &HostParams, gang: Gang) -> Placed {
    let dispatcher = Dispatcher::new(DispatcherParams::default(), params);
    Placed(dispatcher, Placement::Balance, gang)
}

/// Which vCPU began to run where and when, on `pcpus` pCPUs where nothing costs time.
fn starts(
    pcpus: u32,
    jobs: Vec<Job>,
    gang: Gang,
    end: Nanos,
) -> (Outcome, Vec<(Nanos, PcpuId, TaskId)>) {
    let params = host(&format!("1n1l{pcpus}c1t"), 1000);
    run(&params, placed(&params, gang), Jobs::new(jobs, 1), 0, end)
}

/// When `task` first began to run, and each time after that.
fn of_task(runs: &[(Nanos, PcpuId, TaskId)], task: u32) -> Vec<Nanos> {
    let its = runs.iter().filter(|run| run.2 == TaskId(task));
    its.map(|run| run.0).collect()
}

fn from(from: Nanos, vm: u32, number: u32) -> Job {
    Job::new(Does::Hog { from }).vcpu(vm, number)
}

const STRICT: Gang = Gang::Strict(Slots {
    length: 10 * MS,
    fill: false,
});

/// Figure 3 of Sukwong & Kim, EuroSys 2011: two pCPUs, one of them taken until T1 = 10 ms; vCPU0 and
/// vCPU1 become ready at T0 = 4 ms, an I/O job between T0 and T1. T2 is 20 ms.
fn figure_3() -> Vec<Job> {
    vec![
        from(0, 0, 0),
        from(4 * MS, 1, 0),
        from(4 * MS, 1, 1),
        from(6 * MS, 2, 0),
    ]
}

#[test]
fn figure_3_under_strict_co_scheduling() {
    let (outcome, runs) = starts(2, figure_3(), STRICT, 30 * MS);
    // CPU fragmentation and execution delay: one pCPU idles from T0 to T1, both vCPUs wait.
    assert_eq!(of_task(&runs, 1)[0], 10 * MS);
    assert_eq!(of_task(&runs, 2)[0], 10 * MS);
    assert_eq!(outcome.idle_share, (10.0 * 1.0) / 60.0);
    // Priority inversion: the I/O job waits for T2.
    assert_eq!(of_task(&runs, 3)[0], 20 * MS);
}

#[test]
fn figure_3_under_balance_scheduling() {
    let (_, runs) = starts(2, figure_3(), Gang::None, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 4 * MS, "one vCPU starts at T0");
    assert!(
        of_task(&runs, 3)[0] < 10 * MS,
        "the I/O job starts before T1"
    );
}

#[test]
fn figure_3_with_filling() {
    let filled = Gang::Strict(Slots {
        fill: true,
        ..Slots::default()
    });
    let (outcome, runs) = starts(2, figure_3(), filled, 30 * MS);
    // Until T0 there is nothing to fill with; then one vCPU, or the job, uses what would idle.
    assert_eq!(of_task(&runs, 1)[0], 4 * MS);
    assert_eq!(outcome.idle_share, 4.0 / 60.0);
}

/// Algorithm 1: the first slot with k available pCPUs. VMs of three, two and one vCPU on four pCPUs.
#[test]
fn algorithm_1_takes_the_first_slot_with_enough_pcpus() {
    let (outcome, runs) = starts(4, hogs(&[3, 2, 1], 0), STRICT, 59 * MS);
    for vcpu in 0..3 {
        assert_eq!(of_task(&runs, vcpu), [0, 20 * MS, 40 * MS]);
    }
    for vcpu in 3..5 {
        assert_eq!(of_task(&runs, vcpu), [10 * MS, 30 * MS, 50 * MS]);
    }
    // The single vCPU fits beside either.
    assert_eq!(outcome.tasks[5].2.run, 59 * MS);
    assert_eq!(outcome.idle_share, 29.0 / 236.0);
}

/// Algorithm 2: no two siblings on one pCPU. Siblings come one by one while others are there.
#[test]
fn algorithm_2_leaves_out_the_pcpus_of_siblings() {
    let others = (0..3).map(|n| from(0, 1, n).on(["0", "0", "1"][n as usize]));
    let jobs: Vec<Job> = (0..3).map(|n| from(MS, 0, n)).chain(others).collect();
    let (outcome, runs) = starts(3, jobs, Gang::None, 3 * SEC);
    let first = |task: u32| runs.iter().find(|run| run.2 == TaskId(task)).unwrap().1;
    let mut places = [first(0), first(1), first(2)];
    places.sort_unstable();
    assert_eq!(places, [PcpuId(0), PcpuId(1), PcpuId(2)]);
    assert_eq!(outcome.stacking[3..].iter().sum::<f64>(), 0.0);
}

/// Algorithm 3: pCPU 0 gives vCPU0 its turn at once, pCPU 1 would let its task finish its slice.
#[test]
fn algorithm_3_calls_the_siblings_of_the_first() {
    let late = 1500 * US;
    let jobs = || {
        vec![
            from(0, 0, 0).on("0"),
            from(MS, 1, 0).on("1"),
            from(late, 2, 0),
            from(late, 2, 1),
        ]
    };
    let (_, runs) = starts(2, jobs(), Gang::Dynamic, 20 * MS);
    assert_eq!((of_task(&runs, 2)[0], of_task(&runs, 3)[0]), (late, late));
    let (_, runs) = starts(2, jobs(), Gang::None, 20 * MS);
    assert_eq!((of_task(&runs, 2)[0], of_task(&runs, 3)[0]), (late, 4 * MS));
}

/// One of four vCPUs has a pCPU to itself, so that the VM never stands still; the others share
/// theirs with one vCPU each. The one that gets its turn calls the two that wait.
#[test]
fn algorithm_3_calls_beside_a_sibling_that_runs() {
    let together = |gang| {
        let vcpus = (0..4).map(|n| from(MS, 0, n));
        let out_of_step = (0..3).map(|n| from(2 * MS + 1300 * US * u64::from(n), 1 + n, 0));
        let (outcome, _) = starts(4, vcpus.chain(out_of_step).collect(), gang, 10 * SEC);
        let skew = &outcome.vms[0].siblings;
        skew.together as f64 / skew.together_due as f64
    };
    let (called, not) = (together(Gang::Dynamic), together(Gang::None));
    assert!(called > 0.45 && not < 0.4, "{called}, {not}");
}

/// One vCPU has a pCPU to itself, its sibling shares one with another VM.
fn lopsided() -> Vec<Job> {
    vec![
        from(0, 0, 0).on("0"),
        from(0, 0, 1).on("1"),
        from(0, 1, 0).on("1"),
    ]
}

#[test]
fn relaxed_stops_who_is_ahead() {
    let skew = Skew::default();
    let (outcome, _) = starts(2, lopsided(), Gang::Relaxed(skew), 10 * SEC);
    let shares = run_shares(&outcome);
    let together = (shares[0] - shares[1]).abs() < 0.01;
    assert!(together && shares[1] > 0.49, "{shares:?}");
    let vm = &outcome.vms[0];
    let most = vm.siblings.progress.max();
    // A stop is noticed within a sample.
    let bound = (skew.stop + skew.sample) * 1001 / 1000;
    assert!(most <= bound, "{most} ns");
    let stopped = vm.co_stopped as f64 / 1e10;
    assert!((stopped - 0.5).abs() < 0.01, "co-stop {stopped}");
    assert_eq!(outcome.vms[1].co_stopped, 0);
    let (outcome, _) = starts(2, lopsided(), Gang::None, 10 * SEC);
    assert!(run_shares(&outcome)[0] > 0.99);
}

/// Three vCPUs beside one hog each and one alone, with slices much longer than what stops a leader,
/// as ESX has them: a vCPU that was stopped starts with the slowest, instead of waiting for a turn
/// of its own while the slowest, then the leader, is stopped.
#[test]
fn relaxed_starts_together_after_a_stop() {
    let slice = 50 * MS;
    let late = |n: u32| MS + 7 * MS * u64::from(n);
    let here = |n: u32| ["0", "1", "2", "3"][n as usize];
    let vcpus = (0..4).map(|n| from(MS, 0, n).on(here(n)));
    let hogs = (0..3).map(|n| from(late(n), 1 + n, 0).on(here(n)));
    let params = host("1n1l4c1t", 1000);
    let settings = DispatcherParams {
        slice,
        ..DispatcherParams::default()
    };
    let gang = Gang::Relaxed(Skew::default());
    let dispatcher = Dispatcher::new(settings, &params);
    let placed = Placed(dispatcher, Placement::Balance, gang);
    let jobs = Jobs::new(vcpus.chain(hogs).collect(), 1);
    let (outcome, _) = run(&params, placed, jobs, SEC, 11 * SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.4), "{shares:?}");
    let skew = &outcome.vms[0].siblings;
    let together = skew.together as f64 / skew.together_due as f64;
    assert!(together > 0.8, "together for {together} of the time");
}

/// Whenever vCPU 0 is 3 ms ahead, both stop; vCPU 1, which lags, starts when it is its turn, and vCPU 0 when
/// it has caught up.
#[test]
fn relaxed_all_stops_all() {
    let skew = Skew::default();
    let (outcome, runs) = starts(2, lopsided(), Gang::RelaxedAll(skew), 10 * SEC);
    let shares = run_shares(&outcome);
    let together = (shares[0] - shares[1]).abs() < 0.01;
    assert!(together && shares[1] > 0.45, "{shares:?}");
    let vm = &outcome.vms[0];
    let most = vm.siblings.progress.max();
    let bound = (skew.stop + skew.sample) * 1001 / 1000;
    assert!(most <= bound, "{most} ns");
    assert!(vm.co_stopped > 4 * SEC, "{}", vm.co_stopped);
    // vCPU 1 has its pCPU to itself at times: it stops because vCPU 0 is ahead.
    let (first, second) = (of_task(&runs, 0), of_task(&runs, 1));
    assert!(first.len() > 100 && second.len() > 100);
    assert!(first.iter().skip(1).all(|start| !second.contains(start)));
}

/// Four vCPUs and a hog on four pCPUs: the slowest, which waits behind the hog, goes to a pCPU that idles because a
/// sibling is stopped there. Relaxed co-scheduling came about since strict co-scheduling leaves pCPUs idle (Sukwong &
/// Kim, §6). Where all are stopped, one of them starts alone at times.
#[test]
fn relaxed_leaves_no_pcpu_to_who_is_stopped() {
    let relaxed = Gang::Relaxed(Skew::default());
    let all = Gang::RelaxedAll(Skew::default());
    for (gang, slice, most) in [
        (relaxed, 3, 0.02),
        (relaxed, 50, 0.02),
        (all, 3, 0.2),
        (all, 50, 0.25),
    ] {
        let params = host("1n1l4c1t", 1000);
        let settings = DispatcherParams {
            slice: slice * MS,
            ..DispatcherParams::default()
        };
        let dispatcher = Dispatcher::new(settings, &params);
        let placed = Placed(dispatcher, Placement::Balance, gang);
        let load = Jobs::new(hogs(&[4, 1], MS), 1);
        let (outcome, _) = run(&params, placed, load, SEC, 6 * SEC);
        let (shares, idle) = (run_shares(&outcome), outcome.idle_share);
        assert!(idle < most, "{gang:?}, {slice} ms: idle {idle}, {shares:?}");
        let vm = shares[..4].iter().all(|share| *share > 0.5);
        assert!(vm, "{gang:?}, {slice} ms: {shares:?}");
    }
}

/// ESX has worlds run that have had less than their entitlement, however its slices and its skew are: all of these
/// vCPUs are owed as much.
#[test]
fn relaxed_leaves_others_their_share() {
    let gang = Gang::Relaxed(Skew::default());
    for slice in [3, 15, 50] {
        for (pcpus, sizes) in [
            (4, &[4, 1][..]),
            (2, &[2, 1]),
            (4, &[4, 2]),
            (4, &[4, 1, 1, 1]),
        ] {
            let params = host(&format!("1n1l{pcpus}c1t"), 1000);
            let settings = DispatcherParams {
                slice: slice * MS,
                ..DispatcherParams::default()
            };
            let dispatcher = Dispatcher::new(settings, &params);
            let placed = Placed(dispatcher, Placement::Balance, gang);
            let load = Jobs::new(hogs(sizes, MS), 1);
            let (outcome, _) = run(&params, placed, load, SEC, 11 * SEC);
            let shares = run_shares(&outcome);
            let fair = f64::from(pcpus) / shares.len() as f64;
            let has = shares.iter().all(|share| *share > 0.7 * fair);
            assert!(has, "{sizes:?}, {slice} ms: {shares:?}, owed {fair}");
        }
    }
}

/// A vCPU that is stopped by itself, and then with its gang, is stopped once.
#[test]
fn relaxed_all_counts_each_stop_once() {
    let params = host("1n1l4c1t", 1000);
    let settings = DispatcherParams {
        slice: 50 * MS,
        ..DispatcherParams::default()
    };
    let dispatcher = Dispatcher::new(settings, &params);
    let gang = Gang::RelaxedAll(Skew::default());
    let placed = Placed(dispatcher, Placement::Balance, gang);
    let load = Jobs::new(hogs(&[4, 1, 1, 1], MS), 1);
    let (outcome, _) = run(&params, placed, load, SEC, 6 * SEC);
    let vm = &outcome.vms[0];
    let ran: u64 = vm.vcpus.iter().map(|vcpu| vcpu.run).sum();
    let stopped = vm.co_stopped;
    assert!(
        ran + stopped <= 4 * outcome.measured,
        "{ran} and {stopped} ns"
    );
}

/// Two vCPUs that hand work to each other all the time, on pCPUs with two VMs each that compute:
/// they use more than their share, and are let to for as long as their lead allows.
#[test]
fn demand_lets_the_woken_start_at_once() {
    let asks = |to, first| Does::Asks {
        work: 100 * US,
        to,
        first,
    };
    let others = (0..4).map(|n| from(0, 1 + n, 0).on(["0", "1"][n as usize % 2]));
    let handed = |gang| {
        let asking = [asks(1, true), asks(0, false)].into_iter().zip(0..);
        let asking = asking.map(|(does, n)| Job::new(does).vcpu(0, n));
        let jobs = asking.chain(others.clone()).collect();
        let (outcome, _) = starts(2, jobs, gang, 60 * MS);
        (outcome.tasks[1].2.wakeups, outcome.vms[0].ready_waits.max())
    };
    let (urgent, longest) = handed(Gang::Demand(Boost::default()));
    let (without, _) = handed(Gang::None);
    assert!(urgent >= 290 && longest < 4 * MS, "{urgent}, {longest} ns");
    assert!(without < urgent * 9 / 10, "{without} of {urgent}");
}

/// The kernel does not call select_cpu for a task that may run on one pCPU only: the waker is known
/// all the same.
#[test]
fn demand_lets_the_woken_that_are_bound_start_at_once() {
    let asks = |to, first| Does::Asks {
        work: 100 * US,
        to,
        first,
    };
    let others = (0..2).map(|n| from(0, 1 + n, 0).on("0"));
    let handed = |gang| {
        let asking = [asks(1, true), asks(0, false)].into_iter().zip(0..);
        let asking = asking.map(|(does, n)| Job::new(does).vcpu(0, n).on("0"));
        let (outcome, _) = starts(1, asking.chain(others.clone()).collect(), gang, 60 * MS);
        outcome.tasks[1].2.wakeups
    };
    let (urgent, without) = (handed(Gang::Demand(Boost::default())), handed(Gang::None));
    assert!(without < urgent * 9 / 10, "{without} of {urgent}");
}

/// Two pairs of vCPUs that wake each other all the time want all of two pCPUs, on each of which
/// another VM computes: being urgent gives them no more than their share in the long run.
#[test]
fn demand_keeps_shares() {
    let asks = |n: u32| Does::Asks {
        work: 50 * US,
        to: n ^ 1,
        first: n.is_multiple_of(2),
    };
    let asking = (0..4).map(|n| Job::new(asks(n)).vcpu(0, n).on(["0", "1"][n as usize % 2]));
    let others = (0..2).map(|n| from(MS, 1, n).on(["0", "1"][n as usize]));
    let jobs = asking.chain(others).collect();
    let (outcome, _) = starts(2, jobs, Gang::Demand(Boost::default()), 2 * SEC);
    let shares = run_shares(&outcome);
    assert!(shares[4..].iter().all(|share| *share > 0.3), "{shares:?}");
}

/// Two vCPUs hand work to each other, each alone on its pCPU, until a hog comes to one of them: a
/// vCPU that was urgent while no task waited for its pCPU owes nothing.
#[test]
fn demand_charges_nobody_for_pcpus_that_nobody_wants() {
    let asks = |n: u32| Does::Asks {
        work: MS,
        to: n ^ 1,
        first: n == 0,
    };
    let handed = |gang| {
        let asking = (0..2).map(|n| Job::new(asks(n)).vcpu(0, n).on(["0", "1"][n as usize]));
        let hog = from(SEC, 1, 0).on("0");
        let params = host("1n1l2c1t", 1000);
        let load = Jobs::new(asking.chain([hog]).collect(), 1);
        let (outcome, _) = run(&params, placed(&params, gang), load, SEC, SEC + 50 * MS);
        outcome.tasks[1].2.wakeups
    };
    let (urgent, without) = (handed(Gang::Demand(Boost::default())), handed(Gang::None));
    assert!(urgent >= without, "{urgent} times, {without} without");
}

/// Load-conscious placement puts siblings on one pCPU. If they are urgent, they take turns by the time that
/// they have as such, and not by taking the pCPU from each other before either has made progress.
#[test]
fn demand_lets_stacked_siblings_run() {
    let asks = |n: u32| Does::Asks {
        work: 50 * US,
        to: n ^ 1,
        first: true,
    };
    let jobs = (0..4).map(|n| Job::new(asks(n)).vcpu(0, n)).collect();
    let params = host("1n1l2c1t", 1000);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let gang = Gang::Demand(Boost::default());
    let placed = Placed(dispatcher, Placement::LoadConscious, gang);
    let (outcome, runs) = run(&params, placed, Jobs::new(jobs, 1), 0, SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.2), "{shares:?}");
    assert!(runs.len() < 100_000, "{} switches", runs.len());
}

/// A VM whose vCPUs wait for most of the time owns pCPUs for those that will wake in its slot, too.
#[test]
fn strict_keeps_pcpus_for_who_wakes_in_the_slot() {
    let asks = |to, first| Does::Asks {
        work: 100 * US,
        to,
        first,
    };
    let jobs = vec![
        Job::new(asks(1, true)).vcpu(0, 0),
        Job::new(asks(0, false)).vcpu(0, 1),
    ];
    let (outcome, _) = starts(2, jobs, STRICT, SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.45), "{shares:?}");
}

/// Two VMs of four vCPUs on four pCPUs, of which two each have nothing to do: both fit in a slot.
#[test]
fn strict_gives_gangs_that_fit_the_same_slot() {
    let once = |vm, n| Job::new(Does::Once { work: MS }).vcpu(vm, n);
    let of_vm = |vm| [from(0, vm, 0), from(0, vm, 1), once(vm, 2), once(vm, 3)];
    let jobs: Vec<Job> = (0..2).flat_map(of_vm).collect();
    let (outcome, _) = starts(4, jobs, STRICT, SEC);
    let shares = run_shares(&outcome);
    for hog in [0, 1, 4, 5] {
        assert!(shares[hog] > 0.97, "{shares:?}");
    }
}

/// A vCPU of VM 0 wakes in the last moment of its slot, on a pCPU that takes longer than that to get going
/// and belongs to VM 1 by then: both vCPUs of VM 1 have their slot all the same, however long that one slept.
#[test]
fn strict_gives_the_next_slot_to_its_owner_where_a_pcpu_is_just_waking() {
    let wakes = 33 * US;
    let mut params = host("1n1l2c1t", 1000);
    params.costs.idle_wake = wakes;
    for slept in [0, 2 * SEC] {
        // The first slot begins when the first pCPU has got going.
        let ends = wakes + slept + 10 * MS;
        let jobs = vec![
            from(0, 0, 0),
            from(ends - 10 * US, 0, 1),
            from(0, 1, 0),
            from(0, 1, 1),
        ];
        let load = Jobs::new(jobs, 1);
        let (_, runs) = run(&params, placed(&params, STRICT), load, 0, ends + 100 * MS);
        for vcpu in [2, 3] {
            let starts = of_task(&runs, vcpu);
            let next = starts.iter().find(|at| **at >= ends);
            assert!(
                next.is_some_and(|at| *at <= ends + wakes),
                "{vcpu} starts at {starts:?} ns, not from {ends} on"
            );
        }
    }
}

/// VM 0 has one vCPU that computes and one that wakes in its slot: that gets a pCPU if there is one that
/// nobody has. Else the two need a slot with two pCPUs: that at 10 ms is VM 1's first, which takes two of
/// the three, so it is that at 20 ms.
#[test]
fn strict_gives_who_wakes_in_the_slot_what_is_available() {
    let jobs = |others| {
        let own = vec![from(0, 0, 0), from(4 * MS, 0, 1)];
        let others = (0..others).map(|n| from(0, 1, n));
        own.into_iter().chain(others).collect()
    };
    let (_, runs) = starts(3, jobs(1), STRICT, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 4 * MS);
    let (_, runs) = starts(3, jobs(2), STRICT, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 20 * MS);
}

/// Hogs of VMs of so many vCPUs, each of which may use these pCPUs only.
fn hogs_on(vms: &[(u32, &str)]) -> Vec<Job> {
    let vcpus = |((size, on), vm): (&(u32, &str), u32)| {
        let vcpu = |n| from(0, vm, n).on(on);
        (0..*size).map(vcpu).collect::<Vec<_>>()
    };
    vms.iter().zip(0..).flat_map(vcpus).collect()
}

/// A VM that may not run on a pCPU gets no slot there: each part of the host is shared by the VMs
/// that may use it, and none of it idles. VMs of two parts do not get fewer turns for being many;
/// more vCPUs than pCPUs are served in part.
#[test]
fn strict_gives_vms_no_pcpus_that_they_may_not_use() {
    type Case<'a> = (u32, &'a [(u32, &'a str)], &'a [f64]);
    let third = 1.0 / 3.0;
    let cases: [Case<'_>; 5] = [
        (
            2,
            &[(1, "0"), (1, "0"), (1, "0"), (1, "0-1")],
            &[third, third, third, 1.0],
        ),
        (
            8,
            &[
                (4, "0-3"),
                (4, "0-3"),
                (4, "0-3"),
                (4, "4-7"),
                (4, "4-7"),
                (4, "4-7"),
            ],
            &[third; 24],
        ),
        (
            4,
            &[(2, "0-1"), (2, "0-1"), (2, "0-1"), (2, "2-3"), (2, "2-3")],
            &[third, third, third, third, third, third, 0.5, 0.5, 0.5, 0.5],
        ),
        (
            4,
            &[(2, "0-1"), (2, "2-3"), (2, "2-3"), (2, "0-1"), (2, "2-3")],
            &[0.5, 0.5, third, third, third, third, 0.5, 0.5, third, third],
        ),
        (
            4,
            &[(4, "0-1"), (2, "2-3")],
            &[0.5, 0.5, 0.5, 0.5, 1.0, 1.0],
        ),
    ];
    for (pcpus, vms, wanted) in cases {
        let (outcome, _) = starts(pcpus, hogs_on(vms), STRICT, 10 * SEC);
        let shares = run_shares(&outcome);
        let kept = |(share, wanted): (&f64, &f64)| (share - wanted).abs() < 0.02;
        assert!(shares.iter().zip(wanted).all(kept), "{vms:?}: {shares:?}");
        assert!(outcome.idle_share < 0.01, "{vms:?}: {}", outcome.idle_share);
    }
}

/// On cores of two hardware threads: the cores that two tasks run on in the end.
fn shared_cores(runs: &[(Nanos, PcpuId, TaskId)]) -> usize {
    let mut at = BTreeMap::new();
    for (_, cpu, task) in runs {
        at.insert(*task, cpu.0 / 2);
    }
    let cores: BTreeSet<u32> = at.values().copied().collect();
    at.len() - cores.len()
}

/// VMs that need no more than half of the hardware threads have cores of their own, also those of their vCPUs
/// that wake in the slot.
#[test]
fn strict_gives_cores_before_hardware_threads() {
    let late = |vms: &[u32]| {
        hogs(vms, 0)
            .into_iter()
            .chain([from(4 * MS, 0, vms[0])])
            .collect()
    };
    let cases: [(u32, Vec<Job>, usize); 7] = [
        (8, hogs(&[4], 0), 0),
        (2, hogs(&[2], 0), 0),
        (2, hogs(&[1, 1], 0), 0),
        (8, hogs(&[3, 4, 1], 0), 0),
        (2, late(&[1]), 0),
        (3, late(&[1, 1]), 0),
        (2, hogs(&[3], 0), 1),
    ];
    for (cores, jobs, shared) in cases {
        let params = host(&format!("1n1l{cores}c2t"), 1000);
        for end in [9 * MS, SEC] {
            let load = Jobs::new(jobs.clone(), 1);
            let (_, runs) = run(&params, placed(&params, STRICT), load, 0, end);
            assert_eq!(
                shared_cores(&runs),
                shared,
                "{jobs:?} on {cores} cores at {end}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The same of gangs, but for idle pCPUs: those are what some of them are about.
    #[test]
    fn gangs_starve_nobody(
        pcpus in 1u32..9,
        mut tasks in prop::collection::vec(pattern(3), 1..20),
        gang in prop::sample::select(gangs().to_vec()),
        placement in prop_oneof![Just(Placement::LoadConscious), Just(Placement::Balance)],
        weight in prop_oneof![Just(None), (1u32..=10_000).prop_map(Some)],
        seed in any::<u64>(),
    ) {
        number(&mut tasks);
        let count = tasks.len() as u64;
        let load = Patterns::new(tasks, &[weight; 3], seed).quiet_from(3 * SEC);
        let outcome = run_gangs(pcpus, load, placement, gang, 6 * SEC);
        for (name, _, totals) in &outcome.tasks {
            prop_assert!(totals.run > 0, "{name} never ran");
        }
        for vm in &outcome.vms {
            let bound = SEC + 200 * MS * count;
            prop_assert!(vm.ready_waits.max() < bound, "ready for {} ns", vm.ready_waits.max());
        }
    }
}

/// Two VMs ask for slots of a quarter of an hour, and whose slot it is goes to sleep for good: the other
/// one is run now and then all the same, though its pCPUs idle and nothing happens there.
#[test]
fn slots_without_end_starve_nobody() {
    let gang = Gang::Strict(Slots {
        length: 900 * SEC,
        fill: false,
    });
    let once = |n| Job::new(Does::Once { work: 10 * MS }).vcpu(0, n);
    let jobs = vec![once(0), once(1), from(MS, 1, 0), from(MS, 1, 1)];
    let (_, runs) = starts(2, jobs, gang, 10 * SEC);
    for task in [2, 3] {
        let mut before = 0;
        for at in of_task(&runs, task).into_iter().chain([10 * SEC]) {
            assert!(at - before < 1300 * MS, "{task}: {before} to {at}");
            before = at;
        }
    }
}

/// VMs of so many vCPUs that compute from `begin` on.
fn hogs(sizes: &[u32], begin: Nanos) -> Vec<Job> {
    let vms = sizes.iter().zip(0..);
    vms.flat_map(|(&size, vm)| (0..size).map(move |n| from(begin, vm, n)))
        .collect()
}

/// Two gangs that call their siblings whenever one of them starts, and one vCPU each on three of four pCPUs:
/// each of the eleven is owed 0.36 of a pCPU.
#[test]
fn who_calls_siblings_leaves_others_their_share() {
    for gang in [Gang::Dynamic, Gang::RelaxedAll(Skew::default())] {
        let params = host("1n1l4c1t", 1000);
        let jobs = Jobs::new(hogs(&[4, 4, 1, 1, 1], MS), 1);
        let (outcome, _) = run(&params, placed(&params, gang), jobs, SEC, 6 * SEC);
        for (task, share) in run_shares(&outcome).into_iter().enumerate() {
            assert!(share > 0.2, "task {task} has {share} under {gang:?}");
        }
    }
}

/// Sleeps most of the time and computes a little.
fn sleeper(vm: u32) -> Job {
    let does = Does::Cycles {
        work: 50 * US,
        sleep: MS,
        spread: 30,
    };
    Job::new(does).vcpu(vm, 0)
}

/// Two gangs of two on two pCPUs call each other's places all the time; one vCPU that sleeps and wakes there
/// is served within a few turns.
#[test]
fn who_calls_siblings_leaves_sleepers_their_moment() {
    for gang in gangs() {
        if matches!(gang, Gang::Strict(_)) {
            continue; // one has a slot of its own, and waits for it
        }
        let jobs = hogs(&[2, 2], MS).into_iter().chain([sleeper(2)]).collect();
        let (outcome, _) = starts(2, jobs, gang, 4 * SEC);
        let longest = outcome.vms[2].ready_waits.max();
        assert!(longest < 20 * MS, "{gang:?}: {longest} ns");
    }
}

/// Two pairs of vCPUs that wake each other, beside a VM that computes: that one does not take its pCPUs back by a call
/// each time that one of them waits.
#[test]
fn who_calls_siblings_leaves_those_that_wake_each_other_their_share() {
    let share = |gang| {
        let hands = |n: u32| Does::Hands {
            work: 200 * US,
            to: n ^ 1,
            first: n.is_multiple_of(2),
        };
        let handing = (0..4).map(|n| Job::new(hands(n)).vcpu(0, n));
        let computing = (0..4).map(|n| from(MS, 1, n));
        let (outcome, _) = starts(4, handing.chain(computing).collect(), gang, 4 * SEC);
        run_shares(&outcome)[..4].iter().sum::<f64>()
    };
    let (called, without) = (share(Gang::Dynamic), share(Gang::None));
    assert!(called > 0.7 * without, "{called}, {without} without calls");
}

/// Seven vCPUs that compute and one that sleeps for most of the time, on four pCPUs: who shares its pCPU
/// with the sleeper alone takes turns with the others at that.
#[test]
fn who_is_beside_a_sleeper_has_its_share_and_no_more() {
    let jobs = || {
        let sizes = [1; 7];
        let computing = hogs(&sizes, MS).into_iter();
        computing.chain([sleeper(7)]).collect::<Vec<Job>>()
    };
    let params = host("1n1l4c1t", 1000);
    let free = [Gang::None, Gang::Dynamic, Gang::Demand(Boost::default())];
    for gang in free.into_iter().chain([Gang::Relaxed(Skew::default())]) {
        let load = Jobs::new(jobs(), 1);
        let (outcome, _) = run(&params, placed(&params, gang), load, 5 * SEC, 25 * SEC);
        for share in &run_shares(&outcome)[..7] {
            assert!((share - 3.95 / 7.0).abs() < 0.1, "{gang:?}: {share}");
        }
    }
}

/// Two pCPUs have three vCPUs, four others nine: the latter, more crowded, do not keep the former from
/// taking turns.
#[test]
fn the_crowd_of_other_pcpus_keeps_nobody_from_taking_turns() {
    let few = (0..3).map(|n| from(MS, n, 0).on("0-1"));
    let many = (3..12).map(|n| from(MS, n, 0).on("2-5"));
    let params = host("1n1l6c1t", 1000);
    let load = Jobs::new(few.chain(many).collect(), 1);
    let (outcome, _) = run(
        &params,
        placed(&params, Gang::None),
        load,
        5 * SEC,
        25 * SEC,
    );
    for share in &run_shares(&outcome)[..3] {
        assert!((share - 2.0 / 3.0).abs() < 0.15, "{share}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    /// No task is lost or run twice, affinity always holds, no task starves.
    #[test]
    fn gangs_serve_every_scene(
        scene in scenes(),
        gang in prop::sample::select(gangs().to_vec()),
    ) {
        is_served(scene, 4 * SEC, |params| placed(params, gang))?;
    }

    /// Strict: all of a VM's vCPUs run, or none, and VMs take turns.
    #[test]
    fn strict_never_starts_a_part(
        sizes in prop::collection::vec(1u32..5, 1..6),
        pcpus in 4u32..9,
    ) {
        let (outcome, _) = starts(pcpus, hogs(&sizes, 0), STRICT, 2 * SEC);
        for (vm, size) in outcome.vms.iter().zip(&sizes) {
            let skew = &vm.siblings;
            prop_assert_eq!((skew.never, skew.co_starts.max()), (0, 0));
            prop_assert_eq!(skew.together, skew.together_due);
            let least = 2 * SEC / sizes.len() as u64 - 20 * MS;
            prop_assert!(vm.vcpus.iter().all(|vcpu| vcpu.run >= least), "{} of {:?}", size, vm);
        }
    }

    /// Relaxed: no vCPU gets further ahead than what stops it and one look later.
    #[test]
    fn relaxed_bounds_the_skew(
        sizes in prop::collection::vec(1u32..5, 1..6),
        pcpus in 4u32..9,
        stop in 2u64..10,
    ) {
        let skew = Skew { stop: stop * MS, resume: stop * MS / 2, sample: MS };
        // Not at 0, which the dispatcher takes for "never".
        let jobs = hogs(&sizes, MS);
        for gang in [Gang::Relaxed(skew), Gang::RelaxedAll(skew)] {
            let (outcome, _) = starts(pcpus, jobs.clone(), gang, 2 * SEC);
            for vm in &outcome.vms {
                let most = vm.siblings.progress.max();
                prop_assert!(most <= (skew.stop + skew.sample) * 1001 / 1000, "{gang:?}: {most} ns");
            }
        }
    }
}
