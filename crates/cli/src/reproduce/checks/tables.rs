// SPDX-License-Identifier: GPL-2.0-only
//! Reads `[table."NAME"]`: what stands in a table of the documents.
//!
//! A row is written once for all items of a list of `[each]`, with `{name}` in texts and measured values, and the bare
//! name in formulas, replaced by the item's.

use super::formulas::Formulas;
use super::read::{choice, entries};
use super::{Over, Terms};
use crate::reproduce::claims::Said;
use crate::reproduce::formula::{Lists, Names, Number, items};
use crate::reproduce::measure::Defaults;
use corun_report::tables::Format;
use corun_scenario::nearest;
use corun_scenario::reader::Reader;
use corun_scenario::tree::{Entry, Node, Value};

/// A table to be filled.
pub struct Table {
    /// Its name.
    pub name: String,
    /// What its numbers are.
    pub title: String,
    /// What stands above each number.
    pub columns: Vec<String>,
    /// How each is written.
    pub formats: Vec<Format>,
    /// Is half of the range over the seeds given, too?
    pub spread: bool,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A row of a table.
pub struct Row {
    /// What it is about.
    pub name: String,
    /// One for each column; nothing stands where there is none.
    pub cells: Vec<Option<Number>>,
    /// What its formulas are made of.
    pub terms: Terms,
}

/// For a row that stands for a list: names, and what they stand for.
pub type Given = Vec<(String, String)>;

/// The table of this name, unless something is wrong with it.
pub fn table(name: &str, table: &Reader<'_>, claims: &[Said], lists: &Lists) -> Option<Table> {
    let title = table.required("title", "text");
    let columns = table.texts("columns", "[\"cfs\", \"balance\"]");
    if columns.is_none() {
        table.missing("columns", "what stands above each number");
    }
    let columns: Vec<String> = columns.into_iter().flatten().map(|it| it.value).collect();
    let formats = formats(table, columns.len());
    let spread = table.flag("spread").unwrap_or(false);
    let over = choice(table, "over", Over::NAMES).unwrap_or_default();
    let listed = listed(table, lists);
    let rows = Rows {
        table,
        claims,
        lists,
        key: format!("table.{name:?}"),
        over,
        columns: columns.len(),
    };
    let rows = rows.all(&listed?)?;
    table.finish();
    Some(Table {
        name: name.to_string(),
        title: title?.value,
        columns,
        formats: formats?,
        spread,
        rows,
    })
}

/// How numbers are written: one example for all columns, or one for each.
fn formats(table: &Reader<'_>, columns: usize) -> Option<Vec<Format>> {
    let said = table.text_or_texts("shown", "\"0.0\"");
    let Some(said) = said else {
        table.missing("shown", Format::EXPECTED);
        return None;
    };
    let format = |text: &str| {
        let format = text.parse().ok();
        if format.is_none() {
            table.problem(
                "shown",
                format!("found {text:?}, expected {}", Format::EXPECTED),
            );
        }
        format
    };
    let all: Vec<Format> = said
        .iter()
        .map(|text| format(&text.value))
        .collect::<Option<_>>()?;
    match all.len() {
        1 => Some(vec![all[0].clone(); columns]),
        many if many == columns => Some(all),
        many => {
            let message =
                format!("found {many}, expected one, or one for each of {columns} columns");
            table.problem("shown", message);
            None
        }
    }
}

/// What a row is repeated for: `for = "app, title in pairs"`. One item without names if that is not given.
fn listed(table: &Reader<'_>, lists: &Lists) -> Option<Vec<Given>> {
    let Some(said) = table.text("for") else {
        return Some(vec![Given::new()]);
    };
    let Some((names, list)) = said.split_once(" in ") else {
        let message = format!("found {said:?}, expected names and a list, such as \"app in apps\"");
        table.problem("for", message);
        return None;
    };
    let names: Vec<String> = names
        .split(',')
        .map(|name| name.trim().to_string())
        .collect();
    match items(lists, list.trim(), &names) {
        Ok(items) => {
            let given = |item: &Vec<String>| -> Given {
                names.iter().cloned().zip(item.iter().cloned()).collect()
            };
            Some(items.iter().map(given).collect())
        }
        Err(message) => {
            table.problem("for", message);
            None
        }
    }
}

/// Replaces the names in braces by what is given.
fn filled(text: &str, given: &Given) -> String {
    let mut out = text.to_string();
    for (name, item) in given {
        out = out.replace(&format!("{{{name}}}"), item);
    }
    out
}

/// Reads the rows of a table.
struct Rows<'r, 'a> {
    table: &'r Reader<'a>,
    claims: &'r [Said],
    lists: &'r Lists,
    key: String,
    over: Over,
    columns: usize,
}

impl Rows<'_, '_> {
    fn all(&self, listed: &[Given]) -> Option<Vec<Row>> {
        let said = entries(self.table, "row");
        if said.is_empty() {
            self.table.missing("row", "formulas, one for each column");
            return None;
        }
        let mut all = Vec::new();
        for Entry { key, node, .. } in said {
            let cells = self.cells(key, node)?;
            let mut names = listed.first().into_iter().flatten();
            let once = [Given::new()];
            let repeated = names.any(|(name, _)| key.contains(&format!("{{{name}}}")));
            for given in if repeated { listed } else { &once } {
                // A fault in one is in all.
                all.push(self.row(key, &cells, given)?);
            }
        }
        Some(all)
    }

    /// The formulas of a row.
    fn cells<'n>(&self, key: &str, node: &'n Node) -> Option<Vec<&'n Node>> {
        let found = match &node.value {
            Value::List(cells) if cells.len() == self.columns => {
                return Some(cells.iter().collect());
            }
            Value::List(cells) => format!("{} of them", cells.len()),
            other => other.show(),
        };
        let expected = format!("formulas for {} columns", self.columns);
        let message = format!("row.{key:?}: found {found}, expected {expected}");
        self.table.problem_at(&node.place, message);
        None
    }

    fn row(&self, key: &str, cells: &[&Node], given: &Given) -> Option<Row> {
        let text = |key| self.table.text(key).map(|text| filled(&text, given));
        let defaults = Defaults {
            experiment: text("experiment"),
            case: text("case"),
            measure: text("measure"),
        };
        let paper = self.paper(given)?;
        let mut formulas = Formulas::new(self.table, paper, defaults, self.lists);
        formulas.given.clone_from(given);
        let mut fine = true;
        let mut read = |node: &&Node| match &node.value {
            Value::Text(text) if text.is_empty() => None,
            _ => {
                let number = formulas.number(&format!("row.{key:?}"), node);
                fine &= number.is_some();
                number
            }
        };
        let cells = cells.iter().map(&mut read).collect();
        fine.then(|| Row {
            name: filled(key, given),
            cells,
            terms: formulas.terms(self.key.clone(), self.over),
        })
    }

    /// The numbers of the claim that the row is beside.
    fn paper(&self, given: &Given) -> Option<Names> {
        let Some(id) = self.table.text("claim") else {
            return Some(Names::new());
        };
        let id = filled(&id, given);
        // Rows that stand for no item are not beside an item's claim.
        if given.is_empty() && id.contains('{') {
            return Some(Names::new());
        }
        let found = self.claims.iter().find(|claim| claim.id == id);
        if found.is_none() {
            let guess = nearest(&id, self.claims.iter().map(|claim| claim.id.as_str()));
            let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
            self.table
                .problem("claim", format!("there is no claim {id:?}{guess}"));
        }
        found.map(Said::numbers)
    }
}
