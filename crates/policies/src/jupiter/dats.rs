// SPDX-License-Identifier: GPL-2.0-only
//! DATS (dynamically adjusting the time slices): how a VM's CPU time is divided among its vCPUs (dissertation, §4.4.1).
//!
//! A vCPU's slice is its part, by weight, of what its VM may use in a period. One that has used its
//! slice up and wants more weighs a tenth more in the next period. The total weight of a VM is fixed: the other vCPUs
//! lose what these gain, in proportion to what they have. As long as they have time left, that costs them nothing.
//! These bounds are not in the dissertation:
//!
//!   * If most vCPUs are depleted, the few others lose no more than a tenth either, and the
//!     depleted ones gain less ("adjust its parameters gradually"): otherwise one vCPU that happens to
//!     wait when the period ends would lose all it has.
//!   * None falls below an eighth of the mean, so that one that was idle for long is not starved
//!     when it wakes.
//!   * None rises above the weight at which it gets a whole period out of what its VM is entitled to without loans. It
//!     could not use more, and its siblings would fall to the floor for nothing: when they begin to compute, a VM whose
//!     weight is on one pCPU gets far less than its share.
//!   * None rises above what the dispatcher can give, which matters to VMs with more than 73 vCPUs.
//!
//! If a VM has its share, and none of its vCPUs is depleted, or all are, there is no reason for one vCPU to have more
//! than another. Then weights come back, a step at a time, to what vCPUs weigh by themselves, as latencies do. The
//! dissertation does not say what becomes of weights in that case. If they stayed, chance differences between vCPUs
//! that all do the same would stay for ever, and the slowest vCPU would keep the others waiting. A vCPU that needs more
//! is soon depleted again, and loses only one step of what it gained.
//!
//! What a vCPU gave is [given back](give_back) sooner if it wants all of it while its VM lacks its share: half of it
//! per period, as ELB repays debts. At a tenth per period of the little that it has left, that would take seconds.

use super::scaled;
use corun_model::Claim;

/// What a vCPU weighs by default; the total of a VM is this times its vCPUs.
pub(super) const NEUTRAL: u64 = Claim::NEUTRAL as u64;
/// No vCPU falls below the mean weight by more than this factor.
pub(super) const FLOOR: u64 = 8;

/// No vCPU has more than this many times what it weighs by itself.
pub(super) const CEILING: u64 = Claim::RANGE as u64;

/// Per period, a vCPU that wants back what it gave gets this part of it: one in so many.
pub(super) const GIVES_BACK: u64 = 2;

/// The bounds of a vCPU's weight that depend on the vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// What it weighs by itself. It comes back to that.
    pub rest: u64,
    /// It does not rise above this.
    pub most: u64,
}

impl Bounds {
    /// For a vCPU of a VM that is entitled to `entitled` in a `period`, and whose weights add up to `total`. It may
    /// always weigh what it weighs by itself, whatever that gives it.
    pub fn new(rest: u64, total: u64, entitled: u64, period: u64) -> Self {
        let whole_period = match entitled {
            0 => u64::MAX,
            _ => scaled(total, period, entitled),
        };
        Self {
            rest,
            most: whole_period.min(rest * CEILING).max(rest),
        }
    }
}

/// Adjusts the weights of a VM's vCPUs, of which `depleted` have used up their slices and want
/// more: these grow by `step` percent, unless the others would lose more than that. If no vCPU is
/// depleted, or all are, and the VM has its share (`served`), the weights come back towards what they were at first.
/// The sum stays the same.
pub(super) fn adjust(
    weights: &mut [u64],
    bounds: &[Bounds],
    depleted: &[bool],
    served: bool,
    step: u32,
) {
    keep_below_most(weights, bounds);
    let (mut growing, mut others) = (0, 0);
    for (weight, depleted) in weights.iter().zip(depleted) {
        *(if *depleted { &mut growing } else { &mut others }) += weight;
    }
    if growing == 0 || others == 0 {
        if served {
            come_back(weights, bounds, step);
        }
        return;
    }
    let wanted = growing.min(others) * u64::from(step) / 100;
    // Each gains by what it weighs, up to what it may have.
    let room = |weights: &[u64], at: usize| bounds[at].most.saturating_sub(weights[at]);
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

/// Gives vCPUs that want `back` what they gave to siblings [a part](GIVES_BACK) of it, as far as the siblings still
/// have it.
pub(super) fn give_back(weights: &mut [u64], bounds: &[Bounds], back: &[bool]) {
    let (mut gave, mut gained) = (0, 0);
    for ((weight, bounds), back) in weights.iter().zip(bounds).zip(back) {
        gained += weight.saturating_sub(bounds.rest);
        gave += if *back {
            bounds.rest.saturating_sub(*weight)
        } else {
            0
        };
    }
    let part = gave.min(gained) / GIVES_BACK;
    let returns = |_, above: u64| above * part / gained.max(1);
    pass_on(weights, bounds, returns, |at| back[at]);
}

/// In a VM that is entitled to more than before, a smaller weight gives the whole period: lowers larger ones.
fn keep_below_most(weights: &mut [u64], bounds: &[Bounds]) {
    let returns = |at: usize, above: u64| (bounds[at].rest + above).saturating_sub(bounds[at].most);
    pass_on(weights, bounds, returns, |_| true);
}

/// Brings weights `step` percent of the way back to what vCPUs weigh by themselves.
fn come_back(weights: &mut [u64], bounds: &[Bounds], step: u32) {
    // At least one, so that it ends.
    let returns = |_, above: u64| (above * u64::from(step)).div_ceil(100).min(above);
    pass_on(weights, bounds, returns, |_| true);
}

/// Each vCPU gives what it `returns` of the weight that it has above its own. Those that `get` it share it by what they
/// lack of their own weights; their lacks add up to no less.
fn pass_on(
    weights: &mut [u64],
    bounds: &[Bounds],
    returns: impl Fn(usize, u64) -> u64,
    get: impl Fn(usize) -> bool,
) {
    let mut left = 0;
    for (at, (weight, bounds)) in weights.iter_mut().zip(bounds).enumerate() {
        let part = returns(at, weight.saturating_sub(bounds.rest));
        *weight -= part;
        left += part;
    }
    if left == 0 {
        return;
    }
    let lacks = |weights: &[u64], at: usize| match get(at) {
        true => bounds[at].rest.saturating_sub(weights[at]),
        false => 0,
    };
    let all = (0..weights.len()).map(|at| lacks(weights, at)).sum::<u64>();
    let gives = left;
    for at in 0..weights.len() {
        let part = gives * lacks(weights, at) / all.max(1);
        weights[at] += part;
        left -= part;
    }
    // What rounding left over, or what the sums differ by.
    for at in 0..weights.len() {
        let part = left.min(lacks(weights, at));
        weights[at] += part;
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

    /// For vCPUs that weigh this by themselves, in a VM that has just come: its entitlement bounds none of them yet.
    fn bounds(rest: &[u64]) -> Vec<Bounds> {
        let total = rest.iter().sum();
        let bounds = |&rest| Bounds::new(rest, total, 0, 1);
        rest.iter().map(bounds).collect()
    }

    /// The rule of §4.4.1: ten percent for a depleted vCPU, from the others by their weights.
    #[test]
    fn a_vcpu_that_used_up_its_slice_gets_a_tenth_more_from_the_others_in_proportion() {
        let mut weights = [100_000, 60_000, 40_000];
        adjust(
            &mut weights,
            &bounds(&[NEUTRAL; 3]),
            &[true, false, false],
            true,
            10,
        );
        assert_eq!(weights, [110_000, 54_000, 36_000]);
    }

    /// A tenth of the way each period, whole in the end.
    #[test]
    fn weights_of_a_vm_with_its_share_come_back_if_nobody_wants_more_or_all_do() {
        for depleted in [[false; 3], [true; 3]] {
            let rest = [80_000, 80_000, 40_000];
            let mut weights = [110_000, 50_000, 40_000];
            adjust(&mut weights, &bounds(&rest), &depleted, false, 10);
            assert_eq!(weights, [110_000, 50_000, 40_000], "it lacks its share");
            adjust(&mut weights, &bounds(&rest), &depleted, true, 10);
            assert_eq!(weights, [107_000, 53_000, 40_000]);
            for _ in 0..200 {
                adjust(&mut weights, &bounds(&rest), &depleted, true, 10);
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
            adjust(&mut weights, &bounds(&[NEUTRAL; 128]), &depleted, true, 10);
        }
        assert_eq!(weights[0], CEILING * NEUTRAL);
        assert_eq!(weights.iter().sum::<u64>(), 128 * NEUTRAL);
    }

    #[test]
    fn the_few_that_have_time_left_lose_no_more_than_a_tenth() {
        let mut weights = [10_000; 5];
        adjust(
            &mut weights,
            &bounds(&[10_000; 5]),
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
                &bounds(&[NEUTRAL; 4]),
                &[true, false, false, false],
                true,
                10,
            );
        }
        let floor = NEUTRAL / FLOOR;
        assert_eq!(weights, [4 * NEUTRAL - 3 * floor, floor, floor, floor]);
    }

    /// A VM of four that is entitled to two pCPUs: two times the mean is a whole period.
    #[test]
    fn nobody_rises_above_what_gives_it_the_whole_period() {
        let of = |entitled| [NEUTRAL; 4].map(|rest| Bounds::new(rest, 4 * NEUTRAL, entitled, 100));
        let mut weights = [NEUTRAL; 4];
        let depleted = [true, false, false, false];
        for _ in 0..200 {
            adjust(&mut weights, &of(200), &depleted, true, 10);
        }
        assert_eq!(weights[0], 2 * NEUTRAL);
        assert_eq!(weights.iter().sum::<u64>(), 4 * NEUTRAL);
        // It is entitled to more from now on, and the same period takes less weight.
        adjust(&mut weights, &of(320), &depleted, true, 10);
        assert_eq!(weights[0], 4 * NEUTRAL * 100 / 320);
        assert_eq!(weights.iter().sum::<u64>(), 4 * NEUTRAL);
        // It keeps what it weighs by itself, though that is more than it can use.
        assert_eq!(
            Bounds::new(3 * NEUTRAL, 4 * NEUTRAL, 400, 100).most,
            3 * NEUTRAL
        );
    }

    /// Half of what it gave, from those that have it; the other one that gave does not want it.
    #[test]
    fn what_a_vcpu_gave_comes_back_by_halves_when_it_wants_it() {
        let bounds = bounds(&[10_000; 4]);
        let mut weights = [22_000, 12_000, 2_000, 4_000];
        give_back(&mut weights, &bounds, &[false, false, true, false]);
        assert_eq!(weights, [18_572, 11_429, 5_999, 4_000]);
        let before = weights;
        give_back(&mut weights, &bounds, &[true, true, false, false]);
        assert_eq!(weights, before, "they gave nothing");
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
                adjust(&mut weights, &bounds(&vec![NEUTRAL; vcpus]), depleted, true, step);
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
