// SPDX-License-Identifier: GPL-2.0-only
//! The report as one page that needs nothing else: everything is in it, and it fetches nothing.
//!
//! `templates/report.html` has the page; here the numbers are turned into what it shows. Bars and tables are there
//! without scripts ([`bars`]); distributions ([`plots`]) and timelines ([`timelines`]) are drawn by `page/*.js` with
//! uPlot, which `build.rs` takes from its npm package, and have tables beside them. The script's data, and the results
//! as `--json` prints them, are JSON in the page.

pub(crate) mod advice;
mod bars;
mod bound;
mod off;
mod plots;
mod timelines;

use crate::format::amount;
use crate::kinds;
use crate::replay;
use crate::results::{Comparison, Run};
use crate::summary;
use crate::table::{self, Row};
use askama::Template;
use bars::{Figure, Group};
pub(crate) use bound::bound;
use corun_model::counted;
use plots::{Plots, QUANTILES};
use serde::Serialize;
use timelines::{Drawn, Timelines};

/// uPlot, as it is in its package.
struct Uplot {
    licence: &'static str,
    script: &'static str,
    style: &'static str,
}

const UPLOT: Uplot = Uplot {
    licence: include_str!(concat!(env!("OUT_DIR"), "/LICENSE")),
    script: include_str!(concat!(env!("OUT_DIR"), "/dist/uPlot.iife.min.js")),
    style: include_str!(concat!(env!("OUT_DIR"), "/dist/uPlot.min.css")),
};

/// The scripts that draw with it.
const SCRIPT: &str = concat!(
    include_str!("../../page/look.js"),
    include_str!("../../page/plots.js"),
    include_str!("../../page/timelines.js"),
    include_str!("../../page/growth.js"),
    include_str!("../../page/start.js"),
);

/// What the page shows besides the results.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The command that made the report, without directories, which are private.
    pub command: String,
    /// Other commands to go on with, and what they do.
    pub next: Vec<(String, String)>,
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
    /// The number of seeds that the medians are over; empty if there are no medians.
    seeds: String,
    replay: Option<replay::Shown>,
    cases: Vec<CasePart<'a>>,
    /// JSON for the script.
    drawn: String,
    /// The results as JSON.
    results: String,
    uplot: Uplot,
    script: &'static str,
    quantiles: [&'static str; QUANTILES.len()],
}

struct CasePart<'a> {
    name: &'a str,
    setting: String,
    /// Which kernels are modelled.
    kernels: String,
    policies: Vec<&'a str>,
    times: Vec<Group>,
    figures: Vec<Figure>,
    /// Are VMs or clients shown together?
    together: bool,
    /// Which VMs and clients charts leave out; empty if none.
    uncharted: String,
    plots: Vec<Plots>,
    timelines: Option<Timelines>,
    off: Vec<off::Off>,
    rows: Vec<Row>,
    left_out: Vec<String>,
}

/// What the script draws.
#[derive(Serialize)]
struct Script<'a> {
    plots: Vec<&'a plots::Plot>,
    timelines: Vec<&'a [Drawn]>,
}

/// The page.
///
/// # Errors
/// If the template fails, which would be a defect of this crate.
pub fn page(comparison: &Comparison, about: &About) -> askama::Result<String> {
    let title = comparison.title.as_deref().unwrap_or(&comparison.scenario);
    let (mut plots, mut timelines) = (0, 0);
    let cases: Vec<CasePart<'_>> = comparison
        .cases()
        .into_iter()
        .map(|case| part(comparison, case, &mut plots, &mut timelines))
        .collect();
    let drawn = Script {
        plots: cases
            .iter()
            .flat_map(|case| &case.plots)
            .flat_map(|of| of.plots.iter().map(|(_, plot)| plot))
            .collect(),
        timelines: cases
            .iter()
            .filter_map(|case| Some(&case.timelines.as_ref()?.drawn[..]))
            .collect(),
    };
    let page = Page {
        title,
        comparison,
        about,
        summary: summary::sentences(comparison),
        seeds: summary::seeds(comparison).unwrap_or_default(),
        replay: comparison
            .replay
            .as_ref()
            .map(|check| replay::shown(check, comparison.confidence.as_ref())),
        drawn: embedded(&drawn)?,
        results: embedded(comparison)?,
        uplot: UPLOT,
        script: SCRIPT,
        quantiles: QUANTILES,
        cases,
    };
    Ok(bound(&page.render()?))
}

/// JSON in which no HTML parser sees the end of its element.
fn embedded(value: &impl Serialize) -> askama::Result<String> {
    let json = serde_json::to_string(value).map_err(|error| askama::Error::Custom(error.into()))?;
    Ok(json.replace('<', "\\u003c"))
}

fn part<'a>(
    comparison: &'a Comparison,
    case: &'a str,
    plots: &mut usize,
    timelines: &mut usize,
) -> CasePart<'a> {
    let policies = comparison.policies(case);
    let runs: Vec<Vec<&Run>> = policies
        .iter()
        .map(|policy| comparison.of(case, policy))
        .collect();
    let together = kinds::together(&runs, bars::ALONE);
    let charted = kinds::shown(together.as_ref(), &runs);
    CasePart {
        name: case,
        setting: setting(&runs),
        kernels: summary::kernels(runs.iter().flatten().copied()),
        times: bars::times(&policies, &charted),
        figures: bars::figures(&policies, &charted),
        together: together.is_some(),
        uncharted: bars::left_out(&runs),
        plots: plots::plots(&policies, &charted, plots),
        timelines: timelines::timelines(&runs, comparison.replay.is_some(), timelines),
        off: off::off(&runs),
        rows: table::rows(comparison, case),
        left_out: table::left_out(comparison, case),
        policies,
    }
}

/// The host in a line.
fn setting(runs: &[Vec<&Run>]) -> String {
    let Some(run) = runs.first().and_then(|runs| runs.first()) else {
        return String::new();
    };
    let host = &run.host;
    format!(
        "{}, {} on {}, {} s measured",
        counted(run.vms.len(), "VM"),
        counted(host.vcpus, "vCPU"),
        counted(host.pcpus, "pCPU"),
        amount(host.duration_s)
    )
}
