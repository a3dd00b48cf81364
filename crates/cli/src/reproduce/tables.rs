// SPDX-License-Identifier: GPL-2.0-only
//! Tables of the documents, filled with what was measured: see `checks::Table`.

use super::checks::{Over, Row, Table};
use super::claims::matches;
use super::seen::Seen;
use super::work::Measured;
use crate::failure::Invalid;
use corun_report::tables::{self, Cell};
use corun_scenario::{Problem, nearest};
use std::collections::BTreeSet;

/// The tables that the command line selects, each by its name or a pattern with `*`; all if it selects none.
///
/// # Errors
/// [`Invalid`] if one selects nothing.
pub fn select<'a>(all: &'a [Table], wanted: &[String]) -> anyhow::Result<Vec<&'a Table>> {
    let names = || all.iter().map(|table| table.name.as_str());
    for pattern in wanted {
        if !names().any(|name| matches(pattern, name)) {
            let guess = nearest(pattern, names());
            let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
            let known = names().collect::<Vec<_>>().join(", ");
            return Err(Invalid::error(format!(
                "TABLE {pattern:?}: there is no such table{guess} (known are {known})"
            )));
        }
    }
    let is_wanted = |table: &&Table| {
        let mut wanted = wanted.iter();
        wanted.len() == 0 || wanted.any(|pattern| matches(pattern, &table.name))
    };
    Ok(all.iter().filter(is_wanted).collect())
}

/// Were all runs done that the table needs?
pub fn is_complete(table: &Table, measured: &Measured) -> bool {
    table
        .rows
        .iter()
        .all(|row| measured.is_complete(&row.terms))
}

/// The table with its numbers.
///
/// # Errors
/// If a measured value names what a run does not have.
pub fn fill(table: &Table, measured: &Measured) -> Result<tables::Table, Problem> {
    let mut seeds: Option<usize> = None;
    let mut rows = Vec::new();
    for row in &table.rows {
        let seen = Seen::new(&row.terms, measured)?;
        if !seen.values.is_empty() {
            seeds = Some(seeds.map_or(seen.seeds.len(), |least| least.min(seen.seeds.len())));
        }
        rows.push(filled(table, row, &seen));
    }
    let references = table
        .rows
        .iter()
        .flat_map(|row| row.terms.references.values());
    let experiments: BTreeSet<&str> = references.map(|of| of.experiment.as_str()).collect();
    Ok(tables::Table {
        name: table.name.clone(),
        title: table.title.clone(),
        experiments: experiments.into_iter().map(String::from).collect(),
        seeds: seeds.unwrap_or(0),
        means: table.rows.iter().any(|row| row.terms.over == Over::Mean),
        columns: table.columns.clone(),
        rows,
    })
}

fn filled(table: &Table, row: &Row, seen: &Seen<'_>) -> tables::Row {
    let cells = row.cells.iter().zip(&table.formats);
    let cell = |(number, format): (&Option<_>, _)| match number {
        Some(number) => Cell::new(seen.spread(&seen.each(number)), format, table.spread),
        None => Cell::default(),
    };
    tables::Row {
        name: row.name.clone(),
        cells: cells.map(cell).collect(),
    }
}
