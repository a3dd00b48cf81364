// SPDX-License-Identifier: GPL-2.0-only
//! What VMs are entitled to: the host's CPU time in a period, shared by their weights.
//!
//! A VM cannot use more than a pCPU for each of its vCPUs; what is beyond that goes to the others,
//! by their weights again.

use corun_model::Nanos;

/// A VM as a claimant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant {
    /// Its weight against others.
    pub weight: u64,
    /// Its vCPUs.
    pub vcpus: u64,
}

/// The shares of `vms` in `pcpus` times `period` ns.
pub(super) fn shares(vms: &[Claimant], pcpus: u64, period: Nanos) -> Vec<Nanos> {
    let mut shares = vec![None; vms.len()];
    loop {
        let open = |shares: &[Option<Nanos>]| -> Vec<usize> {
            (0..vms.len()).filter(|&at| shares[at].is_none()).collect()
        };
        let left = open(&shares);
        let given: Nanos = shares.iter().flatten().sum();
        let time = u128::from((pcpus * period).saturating_sub(given));
        let weight: u64 = left.iter().map(|&at| vms[at].weight).sum();
        let share = |at: usize| {
            let part = time * u128::from(vms[at].weight) / u128::from(weight.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let full: Vec<usize> = (left.iter().copied())
            .filter(|&at| share(at) >= vms[at].vcpus * period)
            .collect();
        if full.is_empty() {
            let shared: Vec<(usize, Nanos)> = left.into_iter().map(|at| (at, share(at))).collect();
            for (at, share) in shared {
                shares[at] = Some(share);
            }
            return shares.into_iter().flatten().collect();
        }
        for at in full {
            shares[at] = Some(vms[at].vcpus * period);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vm(weight: u64, vcpus: u64) -> Claimant {
        Claimant { weight, vcpus }
    }

    #[test]
    fn by_weight_and_no_more_than_can_be_used() {
        assert_eq!(shares(&[vm(100, 4), vm(300, 4)], 4, 100), [100, 300]);
        // The one with a vCPU cannot use two pCPUs; the others share three.
        let vms = [vm(400, 1), vm(200, 4), vm(200, 4)];
        assert_eq!(shares(&vms, 4, 100), [100, 150, 150]);
        assert_eq!(shares(&[vm(100, 2)], 4, 100), [200]);
        assert!(shares(&[], 4, 100).is_empty());
    }

    proptest! {
        #[test]
        fn all_the_time_is_shared_that_can_be_used(
            vms in prop::collection::vec((1u64..10_000, 1u64..32), 1..12), pcpus in 1u64..64,
        ) {
            let period = 100_000_000;
            let vms: Vec<Claimant> = vms.into_iter().map(|(w, n)| vm(w, n)).collect();
            let shares = shares(&vms, pcpus, period);
            let usable = vms.iter().map(|vm| vm.vcpus).sum::<u64>().min(pcpus) * period;
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= usable && sum + vms.len() as u64 > usable, "{} {}", sum, usable);
        }
    }
}
