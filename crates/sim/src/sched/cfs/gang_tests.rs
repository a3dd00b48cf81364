// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling added to CFS: the papers' promises by hand, and what holds for any VMs.

use super::{Cfs, CfsParams, Gangs, Siblings};
use crate::host::{Costs, Host, HostParams, TaskState};
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::testing::{Does, Job, Jobs, host, run, run_shares, shared};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, Nanos, PcpuId, TaskId};
use proptest::prelude::*;

const BALANCE: (Siblings, Gangs) = (Siblings::Apart, Gangs::None);
const DYNAMIC: (Siblings, Gangs) = (Siblings::Apart, Gangs::Dynamic);

fn demand() -> (Siblings, Gangs) {
    (Siblings::Light(150), Gangs::Demand(Boost::default()))
}

fn cfs(name: &str, (siblings, gangs): (Siblings, Gangs), params: &HostParams) -> Cfs {
    let preset = CfsParams::preset(name, params.topology.pcpus()).unwrap();
    let settings = CfsParams {
        siblings,
        gangs,
        ..preset
    };
    Cfs::new(settings, params)
}

fn from(from: Nanos, vm: u32, number: u32) -> Job {
    Job::new(Does::Hog { from }).vcpu(vm, number)
}

fn cycles(work: Nanos, sleep: Nanos) -> Does {
    Does::Cycles {
        work,
        sleep,
        spread: 50,
    }
}

fn asks(work: Nanos, to: u32, first: bool) -> Does {
    Does::Asks { work, to, first }
}

/// When `task` first began to run.
fn starts(runs: &[(Nanos, PcpuId, TaskId)], task: u32) -> Nanos {
    runs.iter().find(|run| run.2 == TaskId(task)).unwrap().0
}

/// Algorithm 3: pCPU 0 is free for the first vCPU; the hog of pCPU 1 has run for too short a time to lose it in fair
/// order.
#[test]
fn the_first_sibling_calls_the_other() {
    let late = 1500 * US;
    let jobs = vec![
        from(0, 0, 0).on("1"),
        from(late, 1, 0).on("0"),
        from(late, 1, 1).on("1"),
    ];
    let starts_with = |how| {
        let params = host("1n1l2c1t", 1000);
        let load = Jobs::new(jobs.clone(), 1);
        let (_, runs) = run(&params, cfs("4.x", how, &params), load, 0, 40 * MS);
        (starts(&runs, 1), starts(&runs, 2))
    };
    assert_eq!(starts_with(DYNAMIC), (late, late));
    let (first, second) = starts_with(BALANCE);
    assert!(first == late && second > late + MS, "{second}");
}

/// The outcome is the same where siblings may share a pCPU: nothing keeps them apart, and calls go to those on other
/// pCPUs.
#[test]
fn siblings_that_are_free_are_called_too() {
    let late = 1500 * US;
    let jobs = vec![
        from(0, 0, 0).on("1"),
        from(late, 1, 0).on("0"),
        from(late, 1, 1).on("1"),
    ];
    let params = host("1n1l2c1t", 1000);
    let free = cfs("4.x", (Siblings::Free, Gangs::Dynamic), &params);
    let (_, runs) = run(&params, free, Jobs::new(jobs, 1), 0, 40 * MS);
    assert_eq!((starts(&runs, 1), starts(&runs, 2)), (late, late));
}

/// Three VMs of four hogs on four pCPUs: whenever a vCPU begins while none of its siblings runs, all of them run within
/// an interrupt and a switch, unless its turn is over before.
#[test]
fn gangs_start_together() {
    let mut params = host("1n2l2c1t", 1000);
    params.costs = Costs {
        timer: 0,
        ..Costs::default()
    };
    params.tick_skew = true;
    let jobs = (0..12).map(|n| from(u64::from(n) * 777 * US, n / 4, n % 4));
    let load = Jobs::new(jobs.collect(), 1);
    let dynamic = cfs("4.x", DYNAMIC, &params);
    let (outcome, runs) = run(&params, dynamic, load, 0, 2 * SEC);
    assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
    let bound = params.costs.ipi + params.costs.switch;
    let (mut current, mut firsts, mut together) = ([None; 4], 0, 0);
    for (n, &(at, cpu, task)) in runs.iter().enumerate() {
        let vm = task.0 / 4;
        let elsewhere = |other: usize| other != cpu.index() && current[other] == Some(vm);
        let first = !(0..4).any(elsewhere);
        current[cpu.index()] = Some(vm);
        // All of them have arrived by now.
        if !first || at < 100 * MS {
            continue;
        }
        let soon = runs[n + 1..].iter().take_while(|run| run.0 <= at + bound);
        let soon: Vec<_> = soon.collect();
        firsts += 1;
        let over = soon.iter().any(|run| run.1 == cpu);
        let siblings = soon.iter().filter(|run| run.2.0 / 4 == vm).count();
        together += u32::from(over || siblings == 3);
    }
    assert!(firsts > 100, "{firsts}");
    assert_eq!(together, firsts);
}

/// One of three siblings always runs, having a pCPU to itself. The other two, which share pCPUs with a hog each, still
/// call each other: first is the one that is given its turn while none leads.
#[test]
fn a_sibling_that_always_runs_does_not_end_calls() {
    let together = |how| {
        let mut params = host("1n1l3c1t", 1000);
        params.tick_skew = true;
        let here = |n: u32| ["0", "1", "2"][n as usize];
        let vcpus = (0..3).map(|n| from(0, 0, n).on(here(n)));
        let hogs = (1..3).map(|n| from(u64::from(n) * 7 * MS, n, 0).on(here(n)));
        let load = Jobs::new(vcpus.chain(hogs).collect(), 1);
        let (_, runs) = run(&params, cfs("4.x", how, &params), load, 0, 3 * SEC);
        let (mut current, mut last, mut both, mut one) = ([None; 3], 0, 0, 0);
        for (at, cpu, task) in runs {
            let running = |n: u32| current.contains(&Some(TaskId(n)));
            one += (at - last) * Nanos::from(running(1));
            both += (at - last) * Nanos::from(running(1) && running(2));
            (current[cpu.index()], last) = (Some(task), at);
        }
        both as f64 / one as f64
    };
    let (called, alone) = (together(DYNAMIC), together(BALANCE));
    assert!(called > 0.9 && alone < 0.8, "{called}, {alone} without");
}

/// Even where siblings wake up and sleep, no runqueue has two of them.
#[test]
fn called_siblings_stay_apart() {
    let params = host("1n2l2c1t", 1000);
    let jobs = (0..12).map(|n| Job::new(cycles(2 * MS, 2 * MS)).vcpu(n / 4, n % 4));
    let load = Jobs::new(jobs.collect(), 2);
    let dynamic = cfs("2.6.33", DYNAMIC, &params);
    let (outcome, _) = run(&params, dynamic, load, SEC, 5 * SEC);
    assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
}

/// What tasks get of a pCPU in a second.
fn shares_in_a_second(how: (Siblings, Gangs), jobs: Vec<Job>) -> Vec<f64> {
    let params = host("1n1l4c1t", 1000);
    let load = Jobs::new(jobs, 3);
    let (outcome, _) = run(&params, cfs("4.x", how, &params), load, SEC, 2 * SEC);
    run_shares(&outcome)
}

/// A VM of one vCPU shares pCPU 0 with a VM of four vCPUs that compute, or that come and go: calls are charged, and
/// half of the pCPU is the single vCPU's, give or take a tenth. Where a vCPU that wakes all the time calls a sibling
/// that computes before that sibling has made up for the last call, the single vCPU has less, until the sibling is as
/// far ahead as calls allow.
#[test]
fn a_lone_hog_has_its_share_beside_a_gang() {
    let beside = |does: &dyn Fn(u32) -> Does| {
        let here = |n: u32| ["0", "1", "2", "3"][n as usize];
        let gang = (0..4).map(|n| Job::new(does(n)).vcpu(0, n).on(here(n)));
        let lone = Job::hog().vcpu(1, 0).on("0");
        shares_in_a_second(DYNAMIC, gang.chain([lone]).collect())[4]
    };
    let hogs = beside(&|_| Does::Hog { from: 0 });
    let coming = beside(&|_| cycles(3 * MS, MS));
    // The vCPU that is alone on pCPU 1 comes and goes, and each time calls the one on pCPU 0.
    let calling = beside(&|n| match n {
        0 => Does::Hog { from: 0 },
        1 => cycles(200 * US, 600 * US),
        _ => Does::Once { work: MS },
    });
    for share in [hogs, coming] {
        assert!((share - 0.5).abs() < 0.05, "{share}");
    }
    assert!((0.1..0.55).contains(&calling), "{calling}");
}

/// A VM that is owed 0.4 of two pCPUs and wants 0.1, and four VMs of two vCPUs that compute, whose calls coincide with
/// its turns where ticks are in step. Balancing moves it between the pCPUs time and again, which does not make up for
/// that.
#[test]
fn calls_leave_a_light_vcpu_what_it_wants() {
    for preset in ["2.6.33", "4.x"] {
        for seed in 1..=6 {
            let params = host("1n1l2c1t", 250);
            let light = Job::new(cycles(20 * MS, 180 * MS)).vcpu(0, 0);
            let gangs = (0..8).map(|n| from(0, 1 + n / 2, n % 2));
            let jobs = [light].into_iter().chain(gangs).collect();
            let load = Jobs::new(jobs, seed).with_vm_weights(&[100; 5]);
            let dynamic = cfs(preset, DYNAMIC, &params);
            let (outcome, _) = run(&params, dynamic, load, SEC, 6 * SEC);
            let share = run_shares(&outcome)[0];
            assert!(share > 0.06, "{preset} {seed}: {share}");
        }
    }
}

/// Two pairs of vCPUs that wake each other, sharing pCPUs with a VM that computes: that VM does not take its pCPUs back
/// each time one of them waits.
#[test]
fn a_vcpu_that_wakes_siblings_keeps_its_share_beside_a_gang_that_computes() {
    let share = |how| {
        let asking = (0..4).map(|n: u32| {
            let hands = Does::Hands {
                work: 200 * US,
                to: n ^ 1,
                first: n.is_multiple_of(2),
            };
            Job::new(hands).vcpu(0, n)
        });
        let computing = (0..4).map(|n| from(MS, 1, n));
        let jobs = asking.chain(computing).collect();
        shares_in_a_second(how, jobs)[..4].iter().sum::<f64>()
    };
    let (called, without) = (share(DYNAMIC), share(BALANCE));
    assert!(called > 0.7 * without, "{called}, {without} without calls");
}

/// A VM of 16 vCPUs that hand work round in fours, each sharing a pCPU with a vCPU of another VM that computes. Each
/// has about a fifth of its VM's weight, so that the granularity of 5 ms is more in its virtual time than a sleeper's
/// credit of 15 ms. How long do they wait, per wake-up?
fn wait_of_the_woken(how: (Siblings, Gangs)) -> (Nanos, u64) {
    let params = host("1n1l16c1t", 250);
    let here = |n: u32| n.to_string();
    let hogs = (0..16).map(|n| from(0, 0, n).on(&here(n)));
    let ring = |n: u32| asks(100 * US, 16 + n / 4 * 4 + (n + 1) % 4, n.is_multiple_of(4));
    let asking = (0..16).map(|n| Job::new(ring(n)).vcpu(1, n).on(&here(n)));
    let load = Jobs::new(hogs.chain(asking).collect(), 7).with_vm_weights(&[100, 100]);
    let (outcome, _) = run(&params, cfs("4.x", how, &params), load, SEC, 2 * SEC);
    let asking = outcome.tasks[16..].iter().map(|task| task.2);
    let wakeups = asking.clone().map(|totals| totals.wakeups).sum::<u64>();
    (
        asking.map(|totals| totals.ready).sum::<Nanos>() / wakeups.max(1),
        wakeups,
    )
}

/// As in the published code, it is the waker that is not preempted.
#[test]
fn a_vcpu_woken_by_a_sibling_waits_as_ever() {
    let (spared, often) = wait_of_the_woken(demand());
    let (waits, seldom) = wait_of_the_woken(BALANCE);
    assert!(waits > MS && spared > MS, "{spared} and {waits} ns");
    assert!(often < 2 * seldom, "{often} and {seldom} times");
}

/// VMs' shares of two pCPUs, and the longest waits: siblings that wake each other all the time, `each` on each pCPU,
/// and a VM that computes.
fn shares_of_wakers(each: u32) -> ([f64; 2], Nanos) {
    let here = |n: u32| ["0", "1"][n as usize % 2];
    let asking = (0..2 * each).map(|n| {
        let job = Job::new(asks(50 * US, n ^ 1, n.is_multiple_of(2)));
        job.vcpu(0, n).on(here(n))
    });
    let others = (0..2).map(|n| from(MS, 1, n).on(here(n)));
    let params = host("1n1l2c1t", 1000);
    let load = Jobs::new(asking.chain(others).collect(), 1).with_vm_weights(&[100, 100]);
    let (outcome, _) = run(&params, cfs("4.x", demand(), &params), load, SEC, 5 * SEC);
    let shares = run_shares(&outcome);
    let (asking, others) = shares.split_at(2 * each as usize);
    let waits = outcome.vms.iter().map(|vm| vm.ready_waits.max());
    (
        [asking.iter().sum(), others.iter().sum()],
        waits.max().unwrap(),
    )
}

/// Not being preempted gives a VM no more than its share in the long run, and no vCPU waits for long: two such vCPUs,
/// one of which is asleep at a time, have 0.4 of their VM's weight each, against half of the other's.
#[test]
fn a_vcpu_that_wakes_siblings_keeps_to_its_share() {
    for (each, bound) in [(1, 1.02), (2, 2.0 * 0.8 / 1.3 + 0.02)] {
        let (vms, longest) = shares_of_wakers(each);
        assert!(vms[0] < bound && vms[1] > 1.98 - bound, "{each}: {vms:?}");
        assert!(longest < 50 * MS, "{longest}");
    }
}

/// Load-conscious placement may put siblings on one pCPU, where each wakes another: they take turns.
#[test]
fn stacked_siblings_that_wake_each_other_take_turns() {
    let jobs = (0..4).map(|n| Job::new(asks(50 * US, n ^ 1, true)).vcpu(0, n));
    let params = host("1n1l2c1t", 1000);
    let load = Jobs::new(jobs.collect(), 1);
    let (outcome, runs) = run(&params, cfs("4.x", demand(), &params), load, 0, SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.2), "{shares:?}");
    assert!(runs.len() < 100_000, "{} switches", runs.len());
}

/// CFS on a host where at each tick siblings of the first task wait for it to flush its TLB.
struct Flushing(Cfs);

impl HostScheduler for Flushing {
    forward! { 0: know_vms know_cgroups add wake block pick timer directs_yields yield_pcpu flush_ipi }

    fn tick(&mut self, host: &mut Host, cpu: PcpuId) {
        self.0.tick(host, cpu);
        if host.task(TaskId(0)).state == TaskState::Ready {
            self.0.flush_ipi(host, TaskId(0));
        }
    }
}

/// A vCPU that computes and is waited for all the time, and a hog: the vCPU has turns of 100 us, 500 us in all until
/// its next turn in fair order, which is longer than a millisecond.
#[test]
fn urgent_time_never_exceeds_the_limit() {
    let params = host("1n1l1c1t", 2500);
    let how = (Siblings::Light(150), Gangs::Demand(Boost::default()));
    let load = Jobs::new(vec![from(0, 0, 0), from(0, 1, 0)], 1);
    let flushing = Flushing(cfs("4.x", how, &params));
    let (outcome, runs) = run(&params, flushing, load, 0, 2 * SEC);
    let (mut short, mut most, mut count) = (0, 0, 0);
    for pair in runs.windows(2) {
        let time = pair[1].0 - pair[0].0;
        match (pair[0].2, time < MS) {
            (TaskId(0), true) => (short, count) = (short + time, count + 1),
            (TaskId(0), false) => short = 0,
            _ => {}
        }
        most = most.max(short);
    }
    assert_eq!(
        (most, count > 100),
        (500 * US, true),
        "{count} urgent turns"
    );
    let shares = run_shares(&outcome);
    assert!(
        shares.iter().all(|share| (share - 0.5).abs() < 0.02),
        "{shares:?}"
    );
}

/// One of three pCPUs is crowded by others, and the other two have siblings: a vCPU that wakes goes
/// to one of those under load-conscious balance scheduling, and to the crowded one under balance
/// scheduling.
#[test]
fn light_pcpus_come_before_ones_without_siblings() {
    let stacked = |how| {
        let params = host("1n1l3c1t", 1000);
        let crowd = (0..6).map(|_| Job::hog().on("2"));
        let vcpus = (0..2).map(|n| from(0, 0, n).on(["0", "1"][n as usize]));
        let third = Job::new(cycles(MS, 4 * MS)).vcpu(0, 2);
        let load = Jobs::new(crowd.chain(vcpus).chain([third]).collect(), 1);
        let (outcome, _) = run(&params, cfs("4.x", how, &params), load, SEC, 2 * SEC);
        outcome.stacking[2..].iter().sum::<f64>()
    };
    assert_eq!(stacked(BALANCE), 0.0);
    assert!(stacked(demand()) > 0.05, "{}", stacked(demand()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// No task is lost, run twice, off its mask or left out, whatever the gangs.
    #[test]
    fn random_gangs_are_served(
        scene in shared::scenes(),
        preset in 0usize..CfsParams::PRESETS.len(),
        how in prop::sample::select(vec![DYNAMIC, demand()]),
    ) {
        // Masks may keep a task from a pCPU that idles; see the same test for plain CFS.
        let name = CfsParams::PRESETS[preset];
        shared::is_served(scene, Nanos::MAX, |params| cfs(name, how, params))?;
    }

    /// As long as a VM has no more vCPUs than there are pCPUs, no two of them are on one pCPU.
    #[test]
    fn random_gangs_stay_apart(
        pcpus in 1u32..7,
        vms in 1u32..5,
        works in prop::collection::vec((50u64..5000, 50u64..5000), 30),
        seed in any::<u64>(),
    ) {
        let params = host(&format!("1n1l{pcpus}c1t"), 1000);
        let job = |n: u32| {
            let (work, sleep) = works[n as usize % works.len()];
            Job::new(cycles(work * US, sleep * US)).vcpu(n / pcpus, n % pcpus)
        };
        let load = Jobs::new((0..vms * pcpus).map(job).collect(), seed);
        let (outcome, _) = run(&params, cfs("4.x", DYNAMIC, &params), load, 0, SEC);
        prop_assert_eq!(outcome.stacking.iter().skip(2).sum::<f64>(), 0.0);
        for (name, _, totals) in &outcome.tasks {
            prop_assert!(totals.run > 0, "{} never ran", name);
        }
    }
}
