// SPDX-License-Identifier: GPL-2.0-only
//! Can a key be varied? The scenario's reader knows keys; what it cannot know is that a VM that only the command line
//! names is a slip, and that seeds and policies have options of their own.

use crate::compare::runs::RunArgs;
use crate::failure::Invalid;
use corun_scenario::merge::parts_of_key;
use corun_scenario::or_nearest;
use corun_scenario::tree::{self, Table, Value};

/// Keys that make rows or columns already.
const TAKEN: [(&str, &str); 4] = [
    ("run.seed", "--seeds"),
    ("run.seeds", "--seeds"),
    ("run.policies", "--policies"),
    ("case", "--case"),
];
/// Keys that are for readers only.
const FOR_READERS: [&str; 2] = ["title", "source"];
/// Sections whose tables have names.
const NAMED: [&str; 2] = ["vm", "task"];

/// Checks `key` against the scenario `text` of the file `file`.
///
/// # Errors
/// [`Invalid`] if the key cannot be varied, or the file is not TOML.
pub fn check(key: &str, file: &str, text: &str) -> anyhow::Result<()> {
    let refuse = |message: String| Err(Invalid::error(format!("--param {key}: {message}")));
    if let Some((_, option)) = TAKEN
        .iter()
        .find(|(taken, _)| key == *taken || key.starts_with(&format!("{taken}.")))
    {
        return refuse(format!("this is what {option} is for"));
    }
    if key.trim().is_empty() || key.contains('=') {
        return refuse("expected a key such as host.costs.switch; values go with --values".into());
    }
    if FOR_READERS.contains(&key) {
        return refuse("this is for readers, no result depends on it".into());
    }
    let document = tree::parse(file, text).map_err(Invalid::error)?;
    let parts = parts_of_key(key).unwrap_or_default();
    let [section, name, ..] = &parts[..] else {
        return Ok(());
    };
    if NAMED.contains(&section.as_str()) {
        let known = names(&document, section);
        if !known.contains(&name.as_str()) {
            let what = if section == "vm" { "VM" } else { "host task" };
            let hint = or_nearest(name, &known);
            return refuse(format!("{file} has no {what} {name:?}, {hint}"));
        }
    }
    Ok(())
}

/// Makes sure that nothing else on the command line sets `key`: it would be lost.
///
/// # Errors
/// [`Invalid`] if something does.
pub fn alone(key: &str, args: &RunArgs) -> anyhow::Result<()> {
    let own = parts_of_key(key);
    let sets = args.sets.iter().filter_map(|set| set.split_once('='));
    let same = sets
        .map(|(set, _)| set)
        .find(|set| own.is_some() && parts_of_key(set) == own);
    let same = same.map(|set| format!("--set {set}"));
    let duration = args.duration.is_some() && key == "run.duration";
    match same.or(duration.then(|| "--duration".to_string())) {
        Some(option) => Err(Invalid::error(format!(
            "--param {key}: {option} says what it is, too; expected one of them"
        ))),
        None => Ok(()),
    }
}

/// Names of the tables in a section of the document, or of one of its cases.
fn names<'a>(document: &'a Table, section: &str) -> Vec<&'a str> {
    let cases = tables(document, "case").map(|(_, case)| case);
    let mut all: Vec<&str> = std::iter::once(document)
        .chain(cases)
        .flat_map(|table| tables(table, section).map(|(name, _)| name))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The tables within the table `key`.
fn tables<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = (&'a str, &'a Table)> {
    let outer = table.get(key).and_then(|node| match &node.value {
        Value::Table(outer) => Some(outer),
        _ => None,
    });
    let inner = outer.into_iter().flat_map(Table::iter);
    inner.filter_map(|entry| match &entry.node.value {
        Value::Table(inner) => Some((entry.key.as_str(), inner)),
        _ => None,
    })
}
