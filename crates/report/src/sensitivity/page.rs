// SPDX-License-Identifier: GPL-2.0-only
//! The lines as one page that needs nothing else, in the style of the comparison's report.

use super::chart::{BOTTOM, Chart, HEIGHT, LEFT, RIGHT, WIDTH, chart};
use super::{Line, Sensitivity, TIMES, text};
use crate::html::{About, bound};
use askama::Template;

/// VMs shown; `--json` has all.
const SHOWN: usize = 12;
/// Sentences of the summary.
const SENTENCES: usize = 10;

#[derive(Template)]
#[template(path = "sensitivity.html")]
struct Page<'a> {
    title: &'a str,
    sensitivity: &'a Sensitivity,
    about: &'a About,
    says: &'static str,
    summary: Vec<String>,
    seeds: usize,
    /// Which kernels are modelled.
    kernels: String,
    groups: Vec<Group<'a>>,
    left_out: usize,
    field: Field,
}

/// Where the field of a chart is.
struct Field {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    bottom: f64,
}

struct Group<'a> {
    name: String,
    caption: String,
    chart: Chart,
    policies: Vec<&'a str>,
    rows: Vec<(&'a str, Vec<String>)>,
    elasticity: Option<Vec<String>>,
}

/// The page.
///
/// # Errors
/// If the template fails, which would be a defect of this crate.
pub fn page(sensitivity: &Sensitivity, about: &About) -> askama::Result<String> {
    let groups = sensitivity.groups();
    let page = Page {
        title: sensitivity
            .title
            .as_deref()
            .unwrap_or(&sensitivity.scenario),
        sensitivity,
        about,
        says: sensitivity.measure.says(),
        summary: sentences(sensitivity),
        seeds: sensitivity.seeds(),
        kernels: sensitivity.kernels(),
        left_out: groups.len().saturating_sub(SHOWN),
        groups: groups
            .into_iter()
            .take(SHOWN)
            .map(|lines| group(sensitivity, lines))
            .collect(),
        field: Field {
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right: RIGHT,
            bottom: BOTTOM,
        },
    };
    Ok(bound(&page.render()?))
}

fn group<'a>(sensitivity: &'a Sensitivity, lines: &'a [Line]) -> Group<'a> {
    let first = lines.first();
    let name = first.map_or(String::new(), |line| match line.case.as_str() {
        "" => line.of.clone(),
        case => format!("{case}: {}", line.of),
    });
    let row = |at: usize| {
        let cells = lines
            .iter()
            .map(|line| text::cell(sensitivity, line, line.results[at]));
        (sensitivity.points[at].shown.as_str(), cells.collect())
    };
    let elastic = lines.iter().any(|line| line.elasticity.is_some());
    Group {
        name,
        caption: first.map_or(String::new(), |line| sensitivity.caption(line)),
        chart: chart(sensitivity, lines),
        policies: lines.iter().map(|line| line.policy.as_str()).collect(),
        rows: (0..sensitivity.points.len()).map(row).collect(),
        elasticity: elastic.then(|| lines.iter().map(text::elasticity).collect()),
    }
}

/// From the first value to the last, in words: the lines that move most.
fn sentences(sensitivity: &Sensitivity) -> Vec<String> {
    let (Some(first), Some(last)) = (sensitivity.points.first(), sensitivity.points.last()) else {
        return Vec::new();
    };
    let ends = |line: &Line| Some(((*line.results.first()?)?, (*line.results.last()?)?));
    let change = |line: &Line| {
        let (from, to) = ends(line).map_or((0.0, 0.0), |(from, to)| (from.median, to.median));
        (to - from).abs() / from.abs().max(to.abs()).max(f64::MIN_POSITIVE)
    };
    let multiples = sensitivity.lines.iter().any(|line| line.unit == TIMES);
    let mut moved: Vec<&Line> = sensitivity
        .lines
        .iter()
        .filter(|line| (!multiples || line.unit == TIMES) && ends(line).is_some())
        .collect();
    moved.sort_by(|a, b| change(b).total_cmp(&change(a)));
    let sentence = |line: &&Line| {
        let (from, to) = ends(line)?;
        let case = match line.case.as_str() {
            "" => String::new(),
            case => format!("{case}, "),
        };
        let mut remarks = Vec::new();
        if line.elasticity.is_some() {
            remarks.push(format!("elasticity {}", text::elasticity(line)));
        }
        if (to.median - from.median).abs() < from.half_range.max(to.half_range) {
            remarks.push("the seeds differ by more".to_string());
        }
        let remarks = match remarks.is_empty() {
            true => String::new(),
            false => format!(" ({})", remarks.join("; ")),
        };
        Some(format!(
            "{case}{} under {}: {} at {}, {} at {}{remarks}.",
            line.of,
            line.policy,
            text::cell(sensitivity, line, Some(from)),
            first.shown,
            text::cell(sensitivity, line, Some(to)),
            last.shown,
        ))
    };
    moved.iter().take(SENTENCES).filter_map(sentence).collect()
}
