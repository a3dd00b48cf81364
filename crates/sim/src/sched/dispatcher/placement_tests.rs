// SPDX-License-Identifier: GPL-2.0-only
//! Where a task wakes up (dispatcher/placement.h).

use super::Dispatcher;
use super::tests::Placed;
use crate::host::HostParams;
use crate::sched::HostScheduler;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, DispatcherParams, Gang, PcpuId, Placement, TaskId};
use std::collections::BTreeMap;

/// pCPU 1 gets its hog at once and pCPU 0 after 20 ms; until then the third task finds pCPU 0 idle
/// whenever it wakes.
fn loads(weights: [u32; 3]) -> Vec<Job> {
    let wakes = Does::Cycles {
        work: 100 * US,
        sleep: 2 * MS,
        spread: 50,
    };
    let later = Does::Hog { from: 20 * MS };
    vec![
        Job::new(later).weight(weights[0]).on("0"),
        Job::hog().weight(weights[1]).on("1"),
        Job::new(wakes).weight(weights[2]),
    ]
}

/// On which pCPUs the task ran from the 30th millisecond on.
fn ran_on(
    params: &HostParams,
    sched: impl HostScheduler + 'static,
    jobs: Vec<Job>,
    task: u32,
) -> Vec<u32> {
    let (_, runs) = run(params, sched, Jobs::new(jobs, 1), 0, 200 * MS);
    let runs = runs.iter();
    let later = runs.filter(|run| run.0 >= 30 * MS && run.2 == TaskId(task));
    later.map(|run| run.1.0).collect()
}

/// The same in both builds: the one that looks at each pCPU, and the one that has an index.
fn goes_to(weights: [u32; 3]) -> u32 {
    let params = host("1n1l2c1t", 1000);
    let dispatcher = DispatcherParams::default();
    let each = Dispatcher::counted(dispatcher, &params);
    let runs = ran_on(&params, each, loads(weights), 2);
    let index = Dispatcher::new(dispatcher, &params);
    assert_eq!(runs, ran_on(&params, index, loads(weights), 2));
    assert!(runs.len() > 50, "{} runs", runs.len());
    *runs.last().unwrap()
}

#[test]
fn a_waking_vcpu_stays_unless_it_finds_less_load_with_it_than_it_leaves() {
    // Its last pCPU has more load than the other one, but by less than its own weight.
    assert_eq!(goes_to([110, 100, 50]), 0);
    assert_eq!(goes_to([140, 100, 50]), 0);
    assert_eq!(goes_to([160, 100, 50]), 1);
    assert_eq!(goes_to([300, 100, 50]), 1);
    // A task that weighs next to nothing moves for a small difference.
    assert_eq!(goes_to([110, 100, 5]), 1);
}

#[test]
fn a_vcpu_that_has_not_run_yet_goes_where_the_load_is_least() {
    let first_runs_on = |weights: [u32; 3]| {
        let mut jobs = loads(weights);
        jobs[2].does = Does::Hog { from: 40 * MS };
        let params = host("1n1l2c1t", 1000);
        let sched = Dispatcher::new(DispatcherParams::default(), &params);
        ran_on(&params, sched, jobs, 2)[0]
    };
    assert_eq!(first_runs_on([110, 100, 50]), 1);
    assert_eq!(first_runs_on([100, 110, 50]), 0);
}

/// A load-conscious VM does not stay on a pCPU with more than 150 % of the mean load.
#[test]
fn load_conscious_vcpus_leave_a_pcpu_that_is_not_light() {
    let goes_to = |load: u32| {
        let mut jobs = loads([load, 100, 250]);
        jobs.push(Job::hog().on("2"));
        jobs[2] = jobs[2].clone().vcpu(0, 0);
        let params = host("1n1l3c1t", 1000);
        let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
        let placed = Placed(dispatcher, Placement::LoadConscious, Gang::None);
        *ran_on(&params, placed, jobs, 2).last().unwrap()
    };
    assert_eq!(goes_to(180), 0);
    assert_ne!(goes_to(300), 0);
}

/// The same where siblings compute on all other pCPUs: a light pCPU goes before one without a sibling.
#[test]
fn load_conscious_vcpus_rather_share_a_light_pcpu_than_stay_on_one_that_is_not() {
    let runs_on = |hogs: u32| {
        let params = host("1n1l4c1t", 1000);
        let wakes = Does::Cycles {
            work: 100 * US,
            sleep: 2 * MS,
            spread: 50,
        };
        let later = Does::Hog { from: 20 * MS };
        let mut jobs: Vec<Job> = (0..hogs).map(|_| Job::new(later.clone()).on("0")).collect();
        // The vCPU is there when the hogs begin, and weighs as much as one of them.
        jobs.extend((1..4).map(|number| Job::hog().on(&number.to_string()).vcpu(0, number)));
        let task = jobs.len() as u32;
        jobs.push(Job::new(wakes).vcpu(0, 0));
        let on = |sched| {
            let placed = Placed(sched, Placement::LoadConscious, Gang::None);
            ran_on(&params, placed, jobs.clone(), task)
        };
        let runs = on(Dispatcher::new(DispatcherParams::default(), &params));
        assert!(runs.len() > 50, "{} runs", runs.len());
        runs
    };
    // 1, 1, 1 and 1: all are light, and no sibling is on pCPU 0.
    assert_eq!(*runs_on(1).last().unwrap(), 0);
    // 2, 1, 1 and 1: 160 % of the mean.
    assert_ne!(*runs_on(2).last().unwrap(), 0);
}

/// The vCPUs of a VM with more vCPUs than pCPUs that they may use take turns at sharing one, whatever else the host
/// has.
#[test]
fn vcpus_of_a_vm_that_is_too_large_for_its_cpuset_take_turns() {
    for (topology, on) in [
        ("1n1l4c1t", "0-3"),
        ("1n1l8c1t", "0-3"),
        ("1n1l8c1t", "0,2,5,7"),
    ] {
        let jobs: Vec<Job> = (0..5).map(|n| Job::hog().vcpu(0, n).on(on)).collect();
        let params = host(topology, 1000);
        let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
        let placed = Placed(dispatcher, Placement::Balance, Gang::None);
        let (outcome, _) = run(&params, placed, Jobs::new(jobs, 1), SEC, 6 * SEC);
        let shares = run_shares(&outcome);
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        assert!(least / most > 0.75, "{topology}, {on}: {shares:?}");
    }
}

/// Which pCPUs run which tasks at `at`, in both builds.
fn running(topology: &str, jobs: &[Job], at: u64) -> Vec<(u32, u32)> {
    let params = host(topology, 1000);
    let dispatcher = DispatcherParams::default();
    let then = |runs: &[(u64, PcpuId, TaskId)]| {
        let started = runs.iter().filter(|run| run.0 <= at);
        let last: BTreeMap<u32, u32> = started.map(|&(_, cpu, task)| (task.0, cpu.0)).collect();
        last.into_iter().collect::<Vec<_>>()
    };
    let sched = |jobs: &[Job]| Jobs::new(jobs.to_vec(), 1);
    let each = Dispatcher::counted(dispatcher, &params);
    let (_, each) = run(&params, each, sched(jobs), 0, at + MS);
    let index = Dispatcher::new(dispatcher, &params);
    let (_, index) = run(&params, index, sched(jobs), 0, at + MS);
    assert_eq!(then(&each), then(&index));
    then(&each)
}

/// The cores of two hardware threads each, or caches of so many pCPUs, that they run on.
fn parts(running: &[(u32, u32)], pcpus: u32) -> Vec<u32> {
    running.iter().map(|(_, cpu)| cpu / pcpus).collect()
}

#[test]
fn a_vcpu_that_computes_has_a_core_for_itself_as_long_as_there_are_some() {
    let hogs = vec![Job::hog(); 4];
    let mut cores = parts(&running("1n1l4c2t", &hogs, 50 * MS), 2);
    cores.sort_unstable();
    assert_eq!(cores, [0, 1, 2, 3]);
    // Then hardware threads are shared rather than pCPUs.
    let mut cpus: Vec<u32> = running("1n1l4c2t", &vec![Job::hog(); 6], 50 * MS)
        .iter()
        .map(|(_, cpu)| *cpu)
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus.len(), 6);
}

/// Two hogs have a core of two hardware threads while others have the other core. When that is free, one of the two
/// leaves for it.
#[test]
fn a_vcpu_that_shares_a_core_leaves_for_one_that_idles() {
    let once = |pcpu| Job::new(Does::Once { work: 30 * MS }).on(pcpu);
    let jobs = vec![once("0"), once("1"), Job::hog(), Job::hog()];
    let cores = |at| parts(&running("1n1l2c2t", &jobs, at)[2..], 2);
    assert_eq!(cores(10 * MS), [1, 1]);
    let mut apart = cores(250 * MS);
    apart.sort_unstable();
    assert_eq!(apart, [0, 1]);
}

#[test]
fn vms_spread_over_caches_and_their_vcpus_meet_in_one() {
    let jobs: Vec<Job> = (0..8)
        .map(|task| Job::hog().vcpu(task / 2, task % 2))
        .collect();
    let llcs = parts(&running("1n2l4c1t", &jobs, 50 * MS), 4);
    assert_eq!(llcs, [0, 0, 1, 1, 0, 0, 1, 1]);
}

/// Balance scheduling has to put siblings of the larger VM on one pCPU, and looks for a better place whenever a turn
/// ends.
#[test]
fn vms_with_more_vcpus_than_there_are_pcpus_have_no_more_than_their_share() {
    let params = host("1n1l4c1t", 250);
    for gang in [Gang::None, Gang::Demand(Boost::default())] {
        for larger in [8, 12, 16] {
            let vcpus =
                |vm: u32, count: u32| (0..count).map(move |number| Job::hog().vcpu(vm, number));
            let jobs: Vec<Job> = vcpus(0, 4).chain(vcpus(1, larger)).collect();
            let jobs = Jobs::new(jobs, 1).with_vm_weights(&[100, 100]);
            let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
            let placed = Placed(dispatcher, Placement::Balance, gang);
            let (outcome, _) = run(&params, placed, jobs, SEC, 6 * SEC);
            let smaller: f64 = run_shares(&outcome)[..4].iter().sum();
            assert!(
                (1.9..2.1).contains(&smaller),
                "{smaller} of 4 beside {larger}, {gang:?}"
            );
        }
    }
}
