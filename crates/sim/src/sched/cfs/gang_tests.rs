// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling done to CFS: the papers' promises by hand, and what holds for any VMs.

use super::{Cfs, CfsParams, Gangs, Siblings};
use crate::Outcome;
use crate::host::{Costs, Host, HostParams, TaskState};
use crate::sched::HostScheduler;
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

/// Algorithm 3: pCPU 0 is free for the first vCPU, pCPU 1 has had its hog for too short a time to be taken
/// from it in fair order.
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

/// Three VMs of four hogs on four pCPUs: whenever one of a VM begins and none of its siblings runs, all of
/// them do within an interrupt and a switch, unless its turn is over before.
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
        // All of them are there by now.
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

/// Where siblings wake up and sleep, too, no runqueue has two of them.
#[test]
fn called_siblings_stay_apart() {
    let params = host("1n2l2c1t", 1000);
    let jobs = (0..12).map(|n| Job::new(cycles(2 * MS, 2 * MS)).vcpu(n / 4, n % 4));
    let load = Jobs::new(jobs.collect(), 2);
    let dynamic = cfs("2.6.33", DYNAMIC, &params);
    let (outcome, _) = run(&params, dynamic, load, SEC, 5 * SEC);
    assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
}

/// What tasks get of a pCPU in a second beside `vms`' vCPUs.
fn shares_in_a_second(how: (Siblings, Gangs), jobs: Vec<Job>, weights: &[u32]) -> Vec<f64> {
    let params = host("1n1l4c1t", 1000);
    let load = Jobs::new(jobs, 3).with_vm_weights(weights);
    let (outcome, _) = run(&params, cfs("4.x", how, &params), load, SEC, 2 * SEC);
    run_shares(&outcome)
}

/// A VM of one vCPU shares a pCPU with one of four that compute, or that call each other all the time.
#[test]
fn a_lone_hog_has_its_share_beside_a_gang() {
    let lone = || Job::hog().vcpu(1, 0).on("0");
    let hogs = (0..4).map(|n| from(0, 0, n)).chain([lone()]);
    let shares = shares_in_a_second(DYNAMIC, hogs.collect(), &[]);
    println!("hogs {shares:?}");
    let cycling = (0..4).map(|n| Job::new(cycles(3 * MS, MS)).vcpu(0, n));
    let shares = shares_in_a_second(DYNAMIC, cycling.chain([lone()]).collect(), &[]);
    println!("cycling {shares:?}");
    let blink = |n: u32| match n {
        0 => Job::new(cycles(100 * US, 300 * US)).vcpu(0, 0),
        n => from(0, 0, n),
    };
    let shares = shares_in_a_second(
        DYNAMIC,
        (0..4)
            .map(blink)
            .chain([Job::hog().vcpu(1, 0).on("1")])
            .collect(),
        &[],
    );
    println!("blink {shares:?}");
}

/// Two vCPUs that wake each other, each beside a hog: how long they wait per wake-up. Their VM has 16
/// vCPUs, the others of which have been busy lately, so that each counts little.
fn wait_of_the_woken(how: (Siblings, Gangs)) -> (Nanos, u64, f64) {
    let params = host("1n1l4c1t", 250);
    let here = |n: u32| ["0", "1", "2", "3"][n as usize];
    let hogs = (0..4).map(|n| from(0, 0, n).on(here(n)));
    let asking = [asks(200 * US, 5, true), asks(200 * US, 4, false)];
    let pair = asking.into_iter().zip(0..);
    let pair = pair.map(|(does, n)| Job::new(does).vcpu(1, n).on(here(n)));
    let rest = (2..4).map(|n| Job::new(cycles(MS, MS)).vcpu(1, n).on(here(n)));
    let jobs = hogs.chain(pair).chain(rest).collect();
    let load = Jobs::new(jobs, 7).with_vm_weights(&[100, 100]);
    let (outcome, _) = run(&params, cfs("4.x", how, &params), load, 0, 20 * MS);
    let woken = outcome.tasks[5].2;
    (
        woken.ready / woken.wakeups.max(1),
        woken.wakeups,
        run_shares(&outcome)[1],
    )
}

#[test]
fn who_is_woken_by_a_sibling_runs_at_once() {
    println!(
        "{:?} {:?}",
        wait_of_the_woken(demand()),
        wait_of_the_woken(BALANCE)
    );
}
