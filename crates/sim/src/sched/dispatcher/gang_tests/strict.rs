// SPDX-License-Identifier: GPL-2.0-only
//! Strict co-scheduling (Ousterhout 1982): which VM has the slot, on which pCPUs, and what becomes
//! of vCPUs that wake in it.

use super::{STRICT, asking, from, hogs, of_task, placed, starts};
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{Gang, Nanos, PcpuId, Slots, TaskId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A VM whose vCPUs wait for most of the time also owns pCPUs for those that will wake in its slot.
#[test]
fn strict_keeps_pcpus_for_vcpus_that_wake_in_the_slot() {
    let jobs = (0..2).map(|n| asking(100 * US, n)).collect();
    let (outcome, _) = starts(2, jobs, STRICT, SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.45), "{shares:?}");
}

/// Two VMs of four vCPUs on four pCPUs. Two vCPUs of each have nothing to do, so both VMs fit into
/// one slot.
#[test]
fn strict_gives_gangs_that_fit_the_same_slot() {
    let once = |vm, n| Job::new(Does::Once { work: MS }).vcpu(vm, n);
    let of_vm = |vm| [from(0, vm, 0), from(0, vm, 1), once(vm, 2), once(vm, 3)];
    let jobs: Vec<Job> = (0..2).flat_map(of_vm).collect();
    let (outcome, _) = starts(4, jobs, STRICT, SEC);
    let shares = run_shares(&outcome);
    for hog in [0, 1, 4, 5] {
        assert!(shares[hog] > 0.97, "{shares:?}");
    }
}

/// A vCPU of VM 0 wakes in the last moment of its slot, on a pCPU that takes longer than that to get going
/// and belongs to VM 1 by then: both vCPUs of VM 1 still have their slot, however long that vCPU slept.
#[test]
fn strict_gives_the_next_slot_to_its_owner_where_a_pcpu_is_just_waking() {
    let wakes = 33 * US;
    let mut params = host("1n1l2c1t", 1000);
    params.costs.idle_wake = wakes;
    for slept in [0, 2 * SEC] {
        // The first slot begins when the first pCPU has woken up.
        let ends = wakes + slept + 10 * MS;
        let jobs = vec![
            from(0, 0, 0),
            from(ends - 10 * US, 0, 1),
            from(0, 1, 0),
            from(0, 1, 1),
        ];
        let load = Jobs::new(jobs, 1);
        let (_, runs) = run(&params, placed(&params, STRICT), load, 0, ends + 100 * MS);
        for vcpu in [2, 3] {
            let starts = of_task(&runs, vcpu);
            let next = starts.iter().find(|at| **at >= ends);
            assert!(
                next.is_some_and(|at| *at <= ends + wakes),
                "{vcpu} starts at {starts:?} ns, not from {ends} on"
            );
        }
    }
}

/// VM 0 has one vCPU that computes and one that wakes in its slot. The latter gets a pCPU if one is free. Otherwise the
/// two need a slot with two pCPUs: the one at 10 ms is first VM 1's, which takes two of the three, so it is the one at
/// 20 ms.
#[test]
fn strict_gives_a_vcpu_that_wakes_in_the_slot_what_is_available() {
    let jobs = |others| {
        let own = vec![from(0, 0, 0), from(4 * MS, 0, 1)];
        let others = (0..others).map(|n| from(0, 1, n));
        own.into_iter().chain(others).collect()
    };
    let (_, runs) = starts(3, jobs(1), STRICT, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 4 * MS);
    let (_, runs) = starts(3, jobs(2), STRICT, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 20 * MS);
}

/// Slots are numbered in 32 bits; at 10 ms each, half of these are used up in 248 days. A VM that comes then, or has
/// slept for that long, has slots like any other.
#[test]
fn strict_has_slots_for_vms_that_come_after_months() {
    for number in [0, 0x7fff_ffff, 0x8000_0001, u32::MAX - 5] {
        let params = host("1n1l1c1t", 1000);
        let mut sched = placed(&params, STRICT);
        sched.0.native.slots_have_been(number);
        let jobs = Jobs::new(hogs(&[1, 1], 0), 1);
        let (outcome, _) = run(&params, sched, jobs, 0, SEC);
        let shares = run_shares(&outcome);
        assert!(
            shares.iter().all(|share| *share > 0.45),
            "{number:x}: {shares:?}"
        );
    }
}

/// Hogs of VMs of so many vCPUs, each of which may use these pCPUs only.
fn hogs_on(vms: &[(u32, &str)]) -> Vec<Job> {
    let vcpus = |((size, on), vm): (&(u32, &str), u32)| {
        let vcpu = |n| from(0, vm, n).on(on);
        (0..*size).map(vcpu).collect::<Vec<_>>()
    };
    vms.iter().zip(0..).flat_map(vcpus).collect()
}

/// A VM that may not run on a pCPU gets no slot there: each part of the host is shared by the VMs
/// that may use it, and none of it idles. VMs that span two parts do not get fewer turns if there
/// are many of them; more vCPUs than pCPUs are served in part.
#[test]
fn strict_gives_vms_no_pcpus_that_they_may_not_use() {
    type Case<'a> = (u32, &'a [(u32, &'a str)], &'a [f64]);
    let third = 1.0 / 3.0;
    let cases: [Case<'_>; 5] = [
        (
            2,
            &[(1, "0"), (1, "0"), (1, "0"), (1, "0-1")],
            &[third, third, third, 1.0],
        ),
        (
            8,
            &[
                (4, "0-3"),
                (4, "0-3"),
                (4, "0-3"),
                (4, "4-7"),
                (4, "4-7"),
                (4, "4-7"),
            ],
            &[third; 24],
        ),
        (
            4,
            &[(2, "0-1"), (2, "0-1"), (2, "0-1"), (2, "2-3"), (2, "2-3")],
            &[third, third, third, third, third, third, 0.5, 0.5, 0.5, 0.5],
        ),
        (
            4,
            &[(2, "0-1"), (2, "2-3"), (2, "2-3"), (2, "0-1"), (2, "2-3")],
            &[0.5, 0.5, third, third, third, third, 0.5, 0.5, third, third],
        ),
        (
            4,
            &[(4, "0-1"), (2, "2-3")],
            &[0.5, 0.5, 0.5, 0.5, 1.0, 1.0],
        ),
    ];
    for (pcpus, vms, wanted) in cases {
        let (outcome, _) = starts(pcpus, hogs_on(vms), STRICT, 10 * SEC);
        let shares = run_shares(&outcome);
        let kept = |(share, wanted): (&f64, &f64)| (share - wanted).abs() < 0.02;
        assert!(shares.iter().zip(wanted).all(kept), "{vms:?}: {shares:?}");
        assert!(outcome.idle_share < 0.01, "{vms:?}: {}", outcome.idle_share);
    }
}

/// On cores of two hardware threads: how many cores two tasks run on in the end.
fn shared_cores(runs: &[(Nanos, PcpuId, TaskId)]) -> usize {
    let mut at = BTreeMap::new();
    for (_, cpu, task) in runs {
        at.insert(*task, cpu.0 / 2);
    }
    let cores: BTreeSet<u32> = at.values().copied().collect();
    at.len() - cores.len()
}

/// VMs that need no more than half of the hardware threads have cores of their own, and so do those of their vCPUs that
/// wake in the slot.
#[test]
fn strict_gives_cores_before_hardware_threads() {
    let late = |vms: &[u32]| {
        hogs(vms, 0)
            .into_iter()
            .chain([from(4 * MS, 0, vms[0])])
            .collect()
    };
    let cases: [(u32, Vec<Job>, usize); 7] = [
        (8, hogs(&[4], 0), 0),
        (2, hogs(&[2], 0), 0),
        (2, hogs(&[1, 1], 0), 0),
        (8, hogs(&[3, 4, 1], 0), 0),
        (2, late(&[1]), 0),
        (3, late(&[1, 1]), 0),
        (2, hogs(&[3], 0), 1),
    ];
    for (cores, jobs, shared) in cases {
        let params = host(&format!("1n1l{cores}c2t"), 1000);
        for end in [9 * MS, SEC] {
            let load = Jobs::new(jobs.clone(), 1);
            let (_, runs) = run(&params, placed(&params, STRICT), load, 0, end);
            assert_eq!(
                shared_cores(&runs),
                shared,
                "{jobs:?} on {cores} cores at {end}"
            );
        }
    }
}

/// Two VMs ask for slots of a quarter of an hour, and the one that has the slot goes to sleep for good: the other VM
/// still runs now and then, although its pCPUs idle and nothing happens there.
#[test]
fn slots_without_end_starve_nobody() {
    let gang = Gang::Strict(Slots {
        length: 900 * SEC,
        fill: false,
    });
    let once = |n| Job::new(Does::Once { work: 10 * MS }).vcpu(0, n);
    let jobs = vec![once(0), once(1), from(MS, 1, 0), from(MS, 1, 1)];
    let (_, runs) = starts(2, jobs, gang, 10 * SEC);
    for task in [2, 3] {
        let mut before = 0;
        for at in of_task(&runs, task).into_iter().chain([10 * SEC]) {
            assert!(at - before < 1300 * MS, "{task}: {before} to {at}");
            before = at;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    /// Strict: all of a VM's vCPUs run, or none, and VMs take turns.
    #[test]
    fn strict_never_starts_a_part(
        sizes in prop::collection::vec(1u32..5, 1..6),
        pcpus in 4u32..9,
    ) {
        let (outcome, _) = starts(pcpus, hogs(&sizes, 0), STRICT, 2 * SEC);
        for (vm, size) in outcome.vms.iter().zip(&sizes) {
            let skew = &vm.siblings;
            prop_assert_eq!((skew.never, skew.co_starts.max()), (0, 0));
            prop_assert_eq!(skew.together, skew.together_due);
            let least = 2 * SEC / sizes.len() as u64 - 20 * MS;
            prop_assert!(vm.vcpus.iter().all(|vcpu| vcpu.run >= least), "{} of {:?}", size, vm);
        }
    }
}
