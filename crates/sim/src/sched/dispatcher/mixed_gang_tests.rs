// SPDX-License-Identifier: GPL-2.0-only
//! VMs of different gang modes on one host, as a custom policy may have them.

use super::Dispatcher;
use crate::host::Host;
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::testing::{Does, Job, Jobs, host, run};
use corun_model::time::{MS, SEC};
use corun_model::{
    Allotments, Boost, Claim, DispatcherParams, Gang, Placement, Plan, Skew, Slots, TaskId, VmId,
    VmPlan,
};

/// The dispatcher with a gang mode for each VM.
struct Mixed(Dispatcher, Vec<Gang>);

impl HostScheduler for Mixed {
    forward! { 0: know_vms know_cgroups wake pick block tick timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns apply }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        if task.0 == 0 {
            let plan = |(vm, gang): (usize, &Gang)| VmPlan {
                gang: *gang,
                ..VmPlan::placed(VmId::from(vm), Placement::Balance)
            };
            let plan = Plan {
                vms: self.1.iter().enumerate().map(plan).collect(),
                ..Plan::default()
            };
            self.0.apply(host, &plan);
        }
        self.0.add(host, task);
    }
}

/// How often the first vCPU of each VM begins a turn in a second, with slices of 50 ms.
fn turns(gangs: Vec<Gang>, pcpus: u32, jobs: Vec<Job>) -> Vec<usize> {
    let vms = gangs.len() as u32;
    let params = host(&format!("1n1l{pcpus}c1t"), 1000);
    let slices = DispatcherParams {
        slice: 50 * MS,
        ..DispatcherParams::default()
    };
    let mixed = Mixed(Dispatcher::new(slices, &params), gangs);
    let (_, runs) = run(&params, mixed, Jobs::new(jobs, 1), 0, SEC);
    let begun = |vm| runs.iter().filter(|run| run.2 == TaskId(vm)).count();
    (0..vms).map(begun).collect()
}

fn hog(vm: u32, on: &str) -> Job {
    Job::new(Does::Hog { from: 0 }).vcpu(vm, 0).on(on)
}

/// Two VMs that compute take turns of one slice each, whatever their gang mode: of two vCPUs that are owed the same,
/// the one that waits is next.
#[test]
fn equals_have_turns_of_one_slice() {
    for gang in [
        Gang::None,
        Gang::Dynamic,
        Gang::Demand(Boost::default()),
        Gang::Relaxed(Skew::default()),
        Gang::Asymmetric(Allotments {
            has: Claim::NEUTRAL,
            period: 100 * MS,
            neutral: 4 * MS,
        }),
    ] {
        let turns = turns(vec![gang; 2], 1, vec![hog(0, "0"), hog(1, "0")]);
        assert!(
            turns.iter().all(|begun| (10..=11).contains(begun)),
            "{gang:?}: {turns:?}"
        );
    }
}

/// A strict VM has pCPU 0, and two VMs without gangs share pCPU 1 in slices of 50 ms. Slots of 10 ms, which concern
/// only the strict VM, do not cut these short.
#[test]
fn slots_do_not_interrupt_vms_without_gangs() {
    let strict = Slots {
        length: 10 * MS,
        fill: false,
    };
    let gangs = vec![Gang::Strict(strict), Gang::None, Gang::None];
    let jobs = vec![hog(0, "0"), hog(1, "1"), hog(2, "1")];
    let turns = turns(gangs, 2, jobs);
    assert!(
        turns[1..].iter().all(|begun| (10..=11).contains(begun)),
        "{turns:?}"
    );
}

/// What the first of four VMs of four vCPUs has of four pCPUs, if all compute and only the first, as a canary, has a
/// gang.
fn share_of_a_canary(gang: Gang) -> f64 {
    let params = host("1n1l4c1t", 1000);
    let gangs = vec![gang, Gang::None, Gang::None, Gang::None];
    let mixed = Mixed(Dispatcher::new(DispatcherParams::default(), &params), gangs);
    let does = || Job::new(Does::Hog { from: 0 });
    let jobs = (0..16).map(|task| does().vcpu(task / 4, task % 4));
    let (outcome, _) = run(&params, mixed, Jobs::new(jobs.collect(), 1), SEC, 4 * SEC);
    let run: u64 = outcome.tasks[..4].iter().map(|task| task.2.run).sum();
    run as f64 / (4 * outcome.measured) as f64
}

/// A VM with a gang that is owed a quarter has hardly more than that among VMs in fair order.
#[test]
fn a_canary_takes_no_more_than_its_share() {
    for gang in [
        Gang::None,
        Gang::Dynamic,
        Gang::Strict(Slots::default()),
        Gang::Demand(Boost::default()),
        Gang::Relaxed(Skew::default()),
        Gang::RelaxedAll(Skew::default()),
    ] {
        let share = share_of_a_canary(gang);
        assert!(share < 0.28, "{gang:?}: {share}");
    }
}
