// SPDX-License-Identifier: GPL-2.0-only
//! Tables of what was measured, as in the documents: often a paper's table with ours beside it.

use crate::layout::{lines, right, ruled, sentence};
use crate::markdown::cell;
use crate::{Spread, round};
use comfy_table::Cell as Shown;
use corun_model::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What `corun reproduce --tables --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tables {
    /// Version of corun.
    pub version: String,
    /// Were runs shorter and seeds fewer than the experiments say?
    pub quick: bool,
    /// In the order of the files that say what is in them.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// What its numbers are.
    pub title: String,
    /// Experiments that were run for it, such as "balance/table1".
    pub experiments: Vec<String>,
    /// Over how many seeds numbers are medians or means; the least of all rows, 0 if nothing was run.
    pub seeds: usize,
    /// Are they means, and not medians?
    pub means: bool,
    /// What stands above each number.
    pub columns: Vec<String>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// One for each column.
    pub cells: Vec<Cell>,
}

/// A number of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Median or mean over the seeds; null if nothing stands there, or it was not measured.
    pub value: Option<f64>,
    /// Half of the range over the seeds; null likewise.
    pub spread: Option<f64>,
    /// As people read it; empty if nothing stands there.
    pub shown: String,
}

impl Cell {
    /// A number, written in this way; `spread` with half of its range.
    pub fn new(of: Option<Spread>, format: &Format, spread: bool) -> Self {
        let Some(of) = of else {
            return Self {
                shown: "–".to_string(),
                ..Self::default()
            };
        };
        let half = match spread && of.half_range > 0.0 {
            true => format!(" ±{}", format.unsigned(of.half_range)),
            false => String::new(),
        };
        Self {
            value: Some(round(of.median)),
            spread: Some(round(of.half_range)),
            shown: format!("{}{half}{}", format.number(of.median), format.unit),
        }
    }
}

/// How numbers are written, as an example says: `0`, `0.0`, `+0.0 %`, `0,000`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    signed: bool,
    thousands: bool,
    decimals: usize,
    unit: String,
}

impl Format {
    /// How to write one, for messages.
    pub const EXPECTED: &'static str =
        "a number as it is to be written, such as \"0\", \"0.0\", \"+0.0 %\" or \"0,000\"";

    fn unsigned(&self, value: f64) -> String {
        let text = format!("{value:.*}", self.decimals);
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        let whole = match self.thousands {
            true => crate::format::thousands(whole),
            false => whole.to_string(),
        };
        match rest {
            "" => whole,
            rest => format!("{whole}.{rest}"),
        }
    }

    fn number(&self, value: f64) -> String {
        let size = self.unsigned(value.abs());
        let is_nothing = !size.contains(|c: char| ('1'..='9').contains(&c));
        match (is_nothing, value < 0.0) {
            (true, _) => size,
            (false, true) => format!("-{size}"),
            (false, false) if self.signed => format!("+{size}"),
            (false, false) => size,
        }
    }
}

impl FromStr for Format {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bare = text.strip_prefix('+');
        let example = bare.unwrap_or(text);
        let end = example.find(|c: char| !['0', ',', '.'].contains(&c));
        let (digits, unit) = example.split_at(end.unwrap_or(example.len()));
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        let is_digits = |text: &str| text.chars().all(|c| c == '0');
        if !["0", "0,000"].contains(&whole) || !is_digits(decimals) || digits.ends_with('.') {
            return Err(());
        }
        Ok(Self {
            signed: bare.is_some(),
            thousands: whole != "0",
            decimals: decimals.len(),
            unit: unit.to_string(),
        })
    }
}

impl Table {
    /// What the numbers are, in a line: `fig4-5: median over 3 seeds`.
    fn about(&self) -> String {
        let from = self.experiments.join(", ");
        let kind = if self.means { "means" } else { "medians" };
        match self.seeds {
            0 => String::new(),
            1 => format!("{from}; one seed"),
            seeds => format!("{from}; {kind} over {}", counted(seeds, "seed")),
        }
    }
}

/// The tables for a terminal of `width` columns.
pub fn text(tables: &Tables, width: u16) -> String {
    let one = |table: &Table| {
        let head = sentence(&format!("{}: {}", table.name, table.title), width);
        let about = match table.about() {
            about if about.is_empty() => String::new(),
            about => sentence(&about, width),
        };
        format!("{head}{}{about}", lines(laid_out(table, width)))
    };
    let quick = match tables.quick {
        true => "\nQuick: shorter runs and fewer seeds than the experiments say.\n",
        false => "",
    };
    tables.tables.iter().map(one).collect::<Vec<_>>().join("\n") + quick
}

fn laid_out(table: &Table, width: u16) -> comfy_table::Table {
    let mut out = ruled(width);
    let plain = |name: &String| name.replace('`', "");
    let columns = table.columns.iter().map(|name| right(plain(name)));
    let header = std::iter::once(Shown::new("")).chain(columns);
    out.set_header(header);
    for row in &table.rows {
        let cells = row.cells.iter().map(|cell| right(&cell.shown));
        out.add_row(std::iter::once(Shown::new(plain(&row.name))).chain(cells));
    }
    out
}

/// A table for a page, with a line below it that says how to make it again.
pub fn markdown(table: &Table) -> String {
    let row = |first: &str, cells: Vec<&str>| {
        let all = std::iter::once(first).chain(cells).map(cell);
        format!("| {} |\n", all.collect::<Vec<_>>().join(" | "))
    };
    let mut out = row("", table.columns.iter().map(String::as_str).collect());
    out += &format!("|---{}|\n", "|---".repeat(table.columns.len()));
    for Row { name, cells } in &table.rows {
        out += &row(name, cells.iter().map(|cell| cell.shown.as_str()).collect());
    }
    let command = format!("`corun reproduce --tables {}`", table.name);
    let about = match table.about() {
        about if about.is_empty() => String::new(),
        about => format!("; {about}"),
    };
    format!(
        "{out}\n{}\n",
        textwrap::fill(&format!("({command}{about})"), 120)
    )
}

/// As one JSON object.
///
/// # Errors
/// If it cannot be written as JSON, which would be a defect of this crate.
pub fn json(tables: &Tables) -> serde_json::Result<String> {
    serde_json::to_string_pretty(tables).map(|text| text + "\n")
}

/// The JSON schema of [`Tables`], as it is committed in `docs/schema`.
///
/// # Errors
/// As for [`json`].
pub fn schema() -> serde_json::Result<String> {
    let schema = schemars::schema_for!(Tables);
    serde_json::to_string_pretty(&schema).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(example: &str, value: f64) -> String {
        let spread = Spread::of([value]);
        Cell::new(spread, &example.parse().unwrap(), false).shown
    }

    #[test]
    fn numbers_are_written_as_the_example_is() {
        assert_eq!(shown("0", 1234.5), "1234");
        assert_eq!(shown("0,000", 1_234_567.0), "1,234,567");
        assert_eq!(shown("0,000.00", -1234.5), "-1,234.50");
        assert_eq!(shown("+0.0 %", 3.21), "+3.2 %");
        assert_eq!(shown("+0.0 %", -3.21), "-3.2 %");
        assert_eq!(shown("+0.0", -0.01), "0.0");
    }

    #[test]
    fn other_examples_are_refused() {
        for wrong in ["", "1", "x", "00", "0.", "0.1", "- 0", "++0", ".0"] {
            assert_eq!(wrong.parse::<Format>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_a_spread_is_half_of_the_range() {
        let format: Format = "0.0 ms".parse().unwrap();
        assert_eq!(Cell::new(None, &format, true).shown, "–");
        let three = Spread::of([1.0, 2.0, 4.0]);
        assert_eq!(Cell::new(three, &format, true).shown, "2.0 ±1.5 ms");
        assert_eq!(Cell::new(three, &format, false).shown, "2.0 ms");
    }

    #[test]
    fn a_page_says_how_its_table_is_made() {
        let table = Table {
            name: "a.table".to_string(),
            title: "Numbers".to_string(),
            experiments: vec!["a/one".to_string()],
            seeds: 3,
            means: false,
            columns: vec!["x | y".to_string()],
            rows: vec![Row {
                name: "row".to_string(),
                cells: vec![Cell::new(Spread::of([2.0]), &"0".parse().unwrap(), true)],
            }],
        };
        let expected = "|  | x \\| y |\n|---|---|\n| row | 2 |\n\n\
            (`corun reproduce --tables a.table`; a/one; medians over 3 seeds)\n";
        assert_eq!(markdown(&table), expected);
    }
}
