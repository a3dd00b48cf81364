// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU a woken thread goes to, and how runqueues are evened out.

use super::*;
use crate::guest::thread::Doing;
use crate::guest::vm::Vm;
use crate::sched::fair::{Average, FULL};

/// A VM whose threads may go anywhere; the test decides where each is.
fn free_threads(vcpus: u32, programs: &[&str]) -> VmSpec {
    let mut spec = vm("a", free(), programs);
    spec.vcpus = vcpus;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = None);
    spec
}

/// Threads 0, 1, ... run on the vCPUs given; all others sleep.
fn running(vcpus: u32, threads: usize, on: &[u32]) -> Vm {
    let programs = vec!["loop { compute 1ms }"; threads];
    let guests = Guests::new(vec![free_threads(vcpus, &programs)], Vec::new(), 1);
    let mut vm = guests.unwrap().vms.remove(0);
    for thread in &mut vm.threads {
        thread.doing = Doing::Off;
    }
    for (thread, vcpu) in (0..).zip(on) {
        let slot = &mut vm.vcpus[*vcpu as usize];
        match slot.current {
            None => slot.current = Some(thread),
            Some(_) => slot.queue.add(0, thread),
        }
        let state = &mut vm.threads[thread as usize];
        (state.vcpu, state.doing) = (*vcpu, Doing::Next);
    }
    vm
}

/// Where thread 5 goes, which was on vCPU 1 and is woken from vCPU 0.
fn goes(mut vm: Vm, sync: bool) -> u32 {
    vm.threads[5].vcpu = 1;
    vm.place(5, 0, sync, 0)
}

#[test]
fn an_idle_vcpu_is_best_first_the_one_it_was_on() {
    assert_eq!(goes(running(3, 6, &[0, 2]), false), 1);
    assert_eq!(goes(running(3, 6, &[0, 1]), true), 2);
    assert_eq!(
        goes(running(3, 6, &[1, 2]), false),
        0,
        "an interrupt on an idle one"
    );
}

#[test]
fn a_thread_goes_to_its_wakers_vcpu_if_that_has_less_to_do() {
    // One thread on either: it stays. Two where it was, and its own load is subtracted: it stays.
    assert_eq!(goes(running(2, 6, &[0, 1]), false), 1);
    assert_eq!(goes(running(2, 6, &[0, 1, 1]), false), 1);
    assert_eq!(goes(running(2, 6, &[0, 1, 1, 1, 1]), false), 0);
    // A thread that hardly ever ran brings little, and there is little to subtract.
    let mut rare = running(2, 6, &[0, 1, 1]);
    rare.threads[5].load = Average::starting_at(FULL / 100, 0);
    assert_eq!(goes(rare, false), 0);
}

#[test]
fn a_waker_that_is_about_to_wait_makes_room() {
    assert_eq!(goes(running(2, 6, &[0, 1]), true), 0);
    // The waker is not alone: without its load vCPU 0 has as much to do as the other one.
    assert_eq!(goes(running(2, 6, &[0, 0, 1]), true), 1);
}

#[test]
fn a_server_does_not_draw_all_that_it_wakes() {
    let mut vm = running(2, 8, &[0, 1]);
    // Both thread 5 and the waker have woken many others lately, the waker more.
    for other in [2, 3, 2, 3] {
        vm.threads[5].wakes.book(other, 0);
    }
    for other in (0..10).map(|n| n % 2) {
        vm.threads[0].wakes.book(2 + other, 0);
    }
    assert_eq!(goes(vm, true), 1);
}

/// Seven hogs on four vCPUs: which of them has a vCPU to itself changes.
#[test]
fn hogs_take_turns_at_being_alone() {
    let programs: Vec<String> = (0..7)
        .map(|n| format!("loop {{ compute 1ms; count 1 h{n} }}"))
        .collect();
    let programs: Vec<&str> = programs.iter().map(String::as_str).collect();
    let outcome = run(4, 10 * MS, vec![free_threads(4, &programs)]);
    let achieved = &outcome.vms[0].achieved;
    let others = achieved.other_throughputs.iter().map(|(_, rate)| *rate);
    let rates: Vec<f64> = others.chain([achieved.throughput]).collect();
    // 571 each would be fair; with three pairs and one alone for ever it would be 500 and 1000.
    assert!(rates.iter().all(|rate| *rate < 900.0), "{rates:?}");
}

/// A thread bound to a vCPU stays; the other one goes to a vCPU that has nothing to do.
#[test]
fn a_tick_hands_a_waiting_thread_to_an_idle_vcpu() {
    let mut spec = free_threads(
        2,
        &["sleep 20ms; loop { compute 1ms; count }", "compute 50ms"],
    );
    spec.threads[0].vcpu = Some(1);
    spec.threads.push(ThreadSpec {
        name: "late".into(),
        program: crate::workload::Program::parse("loop { compute 1ms; count }").unwrap(),
        vcpu: None,
    });
    let outcome = run(2, 10 * MS, vec![spec]);
    assert!(
        throughput(&outcome, 0) > 1990.0,
        "{}",
        throughput(&outcome, 0)
    );
}
