// SPDX-License-Identifier: GPL-2.0-only
//! What VMs are entitled to: the CPU time of their pCPUs in a period, shared by their weights.
//!
//! VMs share the pCPUs that they may use. If cpusets divide the host, each part is shared by the
//! VMs in it; cpusets that overlap are one part (so a VM whose pCPUs overlap with those of many
//! others may be entitled to more than it can get). A VM cannot use more than a pCPU for each of
//! its vCPUs, nor than the pCPUs that it may use; what is beyond that goes to the others, by their
//! weights again. So does what a VM leaves to all.

use super::scaled;
use corun_model::{Nanos, PcpuSet};

/// A VM as a claimant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    /// Its weight against others.
    pub weight: u64,
    /// Its vCPUs.
    pub vcpus: u64,
    /// The pCPUs that some vCPU of it may use.
    pub allowed: PcpuSet,
    /// The most of a period that it is given, ns; less than it could use if it leaves the rest to all.
    pub limit: Nanos,
}

impl Claimant {
    /// How many pCPUs it could use at a time.
    pub fn most(&self) -> u64 {
        self.vcpus.min(u64::from(self.allowed.len()))
    }

    /// What of a period it can be given.
    fn room(&self, period: Nanos) -> Nanos {
        (self.most() * period).min(self.limit)
    }
}

/// VMs, by their places, whose pCPUs no other VM may use.
struct Part {
    vms: Vec<usize>,
    pcpus: PcpuSet,
}

/// The parts that cpusets divide a host into.
fn parts(vms: &[Claimant]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (at, vm) in vms.iter().enumerate() {
        let mut with = Part {
            vms: Vec::new(),
            pcpus: vm.allowed,
        };
        // Parts that it overlaps are joined with it; on most hosts there is only one part, which is
        // not copied.
        parts.retain_mut(|part| {
            let apart = part.pcpus.and(&vm.allowed).is_empty();
            if !apart {
                with.pcpus = with.pcpus.or(&part.pcpus);
                match with.vms.is_empty() {
                    true => with.vms = std::mem::take(&mut part.vms),
                    false => with.vms.append(&mut part.vms),
                }
            }
            apart
        });
        with.vms.push(at);
        parts.push(with);
    }
    parts
}

/// The shares of `vms` in `period` ns of their pCPUs.
pub(super) fn shares(vms: &[Claimant], period: Nanos) -> Vec<Nanos> {
    let mut shares = vec![0; vms.len()];
    for part in parts(vms) {
        let claimants: Vec<Claimant> = part.vms.iter().map(|&at| vms[at]).collect();
        let time = u64::from(part.pcpus.len()) * period;
        let has = by_weight(&claimants, time, period);
        for (at, has) in part.vms.into_iter().zip(has) {
            shares[at] = has;
        }
    }
    shares
}

/// Shares in `time`, of which each of `vms` can use a `period` on so many pCPUs.
fn by_weight(vms: &[Claimant], time: Nanos, period: Nanos) -> Vec<Nanos> {
    let mut shares = vec![None; vms.len()];
    loop {
        let open = |shares: &[Option<Nanos>]| -> Vec<usize> {
            (0..vms.len()).filter(|&at| shares[at].is_none()).collect()
        };
        let left = open(&shares);
        let given: Nanos = shares.iter().flatten().sum();
        let time = time.saturating_sub(given);
        let weight: u64 = left.iter().map(|&at| vms[at].weight).sum();
        let share = |at: usize| scaled(time, vms[at].weight, weight.max(1));
        let full: Vec<usize> = (left.iter().copied())
            .filter(|&at| share(at) >= vms[at].room(period))
            .collect();
        if full.is_empty() {
            let shared: Vec<(usize, Nanos)> = left.into_iter().map(|at| (at, share(at))).collect();
            for (at, share) in shared {
                shares[at] = Some(share);
            }
            return shares.into_iter().flatten().collect();
        }
        for at in full {
            shares[at] = Some(vms[at].room(period));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vm(weight: u64, vcpus: u64, allowed: &str) -> Claimant {
        Claimant {
            weight,
            vcpus,
            allowed: allowed.parse().unwrap(),
            limit: Nanos::MAX,
        }
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
        // What one leaves to all is shared by weight.
        let limited = Claimant {
            limit: 50,
            ..all(200, 4)
        };
        assert_eq!(
            shares(&[limited, all(100, 4), all(300, 4)], 100),
            [50, 87, 262]
        );
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
        // pCPUs that no VM may use cannot be shared.
        assert_eq!(shares(&[vm(100, 8, "2"), vm(100, 8, "2")], 100), [50, 50]);
        let nowhere = Claimant {
            allowed: PcpuSet::default(),
            ..vm(100, 8, low)
        };
        assert_eq!(shares(&[nowhere], 100), [0]);
    }

    proptest! {
        #[test]
        fn all_the_time_is_shared_that_can_be_used(
            vms in prop::collection::vec((1u64..10_000, 1u64..32), 1..12), pcpus in 1u32..64,
        ) {
            let period = 100_000_000;
            let allowed = PcpuSet::first(pcpus);
            let claimant = |(weight, vcpus)| Claimant { weight, vcpus, allowed, limit: Nanos::MAX };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, period);
            let usable = vms.iter().map(|vm| vm.vcpus).sum::<u64>().min(pcpus.into()) * period;
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= usable && sum + vms.len() as u64 > usable, "{} {}", sum, usable);
        }

        /// No VM is entitled to more than it can use, and all VMs of a part to no more than there
        /// is.
        #[test]
        fn no_more_than_the_pcpus_of_each_part(
            vms in prop::collection::vec((1u64..10_000, 1u64..32, 0u32..16, 1u32..8), 1..12),
        ) {
            let claimant = |(weight, vcpus, first, count)| Claimant {
                weight,
                vcpus,
                allowed: (first..first + count).map(corun_model::PcpuId).collect(),
                limit: Nanos::MAX,
            };
            let vms: Vec<Claimant> = vms.into_iter().map(claimant).collect();
            let shares = shares(&vms, 1000);
            for (vm, share) in vms.iter().zip(&shares) {
                prop_assert!(*share <= vm.most() * 1000);
            }
            let parts = parts(&vms);
            prop_assert_eq!(parts.iter().map(|part| part.vms.len()).sum::<usize>(), vms.len());
            for part in parts {
                let has: u64 = part.vms.iter().map(|&at| shares[at]).sum();
                prop_assert!(has <= u64::from(part.pcpus.len()) * 1000);
            }
        }
    }
}
