// SPDX-License-Identifier: GPL-2.0-only
//! What VMs are entitled to: the CPU time of their pCPUs in a period, shared by their weights. The dissertation speaks
//! of such shares (§4.2.2, "the fair share of CPU time"; §4.4.1, "the CPU share of the VM") and leaves open how they
//! are found.
//!
//! VMs share the pCPUs that they may use. If cpusets divide the host, each part is shared by the VMs in it; cpusets
//! that overlap are one part. A VM can use no more than a pCPU for each of its vCPUs, or that vCPU's own quota; no more
//! than the pCPUs that it may use; and no more than others that are bound to the same pCPUs ([cpusets](crate::cpusets))
//! and the [quotas](crate::quotas) around it leave. What is beyond that goes to the others, again by their weights. So
//! does what a VM leaves to all.

use super::vm::weight_among_vms;
use crate::cpusets;
use crate::filled::scaled;
use crate::parts::Part;
use crate::quotas::{self, Claim, Whole};
use corun_model::time::SEC;
use corun_model::{Nanos, PcpuSet, Quota, VmSeen};

/// A VM as a claimant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    /// Its weight against others.
    pub weight: u64,
    /// pCPU time that it could use in a second, ns: that of a pCPU for each vCPU at most.
    pub most: Nanos,
    /// The pCPUs that some vCPU of it may use.
    pub allowed: PcpuSet,
    /// The most of a period that it is given, ns; less than it could use if it leaves the rest to all.
    pub limit: Nanos,
    /// The quotas that hold for it, the outermost first.
    pub quotas: &'a [Quota],
}

impl<'a> Claimant<'a> {
    /// This VM, which leaves nothing to all.
    pub fn of(vm: &'a VmSeen) -> Self {
        let allowed = vm.vcpus.iter().map(|vcpu| &vcpu.allowed);
        let allowed = allowed.fold(PcpuSet::default(), |all, some| all.or(some));
        let most: Nanos = vm.vcpus.iter().map(|vcpu| vcpu.most(SEC)).sum();
        Self {
            weight: weight_among_vms(vm),
            most: most.min(u64::from(allowed.len()) * SEC),
            allowed,
            limit: Nanos::MAX,
            quotas: &vm.quotas,
        }
    }

    /// What it could use of a period, ns.
    pub fn most(&self, period: Nanos) -> Nanos {
        scaled(self.most, period, SEC)
    }

    /// What it claims of a period.
    fn claim(&self, period: Nanos) -> Claim<'a> {
        Claim {
            weight: self.weight,
            most: self.most(period),
            limit: self.limit,
            quotas: self.quotas,
        }
    }
}

/// The parts that cpusets divide a host of these VMs into.
pub(super) fn parts(vms: &[Claimant<'_>]) -> Vec<Part> {
    crate::parts::parts(vms.iter().map(|vm| &vm.allowed))
}

/// The shares of `vms` in `period` ns of the pCPUs of their `parts`. A VM that leaves time to all stays entitled to
/// what it would be if it used that time itself, in case it wakes.
pub(super) fn shares(vms: &[Claimant<'_>], parts: &[Part], period: Nanos) -> Vec<Nanos> {
    let mut shares = vec![0; vms.len()];
    let whole = Whole::of(vms.iter().map(|vm| (vm.weight, vm.quotas)), parts.len());
    for part in parts {
        let time = u64::from(part.pcpus.len()) * period;
        let members = part.members.iter();
        let mut claims: Vec<Claim<'_>> = members.map(|&at| vms[at].claim(period)).collect();
        let allowed = part.members.iter().map(|&at| vms[at].allowed);
        let allowed: Vec<PcpuSet> = allowed.collect();
        if allowed.iter().any(|it| *it != part.pcpus) {
            cpusets::limit(&mut claims, &allowed, period, &whole);
        }
        let of_part = quotas::shares(&claims, time, period, &whole);
        for (&at, share) in part.members.iter().zip(of_part) {
            shares[at] = share;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(vms: &[Claimant<'_>], period: Nanos) -> Vec<Nanos> {
        super::shares(vms, &parts(vms), period)
    }

    fn on(weight: u64, vcpus: u64, allowed: PcpuSet) -> Claimant<'static> {
        Claimant {
            weight,
            most: vcpus.min(allowed.len().into()) * SEC,
            allowed,
            limit: Nanos::MAX,
            quotas: &[],
        }
    }

    fn vm(weight: u64, vcpus: u64, allowed: &str) -> Claimant<'static> {
        on(weight, vcpus, allowed.parse().unwrap())
    }

    #[test]
    fn by_weight_and_no_more_than_can_be_used() {
        let all = |weight, vcpus| vm(weight, vcpus, "0-3");
        assert_eq!(shares(&[all(100, 4), all(300, 4)], 100), [100, 300]);
        // The one with a vCPU cannot use two pCPUs; the others share three.
        let vms = [all(400, 1), all(200, 4), all(200, 4)];
        assert_eq!(shares(&vms, 100), [100, 150, 150]);
        assert_eq!(shares(&[all(100, 2)], 100), [200]);
        assert!(shares(&[], 100).is_empty());
        // What one leaves to all is shared by weight; it would have 133 if it did not.
        let limited = Claimant {
            limit: 50,
            ..all(200, 4)
        };
        assert_eq!(
            shares(&[limited, all(100, 4), all(300, 4)], 100),
            [133, 87, 262]
        );
    }

    fn room(vm: &Claimant<'_>, period: Nanos) -> Nanos {
        vm.most(period).min(vm.limit)
    }

    /// Shares as defined: time is divided by weight, VMs that are full drop out, and again.
    fn by_definition(vms: &[Claimant<'_>], pcpus: u64, period: Nanos) -> Vec<Nanos> {
        let mut shares = vec![None; vms.len()];
        loop {
            let given: Nanos = shares.iter().flatten().sum();
            let time = (pcpus * period).saturating_sub(given);
            let open: Vec<usize> = (0..vms.len()).filter(|&at| shares[at].is_none()).collect();
            let weight: u64 = open.iter().map(|&at| vms[at].weight).sum();
            let share = |at: usize| scaled(time, vms[at].weight, weight.max(1));
            let full = |at: &usize| share(*at) >= room(&vms[*at], period);
            let all_full: Vec<usize> = open.iter().copied().filter(full).collect();
            if all_full.is_empty() {
                let part = |(at, had): (usize, &Option<Nanos>)| had.unwrap_or_else(|| share(at));
                return shares.iter().enumerate().map(part).collect();
            }
            for at in all_full {
                shares[at] = Some(room(&vms[at], period));
            }
        }
    }

    #[test]
    fn cpusets_divide_a_host() {
        let (low, high) = ("0-3", "4-7");
        let vms = [
            vm(100, 4, low),
            vm(100, 4, high),
            vm(100, 4, low),
            vm(100, 4, low),
        ];
        assert_eq!(shares(&vms, 300), [400, 1200, 400, 400]);
        // One that overlaps both makes them one; it may use two pCPUs only.
        let vms = [vm(100, 4, low), vm(100, 4, high), vm(400, 4, "3-4")];
        assert_eq!(shares(&vms, 100), [300, 300, 200]);
        // Two that may use one pCPU only share that, and a third has what they could not use.
        let vms = [vm(300, 1, "0"), vm(100, 1, "0"), vm(100, 4, low)];
        assert_eq!(shares(&vms, 100), [75, 25, 300]);
        // pCPUs that no VM may use cannot be shared.
        assert_eq!(shares(&[vm(100, 8, "2"), vm(100, 8, "2")], 100), [50, 50]);
        assert_eq!(shares(&[on(100, 8, PcpuSet::default())], 100), [0]);
    }

    proptest! {
        #[test]
        fn all_the_time_is_shared_that_can_be_used(
            vms in prop::collection::vec((1u64..10_000, 1u64..32), 1..12), pcpus in 1u32..64,
        ) {
            let period = 100_000_000;
            let allowed = PcpuSet::first(pcpus);
            let claimant = |(weight, vcpus)| on(weight, vcpus, allowed);
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, period);
            let usable = vms.iter().map(|vm| vm.most(period)).sum::<u64>().min(u64::from(pcpus) * period);
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= usable && sum + vms.len() as u64 > usable, "{} {}", sum, usable);
        }

        /// Each has what the definition says; one that leaves time, what it says if it did not.
        #[test]
        fn shares_are_as_defined(
            vms in prop::collection::vec((1u64..10_000, 1u64..32, any::<bool>(), 0u64..400_000_000), 1..12),
            pcpus in 1u32..64,
        ) {
            let (period, allowed) = (100_000_000, PcpuSet::first(pcpus));
            let claimant = |(weight, vcpus, leaves, keeps)| {
                let limit = if leaves { keeps } else { Nanos::MAX };
                Claimant { limit, ..on(weight, vcpus, allowed) }
            };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            for (at, share) in shares(&vms, period).into_iter().enumerate() {
                let mut defined = vms.clone();
                defined[at].limit = Nanos::MAX;
                let defined = by_definition(&defined, pcpus.into(), period)[at];
                prop_assert!(share.abs_diff(defined) <= 1, "{}: {} {}", at, share, defined);
            }
        }

        /// No VM is entitled to more than it can use, and all VMs of a part to no more than there
        /// is.
        #[test]
        fn no_more_than_the_pcpus_of_each_part(
            vms in prop::collection::vec((1u64..10_000, 1u64..32, 0u32..16, 1u32..8), 1..12),
        ) {
            let claimant = |(weight, vcpus, first, count)| {
                on(weight, vcpus, (first..first + count).map(corun_model::PcpuId).collect())
            };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, 1000);
            for (vm, share) in vms.iter().zip(&shares) {
                prop_assert!(*share <= vm.most(1000));
            }
            let parts = parts(&vms);
            prop_assert_eq!(parts.iter().map(|part| part.members.len()).sum::<usize>(), vms.len());
            for part in parts {
                let has: u64 = part.members.iter().map(|&at| shares[at]).sum();
                prop_assert!(has <= u64::from(part.pcpus.len()) * 1000);
            }
        }
    }
}
