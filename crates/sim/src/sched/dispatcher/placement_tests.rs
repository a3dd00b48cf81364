// SPDX-License-Identifier: GPL-2.0-only
//! Where a task wakes up (dispatcher/placement.h).

use super::Dispatcher;
use super::tests::Placed;
use crate::host::HostParams;
use crate::sched::HostScheduler;
use crate::testing::{Does, Job, Jobs, host, run};
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Gang, Placement, TaskId};

/// Where pCPU 1 gets its hog at once and pCPU 0 after 20 ms; the third task, of this weight, finds
/// pCPU 0 idle at first, as often as it wakes until then.
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
fn who_wakes_stays_unless_it_finds_less_load_with_it_than_it_leaves() {
    // Its last pCPU has more load than the other one, but not by what it weighs itself.
    assert_eq!(goes_to([110, 100, 50]), 0);
    assert_eq!(goes_to([140, 100, 50]), 0);
    assert_eq!(goes_to([160, 100, 50]), 1);
    assert_eq!(goes_to([300, 100, 50]), 1);
    // Who weighs next to nothing goes for a little less.
    assert_eq!(goes_to([110, 100, 5]), 1);
}

#[test]
fn who_has_not_run_yet_goes_where_the_load_is_least() {
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

/// A pCPU with more than 150 % of the mean load is none that a load-conscious VM stays on.
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
