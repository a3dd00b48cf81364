// SPDX-License-Identifier: GPL-2.0-only
//! How results move with one parameter.
//!
//! The same scenario is run with several values of one key, under every policy and seed. A [`Line`]
//! follows one measure of one VM (or client, or the host) under one policy over all values: medians over the
//! seeds with their spread, and the elasticity from the first value to the last. Throughput relative
//! to the first policy is taken seed by seed, so that what is random in a seed cancels out.

mod chart;
mod measure;
mod page;
mod text;

pub use measure::Measure;
pub use page::page;
pub use text::text;

use crate::results::{Run, once, round};
use crate::summary::{self, Spread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Results over the values of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sensitivity {
    /// Version of corun.
    pub version: String,
    /// Name of the scenario: its file's name without directories and extension.
    pub scenario: String,
    /// The scenario's title, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where the setting comes from, if the scenario says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The scenario's key that was varied.
    pub parameter: String,
    /// Unit of the numbers that the values stand for: "ns", or "" where they have none.
    pub unit: String,
    /// Are the values best shown by their logarithms?
    pub logarithmic: bool,
    /// What was watched.
    pub measure: Measure,
    /// What to know of the input: what is not done as it says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// One per case, VM (or client, or host) and policy.
    pub lines: Vec<Line>,
    /// The values in order, each with all its runs.
    pub points: Vec<Point>,
}

/// A value of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// As the scenario reads it.
    pub value: String,
    /// For people.
    pub shown: String,
    /// The number it stands for, if all values stand for numbers.
    pub number: Option<f64>,
    /// One per case, policy and seed.
    pub runs: Vec<Run>,
}

/// A measure over all values of the parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// The scenario's case; empty if it has none.
    pub case: String,
    /// The VM, the client, or "host".
    pub of: String,
    /// The policy.
    pub policy: String,
    /// Unit of the results; "×" for multiples of the first policy's throughput.
    pub unit: String,
    /// One per value; null where there is nothing to measure.
    pub results: Vec<Option<Seen>>,
    /// Relative change of the result per relative change of the parameter, from the first value to
    /// the last: ln(result ratio) / ln(parameter ratio). Null if either is no positive number.
    pub elasticity: Option<f64>,
}

/// A result over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// The middle one.
    pub median: f64,
    /// Half of the distance between the least and the most; 0 for one seed.
    pub half_range: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Seen {
    /// The result for one value per seed; `None` if there are none.
    fn of(values: &[f64]) -> Option<Self> {
        let spread = Spread::of(values.iter().copied())?;
        let (least, most) = extremes(values.iter().copied());
        Some(Self {
            median: round(spread.median),
            half_range: round(spread.half_range),
            least: round(least),
            most: round(most),
        })
    }
}

/// The least and the most; infinite if there are no values.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    )
}

/// Has any of the lines a result?
fn is_seen(lines: &[Line]) -> bool {
    lines
        .iter()
        .any(|line| line.results.iter().any(Option::is_some))
}

/// Unit of multiples.
const TIMES: &str = "×";

impl Sensitivity {
    /// Draws the lines of `measure` anew from the points; only those of the VM `only` and its clients, if
    /// given.
    pub fn measure(&mut self, measure: Measure, only: Option<&str>) {
        self.measure = measure;
        self.lines.clear();
        let runs = || self.points.iter().flat_map(|point| &point.runs);
        let policies = once(runs().map(|run| run.policy.as_str()));
        let mut lines = Vec::new();
        for case in once(runs().map(|run| run.case.as_str())) {
            let of_case = runs().filter(|run| run.case == case);
            for of in once(of_case.flat_map(|run| measure.subjects(run, only))) {
                let line = |policy: &&str| self.line(case, of, policy, policies[0]);
                lines.extend(policies.iter().map(line));
            }
        }
        self.lines = lines;
    }

    fn line(&self, case: &str, of: &str, policy: &str, reference: &str) -> Line {
        let relative = self.measure == Measure::RelativeThroughput && policy != reference;
        let result = |point: &Point| {
            let run = |policy: &str, seed: u64| {
                let fits =
                    |run: &&Run| run.case == case && run.policy == policy && run.seed == seed;
                let run = point.runs.iter().find(fits)?;
                self.measure.of(run, of)
            };
            let seeds = once(point.runs.iter().map(|run| run.seed));
            let values = seeds.into_iter().filter_map(|seed: u64| {
                let value = run(policy, seed)?;
                match relative {
                    false => Some(value),
                    true => run(reference, seed)
                        .filter(|base| *base > 0.0)
                        .map(|base| value / base),
                }
            });
            Seen::of(&values.collect::<Vec<f64>>())
        };
        let results: Vec<Option<Seen>> = self.points.iter().map(result).collect();
        let unit = match relative {
            true => TIMES.to_string(),
            false => self.unit_of(of),
        };
        Line {
            case: case.to_string(),
            of: of.to_string(),
            policy: policy.to_string(),
            unit,
            elasticity: self.elasticity(&results),
            results,
        }
    }

    fn unit_of(&self, of: &str) -> String {
        if let Some(unit) = self.measure.unit() {
            return unit.to_string();
        }
        let runs = self.points.iter().flat_map(|point| &point.runs);
        let mut vms = runs.flat_map(|run| &run.vms);
        let vm = vms.find(|vm| vm.name == of);
        vm.map_or(String::new(), |vm| vm.throughput_unit.clone())
    }

    fn elasticity(&self, results: &[Option<Seen>]) -> Option<f64> {
        let ends = (self.points.first()?.number?, self.points.last()?.number?);
        let seen = ((*results.first()?)?.median, (*results.last()?)?.median);
        let growth =
            |(from, to): (f64, f64)| (from > 0.0 && to > 0.0).then(|| libm::log(to / from));
        let (parameter, result) = (growth(ends)?, growth(seen)?);
        (parameter != 0.0).then(|| round(result / parameter))
    }

    /// The policies in order, each once: the first is the reference.
    pub(crate) fn policies(&self) -> Vec<&str> {
        once(self.lines.iter().map(|line| line.policy.as_str()))
    }

    fn seeds(&self) -> usize {
        let runs = self.points.iter().flat_map(|point| &point.runs);
        once(runs.map(|run| run.seed)).len()
    }

    /// Formats a result for people.
    fn show(&self, line: &Line, value: f64) -> String {
        match line.unit.as_str() {
            TIMES => measure::multiple(value),
            _ => self.measure.show(value),
        }
    }

    /// Which kernels its policies model; empty if none does.
    fn kernels(&self) -> String {
        summary::kernels(self.points.iter().flat_map(|point| &point.runs))
    }

    /// What the lines of a VM (or client, or the host) are about.
    fn caption(&self, line: &Line) -> String {
        let reference = self.policies().first().copied().unwrap_or("").to_string();
        match self.measure {
            Measure::RelativeThroughput if self.policies().len() > 1 => {
                format!(
                    "throughput: {reference} in {}, the others as multiples of it",
                    line.unit
                )
            }
            Measure::RelativeThroughput | Measure::Throughput => {
                format!("throughput in {}", line.unit)
            }
            measure => measure.says().to_string(),
        }
    }

    /// The lines by case and VM, in order; without those with nothing to show.
    fn groups(&self) -> Vec<&[Line]> {
        self.all_groups().filter(|lines| is_seen(lines)).collect()
    }

    fn all_groups(&self) -> impl Iterator<Item = &[Line]> {
        let same = |a: &Line, b: &Line| a.case == b.case && a.of == b.of;
        self.lines.chunk_by(same)
    }

    /// The VMs or clients with nothing to show, whatever the value and the policy; for people to know.
    pub fn unseen(&self) -> Option<String> {
        let (seen, unseen): (Vec<_>, Vec<_>) = self.all_groups().partition(|lines| is_seen(lines));
        let why = self.measure.lacks()?;
        let name = |lines: &&[Line]| {
            let first = lines.first()?;
            Some(match first.case.as_str() {
                "" => first.of.clone(),
                case => format!("{case}: {}", first.of),
            })
        };
        let names: Vec<String> = unseen.iter().filter_map(name).collect();
        match (seen.is_empty(), &names[..]) {
            (_, []) => None,
            (true, _) => Some(format!("--measure: {why}, so there is nothing to show")),
            (false, [first, .., last]) if names.len() > 3 => Some(format!(
                "--measure: nothing to show of {first} … {last} ({}): {why} there",
                names.len()
            )),
            (false, few) => Some(format!(
                "--measure: nothing to show of {}: {why} there",
                few.join(", ")
            )),
        }
    }
}

/// The JSON schema of [`Sensitivity`], as it is committed in `docs/schema`.
///
/// # Errors
/// As for [`crate::schema`].
pub fn schema() -> serde_json::Result<String> {
    let schema = schemars::schema_for!(Sensitivity);
    serde_json::to_string_pretty(&schema).map(|text| text + "\n")
}

/// The one object that `--json` prints.
///
/// # Errors
/// As for [`crate::schema`].
pub fn json(sensitivity: &Sensitivity) -> serde_json::Result<String> {
    serde_json::to_string_pretty(sensitivity).map(|text| text + "\n")
}
