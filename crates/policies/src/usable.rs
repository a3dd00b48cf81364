// SPDX-License-Identifier: GPL-2.0-only
//! The weights of vCPUs, limited to what a vCPU can use.
//!
//! A vCPU runs on one pCPU at a time. So a weight that stands for more than one pCPU is worth only one, and the rest
//! goes to the others. A policy that divided vCPUs among pCPUs by the weights as they are set would set pCPUs aside for
//! a heavy vCPU that it cannot use, and these would have nothing to run.

use crate::weighing::PARTS;
use corun_model::{TaskSeen, VmSeen};

/// What a VM weighs against all others, in parts so small that a weight of 1 is still something if it is divided among
/// 512 vCPUs; `None`: it has no weight but those of its vCPUs.
pub(crate) fn of_vm(vm: &VmSeen) -> Option<u64> {
    vm.effective
        .or_else(|| vm.weight.map(|weight| u64::from(weight) * PARTS))
}

/// What each vCPU of a VM weighs against all others, at least 1: its part of the VM's weight, or its own
/// where the VM has none.
pub(crate) fn weights(vm: &VmSeen) -> impl Iterator<Item = u64> {
    let own = |vcpu: &TaskSeen| u64::from(vcpu.weight.max(1));
    let all: u64 = vm.vcpus.iter().map(own).sum();
    let (weight, all) = match of_vm(vm) {
        Some(weight) => (weight, all),
        None => (PARTS, 1),
    };
    (vm.vcpus.iter()).map(move |vcpu| (weight * own(vcpu) / all).max(1))
}

/// The same where a VM's weight is divided only among the vCPUs that want to run, if there are any: `want` says so of
/// each.
pub(crate) fn weights_of_wanting<'a>(
    vm: &'a VmSeen,
    want: &'a [bool],
) -> impl Iterator<Item = u64> + 'a {
    let own = |vcpu: &TaskSeen| u64::from(vcpu.weight.max(1));
    let sum = |all: bool| -> u64 {
        let of = vm.vcpus.iter().zip(want);
        of.map(|(vcpu, want)| if all || *want { own(vcpu) } else { 0 })
            .sum()
    };
    let (weight, all) = match of_vm(vm) {
        Some(weight) => (
            weight,
            Some(sum(false))
                .filter(|sum| *sum > 0)
                .unwrap_or_else(|| sum(true)),
        ),
        None => (PARTS, 1),
    };
    (vm.vcpus.iter()).map(move |vcpu| (weight * own(vcpu) / all).max(1))
}

/// The most that one of these weights is worth on this number of pCPUs: one pCPU's part of the sum of the weights,
/// where none counts for more than that; at least 1.
pub(crate) fn most(weights: impl Iterator<Item = u64>, pcpus: u32) -> u64 {
    let mut falling: Vec<u64> = weights.collect();
    falling.sort_unstable_by(|one, other| other.cmp(one));
    let mut pcpus = u128::from(pcpus);
    let mut rest: u128 = falling.iter().map(|&weight| u128::from(weight)).sum();
    for &weight in &falling {
        if u128::from(weight) * pcpus <= rest {
            return u64::try_from(rest / pcpus.max(1))
                .unwrap_or(u64::MAX)
                .max(1);
        }
        pcpus -= 1;
        rest -= u128::from(weight);
    }
    // There is a pCPU for each: they count alike.
    falling.last().map_or(1, |&least| least.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;
    use proptest::prelude::*;

    #[test]
    fn a_vm_has_its_weight_and_its_vcpus_divide_it_by_theirs() {
        let mut vm = snapshot(2, &[2]).vms.remove(0);
        let of = |vm: &VmSeen| weights(vm).collect::<Vec<_>>();
        assert_eq!(of(&vm), [100_000, 100_000]);
        vm.vcpus[0].weight = 300;
        assert_eq!(of(&vm), [300_000, 100_000]);
        vm.weight = Some(100);
        assert_eq!(of(&vm), [75_000, 25_000]);
        vm.weight = Some(0);
        assert_eq!(of(&vm), [1, 1]);
        vm.effective = Some(400);
        assert_eq!(of(&vm), [300, 100]);
    }

    #[test]
    fn a_vcpu_that_does_not_want_to_run_has_no_part_of_its_vms_weight() {
        let mut vm = snapshot(3, &[3]).vms.remove(0);
        let of =
            |vm: &VmSeen, want: [bool; 3]| -> Vec<u64> { weights_of_wanting(vm, &want).collect() };
        let all = [true; 3];
        assert_eq!(of(&vm, [false, true, true]), [100_000; 3]);
        vm.weight = Some(120);
        assert_eq!(of(&vm, all), [40_000; 3]);
        assert_eq!(of(&vm, all), weights(&vm).collect::<Vec<_>>());
        assert_eq!(of(&vm, [false, true, true])[1..], [60_000; 2]);
        assert_eq!(of(&vm, [false; 3]), [40_000; 3]);
    }

    #[test]
    fn nobody_is_worth_more_than_a_pcpu() {
        // One pCPU for the heavy one, three for seven others.
        let of = |weights: &[u64], pcpus| most(weights.iter().copied(), pcpus);
        assert_eq!(of(&[10_000, 3, 3, 3, 3, 3, 3, 3], 4), 7);
        // 1000 and 100 have a pCPU each; the others share two.
        assert_eq!(of(&[1, 100, 1, 1000, 1, 1], 4), 2);
        // With pCPUs for all, each has one.
        assert_eq!((of(&[300, 100], 2), of(&[300, 100], 4)), (100, 100));
        assert_eq!((of(&[], 4), of(&[5, 7], 0)), (1, 12));
    }

    proptest! {
        /// With this limit no vCPU has more than a pCPU of a host that all can fill, and it is no
        /// lower than it must be.
        #[test]
        fn as_much_as_a_pcpu_and_no_less(
            weights in prop::collection::vec(1000u64..10_000_000, 1..40), pcpus in 1u32..16,
        ) {
            prop_assume!(weights.len() > pcpus as usize);
            let most = most(weights.iter().copied(), pcpus);
            let sum: u64 = weights.iter().map(|&weight| weight.min(most)).sum();
            prop_assert!(most * u64::from(pcpus) <= sum, "{most} of {sum}");
            let capped = weights.iter().any(|&weight| weight > most);
            prop_assert!(!capped || (most + 1) * u64::from(pcpus) > sum, "{most} of {sum}");
        }
    }
}
