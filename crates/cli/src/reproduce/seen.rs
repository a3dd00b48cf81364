// SPDX-License-Identifier: GPL-2.0-only
//! What the formulas of a check, or of a table's row, see after the runs: evaluates them seed by seed, and combines
//! seeds.

use super::checks::{Over, Terms};
use super::formula::{Condition, Known, Number};
use super::work::Measured;
use corun_report::Spread;
use corun_scenario::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// What formulas see.
pub struct Seen<'a> {
    /// What the formulas are made of.
    pub terms: &'a Terms,
    /// The seeds with which all of them were measured.
    pub seeds: Vec<u64>,
    /// Every measured value, by its text and then in the order of the seeds.
    pub values: BTreeMap<&'a str, Vec<f64>>,
}

impl<'a> Seen<'a> {
    /// Looks up what was measured.
    ///
    /// # Errors
    /// If a measured value names what a run does not have.
    pub fn new(terms: &'a Terms, measured: &Measured) -> Result<Self, Problem> {
        let mut seeds: Option<BTreeSet<u64>> = None;
        let mut runs = Vec::new();
        for (text, reference) in &terms.references {
            let of = measured.of(reference).ok_or_else(|| {
                terms.problem(format!("[{text}]: the experiment has no such run"))
            })?;
            let these: BTreeSet<u64> = of.keys().copied().collect();
            seeds = Some(match seeds {
                None => these,
                Some(so_far) => so_far.intersection(&these).copied().collect(),
            });
            runs.push((text.as_str(), reference, of));
        }
        let seeds: Vec<u64> = seeds.into_iter().flatten().collect();
        let mut values = BTreeMap::new();
        for (text, reference, of) in runs {
            let each = seeds.iter().filter_map(|seed| of.get(seed));
            let each: Result<Vec<f64>, String> = each.map(|run| reference.path.of(run)).collect();
            let each = each.map_err(|message| terms.problem(format!("[{text}]: {message}")))?;
            values.insert(text, each);
        }
        Ok(Self {
            terms,
            seeds,
            values,
        })
    }

    /// How often formulas are evaluated: once if nothing is measured.
    pub fn times(&self) -> usize {
        match self.values.is_empty() {
            true => 1,
            false => self.seeds.len(),
        }
    }

    /// Evaluates with measured values as `pick` takes them from those of all seeds, and with all names.
    fn with<T>(&self, pick: impl Fn(&[f64]) -> f64, then: impl FnOnce(&Known<'_>) -> T) -> T {
        self.with_names(&self.terms.lets, &pick, then)
    }

    /// The same with the names of `lets`: those that are defined before the formula.
    fn with_names<T>(
        &self,
        lets: &[(String, Number)],
        pick: &dyn Fn(&[f64]) -> f64,
        then: impl FnOnce(&Known<'_>) -> T,
    ) -> T {
        let constant = |text: &str| self.terms.constants.get(text).copied();
        let measured = |text: &str| match self.values.get(text) {
            Some(all) => pick(all),
            None => constant(text).unwrap_or(f64::NAN),
        };
        let mut names = self.terms.paper.clone();
        for (at, (name, number)) in lets.iter().enumerate() {
            let value = number.value(&Known {
                names: &names,
                measured: &measured,
                overall: &|number| self.overall(&lets[..at], number),
            });
            names.insert(name.clone(), value);
        }
        then(&Known {
            names: &names,
            measured: &measured,
            overall: &|number| self.overall(lets, number),
        })
    }

    /// What a number comes to over the seeds, in the check's way: its median, or its mean.
    fn overall(&self, lets: &[(String, Number)], number: &Number) -> f64 {
        let each = self.each_with(lets, number);
        self.spread(&each).map_or(f64::NAN, |spread| spread.median)
    }

    /// A number, seed by seed.
    pub fn each(&self, number: &Number) -> Vec<f64> {
        self.each_with(&self.terms.lets, number)
    }

    fn each_with(&self, lets: &[(String, Number)], number: &Number) -> Vec<f64> {
        let at = |at: usize| {
            self.with_names(
                lets,
                &|all| all.get(at).copied().unwrap_or(f64::NAN),
                |known| number.value(known),
            )
        };
        (0..self.times()).map(at).collect()
    }

    /// A condition, seed by seed; `None` where that depends on what was not measured.
    pub fn truths(&self, condition: &Condition) -> Vec<Option<bool>> {
        let at = |at: usize| {
            self.with(
                |all| all.get(at).copied().unwrap_or(f64::NAN),
                |known| condition.holds(known),
            )
        };
        (0..self.times()).map(at).collect()
    }

    /// Is it true of medians (or means) over the seeds? `None` if that depends on what was not measured.
    pub fn over_seeds(&self, condition: &Condition) -> Option<bool> {
        let middle = |all: &[f64]| self.spread(all).map_or(f64::NAN, |spread| spread.median);
        self.with(middle, |known| condition.holds(known))
    }

    /// Several seeds as one number; what was not measured with one of them was not measured.
    pub fn spread(&self, all: &[f64]) -> Option<Spread> {
        let spread = Spread::of(all.iter().copied())?;
        let median = match self.terms.over {
            Over::Median => spread.median,
            Over::Mean => all.iter().sum::<f64>() / all.len() as f64,
        };
        let measured = all.iter().all(|value| value.is_finite());
        measured.then_some(Spread { median, ..spread })
    }

    /// The value on the paper's side; it knows nothing of ours.
    pub fn of_paper(&self, number: &Number) -> f64 {
        self.with(|_| f64::NAN, |known| number.value(known))
    }
}
