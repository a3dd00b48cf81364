// SPDX-License-Identifier: GPL-2.0-only
//! What can be computed by hand.

use super::*;
use crate::host::Totals;
use corun_model::time::US;

const HOG: &str = "loop { compute 100ms }";

#[test]
fn one_vm_alone_does_all_its_work() {
    let outcome = run(
        1,
        10 * MS,
        vec![vm("a", free(), &["loop { compute 1ms; count }"])],
    );
    assert_eq!(throughput(&outcome, 0), 1000.0);
    assert_eq!(outcome.vms[0].achieved.throughput_unit, "units/s");
    let outcome = run(1, 10 * MS, vec![vm("a", free(), &[HOG])]);
    assert_eq!(throughput(&outcome, 0), 1.0);
    assert_eq!(outcome.vms[0].achieved.throughput_unit, "work s/s");
}

#[test]
fn ticks_cost_what_they_cost() {
    let params = GuestParams {
        tick: 100 * US,
        ..free()
    };
    let outcome = run(1, 10 * MS, vec![vm("a", params, &[HOG])]);
    // 250 ticks of 100 us take 25 ms of the second.
    let work = throughput(&outcome, 0);
    assert!((work - 0.975).abs() < 0.0002, "{work}");
}

#[test]
fn two_hogs_on_one_pcpu_get_half_each() {
    let outcome = run(
        1,
        10 * MS,
        vec![vm("a", free(), &[HOG]), vm("b", free(), &[HOG])],
    );
    assert_eq!(
        (throughput(&outcome, 0), throughput(&outcome, 1)),
        (0.5, 0.5)
    );
}

#[test]
fn two_threads_of_one_vcpu_get_half_each() {
    let mut spec = vm("a", free(), &[HOG, "loop { compute 1ms; count }"]);
    spec.vcpus = 1;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = Some(0));
    let outcome = run(1, 10 * MS, vec![spec]);
    let share = throughput(&outcome, 0);
    assert!((480.0..520.0).contains(&share), "{share}");
    let switches = outcome.vms[0].achieved.thread_switches;
    assert!((100..=250).contains(&switches), "{switches}");
}

#[test]
fn a_vcpu_without_threads_stays_halted() {
    let mut spec = vm("a", GuestParams::default(), &[HOG]);
    spec.vcpus = 2;
    let outcome = run(2, 10 * MS, vec![spec]);
    let idle: Totals = outcome.vms[0].vcpus[1];
    assert_eq!((idle.run, idle.switches, idle.wait), (0, 0, SEC));
}

#[test]
fn a_free_vcpu_takes_threads_that_are_not_bound() {
    let mut spec = vm("a", free(), &[HOG, "compute 1ms", HOG]);
    spec.vcpus = 2;
    spec.threads
        .iter_mut()
        .for_each(|thread| thread.vcpu = None);
    // Two hogs start on vCPU 0; vCPU 1 is free after 1 ms.
    assert_eq!(throughput(&run(2, 10 * MS, vec![spec.clone()]), 0), 2.0);
    spec.threads[2].vcpu = Some(0);
    spec.threads[0].vcpu = Some(0);
    assert_eq!(throughput(&run(2, 10 * MS, vec![spec]), 0), 1.0);
}

#[test]
fn a_barrier_waits_for_the_last() {
    let program = "loop { compute 1ms; barrier b; count }";
    let outcome = run(2, 10 * MS, vec![vm("a", free(), &[program; 4])]);
    // Two vCPUs per pCPU: a round takes 2 ms and counts 4.
    let rounds = throughput(&outcome, 0);
    assert!((1996.0..=2004.0).contains(&rounds), "{rounds}");
    assert_eq!(outcome.vms[0].achieved.spin, 0);
}

#[test]
fn a_spin_barrier_burns_the_slice() {
    let program = "loop { compute 1ms; spin-barrier b; count }";
    let alone = run(4, 10 * MS, vec![vm("a", free(), &[program; 4])]);
    assert_eq!(throughput(&alone, 0), 4000.0);
    let shared = run(2, 10 * MS, vec![vm("a", free(), &[program; 4])]);
    // The one that comes first spins for the rest of its 10 ms while the others wait: a round or
    // two per slice.
    let rounds = throughput(&shared, 0);
    assert!((400.0..=800.0).contains(&rounds), "{rounds}");
    assert!(
        shared.vms[0].achieved.spin > SEC,
        "{}",
        shared.vms[0].achieved.spin
    );
}

#[test]
fn a_pipeline_runs_at_the_speed_of_its_slowest_stage() {
    let stages = [
        "loop { compute 500us; send q }",
        "loop { recv q; compute 1ms; count items }",
    ];
    let outcome = run(2, 10 * MS, vec![vm("a", free(), &stages)]);
    assert_eq!(throughput(&outcome, 0), 1000.0);
    assert_eq!(outcome.vms[0].achieved.throughput_unit, "items/s");
    let sender = outcome.vms[0].vcpus[0];
    assert_eq!((sender.run, sender.wait), (SEC / 2, SEC / 2));
}

#[test]
fn a_sleeper_on_a_free_host_wakes_in_time() {
    let sleeper = "loop { sleep 1ms; compute 1us; count }";
    let outcome = run(1, 10 * MS, vec![vm("a", free(), &[sleeper])]);
    let wakes = throughput(&outcome, 0);
    assert!((wakes - 999.0).abs() <= 1.0, "{wakes}");
}

#[test]
fn a_timer_for_a_descheduled_vcpu_waits_until_it_runs() {
    let guest = |slice| {
        let mut spec = vm(
            "a",
            free(),
            &[HOG, "loop { sleep 1ms; compute 1ns; count }"],
        );
        spec.vcpus = 1;
        spec.threads
            .iter_mut()
            .for_each(|thread| thread.vcpu = Some(0));
        throughput(&run(1, slice, vec![spec, vm("b", free(), &[HOG])]), 0)
    };
    // In a slice of 10 ms its timer fires 10 times, and once in the 10 ms after it, which is
    // noticed late.
    let wakes = guest(10 * MS);
    assert!((480.0..=560.0).contains(&wakes), "{wakes}");
    // In a slice of 100 us hardly anything is late.
    let wakes = guest(100 * US);
    assert!(wakes > 850.0, "{wakes}");
}

#[test]
fn switches_to_a_vcpu_cost_its_guest_time() {
    let costs = Costs {
        switch: 100 * US,
        ..FREE
    };
    let vms = vec![vm("a", free(), &[HOG]), vm("b", free(), &[HOG])];
    let guests = Guests::new(vms, Vec::new(), 1).unwrap();
    let outcome = simulate(machine(1, costs), MS, guests);
    // A tenth of each slice of 1 ms goes into the switch.
    let work = throughput(&outcome, 0);
    assert!((work - 0.45).abs() < 0.001, "{work}");
}

#[test]
fn host_tasks_run_beside_vcpus() {
    let daemon = HostTaskSpec {
        name: "daemon".into(),
        helper_of: None,
        weight: 100,
        allowed: PcpuSet::first(1),
        program: Program::parse("loop { compute 1ms; sleep 9ms }").unwrap(),
    };
    let guests = Guests::new(vec![vm("a", free(), &[HOG])], vec![daemon], 1).unwrap();
    let outcome = simulate(machine(1, FREE), MS, guests);
    let (name, is_vcpu, totals) = &outcome.tasks[1];
    assert_eq!((name.as_str(), *is_vcpu), ("daemon", false));
    // It waits up to 1 ms for the hog's slice to end.
    assert!((90 * MS..=100 * MS).contains(&totals.run), "{}", totals.run);
    let together = totals.run + outcome.vms[0].vcpus[0].run;
    assert_eq!(together, SEC);
}
