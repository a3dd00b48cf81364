// SPDX-License-Identifier: GPL-2.0-only
//! The scoreboard as tables for a terminal, one per system; notes below.

use super::{Claim, Figure, Judged, Scoreboard, Status};
use crate::layout::{lines, right, ruled, sentence, text_width, unbroken};
use comfy_table::{Cell, Table};

/// The tables; `all`: claims that were not checked are wanted, too.
pub fn text(board: &Scoreboard, width: u16, all: bool) -> String {
    let mut out = String::new();
    for system in board.systems() {
        let of_system = |claim: &&Claim| claim.system == system;
        let shown = |claim: &&Claim| all || claim.status == Status::Checked;
        let claims = board.claims.iter().filter(of_system).filter(shown);
        let claims: Vec<&Claim> = claims.collect();
        if !claims.is_empty() {
            out += &lines(table(&claims, width));
            out += &notes(&claims, width);
        }
    }
    let wide = text_width(width);
    let mut sums = board.sums();
    if board.count(|claim| claim.status == Status::Checked && claim.seeds > 1) > 0 {
        sums.push(
            "Ours: median over the seeds (mean where a note says so), ± half of the range."
                .to_string(),
        );
    }
    if !all && board.count(|claim| claim.status != Status::Checked) > 0 {
        sums.push("--all lists those, too.".to_string());
    }
    out + &textwrap::fill(&sums.join(" "), wide) + "\n"
}

fn table(claims: &[&Claim], width: u16) -> Table {
    let mut table = ruled(width);
    let cells = |first: &str, setting: &str, paper: &str, ours: &str, verdict: &str| {
        let verdict = Cell::new(verdict);
        [
            Cell::new(first),
            Cell::new(setting),
            right(paper),
            right(ours),
            verdict,
        ]
    };
    table.set_header(cells("claim", "setting", "paper", "ours", "verdict"));
    for claim in claims {
        let setting = claim.experiments.join(", ");
        let verdict = claim.verdict.name();
        match &claim.values[..] {
            [value] if value.name.is_empty() => {
                let (paper, ours) = (value.shown_paper(), value.shown_ours());
                table.add_row(cells(&claim.id, &setting, &paper, &ours, verdict));
            }
            values => {
                let truth = truth(claim);
                table.add_row(cells(&claim.id, &setting, "", &truth, verdict));
                // Among conditions, the ones of interest are those that do not hold.
                let told = |value: &&Judged| value.says.is_none() || value.verdict.rank() < 2;
                for value in values.iter().filter(told) {
                    let name = format!("· {}", value.name);
                    let (paper, ours) = (value.shown_paper(), value.shown_ours());
                    table.add_row(cells(&name, "", &paper, &ours, small(claim, value)));
                }
            }
        }
    }
    // Names of claims are there to be copied, verdicts and numbers to be read at a glance.
    let longest = claims.iter().map(|claim| claim.id.chars().count()).max();
    unbroken(&mut table, 0, longest.unwrap_or(0), width);
    unbroken(&mut table, 4, "out-of-scope".len(), width);
    table
}

/// How often everything that must be true is true.
fn truth(claim: &Claim) -> String {
    match &claim.ours {
        Some(Figure::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

/// A value's own verdict, where it differs from its claim's.
fn small(claim: &Claim, value: &Judged) -> &'static str {
    match value.verdict == claim.verdict {
        true => "",
        false => value.verdict.name(),
    }
}

fn notes(claims: &[&Claim], width: u16) -> String {
    let noted = claims.iter().filter(|claim| !claim.note.is_empty());
    let mut out: String = noted
        .map(|claim| sentence(&format!("{}: {}", claim.id, claim.note), width))
        .collect();
    out.push('\n');
    out
}
