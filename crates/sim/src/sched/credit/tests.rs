// SPDX-License-Identifier: GPL-2.0-only
//! Credit by hand and at random.

use super::{Credit, CreditParams};
use crate::host::HostParams;
use crate::load::{Cgroup, Cgroups, Quota};
use crate::testing::{Does, Job, Jobs, Runs, Witness, host, run, run_shares, shared};
use crate::{Outcome, Simulation};
use corun_model::Nanos;
use corun_model::time::{MS, SEC, US};
use corun_policies::{Aql, Microsliced};
use proptest::prelude::*;

fn credit(params: &HostParams) -> Credit {
    Credit::new(CreditParams::default(), 1, params)
}

/// Ten seconds of `jobs` after one second of warm-up.
fn ten_seconds(topology: &str, params: CreditParams, jobs: Jobs) -> Outcome {
    let host = host(topology, 1000);
    let sched = Credit::new(params, 1, &host);
    run(&host, sched, jobs, SEC, 11 * SEC).0
}

fn cycles(work: Nanos, sleep: Nanos) -> Job {
    Job::new(Does::Cycles {
        work,
        sleep,
        spread: 40,
    })
}

/// How long a task waits for a pCPU after a wake-up, on average.
fn latency(outcome: &Outcome, task: usize) -> Nanos {
    let totals = outcome.tasks[task].2;
    totals.ready / totals.wakeups
}

/// Shares follow weights only roughly: a vCPU that has a slice's worth to spare becomes inactive and keeps half of it,
/// and debt beyond a slice's worth is forgotten. That takes from the heaviest and gives to the lightest, the more the
/// sooner after a slice's beginning accounting is: the lightest has 0.085 to 0.102 instead of 0.077.
#[test]
fn shares_follow_weights() {
    shared::shares_follow_weights("credit", 0.35, credit);
}

#[test]
fn hogs_spread_evenly() {
    shared::hogs_spread_evenly("credit", 1000, 0.02, credit);
}

#[test]
fn affinity_wins_over_balance() {
    shared::affinity_wins_over_balance("credit", credit);
}

/// Turns on one pCPU under a policy that gives all vCPUs the same slice (`xl sched-credit -t`). With accounting every
/// 30 ms a vCPU that has credit while the others have none would have the pCPU to itself until then.
#[test]
fn one_slice_for_all_is_the_period_of_accounting_too() {
    let mut jobs = vec![cycles(60 * MS, 60 * MS); 2];
    jobs.extend([Job::hog(), Job::hog()]);
    let turns = turns(Microsliced::default(), jobs);
    let longest = turns.last().unwrap();
    assert!(*longest <= 5 * MS, "{longest}");
}

/// A slice shorter than the rate limit of a millisecond ends the protection.
#[test]
fn the_rate_limit_is_no_longer_than_a_policys_slice() {
    let turns = turns(Microsliced { slice: 300 * US }, vec![Job::hog(); 3]);
    let usual = turns[turns.len() / 2];
    assert_eq!(usual, 300 * US);
}

/// The times between the beginnings of vCPUs' turns on one pCPU under a policy, in the second second; sorted.
fn turns(policy: Microsliced, jobs: Vec<Job>) -> Vec<Nanos> {
    let host = host("1n1l1c1t", 1000);
    let runs = Runs::default();
    let vcpus = (0..).zip(jobs).map(|(vm, job)| job.vcpu(vm, 0));
    let jobs = Jobs::new(vcpus.collect(), 1);
    let witness = Box::new(Witness(runs.clone()));
    Simulation::new(
        host.clone(),
        Box::new(credit(&host)),
        Box::new(jobs),
        Some(witness),
    )
    .with_policy(Box::new(policy))
    .run(0, 2 * SEC, |_| {});
    let runs = runs.take();
    let late = runs.iter().filter(|run| run.0 > SEC).collect::<Vec<_>>();
    let mut turns: Vec<Nanos> = late.windows(2).map(|w| w[1].0 - w[0].0).collect();
    turns.sort_unstable();
    turns
}

/// A policy that deals pCPUs out by weight is told weights as Credit applies them, once per vCPU: the two vCPUs of one
/// VM have as much as any two of the other's six.
#[test]
fn pools_are_dealt_out_by_weights_per_vcpu() {
    let host = host("2n1l2c1t", 1000);
    let vm = |(vm, count)| (0..count).map(move |n| Job::hog().vcpu(vm, n));
    let jobs: Vec<Job> = [(0, 2), (1, 6)].into_iter().flat_map(vm).collect();
    let jobs = Jobs::new(jobs, 1).with_vm_weights(&[100, 100]);
    let outcome = Simulation::new(host.clone(), Box::new(credit(&host)), Box::new(jobs), None)
        .with_policy(Box::<Aql>::default())
        .run(SEC, 11 * SEC, |_| {});
    for share in run_shares(&outcome) {
        assert!((share - 0.5).abs() < 0.05, "{:?}", run_shares(&outcome));
    }
}

#[test]
fn micro_slices_are_spread() {
    shared::micro_slices_are_spread("credit", credit);
}

/// Weights count per vCPU: of two VMs with weights 300 and 100 and equally many vCPUs one gets three times as much as
/// the other (2.5 times if accounting is in a slice's first third); of two with the same weight, the one with twice the
/// vCPUs gets twice as much.
#[test]
fn vms_share_by_weight_and_vcpus() {
    let vcpus = |counts: [u32; 2]| {
        let vm = |vm: u32| (0..counts[vm as usize]).map(move |n| Job::hog().vcpu(vm, n));
        (0..2).flat_map(vm).collect::<Vec<_>>()
    };
    let of_first = |counts: [u32; 2], weights: &[u32]| {
        let jobs = Jobs::new(vcpus(counts), 1).with_vm_weights(weights);
        let shares = run_shares(&ten_seconds("1n1l2c1t", CreditParams::default(), jobs));
        shares[..counts[0] as usize].iter().sum::<f64>() / shares.iter().sum::<f64>()
    };
    let heavy = of_first([2, 2], &[300, 100]);
    assert!((heavy - 0.75).abs() < 0.04, "{heavy}");
    let wide = of_first([4, 2], &[100, 100]);
    assert!((wide - 2.0 / 3.0).abs() < 0.02, "{wide}");
}

/// A capped VM gets what its cap says, even though a pCPU idles; an uncapped one gets everything.
#[test]
fn a_cap_holds_on_an_idle_host() {
    let share = |cap| {
        let jobs = Jobs::new(vec![Job::hog().vcpu(0, 0)], 1).with_vm_caps(&[cap]);
        run_shares(&ten_seconds("1n1l2c1t", CreditParams::default(), jobs))[0]
    };
    assert!((share(25) - 0.25).abs() < 0.01, "{}", share(25));
    assert!(share(0) > 0.999);
    assert!(share(100) > 0.99, "{}", share(100));
}

/// Accounting has a time of its own, which the run's seed decides: slices do not begin or end with it. A lone capped VM
/// goes on after an accounting that leaves it with credit.
#[test]
fn accounting_is_in_step_with_nothing() {
    let host = host("1n1l1c1t", 1000);
    let phases = |seed| {
        let jobs = Jobs::new(vec![Job::hog().vcpu(0, 0)], 1).with_vm_caps(&[25]);
        let sched = Credit::new(CreditParams::default(), seed, &host);
        let runs = run(&host, sched, jobs, 0, 2 * SEC).1;
        let later = runs.iter().filter(|(at, ..)| *at > SEC);
        let mut phases: Vec<_> = later.map(|(at, ..)| at % (30 * MS)).collect();
        phases.dedup();
        phases
    };
    let (one, two) = (phases(1), phases(2));
    assert_eq!(
        (one.len(), two.len()),
        (1, 1),
        "each 30 ms: {one:?} {two:?}"
    );
    assert!(one[0] != 0 && two[0] != 0 && one != two, "{one:?} {two:?}");
}

/// Each pCPU's tick has a phase of its own, too. When a core becomes free, a vCPU that shares a
/// core goes there at the next tick that finds it running.
#[test]
fn ticks_are_in_step_with_nothing() {
    let host = host("1n1l2c2t", 1000);
    for seed in 1..=8 {
        let sched = Credit::new(CreditParams::default(), seed, &host);
        let phases: Vec<_> = sched.pcpus.iter().map(|pcpu| pcpu.tick_phase).collect();
        let mut all = phases.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4, "{phases:?}");
        let once = Job::new(Does::Once { work: 20 * MS });
        let jobs = vec![Job::hog(), Job::hog(), once.clone(), once];
        let runs = run(&host, sched, Jobs::new(jobs, 1), 0, 40 * MS).1;
        let first = phases[0].min(phases[1]);
        let moved = runs.iter().find(|(at, ..)| *at >= 20 * MS);
        assert_eq!(moved.map(|(at, ..)| *at), Some(20 * MS + first), "{runs:?}");
    }
}

/// A vCPU that was parked does not profit from waking up: it has to earn credit first.
#[test]
fn a_cap_holds_for_vcpus_that_halt() {
    let vcpus = (0..2)
        .map(|n| cycles(3 * MS, 200 * US).vcpu(0, n))
        .collect();
    let jobs = Jobs::new(vcpus, 3).with_vm_caps(&[50]);
    let shares = run_shares(&ten_seconds("1n1l2c1t", CreditParams::default(), jobs));
    let sum: f64 = shares.iter().sum();
    assert!((sum - 0.5).abs() < 0.03, "{shares:?}");
}

/// Slices end neither with accounting nor with ticks, Credit's or the host's: turns of two hogs last whole multiples of
/// 30 ms. A hog that has credit at the end of its turn, while the other one was in debt at the last accounting, has
/// another turn.
#[test]
fn slices_are_exact() {
    let params = host("1n1l1c1t", 100);
    let hogs = vec![Job::hog(), Job::hog()];
    let (_, runs) = run(&params, credit(&params), Jobs::new(hogs, 1), 0, 10 * SEC);
    let turns = runs.windows(2).map(|two| two[1].0 - two[0].0);
    let turns: Vec<_> = turns.collect();
    let one_or_two = |turn: &Nanos| [30 * MS, 60 * MS].contains(turn);
    assert!(
        turns.len() > 150 && turns.iter().all(one_or_two),
        "{turns:?}"
    );
}

/// A vCPU that only serves I/O is boosted: among hogs it runs at once (except for the rate limit of
/// a hog that has just begun). Without the boost it waits for slices to end.
#[test]
fn boost_serves_io_at_once() {
    let jobs = || {
        let hogs = (0..3).map(|_| Job::hog());
        let io = cycles(100 * US, 5 * MS);
        Jobs::new(hogs.chain([io]).collect(), 5)
    };
    let boosted = ten_seconds("1n1l1c1t", CreditParams::default(), jobs());
    assert!(latency(&boosted, 3) < 200 * US, "{}", latency(&boosted, 3));
    let params = CreditParams {
        boost: false,
        ..CreditParams::default()
    };
    let plain = ten_seconds("1n1l1c1t", params, jobs());
    assert!(latency(&plain, 3) > 5 * MS, "{}", latency(&plain, 3));
}

/// A vCPU that also computes loses the boost: ticks find it running, it uses up its share, is OVER when it wakes and
/// waits for slices of others. A shorter slice helps it, which vSlicer and AQL build on.
#[test]
fn mixed_work_loses_the_boost() {
    let jobs = || {
        let hogs = (0..3).map(|_| Job::hog());
        let mixed = cycles(9 * MS, 2 * MS);
        Jobs::new(hogs.chain([mixed]).collect(), 5)
    };
    let usual = ten_seconds("1n1l1c1t", CreditParams::default(), jobs());
    let short = CreditParams {
        slice: MS,
        ..CreditParams::default()
    };
    let short = ten_seconds("1n1l1c1t", short, jobs());
    let wait = |outcome: &Outcome| outcome.tasks[3].2.ready / outcome.tasks[3].2.switches;
    let (usual, short) = (wait(&usual), wait(&short));
    assert!(usual > 15 * MS, "{usual}");
    assert!(
        short < 5 * MS,
        "{short} with slices of 1 ms, {usual} with 30"
    );
}

/// A hog that has just begun is protected for a millisecond.
#[test]
fn the_rate_limit_delays_boosted_wake_ups() {
    let wait = |ratelimit| {
        let params = CreditParams {
            ratelimit,
            ..CreditParams::default()
        };
        let io = |n: u64| cycles((200 + n) * US, 600 * US);
        let jobs = (0..2).map(io).chain([Job::hog()]).collect();
        latency(&ten_seconds("1n1l1c1t", params, Jobs::new(jobs, 9)), 0)
    };
    let (off, on) = (wait(0), wait(MS));
    assert!(on > off + 100 * US, "{on} with, {off} without");
}

/// Where the running vCPU is in debt, one that has credit is fetched from another pCPU; among
/// equals none is.
#[test]
fn only_higher_priority_is_stolen() {
    let params = host("1n1l2c1t", 1000);
    // Two hogs on two pCPUs, both of which they may use: they stay where they are.
    let hogs = vec![Job::hog(), Job::hog()];
    let (outcome, _) = run(&params, credit(&params), Jobs::new(hogs, 1), SEC, 5 * SEC);
    assert!(outcome.tasks.iter().all(|task| task.2.migrations == 0));
    // Each pCPU has a light vCPU bound to it; the heavy one goes where that is in debt. By weight
    // it would have one pCPU to itself, but while both others have credit it waits for its turn.
    let jobs = vec![
        Job::hog().on("0").weight(100),
        Job::hog().on("1").weight(100),
        Job::hog().weight(1000),
    ];
    let (outcome, _) = run(&params, credit(&params), Jobs::new(jobs, 1), SEC, 11 * SEC);
    let shares = run_shares(&outcome);
    assert!(shares[2] > 0.8 && shares[0] > 0.5, "{shares:?}");
    assert!(outcome.tasks[2].2.migrations > 0);
}

/// Twice as many vCPUs as fit on one core wake up: the second thread of a busy core comes last.
#[test]
fn whole_cores_come_first() {
    let params = host("1n1l2c2t", 1000);
    let jobs = vec![cycles(40 * MS, 5 * MS), cycles(40 * MS, 5 * MS)];
    let (outcome, runs) = run(&params, credit(&params), Jobs::new(jobs, 4), 0, 5 * SEC);
    let mut at = [None; 2];
    let mut shared_core = 0;
    for (_, cpu, task) in runs {
        at[task.index()] = Some(cpu.0 / 2);
        shared_core += u32::from(at[0] == at[1]);
    }
    let switches: u64 = outcome.tasks.iter().map(|task| task.2.switches).sum();
    assert!(
        u64::from(shared_core) * 10 < switches,
        "{shared_core} of {switches}"
    );
}

/// A spinning vCPU that yields lets the lock holder's pCPU go to others.
#[test]
fn yielding_lets_others_go_first() {
    let spins = Job::new(Does::Spins { each: 50 * US });
    let jobs = Jobs::new(vec![spins, Job::hog()], 1);
    let shares = run_shares(&ten_seconds("1n1l1c1t", CreditParams::default(), jobs));
    assert!(shares[0] < 0.1 && shares[0] > 0.0, "{shares:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_loads_are_served(
        scene in shared::scenes(),
        slice in prop::sample::select(vec![MS, 5 * MS, 30 * MS, 100 * MS]),
        ratelimit in prop::sample::select(vec![0, MS]),
        boost: bool,
    ) {
        // No idle pCPU is told about a vCPU that goes back on a queue at the end of its slice. A
        // busy pCPU's tick sends the current vCPU away, but not the first tick that finds it if it
        // was not active before: each of up to 23 in a queue may have a slice first.
        let patience = if scene.is_free() { 24 * slice } else { Nanos::MAX };
        let params = CreditParams { slice, ratelimit, boost, ..CreditParams::default() };
        shared::is_served(scene, patience, |host| Credit::new(params, 1, host))?;
    }
}

/// VMs of one vCPU that start together do not queue up behind one pCPU while the others idle.
#[test]
fn vms_that_start_together_are_spread() {
    let short = CreditParams {
        slice: MS,
        ..CreditParams::default()
    };
    let jobs = || Jobs::new((0..16).map(|vm| Job::hog().vcpu(vm, 0)).collect(), 1);
    for params in [CreditParams::default(), short] {
        let outcome = ten_seconds("1n1l4c1t", params, jobs());
        assert!(outcome.idle_share < 0.001, "{}", outcome.idle_share);
        for share in run_shares(&outcome) {
            assert!((share - 0.25).abs() < 0.05, "{share}");
        }
    }
}

#[test]
fn pools_have_their_pcpus_and_slices() {
    shared::pools_have_their_pcpus_and_slices("credit", credit);
}

/// `cpu.max` is a cap in whole percent; the lower of the two holds.
#[test]
fn a_quota_is_a_cap() {
    let quota = |time, period| Quota {
        time,
        period,
        burst: 0,
    };
    let cap = quota(10 * MS, 100 * MS);
    assert_eq!(cap.percent(), 10);
    assert_eq!(quota(149 * MS, 100 * MS).percent(), 149);
    assert_eq!(quota(2 * MS, 3 * MS).percent(), 67);
    assert_eq!(quota(MS, SEC).percent(), 1);
    let share = |caps: &[u32], quota| {
        let own = Cgroup {
            weight: 100,
            idle: false,
            quota: Some(quota),
            within: None,
        };
        let cgroups = Cgroups {
            all: vec![own],
            of_vms: vec![Some(0)],
            ..Cgroups::default()
        };
        let jobs = Jobs::new(vec![Job::hog().vcpu(0, 0)], 1).with_vm_caps(caps);
        run_shares(&ten_seconds(
            "1n1l2c1t",
            CreditParams::default(),
            jobs.in_cgroups(cgroups),
        ))[0]
    };
    for (caps, quota, wanted) in [
        (&[0], quota(25 * MS, 100 * MS), 0.25),
        (&[10], quota(25 * MS, 100 * MS), 0.1),
        (&[50], quota(50 * MS, 200 * MS), 0.25),
    ] {
        let share = share(caps, quota);
        assert!((share - wanted).abs() < 0.01, "{share}, not {wanted}");
    }
}
