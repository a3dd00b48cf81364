// SPDX-License-Identifier: GPL-2.0-only
//! The rules of verdicts: fixed, and here only. docs/reproduce.md and the head of docs/claims.md say
//! the same in words.
//!
//! - exact and analytic claims: *exact* if ours equals the paper's value to the last digit that it
//!   prints, else *missed*;
//! - quantitative claims: *close* within 25 % of the paper's effect, for shares also within 5 points;
//!   *direction* with the same sign, within a factor of 2 of the effect, and in the stated order;
//!   else *missed*;
//! - quantitative claims that are figure only: *direction* if the stated order holds in at least 9 of
//!   10 seeds, else *missed*;
//! - qualitative claims: *holds* in at least 9 of 10 seeds, else *missed*;
//! - what no simulation can tell, or what is not there yet: *out-of-scope*.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far from the paper's effect is still close: a quarter of it.
const CLOSE: f64 = 0.25;
/// How many points of a share are close.
const CLOSE_POINTS: f64 = 5.0;
/// How many times the effect, or what part of it, still has its direction.
const FACTOR: f64 = 2.0;
/// Bounds are included, whatever the last bit of a quotient.
const ROUNDING: f64 = 1e-9;

/// How near a result comes to a claim.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Equal, to the last digit that the paper prints.
    Exact,
    /// Within 25 % of the paper's effect, or for shares within 5 points.
    Close,
    /// Same sign and order, within a factor of 2 of the effect; figure only: same order.
    Direction,
    /// True in at least 9 of 10 seeds.
    Holds,
    /// None of these.
    Missed,
    /// Not checked: the note says why.
    OutOfScope,
}

impl Verdict {
    /// Every verdict, the best first.
    pub const ALL: [Self; 6] = [
        Self::Exact,
        Self::Close,
        Self::Holds,
        Self::Direction,
        Self::Missed,
        Self::OutOfScope,
    ];

    /// As it is written everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Close => "close",
            Self::Direction => "direction",
            Self::Holds => "holds",
            Self::Missed => "missed",
            Self::OutOfScope => "out-of-scope",
        }
    }

    /// The verdict that is written so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }

    /// The higher, the better: 3 for all there is to reach, 0 for what was not checked.
    pub fn rank(self) -> u8 {
        match self {
            Self::Exact | Self::Close | Self::Holds => 3,
            Self::Direction => 2,
            Self::Missed => 1,
            Self::OutOfScope => 0,
        }
    }

    /// The worse of two.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        match other.rank() < self.rank() {
            true => other,
            false => self,
        }
    }
}

/// What a number means, and so how a result is compared with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meaning {
    /// The number is the effect.
    #[default]
    Effect,
    /// A share in per cent.
    Share,
    /// How many times as much: the effect is its distance from 1.
    Ratio,
    /// The effect is no less.
    AtLeast,
    /// The effect is no more.
    AtMost,
}

impl Meaning {
    /// All, as files of checks write them.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("effect", Self::Effect),
        ("share", Self::Share),
        ("ratio", Self::Ratio),
        ("at-least", Self::AtLeast),
        ("at-most", Self::AtMost),
    ];

    fn effect(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value - 1.0,
            _ => value,
        }
    }

    fn is_close(self, paper: f64, ours: f64) -> bool {
        let apart = (ours - paper).abs();
        apart <= CLOSE * paper.abs() * (1.0 + ROUNDING)
            || match self {
                Self::Effect | Self::Ratio => false,
                Self::Share => apart <= CLOSE_POINTS * (1.0 + ROUNDING),
                Self::AtLeast => ours >= paper,
                Self::AtMost => ours <= paper,
            }
    }
}

/// The verdict on a number that was measured; `ordered` if our order, too, is the one that the check states. What was
/// not measured (no number) is missed.
pub fn quantitative(meaning: Meaning, paper: f64, ours: f64, ordered: bool) -> Verdict {
    let (paper, ours) = (meaning.effect(paper), meaning.effect(ours));
    if !paper.is_finite() || !ours.is_finite() {
        return Verdict::Missed;
    }
    if meaning.is_close(paper, ours) {
        return Verdict::Close;
    }
    let comparable = (1.0 - ROUNDING) / FACTOR..=FACTOR * (1.0 + ROUNDING);
    match comparable.contains(&(ours / paper)) && ordered {
        true => Verdict::Direction,
        false => Verdict::Missed,
    }
}

/// Digits after the point of a number of a paper.
pub(super) fn decimals(paper: f64) -> usize {
    let written = paper.to_string();
    written.split_once('.').map_or(0, |(_, after)| after.len())
}

/// The verdict on a number that must be equal, to the last digit of `paper` as it is written.
pub fn exact(paper: f64, ours: f64) -> Verdict {
    let half = 0.5 * libm::pow(10.0, -(decimals(paper) as f64));
    match (ours - paper).abs() <= half * (1.0 + ROUNDING) {
        true => Verdict::Exact,
        false => Verdict::Missed,
    }
}

/// The verdict on what is true or not, seed by seed. `reached` is the verdict if it is true; for exact claims, that
/// takes every seed.
pub fn over_seeds(truths: &[bool], reached: Verdict) -> Verdict {
    let so = truths.iter().filter(|truth| **truth).count();
    let enough = match reached {
        Verdict::Exact => so == truths.len(),
        _ => so * 10 >= truths.len() * 9,
    };
    match !truths.is_empty() && enough {
        true => reached,
        false => Verdict::Missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn effect(paper: f64, ours: f64) -> Verdict {
        quantitative(Meaning::Effect, paper, ours, true)
    }

    #[test]
    fn exact_is_with_every_seed() {
        let mut truths = [true; 20];
        assert_eq!(over_seeds(&truths, Verdict::Exact), Verdict::Exact);
        truths[7] = false;
        assert_eq!(over_seeds(&truths, Verdict::Exact), Verdict::Missed);
        assert_eq!(over_seeds(&truths, Verdict::Holds), Verdict::Holds);
    }

    #[test]
    fn bounds_are_included() {
        assert_eq!(effect(40.0, 30.0), Verdict::Close);
        assert_eq!(effect(40.0, 50.0), Verdict::Close);
        assert_eq!(effect(40.0, 29.9), Verdict::Direction);
        assert_eq!(effect(40.0, 20.0), Verdict::Direction);
        assert_eq!(effect(40.0, 80.0), Verdict::Direction);
        assert_eq!(effect(40.0, 19.9), Verdict::Missed);
        assert_eq!(effect(40.0, 80.1), Verdict::Missed);
        assert_eq!(effect(40.0, -40.0), Verdict::Missed);
        assert_eq!(effect(-40.0, -35.0), Verdict::Close);
        assert_eq!(effect(0.1 + 0.2, 0.375), Verdict::Close);
    }

    #[test]
    fn nothing_is_only_close_to_nothing() {
        assert_eq!(effect(0.0, 0.0), Verdict::Close);
        assert_eq!(effect(0.0, 0.1), Verdict::Missed);
        assert_eq!(effect(0.1, 0.0), Verdict::Missed);
        assert_eq!(effect(1.0, f64::NAN), Verdict::Missed);
        assert_eq!(effect(1.0, f64::INFINITY), Verdict::Missed);
    }

    #[test]
    fn shares_may_also_be_five_points_off() {
        let share = |paper, ours| quantitative(Meaning::Share, paper, ours, true);
        assert_eq!(share(0.045, 0.0), Verdict::Close);
        assert_eq!(share(5.5, 10.5), Verdict::Close);
        assert_eq!(share(5.5, 10.6), Verdict::Direction);
        assert_eq!(share(43.1, 33.0), Verdict::Close);
        assert_eq!(share(10.0, 4.9), Verdict::Missed);
    }

    #[test]
    fn ratios_on_different_sides_of_one_have_different_signs() {
        let ratio = |paper, ours| quantitative(Meaning::Ratio, paper, ours, true);
        assert_eq!(ratio(1.1, 0.95), Verdict::Missed);
        assert_eq!(ratio(1.1, 1.06), Verdict::Direction);
        assert_eq!(ratio(4.42, 3.6), Verdict::Close);
        assert_eq!(ratio(0.5, 0.4), Verdict::Close);
    }

    #[test]
    fn the_right_side_of_a_bound_is_close() {
        let least = |ours| quantitative(Meaning::AtLeast, 10.0, ours, true);
        assert_eq!(least(1000.0), Verdict::Close);
        assert_eq!(least(7.5), Verdict::Close);
        assert_eq!(least(5.0), Verdict::Direction);
        assert_eq!(least(4.0), Verdict::Missed);
        let most = |ours| quantitative(Meaning::AtMost, 1.0, ours, true);
        assert_eq!(most(-3.0), Verdict::Close);
        assert_eq!(most(1.5), Verdict::Direction);
        assert_eq!(most(2.5), Verdict::Missed);
    }

    #[test]
    fn equal_means_to_the_last_digit_printed() {
        assert_eq!(exact(50.004, 50.004), Verdict::Exact);
        assert_eq!(exact(400.0, 400.04), Verdict::Exact);
        assert_eq!(exact(14.4, 14.45), Verdict::Exact);
        assert_eq!(exact(14.4, 14.46), Verdict::Missed);
        assert_eq!(exact(60.0, f64::NAN), Verdict::Missed);
    }

    #[test]
    fn nine_of_ten_seeds() {
        let so = |yes: usize, no: usize| {
            let truths = [vec![true; yes], vec![false; no]].concat();
            over_seeds(&truths, Verdict::Holds)
        };
        assert_eq!(so(9, 1), Verdict::Holds);
        assert_eq!(so(8, 1), Verdict::Missed);
        assert_eq!(so(18, 2), Verdict::Holds);
        assert_eq!(so(0, 0), Verdict::Missed);
    }

    #[test]
    fn names_are_those_of_the_json() {
        for verdict in Verdict::ALL {
            let json = serde_json::to_string(&verdict).unwrap();
            assert_eq!(json, format!("{:?}", verdict.name()));
            assert_eq!(Verdict::named(verdict.name()), Some(verdict));
        }
    }

    fn meanings() -> impl Strategy<Value = Meaning> {
        prop::sample::select(Meaning::NAMES.map(|(_, meaning)| meaning).to_vec())
    }

    proptest! {
        #[test]
        fn what_is_nearer_is_never_judged_worse(
            meaning in meanings(),
            paper in -1e3f64..1e3,
            ours in -1e3f64..1e3,
            part in 0.0f64..1.0,
            ordered: bool,
        ) {
            let nearer = ours + (paper - ours) * part;
            let (far, near) = [ours, nearer]
                .map(|ours| quantitative(meaning, paper, ours, ordered))
                .into();
            prop_assert!(near.rank() >= far.rank(), "{near:?} of {nearer}, {far:?} of {ours}");
        }

        #[test]
        fn order_matters_for_direction_only(
            meaning in meanings(), paper in -1e3f64..1e3, ours in -1e3f64..1e3,
        ) {
            let [with, without] = [true, false].map(|it| quantitative(meaning, paper, ours, it));
            match with {
                Verdict::Direction => prop_assert_eq!(without, Verdict::Missed),
                other => prop_assert_eq!(without, other),
            }
        }

        #[test]
        fn the_papers_own_value_is_the_best_there_is(
            meaning in meanings(), paper in -1e3f64..1e3,
        ) {
            prop_assert_eq!(quantitative(meaning, paper, paper, false), Verdict::Close);
            prop_assert_eq!(exact(paper, paper), Verdict::Exact);
        }
    }
}
