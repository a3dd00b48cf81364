// SPDX-License-Identifier: GPL-2.0-only
//! The scoreboard as the page `docs/claims.md`.

use super::{Claim, Scoreboard, Status};
use crate::markdown::{cell, item, paragraph};

const HEAD: &str = "<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Written by `make claims`: do not edit. -->
# What the papers claim, and what corun shows

Every claim of [experiments/claims.toml](../experiments/claims.toml), the paper's value beside ours.
Exact and analytic claims must be equal to the last digit that the paper prints (*exact*). Quantitative
ones are *close* within 25 % of the paper's effect, or for shares within 5 points; they have its
*direction* with the same sign and order, within a factor of 2 of the effect; figure only, with the same
order in at least 9 of 10 seeds. Qualitative ones *hold* in at least 9 of 10 seeds. All else is *missed*.
The worst value of a claim counts. Ours: median over the seeds (mean where a note says so), ± half of the
range. How claims are read off experiments: [reproduce.md](reproduce.md).
";

/// The beginning of notes of claims that were not checked because something is missing.
const NOT_YET: &str = "not implemented yet: ";

/// The page.
pub fn markdown(board: &Scoreboard) -> String {
    let mut out = format!(
        "{HEAD}\n{}\n",
        paragraph(&format!(
            "corun {}: {}",
            board.version,
            board.sums().join(" ")
        ))
    );
    for system in board.systems() {
        let of_system = |claim: &&Claim| claim.system == system;
        let claims: Vec<&Claim> = board.claims.iter().filter(of_system).collect();
        out += &format!("\n## {system}\n");
        let is = |status: Status| claims.iter().filter(move |claim| claim.status == status);
        if is(Status::Checked).count() > 0 {
            out += "\n| claim | setting | paper | ours | verdict |\n|---|---|---|---|---|\n";
            is(Status::Checked).for_each(|claim| out += &rows(claim));
        }
        let noted = is(Status::Checked).filter(|claim| !claim.note.is_empty());
        let notes: String = noted
            .map(|claim| item(&format!("`{}`: {}", claim.id, claim.note)))
            .collect();
        if !notes.is_empty() {
            out += &format!("\n{notes}");
        }
        out += &out_of_scope("Out of reach", is(Status::OutOfReach));
        out += &out_of_scope("Not implemented yet", is(Status::NotImplemented));
    }
    out
}

fn rows(claim: &Claim) -> String {
    let verdict = claim.verdict.name();
    let setting = match claim.seeds {
        0 => String::new(),
        1 => format!("{} (1 seed)", claim.experiments.join(", ")),
        seeds => format!("{} ({seeds} seeds)", claim.experiments.join(", ")),
    };
    let row = |cells: [&str; 5]| {
        let cells = cells.map(cell);
        format!("| {} |\n", cells.join(" | "))
    };
    let id = format!("`{}`", claim.id);
    let verdict = format!("**{verdict}**");
    if let [value] = &claim.values[..]
        && value.name.is_empty()
    {
        let (paper, ours) = (value.shown_paper(), value.shown_ours());
        return row([&id, &setting, &paper, &ours, &verdict]);
    }
    let mut out = row([&id, &setting, "", "", &verdict]);
    for value in &claim.values {
        let name = format!("· {}", value.name);
        let (paper, ours) = (value.shown_paper(), value.shown_ours());
        out += &row([&name, "", &paper, &ours, value.verdict.name()]);
    }
    out
}

/// Claims that were not checked, by reason.
fn out_of_scope<'a>(title: &str, claims: impl Iterator<Item = &'a &'a Claim>) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for claim in claims {
        let id = format!("`{}`", claim.id);
        match reasons.iter_mut().find(|(note, _)| *note == claim.note) {
            Some((_, ids)) => ids.push(id),
            None => reasons.push((&claim.note, vec![id])),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let list = |(note, ids): &(&str, Vec<String>)| {
        // The title says so already.
        let note = note.strip_prefix(NOT_YET).unwrap_or(note);
        item(&format!("{note}: {}", ids.join(", ")))
    };
    let items: String = reasons.iter().map(list).collect();
    format!("\n{title}:\n\n{items}")
}
