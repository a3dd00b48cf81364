// SPDX-License-Identifier: GPL-2.0-only
//! No task waits for long while pCPUs idle (dispatcher/idle.h).

use super::Dispatcher;
use super::tests::Placed;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC};
use corun_model::{DispatcherParams, Gang, Placement, Skew};

/// A hog that may run on pCPU 0 only joins one that runs there and could run anywhere. Nothing ever wakes up: idle
/// pCPUs do not look for work by themselves.
#[test]
fn a_vcpu_pushed_aside_by_one_that_is_bound_goes_where_it_is_idle() {
    let params = host("1n1l4c1t", 250);
    let modes = [
        (Placement::Free, Gang::None),
        (Placement::Balance, Gang::None),
        (Placement::Balance, Gang::Relaxed(Skew::default())),
    ];
    for (placement, gang) in modes {
        for pushed in 1..3 {
            let mut jobs: Vec<Job> = (0..pushed)
                .map(|number| Job::hog().vcpu(0, number))
                .collect();
            let come = (0..4).map(|cpu| Job::new(Does::Hog { from: 20 * MS }).on(&cpu.to_string()));
            jobs.extend(come.take(pushed as usize));
            let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
            let placed = Placed(dispatcher, placement, gang);
            let (outcome, _) = run(&params, placed, Jobs::new(jobs, 1), 200 * MS, SEC);
            for (task, share) in run_shares(&outcome).into_iter().enumerate() {
                assert!(
                    share > 0.99,
                    "task {task}: {share} under {placement:?}, {gang:?}"
                );
            }
        }
    }
}

/// A vCPU that may run on pCPU 0 only, and weighs little, shares it with one that could run anywhere and came when pCPU
/// 1 was busy. Whenever pCPU 1 idles, the heavy vCPU goes there, even if it is running and not waiting.
#[test]
fn a_heavy_vcpu_leaves_a_light_one_its_only_pcpu() {
    let params = host("1n1l2c1t", 250);
    let comes_and_goes = Does::Cycles {
        work: 100 * MS,
        sleep: 400 * MS,
        spread: 20,
    };
    let jobs = vec![
        Job::hog().vcpu(0, 0).weight(1).on("0"),
        Job::hog().vcpu(1, 0).weight(1000),
        Job::new(comes_and_goes).vcpu(2, 0).weight(1000).on("1"),
    ];
    for placement in [Placement::Free, Placement::Balance] {
        let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
        let placed = Placed(dispatcher, placement, Gang::None);
        let (outcome, _) = run(&params, placed, Jobs::new(jobs.clone(), 1), SEC, 9 * SEC);
        let share = run_shares(&outcome)[0];
        assert!(share > 0.7, "{share} under {placement:?}");
    }
}
