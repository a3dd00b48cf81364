// SPDX-License-Identifier: GPL-2.0-only
//! What gangs leave to others: under every mode each vCPU has its share, and none starves.

use super::{from, gangs, hogs, placed, placed_with_slice, starts};
use crate::host::Totals;
use crate::load::{Pattern, Patterns};
use crate::sched::dispatcher::tests::{number, pattern, run_gangs};
use crate::testing::shared::{is_served, scenes};
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, Gang, Placement, Skew, Slots};
use proptest::prelude::*;

/// Turns so long and so many that each vCPU waits for longer than a second: none starves, and a vCPU that wakes and is
/// owed more than they are does not wait behind them.
#[test]
fn turns_that_take_long_to_come_round_keep_nobody_from_waking() {
    let wakes = Does::Cycles {
        work: 100 * US,
        sleep: 50 * MS,
        spread: 50,
    };
    let mut jobs = vec![Job::new(wakes).vcpu(0, 0)];
    jobs.extend((1..41).map(|vm| Job::hog().vcpu(vm, 0)));
    let params = host("1n1l1c1t", 1000);
    let sched = placed_with_slice(&params, Gang::Dynamic, 50 * MS);
    let (outcome, _) = run(&params, sched, Jobs::new(jobs, 1), 2 * SEC, 20 * SEC);
    let most = outcome.vms[0].ready_waits.max();
    assert!(most < 100 * MS, "{most} ns");
}

/// What each vCPU of `vms` VMs of `vcpus` hogs gets of a pCPU, and how much of the host idles.
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

/// Three VMs of five vCPUs on eight pCPUs: two do not fit into one slot.
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

/// Two gangs that call their siblings whenever one of them starts, and one vCPU each on three of four pCPUs:
/// each of the eleven vCPUs is owed 0.36 of a pCPU.
#[test]
fn a_gang_that_calls_siblings_leaves_others_their_share() {
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

/// Two gangs of two on two pCPUs call siblings to each other's pCPUs all the time; a vCPU that sleeps and wakes there
/// is served within a few turns.
#[test]
fn a_gang_that_calls_siblings_leaves_sleepers_their_moment() {
    for gang in gangs() {
        if matches!(gang, Gang::Strict(_)) {
            continue; // such a vCPU has a slot of its own, and waits for it
        }
        let jobs = hogs(&[2, 2], MS).into_iter().chain([sleeper(2)]).collect();
        let (outcome, _) = starts(2, jobs, gang, 4 * SEC);
        let longest = outcome.vms[2].ready_waits.max();
        assert!(longest < 20 * MS, "{gang:?}: {longest} ns");
    }
}

/// Two pairs of vCPUs that wake each other, sharing pCPUs with a VM that computes: that VM does not take its pCPUs back
/// by a call each time one of them waits.
#[test]
fn a_gang_that_calls_siblings_leaves_those_that_wake_each_other_their_share() {
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

/// Two gangs of four and a VM of one vCPU on four pCPUs: calls keep that vCPU waiting for some slices, which it gets
/// back although it is moved meanwhile.
#[test]
fn a_gang_that_calls_siblings_leaves_a_small_vm_its_share() {
    let (outcome, _) = starts(4, hogs(&[4, 4, 1], MS), Gang::Dynamic, 20 * SEC);
    let (share, longest) = (run_shares(&outcome)[8], outcome.vms[2].ready_waits.max());
    assert!(share > 0.29 && longest < 60 * MS, "{share}, {longest} ns");
}

/// Seven vCPUs that compute and one that sleeps for most of the time, on four pCPUs: the vCPUs take turns at sharing a
/// pCPU with only the sleeper.
#[test]
fn a_vcpu_beside_a_sleeper_has_its_share_and_no_more() {
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
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Every task runs and none is ready for long. Idle pCPUs are not checked: some modes leave pCPUs idle on purpose.
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
}
