// SPDX-License-Identifier: GPL-2.0-only
//! The slices that a vCPU has had, and how long the present one will last.
//!
//! Problem: vMigrater predicts a slice by the previous one (ATC 2018, §3.2). On a host where all slices are equal
//! nothing better is needed. On others a slice that was cut short spoils the prediction of the next. A median of
//! several avoids that; but where long and short slices take turns, every short one then catches tasks.
//!
//! How: where the number of slices to look at is not set, each of a few rules is charged for the time that it would
//! have lost lately, and the one that lost least predicts. A slice that ends before its tasks were told to leave costs
//! them the absence that follows. One that goes on after they left costs half of its rest: whether the vCPU to which
//! they go is active is not known here.

use super::params::{MOST_SLICES, MigraterParams};
use corun_model::Nanos;

/// A prediction from slices, the latest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The median of this many last slices.
    Median(usize),
    /// The shortest of this many last slices.
    Shortest(usize),
}

/// The rules to choose from; the paper's is preferred while none has proved better.
const RULES: [Rule; 4] = [
    Rule::Median(1),
    Rule::Median(3),
    Rule::Median(5),
    Rule::Shortest(3),
];
/// A loss counts for an eighth less with every slice after it: some ten slices decide, so that a host
/// whose slices change is followed within a fraction of a second (assumed).
pub(super) const FADING: u64 = 8;

impl Rule {
    /// `slices` are complete ones, the latest first.
    fn predict(self, slices: &[Nanos]) -> Option<Nanos> {
        let (Self::Median(count) | Self::Shortest(count)) = self;
        let count = count.clamp(1, MOST_SLICES).min(slices.len());
        let mut recent = [0; MOST_SLICES];
        let recent = &mut recent[..count];
        recent.copy_from_slice(&slices[..count]);
        recent.sort_unstable();
        match self {
            // Of an even number the shorter one: late is worse than early.
            Self::Median(_) => recent.get(count.saturating_sub(1) / 2).copied(),
            Self::Shortest(_) => recent.first().copied(),
        }
    }
}

/// The slices of one vCPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices {
    /// The last complete ones, the latest first.
    recent: [Nanos; MOST_SLICES],
    known: usize,
    /// What each rule would have lost lately, ns.
    lost: [Nanos; RULES.len()],
}

impl Slices {
    fn complete(&self) -> &[Nanos] {
        &self.recent[..self.known]
    }

    /// A slice has ended after `length`; the vCPU was `away` then.
    pub fn add(&mut self, params: &MigraterParams, length: Nanos, away: Nanos) {
        let slices = &self.recent[..self.known];
        for (rule, lost) in RULES.iter().zip(&mut self.lost) {
            if let Some(predicted) = rule.predict(slices) {
                let now = loss(params, predicted, length, away);
                *lost = (*lost - *lost / FADING).saturating_add(now);
            }
        }
        self.recent.rotate_right(1);
        self.recent[0] = length;
        self.known = (self.known + 1).min(MOST_SLICES);
    }

    /// How long the present slice will last in all, ns; `None` before one was seen.
    pub fn predict(&self, params: &MigraterParams) -> Option<Nanos> {
        let best = || {
            let rules = RULES.iter().zip(&self.lost);
            rules.min_by_key(|(_, lost)| **lost).map(|(rule, _)| *rule)
        };
        let rule = match params.slices {
            0 => best()?,
            count => Rule::Median(count),
        };
        rule.predict(self.complete())
    }
}

/// What a prediction would have lost in a slice of `length`, before the vCPU was `away`, ns.
fn loss(params: &MigraterParams, predicted: Nanos, length: Nanos, away: Nanos) -> Nanos {
    let told_to_leave = predicted.saturating_sub(params.push);
    match length.checked_sub(told_to_leave) {
        // At the first beat after that.
        Some(rest) if rest >= params.heartbeat => (rest - params.heartbeat) / 2,
        _ => away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};
    use proptest::prelude::*;

    /// What is lost with predictions from this many slices, on a host of two vCPUs per pCPU.
    fn lost(slices: usize, lengths: &[Nanos]) -> Nanos {
        let params = MigraterParams {
            slices,
            ..MigraterParams::default()
        };
        let (mut seen, mut lost) = (Slices::default(), 0);
        for &length in lengths {
            if let Some(predicted) = seen.predict(&params) {
                lost += loss(&params, predicted, length, 11 * MS);
            }
            seen.add(&params, length, 11 * MS);
        }
        lost
    }

    #[test]
    fn where_slices_are_cut_short_now_and_then_a_median_predicts() {
        let cut = |at: u64| if at % 5 == 3 { 4 * MS } else { 11 * MS };
        let lengths: Vec<_> = (0..200).map(cut).collect();
        let (previous, three) = (lost(1, &lengths), lost(3, &lengths));
        assert!(
            3 * three < 2 * previous + previous / 2,
            "{three}, {previous}"
        );
        let chosen = lost(0, &lengths);
        assert!(chosen < three + three / 10, "{chosen} of {three}");
    }

    #[test]
    fn where_short_slices_take_turns_with_long_ones_the_shortest_predicts() {
        let lengths: Vec<_> = (0..200).map(|at| (4 + 4 * (at % 2)) * MS).collect();
        let (previous, three) = (lost(1, &lengths), lost(3, &lengths));
        let chosen = lost(0, &lengths);
        assert!(
            3 * chosen < previous.min(three),
            "{chosen}, {previous}, {three}"
        );
    }

    #[test]
    fn a_host_whose_slices_change_is_followed() {
        let length = |at: u64| if at < 100 { 4 * MS } else { 11 * MS };
        let lengths: Vec<_> = (0..200).map(length).collect();
        let (previous, chosen) = (lost(1, &lengths), lost(0, &lengths));
        assert!(chosen <= previous + 11 * MS, "{chosen}, {previous}");
    }

    #[test]
    fn what_a_prediction_costs() {
        let params = MigraterParams::default();
        // Tasks are told to leave at 600 us before 11 ms, a beat later at most.
        let of = |length| loss(&params, 11 * MS, length, 22 * MS);
        assert_eq!(of(10 * MS), 22 * MS, "caught");
        assert_eq!(of(10_700 * US), 0);
        assert_eq!(of(13_700 * US), 1_500 * US, "left 3 ms too early");
    }

    proptest! {
        /// Any lengths: no panic, and a prediction is a slice that was seen.
        #[test]
        fn any_slices_will_do(lengths in prop::collection::vec((any::<u64>(), any::<u64>()), 1..30)) {
            let params = MigraterParams { slices: 0, ..MigraterParams::default() };
            let mut seen = Slices::default();
            for (length, away) in &lengths {
                seen.add(&params, *length, *away);
                let predicted = seen.predict(&params);
                prop_assert!(lengths.iter().any(|(length, _)| Some(*length) == predicted));
            }
        }
    }
}
