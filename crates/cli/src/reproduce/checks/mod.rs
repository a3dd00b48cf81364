// SPDX-License-Identifier: GPL-2.0-only
//! How to read claims, and tables of the documents, off experiments: `checks/*.toml`, whose format docs/reproduce.md
//! describes.
//!
//! Everything that can be wrong with a check is found before anything runs: unknown names, policies,
//! experiments, measures, and formulas of the wrong kind.

mod formulas;
mod note;
mod read;
mod tables;
#[cfg(test)]
mod tests;

pub use note::Note;
pub use read::read;
pub use tables::{Row, Table};

use super::formula::{Condition, Names, Number};
use super::measure::Reference;
use corun_report::claims::Meaning;
use corun_scenario::{Located, Problem};
use std::collections::BTreeMap;

/// The content of all files of checks.
#[derive(Default)]
pub struct Checks {
    /// By claim.
    pub checks: BTreeMap<String, Check>,
    /// The tables of the documents.
    pub tables: Vec<Table>,
    /// What `--quick` sets, by experiment.
    pub quick: BTreeMap<String, Vec<String>>,
    /// Planned policies, with descriptions.
    pub planned: BTreeMap<String, String>,
    /// What claims without a check need, by the beginning of their ids.
    pub unchecked: Vec<(String, String)>,
}

/// A claim's check.
pub struct Check {
    /// What is compared.
    pub what: What,
    /// What its formulas are made of.
    pub terms: Terms,
    /// What to know.
    pub note: Note,
}

/// What the formulas of a check, or of a table's row, are made of.
pub struct Terms {
    /// The paper's numbers, by the names that formulas have for them.
    pub paper: Names,
    /// Definitions, in the order in which they were written.
    pub lets: Vec<(String, Number)>,
    /// Every measured value of the formulas, by the text within the brackets.
    pub references: BTreeMap<String, Reference>,
    /// Parameters of the models among those, by the same texts: ns, bytes or numbers.
    pub constants: BTreeMap<String, f64>,
    /// How several seeds become one value.
    pub over: Over,
    /// For problems that show only after the runs.
    pub place: Located<()>,
}

/// How the values of several seeds become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// The one in the middle.
    #[default]
    Median,
    /// Their mean: for probabilities, where a run is only one draw.
    Mean,
}

impl Over {
    /// All, as files of checks write them.
    pub const NAMES: [(&'static str, Self); 2] = [("median", Self::Median), ("mean", Self::Mean)];
}

/// What is compared.
pub enum What {
    /// Numbers; the order makes the difference between direction and missed.
    Values {
        /// Each with a name, unless there is only one.
        values: Vec<Compared>,
        /// What must be true of medians (or means) over the seeds.
        order: Vec<(String, Condition)>,
        /// The claim's other numbers, by name, each with the reason why nothing is compared with it.
        unjudged: Vec<(String, String)>,
    },
    /// Conditions that must be true, each with its text.
    Holds(Vec<(String, Condition)>),
    /// Nothing, for this reason.
    OutOfReach(String),
}

/// A number beside the paper's.
pub struct Compared {
    /// Its name; empty if the claim has only one.
    pub name: String,
    /// Ours.
    pub ours: Number,
    /// Its formula, for people: the name, if it has one, and what it is.
    pub text: String,
    /// The paper's.
    pub paper: Number,
    /// What the paper says elsewhere, and where.
    pub readings: Vec<(String, Number)>,
    /// How the two are compared.
    pub meaning: Meaning,
}

impl Terms {
    /// A problem with the formulas.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        self.place.problem(message)
    }
}

impl Checks {
    /// The names of all tables.
    pub fn names_of_tables(&self) -> Vec<&str> {
        self.tables
            .iter()
            .map(|table| table.name.as_str())
            .collect()
    }

    /// What a claim without a check needs.
    pub fn takes(&self, claim: &str) -> Option<&str> {
        let fits = |(prefix, _): &&(String, String)| claim.starts_with(prefix.as_str());
        let longest = self.unchecked.iter().filter(fits);
        let longest = longest.max_by_key(|(prefix, _)| prefix.len());
        longest.map(|(_, takes)| takes.as_str())
    }
}
