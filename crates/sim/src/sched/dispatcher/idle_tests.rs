// SPDX-License-Identifier: GPL-2.0-only
//! No task waits for long where pCPUs idle (dispatcher/idle.h).

use super::Dispatcher;
use super::tests::Placed;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC};
use corun_model::{DispatcherParams, Gang, Placement, Skew};

/// A hog that may run on pCPU 0 only comes to one that runs there and could run anywhere. Nothing ever
/// wakes up: pCPUs that idle look nowhere by themselves.
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
