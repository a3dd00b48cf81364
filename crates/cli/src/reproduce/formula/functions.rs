// SPDX-License-Identifier: GPL-2.0-only
//! The functions of formulas; those of the papers are in [`papers`], [`jupiter`],
//! [`aql`], [`vmigrater`] and [`vsmtio`].

use super::{aql, jupiter, papers, vmigrater, vsmtio};
use corun_scenario::or_nearest;
use std::ops::RangeInclusive;

/// A function of some numbers.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// How many numbers it takes.
    pub arguments: RangeInclusive<usize>,
    /// Its value.
    pub call: fn(&[f64]) -> f64,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// At least one, and more than anybody writes.
pub const ANY: RangeInclusive<usize> = 1..=64;

/// Makes a function.
pub const fn function(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    call: fn(&[f64]) -> f64,
) -> Function {
    Function {
        name,
        arguments,
        call,
    }
}

/// Functions that are not from papers.
const COMMON: &[Function] = &[
    function("reduction", 2..=2, |of| (of[0] - of[1]) / of[0] * 100.0),
    function("gain", 2..=2, |of| (of[1] - of[0]) / of[0] * 100.0),
    function("abs", 1..=1, |of| of[0].abs()),
    function("sqrt", 1..=1, |of| of[0].sqrt()),
    // f64::min would ignore what was not measured.
    function("min", ANY, |of| extreme(of, f64::min)),
    function("max", ANY, |of| extreme(of, f64::max)),
    function("mean", ANY, |of| of.iter().sum::<f64>() / of.len() as f64),
    function("or", 2..=2, |of| if of[0].is_nan() { of[1] } else { of[0] }),
];

fn extreme(of: &[f64], better: fn(f64, f64) -> f64) -> f64 {
    let step = |a: f64, &b: &f64| {
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else {
            better(a, b)
        }
    };
    of.iter().skip(1).fold(of[0], step)
}

/// The function of this name.
///
/// # Errors
/// What is accepted.
pub fn find(name: &str) -> Result<&'static Function, String> {
    let parts = [
        papers::ALL,
        jupiter::ALL,
        aql::ALL,
        vmigrater::ALL,
        vsmtio::ALL,
    ];
    let papers = || parts.into_iter().flatten();
    let all = || COMMON.iter().chain(papers());
    all().find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<&str> = all()
            .map(|it| it.name)
            .chain(["near", "greatest"])
            .collect();
        format!("unknown function {name:?}, {}", or_nearest(name, &names))
    })
}
