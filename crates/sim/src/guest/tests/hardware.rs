// SPDX-License-Identifier: GPL-2.0-only
//! What caches do to guests, from the mechanism alone: the calibration of AQL_Sched (EuroSys'16,
//! §3.4, Fig. 2) on its machine, an i7-3770 with 256 KB of L2 per core and 8 MB of LLC.

use super::*;
use crate::host::CacheParams;

fn i7_3770(pcpus: u32) -> HostParams {
    let caches = CacheParams {
        l2: 256 << 10,
        llc: Some(8 << 20),
        llc_adaptive: false,
        // 30 - 12 cycles at 3.4 GHz, and 53 ns (7-cpu.com).
        llc_latency: 5,
        memory_latency: 53,
    };
    HostParams {
        hardware: HardwareParams {
            caches: Some(caches),
            ..HardwareParams::default()
        },
        ..machine(pcpus, Costs::default())
    }
}

/// Walks through half the LLC.
const LLCF: &str = "memory 4MB 20/us; loop { compute 100us; count }";
/// Walks through 90 % of the L2.
const LOLCF: &str = "memory 230KB 100/us; loop { compute 100us; count }";
/// Walks through more than the LLC, as fast as dependent loads from memory allow.
const LLCO: &str = "memory 32MB 15/us; loop { compute 100us; count }";
/// The same, in a stream that the prefetchers keep up with: 6.4 GB/s.
const STREAM: &str = "memory 32MB 100/us; loop { compute 100us; count }";

/// Throughput of the first VM, where each of `vms` has one vCPU and is bound to its pCPU. Measured
/// over whole rounds of up to four slices of any of the lengths used here.
fn first(pcpus: u32, slice: Nanos, vms: &[(u32, &str)]) -> f64 {
    let spec = |(n, &(pcpu, program)): (usize, &(u32, &str))| {
        on(pcpu, vm(&format!("v{n}"), free(), &[program]))
    };
    let specs = vms.iter().enumerate().map(spec).collect();
    let guests = Guests::new(specs, Vec::new(), 1).unwrap();
    let sched = Box::new(RoundRobin::new(slice));
    let simulation = Simulation::new(i7_3770(pcpus), sched, Box::new(guests), None);
    let outcome = simulation.run(720 * MS + 1, 1440 * MS + 1, |_| {});
    throughput(&outcome, 0)
}

const SLICES: [Nanos; 5] = [1, 10, 30, 60, 90];

/// Throughputs relative to that with 30 ms, with each of [`SLICES`].
fn by_slice(program: &str, others: &[&str]) -> [f64; 5] {
    let mut vms = vec![(0, program)];
    vms.extend(others.iter().map(|other| (0, *other)));
    let all = SLICES.map(|slice| first(1, slice * MS, &vms));
    all.map(|one| one / all[2])
}

#[test]
fn half_the_llc_likes_long_slices() {
    for other in [LLCF, STREAM] {
        let found = by_slice(LLCF, &[other; 3]);
        assert!(found.is_sorted(), "beside {other}: {found:?}");
        assert!(
            found[0] < 0.75 && found[4] > 1.07,
            "beside {other}: {found:?}"
        );
    }
    let found = by_slice(LLCF, &[LLCO]);
    assert!(found[0].max(found[1]) < 1.0 && 1.05 < found[3] && found[3] < found[4]);
}

#[test]
fn a_set_that_fits_beside_its_neighbours_does_not_care() {
    let found = by_slice(LLCF, &[LOLCF]);
    assert!(
        found.iter().all(|one| (0.99..1.01).contains(one)),
        "{found:?}"
    );
}

#[test]
fn low_level_caches_are_agnostic_of_slices() {
    for other in [LLCF, LLCO] {
        let found = by_slice(LOLCF, &[other; 3]);
        assert!(
            found.iter().all(|one| (0.95..1.05).contains(one)),
            "{found:?}"
        );
    }
}

#[test]
fn what_never_fits_is_agnostic_of_slices() {
    let found = by_slice(LLCO, &[LLCF; 3]);
    assert!(
        found.iter().all(|one| (0.99..1.01).contains(one)),
        "{found:?}"
    );
}

#[test]
fn thrashing_neighbours_on_other_cores_hurt_vms_that_share_their_llc() {
    let beside = |program: &str, other: &str| {
        let vms = [program, other, other, other].map(String::from);
        let vms: Vec<(u32, &str)> = (0..).zip(vms.iter().map(String::as_str)).collect();
        first(4, 30 * MS, &vms)
    };
    // 10000 x 100 us of work in a second is full speed.
    assert!(beside(LLCF, LLCO) < 7_500.0);
    assert_eq!(beside(LLCF, LOLCF), 10_000.0);
    assert!(beside(LOLCF, LLCO) > 9_900.0);
    assert_eq!(beside(LLCO, LLCO), 10_000.0);
}

/// Time lost to caches by vCPU 0 in a second.
fn lost(host: HostParams, vm: VmSpec) -> Nanos {
    let guests = Guests::new(vec![vm], Vec::new(), 1).unwrap();
    simulate(host, 10 * MS, guests).vms[0].vcpus[0].cache_lost
}

#[test]
fn threads_of_one_vcpu_drive_out_each_other() {
    // Two take turns on the vCPU; both sets together are 4/3 of the L2.
    let turns = |kilobytes: u32, shared: bool| {
        let mut vm = vm("a", free(), &[]);
        let program = format!("memory {kilobytes}KB 100/us; loop {{ compute 100us }}");
        vm.threads = (0..if shared { 2 } else { 1 })
            .map(|n| ThreadSpec {
                name: format!("t{n}"),
                program: Program::parse(&program).unwrap(),
                vcpu: Some(0),
            })
            .collect();
        lost(i7_3770(1), vm)
    };
    assert_eq!(turns(170, false), 0);
    assert!(turns(170, true) > MS);
    assert_eq!(turns(85, true), 0);
}

#[test]
fn a_cold_cache_is_warmed_once() {
    let host = || HostParams {
        costs: FREE,
        ..i7_3770(1)
    };
    let run = |program| {
        let guests = Guests::new(vec![vm("a", free(), &[program])], Vec::new(), 1).unwrap();
        let sched = Box::new(RoundRobin::new(SEC));
        let simulation = Simulation::new(host(), sched, Box::new(guests), None);
        simulation.run(0, 50 * MS, |_| {}).vms[0].vcpus[0].cache_lost
    };
    // All of its lines come from memory once; rates are rounded to a millionth.
    let expected = 65_536 * 53;
    assert!(run(LLCF).abs_diff(expected) < 20);
    // The lines of a small set also miss the L2.
    let expected = 230 * 16 * (5 + 53);
    assert!(run(LOLCF).abs_diff(expected) < 20);
}
