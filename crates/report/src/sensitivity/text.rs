// SPDX-License-Identifier: GPL-2.0-only
//! The lines as tables for a terminal: values down, policies across, below them the trend and the
//! elasticity.

use super::{Line, Seen, Sensitivity, extremes};
use crate::layout::{Room, across, figure, lines, right, spanning, text_width};
use comfy_table::{Cell, Table};

/// VMs shown; the rest is in `--json`.
const SHOWN: usize = 12;
/// Steps of a sparkline.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Most characters of a sparkline.
const SPARKS: usize = 16;
const NOTHING: &str = "–";

/// Tables for a terminal of `width` columns.
pub fn text(sensitivity: &Sensitivity, width: u16) -> String {
    let mut out = format!("{}\n", sensitivity.parameter);
    let groups = sensitivity.groups();
    if groups.is_empty() {
        return out + "\nNothing to show.\n";
    }
    for group in groups.iter().take(SHOWN) {
        out += &format!(
            "\n{}\n",
            textwrap::fill(&heading(sensitivity, group), text_width(width))
        );
        for columns in columns(sensitivity, group, width) {
            let some: Vec<&Line> = columns.iter().map(|&at| &group[at]).collect();
            out += &lines(table(sensitivity, &some, width));
        }
    }
    if groups.len() > SHOWN {
        let more = groups.len() - SHOWN;
        out += &format!("… and {more} more: see --vm, --csv and --json\n");
    }
    out + &textwrap::fill(&legend(sensitivity), text_width(width)) + "\n"
}

fn heading(sensitivity: &Sensitivity, group: &[Line]) -> String {
    let Some(line) = group.first() else {
        return String::new();
    };
    let case = match line.case.as_str() {
        "" => String::new(),
        case => format!("{case}, "),
    };
    format!("{case}{}: {}", line.of, sensitivity.caption(line))
}

fn legend(sensitivity: &Sensitivity) -> String {
    let mut legend = String::new();
    let seeds = sensitivity.seeds();
    if seeds > 1 {
        legend += &format!("Median over {seeds} seeds, ± half of the range. ");
    }
    legend += "Trend: from the least result to the most, each column by itself; a line at half height \
        changes by less than 1 %. ";
    if sensitivity
        .lines
        .iter()
        .any(|line| line.elasticity.is_some())
    {
        legend += "Elasticity: 1 if the result grows in proportion to the parameter, 0 if it does not \
            move, -1 if it falls in inverse proportion; from the first value to the last.";
    }
    format!("{} {}", legend.trim_end(), sensitivity.kernels())
        .trim_end()
        .to_string()
}

/// Which lines stand side by side.
fn columns(sensitivity: &Sensitivity, group: &[Line], width: u16) -> Vec<Vec<usize>> {
    let values = sensitivity.points.iter().map(|point| &point.shown[..]);
    let labels = Room::of(values.chain(["elasticity"]));
    let of = |line: &Line| {
        let cells = line
            .results
            .iter()
            .map(|&seen| cell(sensitivity, line, seen));
        Room::of(cells.map(|text| figure(&text)).chain([line.policy.clone()]))
    };
    let lines: Vec<Room> = group.iter().map(of).collect();
    across(&[labels], &lines, width)
}

fn table(sensitivity: &Sensitivity, group: &[&Line], width: u16) -> Table {
    let mut table = spanning(width);
    let row = |first: &str, cells: &mut dyn Iterator<Item = String>| {
        std::iter::once(Cell::new(first))
            .chain(cells.map(|text| right(figure(&text))))
            .collect::<Vec<_>>()
    };
    let mut policies = group.iter().map(|line| line.policy.clone());
    table.set_header(row("", &mut policies));
    for (at, point) in sensitivity.points.iter().enumerate() {
        let mut cells = group
            .iter()
            .map(|line| cell(sensitivity, line, line.results[at]));
        table.add_row(row(&point.shown, &mut cells));
    }
    table.add_row(row("trend", &mut group.iter().map(|line| sparks(line))));
    if group.iter().any(|line| line.elasticity.is_some()) {
        let mut cells = group.iter().map(|line| elasticity(line));
        table.add_row(row("elasticity", &mut cells));
    }
    table
}

/// A result with its spread, if one can be seen.
pub(super) fn cell(sensitivity: &Sensitivity, line: &Line, seen: Option<Seen>) -> String {
    let show = |value: f64| sensitivity.show(line, value);
    match seen {
        None => NOTHING.to_string(),
        Some(seen) if seen.half_range > seen.median.abs() * 5e-4 => {
            format!("{} ±{}", show(seen.median), show(seen.half_range))
        }
        Some(seen) => show(seen.median),
    }
}

pub(super) fn elasticity(line: &Line) -> String {
    let shown = line.elasticity.map(|value| format!("{value:+.2}"));
    // Nothing grows by a rounded-off amount.
    shown.map_or(NOTHING.to_string(), |text| match text.as_str() {
        "+0.00" | "-0.00" => "0".to_string(),
        _ => text,
    })
}

/// The medians as a row of bars, scaled from the least to the most.
fn sparks(line: &Line) -> String {
    let medians: Vec<Option<f64>> = line
        .results
        .iter()
        .map(|seen| seen.map(|seen| seen.median))
        .collect();
    let (least, most) = extremes(medians.iter().flatten().copied());
    let spark = |value: &Option<f64>| match value {
        None => ' ',
        Some(_) if most - least <= most.abs() * 0.01 => STEPS[3],
        Some(value) => {
            let step = (value - least) / (most - least) * (STEPS.len() - 1) as f64;
            STEPS[(step.round() as usize).min(STEPS.len() - 1)]
        }
    };
    let count = medians.len().min(SPARKS);
    let pick = |at: usize| match count {
        0 | 1 => at,
        _ => at * (medians.len() - 1) / (count - 1),
    };
    (0..count).map(|at| spark(&medians[pick(at)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(medians: &[Option<f64>]) -> Line {
        let seen = |median: &Option<f64>| Seen::of(&[(*median)?]);
        Line {
            case: String::new(),
            of: "host".to_string(),
            policy: "cfs".to_string(),
            unit: "1/s".to_string(),
            results: medians.iter().map(seen).collect(),
            elasticity: Some(-0.001),
        }
    }

    #[test]
    fn sparks_show_the_direction() {
        assert_eq!(
            sparks(&line(&[Some(0.0), None, Some(5.0), Some(10.0)])),
            "▁ ▅█"
        );
        assert_eq!(sparks(&line(&[Some(100.0), Some(100.5)])), "▄▄");
        let long: Vec<_> = (0..100).map(|n| Some(f64::from(n))).collect();
        let sparks = sparks(&line(&long));
        assert_eq!(sparks.chars().count(), SPARKS);
        assert!(sparks.starts_with('▁') && sparks.ends_with('█'), "{sparks}");
        assert_eq!(elasticity(&line(&[])), "0");
    }
}
