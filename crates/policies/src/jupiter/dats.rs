// SPDX-License-Identifier: GPL-2.0-only
//! DATS, dynamically adjusting the time slices: how a VM's CPU time is divided among its vCPUs
//! (dissertation, §4.4.1).
//!
//! A vCPU's slice is its part, by weight, of what its VM may use in a period. One that has used its
//! slice up and wants more weighs a tenth more in the next period. The total weight of a VM is
//! fixed: the others lose what these gain, in proportion to what they have. They have time left, so
//! that costs them nothing as long as it is true. The dissertation does not have two bounds that
//! are here. If most vCPUs are depleted, the few others lose no more than a tenth either, and the
//! depleted ones gain less ("adjust its parameters gradually"): otherwise one vCPU that happens to
//! wait when the period ends would lose all it has. And none falls below an eighth of the mean, so
//! that one that was idle for long is not starved when it wakes; nor does one rise above what the
//! dispatcher gives, which matters to VMs with more than 73 vCPUs.
//!
//! If a VM has its share, and none of its vCPUs is depleted, or all are, there is no reason for one
//! vCPU to have more than another, and weights come back a step at a time to what vCPUs weigh by
//! themselves, as latencies do. The dissertation does not say what becomes of weights then. If they
//! stayed, chance differences between vCPUs that all do the same would stay for ever, and the
//! slowest vCPU would keep the others waiting. A vCPU that needs more is soon depleted again, and
//! loses only one step of what it gained.

use corun_model::Claim;

/// What a vCPU weighs by default; the total of a VM is this times its vCPUs.
pub(super) const NEUTRAL: u64 = Claim::NEUTRAL as u64;
/// No vCPU falls below the mean weight by more than this factor.
pub(super) const FLOOR: u64 = 8;

/// No vCPU has more than so many times what it weighs by itself.
pub(super) const CEILING: u64 = Claim::RANGE as u64;

/// Adjusts the weights of a VM's vCPUs, of which `depleted` have used up their slices and want
/// more: these grow by `step` percent, unless the others would lose more than that. `rest` is what
/// they weigh by themselves. If no vCPU is depleted, or all are, and the VM has its share
/// (`served`), the weights come back towards `rest`. The sum stays.
pub(super) fn adjust(
    weights: &mut [u64],
    rest: &[u64],
    depleted: &[bool],
    served: bool,
    step: u32,
) {
    let (mut growing, mut others) = (0, 0);
    for (weight, depleted) in weights.iter().zip(depleted) {
        *(if *depleted { &mut growing } else { &mut others }) += weight;
    }
    if growing == 0 || others == 0 {
        if served && *weights != *rest {
            come_back(weights, rest, step);
        }
        return;
    }
    let wanted = growing.min(others) * u64::from(step) / 100;
    // Each gains by what it weighs, up to the ceiling.
    let room = |weights: &[u64], at: usize| (rest[at] * CEILING).saturating_sub(weights[at]);
    let grows: Vec<(usize, u64)> = (0..weights.len())
        .filter(|&at| depleted[at])
        .map(|at| (at, (wanted * weights[at] / growing).min(room(weights, at))))
        .collect();
    let wanted: u64 = grows.iter().map(|(_, part)| part).sum();
    let gain = take(weights, depleted, wanted);
    let mut left = gain;
    for &(at, part) in &grows {
        let part = part * gain / wanted.max(1);
        weights[at] += part;
        left -= part;
    }
    // What rounding left over.
    for &(at, _) in grows.iter().rev() {
        let part = left.min(room(weights, at));
        weights[at] += part;
        left -= part;
    }
}

/// Brings weights `step` percent of the way back to `rest`, which adds up to the same.
fn come_back(weights: &mut [u64], rest: &[u64], step: u32) {
    let mut left = 0;
    for (weight, rest) in weights.iter_mut().zip(rest) {
        // At least one, so that it ends.
        let above = weight.saturating_sub(*rest);
        let part = (above * u64::from(step)).div_ceil(100).min(above);
        *weight -= part;
        left += part;
    }
    let gives = left;
    let lacks: u64 = (weights.iter().zip(rest))
        .map(|(weight, rest)| rest.saturating_sub(*weight))
        .sum();
    let below = |weight: u64, rest: u64| rest.saturating_sub(weight);
    for (weight, rest) in weights.iter_mut().zip(rest) {
        let part = gives * below(*weight, *rest) / lacks.max(1);
        *weight += part;
        left -= part;
    }
    // What rounding left over, or what the sums differ by.
    for (weight, rest) in weights.iter_mut().zip(rest) {
        let part = left.min(below(*weight, *rest));
        *weight += part;
        left -= part;
    }
    if let Some(first) = weights.first_mut() {
        *first += left;
    }
}

/// Takes `wanted` from those that are not depleted, in proportion to their weights and down to the
/// floor; returns how much there was to take.
fn take(weights: &mut [u64], depleted: &[bool], wanted: u64) -> u64 {
    let floor = weights.iter().sum::<u64>() / (FLOOR * weights.len().max(1) as u64);
    let mut left = wanted;
    while left > 0 {
        let can = |weights: &[u64], at: usize| !depleted[at] && weights[at] > floor;
        let base: u64 = (0..weights.len())
            .filter(|&at| can(weights, at))
            .map(|at| weights[at])
            .sum();
        if base == 0 {
            break;
        }
        let round = left;
        for at in 0..weights.len() {
            if left > 0 && can(weights, at) {
                // At least one, so that rounding ends.
                let part = (round * weights[at] / base).max(1);
                let part = part.min(left).min(weights[at] - floor);
                weights[at] -= part;
                left -= part;
            }
        }
    }
    wanted - left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule of §4.4.1: ten percent for a depleted vCPU, from the others by their weights.
    #[test]
    fn a_vcpu_that_used_up_its_slice_gets_a_tenth_more_from_the_others_in_proportion() {
        let mut weights = [100_000, 60_000, 40_000];
        adjust(&mut weights, &[NEUTRAL; 3], &[true, false, false], true, 10);
        assert_eq!(weights, [110_000, 54_000, 36_000]);
    }

    /// A tenth of the way each period, whole in the end.
    #[test]
    fn weights_of_a_vm_with_its_share_come_back_if_nobody_wants_more_or_all_do() {
        for depleted in [[false; 3], [true; 3]] {
            let rest = [80_000, 80_000, 40_000];
            let mut weights = [110_000, 50_000, 40_000];
            adjust(&mut weights, &rest, &depleted, false, 10);
            assert_eq!(weights, [110_000, 50_000, 40_000], "it lacks its share");
            adjust(&mut weights, &rest, &depleted, true, 10);
            assert_eq!(weights, [107_000, 53_000, 40_000]);
            for _ in 0..200 {
                adjust(&mut weights, &rest, &depleted, true, 10);
            }
            assert_eq!(weights, rest);
        }
    }

    /// The dispatcher gives no more than 64 times the neutral share, so no vCPU is promised more.
    #[test]
    fn nobody_rises_above_what_the_dispatcher_gives() {
        let mut weights = [NEUTRAL; 128];
        let mut depleted = [false; 128];
        depleted[0] = true;
        for _ in 0..200 {
            adjust(&mut weights, &[NEUTRAL; 128], &depleted, true, 10);
        }
        assert_eq!(weights[0], CEILING * NEUTRAL);
        assert_eq!(weights.iter().sum::<u64>(), 128 * NEUTRAL);
    }

    #[test]
    fn the_few_that_have_time_left_lose_no_more_than_a_tenth() {
        let mut weights = [10_000; 5];
        adjust(
            &mut weights,
            &[10_000; 5],
            &[true, true, true, true, false],
            true,
            10,
        );
        assert_eq!(weights, [10_250, 10_250, 10_250, 10_250, 9_000]);
    }

    #[test]
    fn growth_ends_at_the_floor_of_the_others() {
        let mut weights = [NEUTRAL; 4];
        for _ in 0..200 {
            adjust(
                &mut weights,
                &[NEUTRAL; 4],
                &[true, false, false, false],
                true,
                10,
            );
        }
        let floor = NEUTRAL / FLOOR;
        assert_eq!(weights, [4 * NEUTRAL - 3 * floor, floor, floor, floor]);
    }

    proptest! {
        #[test]
        fn the_total_stays_and_nobody_falls_below_the_floor(
            rounds in prop::collection::vec(prop::collection::vec(any::<bool>(), 7), 1..40),
            vcpus in 1usize..8, step in 1u32..100,
        ) {
            let mut weights = vec![NEUTRAL; vcpus];
            for depleted in &rounds {
                let before = weights.clone();
                let depleted = &depleted[..vcpus];
                adjust(&mut weights, &vec![NEUTRAL; vcpus], depleted, true, step);
                let alike = depleted.iter().all(|is| *is == depleted[0]);
                prop_assert_eq!(weights.iter().sum::<u64>(), vcpus as u64 * NEUTRAL);
                for at in 0..vcpus {
                    prop_assert!(weights[at] >= NEUTRAL / FLOOR, "{:?}", weights);
                    if alike {
                        let off = |weights: &[u64]| weights[at].abs_diff(NEUTRAL);
                        prop_assert!(off(&weights) <= off(&before));
                        continue;
                    }
                    let (most, least) = (100 + u64::from(step), 100 - u64::from(step));
                    match depleted[at] {
                        true => prop_assert!((before[at]..=before[at] * most / 100 + vcpus as u64)
                            .contains(&weights[at])),
                        false => prop_assert!(weights[at] <= before[at]),
                    }
                    // Where some cannot give their part, since they are at the floor, the others
                    // give more.
                    let floored = before.iter().any(|w| *w * least / 100 < NEUTRAL / FLOOR);
                    prop_assert!(floored || weights[at] + 8 >= before[at] * least / 100);
                }
            }
        }
    }
}
