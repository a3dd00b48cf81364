// SPDX-License-Identifier: GPL-2.0-only
//! The report as one page that needs nothing else: no scripts, no requests.
//!
//! `templates/report.html` has the page; here the numbers are turned into what it shows. Bars are
//! SVG without text, so that they stretch with the page and labels keep their size.

use crate::format::{amount, percent, ratio};
use crate::replay;
use crate::results::{Comparison, Run, VmResult};
use crate::summary::{self, Spread};
use crate::table::{self, Row};
use askama::Template;

/// VMs shown in charts; the table shows more, `--json` all.
const VMS_CHARTED: usize = 12;

/// What the page tells besides the results.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The command that made the report, without directories that are nobody's business.
    pub command: String,
    /// Parameters and other facts, by name.
    pub facts: Vec<(String, String)>,
    /// Things a reader should know before trusting the numbers.
    pub notes: Vec<String>,
    /// The input's text, if it is short enough to be read.
    pub input: Option<String>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    title: &'a str,
    comparison: &'a Comparison,
    about: &'a About,
    summary: Vec<String>,
    seeds: usize,
    replay: Option<replay::Shown>,
    cases: Vec<CasePart<'a>>,
}

struct CasePart<'a> {
    name: &'a str,
    setting: String,
    policies: Vec<&'a str>,
    times: Vec<Group>,
    stacking: Vec<Bar>,
    throughput: Vec<Group>,
    rows: Vec<Row>,
    left_out: usize,
}

/// Bars of one VM under every policy.
struct Group {
    name: String,
    bars: Vec<Bar>,
}

/// One bar: parts of 100, each with its class and what it says when pointed at.
struct Bar {
    label: String,
    value: String,
    parts: Vec<Part>,
    reference: bool,
}

struct Part {
    class: &'static str,
    from: f64,
    width: f64,
    says: String,
}

/// The page.
///
/// # Errors
/// If the template fails, which would be a defect of this crate.
pub fn page(comparison: &Comparison, about: &About) -> askama::Result<String> {
    let title = comparison.title.as_deref().unwrap_or(&comparison.scenario);
    let page = Page {
        title,
        comparison,
        about,
        summary: summary::sentences(comparison),
        seeds: comparison.seeds().len(),
        replay: comparison.replay.as_ref().map(replay::shown),
        cases: comparison
            .cases()
            .into_iter()
            .map(|case| part(comparison, case))
            .collect(),
    };
    page.render()
}

fn part<'a>(comparison: &'a Comparison, case: &'a str) -> CasePart<'a> {
    let policies = comparison.policies();
    let runs: Vec<Vec<&Run>> = policies
        .iter()
        .map(|policy| comparison.of(case, policy))
        .collect();
    let first = runs.first().and_then(|runs| runs.first());
    let setting = first.map_or(String::new(), |run| {
        let host = &run.host;
        let vms = run.vms.len();
        let vms = if vms == 1 {
            "1 VM".to_string()
        } else {
            format!("{vms} VMs")
        };
        format!(
            "{vms}, {} vCPUs on {} pCPUs, {} s measured",
            host.vcpus,
            host.pcpus,
            amount(host.duration_s)
        )
    });
    CasePart {
        name: case,
        setting,
        times: times(&policies, &runs),
        stacking: stacking(&policies, &runs),
        throughput: throughput(&policies, &runs),
        rows: table::rows(comparison, case),
        left_out: table::vms_left_out(comparison, case),
        policies,
    }
}

/// The VMs of a case with their index, as many as are charted.
fn charted<'a>(runs: &[Vec<&'a Run>]) -> impl Iterator<Item = (usize, &'a VmResult)> {
    let first = runs.first().and_then(|runs| runs.first());
    let vms = first.map_or(&[][..], |run| &run.vms[..]);
    vms.iter().enumerate().take(VMS_CHARTED)
}

fn median(runs: &[&Run], of: impl Fn(&Run) -> Option<f64>) -> f64 {
    let spread = Spread::of(runs.iter().filter_map(|run| of(run)));
    spread.map_or(0.0, |spread| spread.median)
}

fn times(policies: &[&str], runs: &[Vec<&Run>]) -> Vec<Group> {
    let bar = |index: usize, at: usize| {
        let share = |of: fn(&VmResult) -> f64| median(&runs[at], |run| run.vms.get(index).map(of));
        let shares = [
            ("run", "running", share(|vm| vm.run_share)),
            ("ready", "ready", share(|vm| vm.ready_share)),
            ("wait", "waiting", share(|vm| vm.wait_share)),
        ];
        let total: f64 = shares.iter().map(|(_, _, share)| share).sum();
        let mut from = 0.0;
        let parts = shares.into_iter().map(|(class, word, share)| {
            let width = if total > 0.0 {
                share / total * 100.0
            } else {
                0.0
            };
            from += width;
            Part {
                class,
                from: from - width,
                width,
                says: format!("{word} {}", percent(share)),
            }
        });
        Bar {
            label: policies[at].to_string(),
            parts: parts.collect(),
            value: percent(share(|vm| vm.run_share)),
            reference: at == 0,
        }
    };
    let group = |(index, vm): (usize, &VmResult)| Group {
        name: vm.name.clone(),
        bars: (0..policies.len()).map(|at| bar(index, at)).collect(),
    };
    charted(runs).map(group).collect()
}

fn stacking(policies: &[&str], runs: &[Vec<&Run>]) -> Vec<Bar> {
    let values = runs
        .iter()
        .map(|runs| median(runs, |run| Some(run.host.stacking_probability)));
    // A scale of its own if all are small: the eye compares, the numbers tell.
    let most = values.clone().fold(0.0, f64::max);
    let bar = |(at, value): (usize, f64)| single(policies[at], at, value, most, percent(value));
    values.enumerate().map(bar).collect()
}

fn throughput(policies: &[&str], runs: &[Vec<&Run>]) -> Vec<Group> {
    let group = |(index, vm): (usize, &VmResult)| {
        let of = |at: usize| median(&runs[at], |run| Some(run.vms.get(index)?.throughput));
        let most = (0..policies.len()).map(of).fold(0.0, f64::max);
        let bar = |at: usize| {
            let value = of(at);
            let shown = match at {
                0 => amount(value),
                _ if of(0) > 0.0 => format!("{} ({})", amount(value), ratio(value / of(0))),
                _ => amount(value),
            };
            single(policies[at], at, value, most, shown)
        };
        Group {
            name: format!("{}, {}", vm.name, vm.throughput_unit),
            bars: (0..policies.len()).map(bar).collect(),
        }
    };
    charted(runs).map(group).collect()
}

fn single(policy: &str, at: usize, value: f64, most: f64, shown: String) -> Bar {
    Bar {
        label: policy.to_string(),
        parts: vec![Part {
            class: if at == 0 { "reference" } else { "other" },
            from: 0.0,
            width: if most > 0.0 {
                value / most * 100.0
            } else {
                0.0
            },
            says: format!("{policy}: {shown}"),
        }],
        value: shown,
        reference: at == 0,
    }
}
