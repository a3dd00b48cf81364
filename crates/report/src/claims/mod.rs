// SPDX-License-Identifier: GPL-2.0-only
//! The claims scoreboard: what papers claim, what the simulator shows, and how near that is.

mod markdown;
mod page;
mod table;
mod verdict;

pub use markdown::markdown;
pub use page::page;
pub use table::text;
pub use verdict::{Meaning, Verdict, exact, over_seeds, quantitative};

use crate::format::amount;
use corun_model::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Claims with their verdicts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scoreboard {
    /// Version of corun.
    pub version: String,
    /// Were runs shorter and seeds fewer than the experiments say?
    pub quick: bool,
    /// How many claims are left out, since somebody interrupted it before their runs were all done.
    pub left_out: usize,
    /// In the order of the file of claims.
    pub claims: Vec<Claim>,
}

/// What kind of claim it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Output of a deterministic algorithm, a rule or a constant.
    Exact,
    /// A formula.
    Analytic,
    /// A measured number.
    Quantitative,
    /// A trend.
    Qualitative,
}

impl Kind {
    /// All, as they are written.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("exact", Self::Exact),
        ("analytic", Self::Analytic),
        ("quantitative", Self::Quantitative),
        ("qualitative", Self::Qualitative),
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        let name = Self::NAMES.iter().find(|(_, kind)| *kind == self);
        name.map_or("", |(name, _)| name)
    }
}

/// Was a claim checked, and if not, why not?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It was.
    Checked,
    /// No simulation can.
    OutOfReach,
    /// What it takes is not there yet.
    NotImplemented,
}

/// A number, a text, or several of them by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Figure {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// Several.
    Several(BTreeMap<String, Figure>),
}

/// A claim, its check and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// What kind of claim it is.
    pub kind: Kind,
    /// The worst verdict of its values.
    pub verdict: Verdict,
    /// What the paper says.
    pub paper: Figure,
    /// What the simulator shows, medians over seeds; null if it was not checked.
    pub ours: Option<Figure>,
    /// Half of the range over seeds, of each of our values; null where there is none.
    pub spread: Option<Figure>,
    /// What to know about it; empty if there is nothing.
    pub note: String,
    /// Was it checked?
    pub status: Status,
    /// The system that the claim is about.
    pub system: String,
    /// Where in which paper.
    pub source: String,
    /// In which setting.
    pub setting: String,
    /// What was measured.
    pub metric: String,
    /// Which way it goes, in words.
    pub direction: String,
    /// Experiments that were run for it, such as "balance/table1: 2 VMs".
    pub experiments: Vec<String>,
    /// Seeds that the values are the medians of; 0 if nothing was run.
    pub seeds: usize,
    /// Each value with its verdict.
    pub values: Vec<Judged>,
}

/// A value of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// Its name; empty if the claim has only one.
    pub name: String,
    /// The paper's; null if it has none.
    pub paper: Option<f64>,
    /// Ours, the median over seeds, or the mean where `note` says so; null if it was not measured.
    pub ours: Option<f64>,
    /// Half of the range over seeds; null if it was not measured.
    pub spread: Option<f64>,
    /// Its verdict.
    pub verdict: Verdict,
    /// What is shown instead of numbers: a text, or the condition with how often it is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
}

impl Claim {
    /// Has it one value without a name?
    fn is_single(&self) -> bool {
        matches!(&self.values[..], [value] if value.name.is_empty())
    }
}

impl Judged {
    /// The paper's value for people.
    fn shown_paper(&self) -> String {
        match (&self.says, self.paper) {
            (_, Some(paper)) => number(paper),
            (Some(_), None) => String::new(),
            (None, None) => "–".to_string(),
        }
    }

    /// Ours for people, with its spread.
    fn shown_ours(&self) -> String {
        if let (Verdict::Exact, Some(paper), Some(ours)) = (self.verdict, self.paper, self.ours) {
            return format!("{ours:.0$}", verdict::decimals(paper));
        }
        match (&self.says, self.ours, self.spread) {
            (Some(says), _, _) => says.clone(),
            (None, Some(ours), Some(spread)) if spread > ours.abs() * 5e-4 => {
                format!("{} ±{}", amount(ours), amount(spread))
            }
            (None, Some(ours), _) => amount(ours),
            (None, None, _) => "–".to_string(),
        }
    }
}

/// A number of the paper, with the digits that it has.
fn number(value: f64) -> String {
    match value.abs() < 1e6 {
        true => value.to_string(),
        false => amount(value),
    }
}

impl Figure {
    /// For people, in one line.
    pub fn show(&self) -> String {
        match self {
            Self::Number(value) => number(*value),
            Self::Text(text) => text.clone(),
            Self::Several(all) => {
                let each = all.iter().map(|(name, it)| format!("{name} {}", it.show()));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

impl Scoreboard {
    /// How many claims of a kind have a verdict.
    pub fn count(&self, fits: impl Fn(&Claim) -> bool) -> usize {
        self.claims.iter().filter(|claim| fits(claim)).count()
    }

    /// The systems in order, each once.
    fn systems(&self) -> Vec<&str> {
        crate::results::once(self.claims.iter().map(|claim| claim.system.as_str()))
    }

    /// The sums, in sentences.
    fn sums(&self) -> Vec<String> {
        let checked = self.count(|claim| claim.status == Status::Checked);
        let verdicts = Verdict::ALL.into_iter().filter_map(|verdict| {
            let is = |claim: &Claim| claim.status == Status::Checked && claim.verdict == verdict;
            let count = self.count(is);
            (count > 0).then(|| format!("{count} {}", verdict.name()))
        });
        let mut checks = format!("{}, {checked} checked", counted(self.claims.len(), "claim"));
        let verdicts: Vec<String> = verdicts.collect();
        if !verdicts.is_empty() {
            checks += &format!(": {}", verdicts.join(", "));
        }
        let out = self.count(|claim| claim.status == Status::OutOfReach);
        let not = self.count(|claim| claim.status == Status::NotImplemented);
        let mut all = vec![checks + "."];
        if out + not > 0 {
            all.push(format!(
                "Out of scope: {out} that no simulation can check, {not} not implemented yet."
            ));
        }
        if self.left_out > 0 {
            all.push(format!(
                "Interrupted: {} left out, whose runs were not all done.",
                counted(self.left_out, "claim")
            ));
        }
        if self.quick {
            all.push("Quick: shorter runs and fewer seeds than the experiments say.".to_string());
        }
        all
    }
}

/// The one object that `corun reproduce --json` prints.
///
/// # Errors
/// If it cannot be written as JSON, which would be a defect of this crate.
pub fn json(board: &Scoreboard) -> serde_json::Result<String> {
    serde_json::to_string_pretty(board).map(|text| text + "\n")
}

/// The JSON schema of [`Scoreboard`], as it is committed in `docs/schema`.
///
/// # Errors
/// As for [`json`].
pub fn schema() -> serde_json::Result<String> {
    let schema = schemars::schema_for!(Scoreboard);
    serde_json::to_string_pretty(&schema).map(|text| text + "\n")
}
