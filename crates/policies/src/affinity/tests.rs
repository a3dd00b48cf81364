// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::testing::{self, ask, snapshot};
use corun_model::{PcpuId, PcpuSet};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The homes a policy gives, VM by VM.
fn homes(policy: &mut Affinity, seen: &Snapshot) -> Vec<Vec<u32>> {
    let plan = ask(policy, seen);
    let home: BTreeMap<_, _> = plan
        .tasks
        .iter()
        .map(|task| (task.task, task.home))
        .collect();
    let of = |vm: &corun_model::VmSeen| vm.vcpus.iter().map(|v| home[&v.task].unwrap().0).collect();
    seen.vms.iter().map(of).collect()
}

fn loads(homes: &[Vec<u32>], pcpus: u32) -> Vec<usize> {
    let live = |cpu| homes.iter().flatten().filter(|&&home| home == cpu).count();
    (0..pcpus).map(live).collect()
}

fn spread(loads: &[usize]) -> usize {
    loads.iter().max().unwrap() - loads.iter().min().unwrap()
}

/// The most vCPUs of one VM on one pCPU, and the fewest on another.
fn sibling_spread(vm: &[u32], pcpus: u32) -> (usize, usize) {
    let live = |cpu| vm.iter().filter(|&&home| home == cpu).count();
    let counts: Vec<usize> = (0..pcpus).map(live).collect();
    (*counts.iter().max().unwrap(), *counts.iter().min().unwrap())
}

#[test]
fn two_vms_on_two_pcpus() {
    let seen = snapshot(2, &[2, 2]);
    assert_eq!(homes(&mut Affinity::default(), &seen), [[0, 1], [0, 1]]);
}

#[test]
fn a_new_vm_moves_nobody() {
    let mut policy = Affinity::default();
    let before = homes(&mut policy, &snapshot(4, &[2, 3]));
    let after = homes(&mut policy, &snapshot(4, &[2, 3, 4]));
    assert_eq!(before[..], after[..2]);
}

#[test]
fn a_vm_that_goes_leaves_even_loads() {
    let mut policy = Affinity::default();
    let mut seen = snapshot(4, &[2, 2, 2, 2]);
    homes(&mut policy, &seen);
    seen.vms.remove(2);
    seen.vms.remove(0);
    let homes = homes(&mut policy, &seen);
    assert_eq!(loads(&homes, 4), [1, 1, 1, 1]);
}

#[test]
fn a_home_that_is_no_longer_allowed_is_given_up() {
    let mut policy = Affinity::default();
    let mut seen = snapshot(2, &[1]);
    assert_eq!(homes(&mut policy, &seen), [[0]]);
    seen.vms[0].vcpus[0].allowed = [PcpuId(1)].into_iter().collect();
    assert_eq!(homes(&mut policy, &seen), [[1]]);
}

#[test]
fn nowhere_to_live_is_no_home() {
    let mut seen = snapshot(2, &[1]);
    seen.vms[0].vcpus[0].allowed = PcpuSet::default();
    assert_eq!(ask(&mut Affinity::default(), &seen).tasks[0].home, None);
}

/// A host of cores with two hardware threads, whose siblings are neighbours.
fn cores(count: u32, sizes: &[usize]) -> Snapshot {
    let topology = format!("1n1l{count}c2t").parse().unwrap();
    Snapshot {
        host: corun_model::HostSeen::of(topology),
        ..snapshot(2 * count, sizes)
    }
}

#[test]
fn cores_come_before_hardware_threads() {
    let homes_on = |count, sizes| homes(&mut Affinity::default(), &cores(count, sizes));
    assert_eq!(homes_on(2, &[1, 1]), [[0], [2]]);
    assert_eq!(homes_on(4, &[4]), [[0, 2, 4, 6]]);
    assert_eq!(homes_on(2, &[2, 2]), [[0, 2], [1, 3]]);
}

/// Of four VMs on two cores the two of one core stay: one of them moves to the other core.
#[test]
fn a_core_that_becomes_free_is_used() {
    let mut policy = Affinity::default();
    let mut seen = cores(2, &[1, 1, 1, 1]);
    assert_eq!(homes(&mut policy, &seen), [[0], [2], [1], [3]]);
    seen.vms.remove(3);
    seen.vms.remove(1);
    let mut homes = homes(&mut policy, &seen).concat();
    homes.sort();
    assert!(homes[0] < 2 && homes[1] >= 2, "{homes:?}");
}

proptest! {
    #[test]
    fn no_core_is_free_beside_a_full_one(
        count in 1u32..5,
        rounds in prop::collection::vec(prop::collection::vec(1usize..7, 1..8), 1..5),
    ) {
        let mut policy = Affinity::default();
        for (round, sizes) in rounds.iter().enumerate() {
            let mut seen = cores(count, sizes);
            testing::renumber(&mut seen, (round / 2) as u32 * 10);
            let homes = homes(&mut policy, &seen);
            let loads = loads(&homes, 2 * count);
            prop_assert!(spread(&loads) <= 1, "{homes:?}");
            let cores: Vec<usize> = loads.chunks(2).map(|core| core.iter().sum()).collect();
            prop_assert!(!cores.contains(&0) || cores.iter().all(|&core| core < 2), "{homes:?}");
        }
    }

    #[test]
    fn even_and_apart_through_all_changes(
        pcpus in 1u32..9,
        rounds in prop::collection::vec(prop::collection::vec(1usize..7, 1..8), 1..5),
    ) {
        let mut policy = Affinity::default();
        for (round, sizes) in rounds.iter().enumerate() {
            // VMs 0, 1, … of other sizes, and every other time new ones: they come, go and grow.
            let mut seen = snapshot(pcpus, sizes);
            testing::renumber(&mut seen, (round / 2) as u32 * 10);
            let homes = homes(&mut policy, &seen);
            prop_assert!(spread(&loads(&homes, pcpus)) <= 1, "{homes:?}");
            for vm in &homes {
                let (most, fewest) = sibling_spread(vm, pcpus);
                prop_assert!(most - fewest <= 1, "{homes:?}");
                prop_assert!(vm.len() > pcpus as usize || most == 1, "{homes:?}");
            }
        }
    }

    #[test]
    fn homes_are_allowed_and_kept(seen in testing::any_snapshot()) {
        let mut policy = Affinity::default();
        let first = ask(&mut policy, &seen);
        let vcpus: Vec<_> = seen.vms.iter().flat_map(|vm| &vm.vcpus).collect();
        prop_assert_eq!(first.tasks.len(), vcpus.len());
        for (vcpu, told) in vcpus.iter().zip(&first.tasks) {
            prop_assert_eq!(vcpu.task, told.task);
            match told.home {
                Some(home) => prop_assert!(vcpu.allowed.contains(home)),
                None => prop_assert!(seen.host.topology.all().all(|c| !vcpu.allowed.contains(c))),
            }
        }
        prop_assert_eq!(first, ask(&mut policy, &seen));
    }
}
