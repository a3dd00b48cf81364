// SPDX-License-Identifier: GPL-2.0-only
//! A task that goes on with its turn is not interrupted at once by what it wakes itself (dispatcher/grace.h).

use super::Dispatcher;
use crate::testing::{Does, Job, Jobs, host, run};
use corun_model::time::{MS, SEC, US};
use corun_model::{DispatcherParams, Nanos, PcpuId, TaskId};

/// `GRACE` of dispatcher/grace.h.
const GRACE: Nanos = 100 * US;

/// Wakes the next task for each message, as quickly as it can.
fn sender() -> Job {
    Job::new(Does::Sends {
        each: 20 * US,
        to: 1,
    })
}

/// Does so little for a message that it is always owed more than the sender.
fn receiver() -> Job {
    Job::new(Does::Once { work: 2 * US })
}

/// How often `task` began to run.
fn starts(runs: &[(Nanos, PcpuId, TaskId)], task: u32) -> usize {
    runs.iter().filter(|run| run.2 == TaskId(task)).count()
}

#[test]
fn a_sender_is_interrupted_once_in_a_while_and_not_for_each_message() {
    let host = host("1n1l1c1t", 1000);
    let jobs = Jobs::new(vec![sender().vcpu(0, 0), receiver().vcpu(1, 0)], 1);
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let (outcome, runs) = run(&host, sched, jobs, 0, SEC);
    // At most once per grace, plus once in a turn before the first grace; at least once per grace and the message after
    // it.
    let received = starts(&runs, 1);
    let (least, most) = (SEC / (GRACE + 40 * US), SEC / GRACE + SEC / (3 * MS));
    assert!(
        (least..=most).contains(&(received as Nanos)),
        "{received} times, {least} to {most}"
    );
    // It waits for no longer than that, except in the first turns, before it is owed more.
    let late = outcome.vms[1].ready_waits.quantile(0.999);
    assert!(late <= GRACE + 10 * US, "{late} ns");
}

/// The sender's pCPU is not the receiver's: the grace does not apply to the task that is
/// interrupted there.
#[test]
fn who_is_woken_from_another_pcpu_does_not_wait() {
    let host = host("1n1l2c1t", 1000);
    let jobs = vec![
        sender().on("1"),
        receiver().vcpu(0, 0).on("0"),
        Job::hog().vcpu(1, 0).on("0"),
    ];
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let (outcome, runs) = run(&host, sched, Jobs::new(jobs, 1), 0, SEC);
    let received = starts(&runs, 1);
    assert!(received > 40_000, "{received} of 50,000");
    let late = outcome.vms[0].ready_waits.quantile(0.99);
    assert!(late < 10 * US, "{late} ns");
}

/// A task that a device's interrupt interrupts has not caused that: no grace applies.
#[test]
fn who_is_woken_by_a_device_does_not_wait() {
    let host = host("1n1l1c1t", 1000);
    let jobs = vec![
        Job::new(Does::Cycles {
            work: 10 * US,
            sleep: 30 * US,
            spread: 20,
        })
        .vcpu(0, 0),
        Job::hog().vcpu(1, 0),
    ];
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let (outcome, runs) = run(&host, sched, Jobs::new(jobs, 1), 0, SEC);
    let served = starts(&runs, 0);
    assert!(served > 20_000, "{served} times");
    let late = outcome.vms[0].ready_waits.quantile(0.99);
    assert!(late < 10 * US, "{late} ns");
}

/// A timer of the turn itself, or of another task, may fire before the grace is over: the preemption is asked for anew.
#[test]
fn nobody_waits_for_longer_than_the_grace_whatever_else_fires() {
    let host = host("1n1l1c1t", 250);
    let mut jobs = vec![sender().vcpu(0, 0), receiver().vcpu(1, 0)];
    for vm in 2..5 {
        let cycles = Does::Cycles {
            work: 30 * US,
            sleep: 70 * US * u64::from(vm),
            spread: 80,
        };
        jobs.push(Job::new(cycles).vcpu(vm, 0));
    }
    let sched = Dispatcher::new(DispatcherParams::default(), &host);
    let (outcome, _) = run(&host, sched, Jobs::new(jobs, 1), 0, 4 * SEC);
    // Others that are also owed more run before it.
    let late = outcome.vms[1].ready_waits.quantile(0.99);
    assert!(late <= 3 * GRACE, "{late} ns");
}
