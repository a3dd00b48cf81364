// SPDX-License-Identifier: GPL-2.0-only
//! Reads files of checks.

use super::formulas::Formulas;
use super::tables;
use super::{Check, Checks, Compared, Note, Over, Terms, What};
use crate::compare::schedulers;
use crate::failure::Invalid;
use crate::reproduce::claims::Said;
use crate::reproduce::formula::{Lists, Number};
use crate::reproduce::library::Library;
use crate::reproduce::measure::{Defaults, Reference};
use corun_report::claims::{Kind, Meaning};
use corun_scenario::reader::{Collected, Reader};
use corun_scenario::tree::{self, Entry, Node, Table, Value};
use corun_scenario::{nearest, or_nearest};
use std::collections::{BTreeMap, BTreeSet};

/// Reads all files of checks.
///
/// # Errors
/// [`Invalid`]: everything that is wrong with them.
pub fn read(library: &Library, claims: &[Said]) -> anyhow::Result<Checks> {
    let mut documents = Vec::new();
    for file in library.checks() {
        let document = tree::parse(&file.name, &file.text).map_err(Invalid::error)?;
        documents.push((file.name.as_str(), document));
    }
    let problems = Collected::default();
    let tops: Vec<Reader<'_>> = documents
        .iter()
        .map(|(name, document)| Reader::top(document, name, &problems))
        .collect();
    let mut checks = Checks::default();
    for top in &tops {
        checks.planned.extend(texts(top, "planned"));
        checks.unchecked.extend(texts(top, "unchecked"));
        for (name, table) in top.named("experiment") {
            if library.experiment(name).is_none() {
                table.problem_here(unknown_experiment(library, name));
            }
            let quick = table
                .texts("quick", "[\"run.seeds=[1]\"]")
                .unwrap_or_default();
            let quick = quick.into_iter().map(|set| set.value).collect();
            checks.quick.insert(name.to_string(), quick);
            table.finish();
        }
    }
    for top in tops {
        let lists = lists(&top);
        for (id, table) in top.named("check") {
            let check = check(id, &table, library, claims, &lists, &checks);
            let Some(check) = check else { continue };
            if checks.checks.insert(id.to_string(), check).is_some() {
                top.problem("check", format!("there are two checks of {id:?}"));
            }
        }
        for (name, reader) in top.named("table") {
            let Some(table) = tables::table(name, &reader, claims, &lists) else {
                continue;
            };
            for row in &table.rows {
                check_references(&reader, &row.terms, library, &checks);
            }
            if checks.tables.iter().any(|other| other.name == table.name) {
                top.problem("table", format!("there are two tables {name:?}"));
            }
            checks.tables.push(table);
        }
        top.finish();
    }
    problems.into_result().map_err(Invalid::error)?;
    Ok(checks)
}

fn unknown_experiment(library: &Library, name: &str) -> String {
    let guess = nearest(name, library.experiments());
    let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
    format!("there is no experiment {name:?}{guess}")
}

/// A table of texts.
fn texts(top: &Reader<'_>, key: &'static str) -> Vec<(String, String)> {
    let entries = entries(top, key);
    let text = |entry: &Entry| match &entry.node.value {
        Value::Text(text) => Some((entry.key.clone(), text.clone())),
        other => {
            let key_of = format!("{key}.{}", entry.key);
            top.problem(
                key,
                format!("{key_of}: found {}, expected text", other.show()),
            );
            None
        }
    };
    entries.into_iter().filter_map(text).collect()
}

/// What formulas of this file can go through: `[each]`.
fn lists(top: &Reader<'_>) -> Lists {
    let said = entries(top, "each").into_iter();
    said.filter_map(|Entry { key, node, .. }| match items(node) {
        Some(items) => Some((key.clone(), items)),
        None => {
            let expected = "a list such as [\"fft\", \"lu\"] or [[\"fft\", 3.5], [\"lu\", 2]]";
            let message = format!(
                "each.{key}: found {}, expected {expected}",
                node.value.show()
            );
            top.problem_at(&node.place, &message);
            None
        }
    })
    .collect()
}

/// The items of a list, unless it is no list or is empty.
fn items(node: &Node) -> Option<Vec<Vec<String>>> {
    let text = |node: &Node| match &node.value {
        Value::Text(text) | Value::Other(text) => Some(text.clone()),
        Value::Whole(number) => Some(number.to_string()),
        _ => None,
    };
    let item = |node: &Node| match &node.value {
        Value::List(texts) => texts.iter().map(text).collect(),
        _ => text(node).map(|text| vec![text]),
    };
    match &node.value {
        Value::List(all) if !all.is_empty() => all.iter().map(item).collect(),
        _ => None,
    }
}

/// The entries of a table, whatever their keys.
pub fn entries<'a>(table: &Reader<'a>, key: &'static str) -> Vec<&'a Entry> {
    match table.find(key).map(|node| &node.value) {
        None => Vec::new(),
        Some(Value::Table(inner)) => Table::iter(inner).collect(),
        Some(other) => {
            table.problem(key, format!("found {}, expected a table", other.show()));
            Vec::new()
        }
    }
}

fn check(
    id: &str,
    table: &Reader<'_>,
    library: &Library,
    claims: &[Said],
    lists: &Lists,
    all: &Checks,
) -> Option<Check> {
    let Some(claim) = claims.iter().find(|claim| claim.id == id) else {
        let guess = nearest(id, claims.iter().map(|claim| claim.id.as_str()));
        let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
        table.problem_here(format!("there is no claim {id:?}{guess}"));
        return None;
    };
    let defaults = Defaults {
        experiment: table.text("experiment"),
        case: table.text("case"),
        measure: table.text("measure"),
    };
    let mut formulas = Formulas::new(table, claim.numbers(), defaults, lists);
    formulas.define_all(&entries(table, "let"));
    let what = what(table, claim, &mut formulas);
    let over = choice(table, "over", Over::NAMES).unwrap_or_default();
    let note = note(table, &formulas);
    table.finish();
    let terms = formulas.terms(format!("check.{id:?}"), over);
    check_references(table, &terms, library, all);
    Some(Check {
        what: what?,
        terms,
        note,
    })
}

fn note(table: &Reader<'_>, formulas: &Formulas<'_, '_>) -> Note {
    let text = table.text("note").unwrap_or_default();
    Note::parse(&text, formulas.names()).unwrap_or_else(|message| {
        table.problem("note", message);
        Note::default()
    })
}

/// Are the policy and the experiment of each measured value known?
fn check_references(table: &Reader<'_>, terms: &Terms, library: &Library, all: &Checks) {
    for (text, reference) in &terms.references {
        check_reference(table, text, reference, library, all);
    }
}

fn check_reference(
    table: &Reader<'_>,
    text: &str,
    reference: &Reference,
    library: &Library,
    all: &Checks,
) {
    let known = schedulers::known_policy(&reference.policy);
    if let (Err(message), false) = (known, all.planned.contains_key(&reference.policy)) {
        table.problem_here(format!("[{text}]: {message}"));
    }
    if library.experiment(&reference.experiment).is_none() {
        let message = unknown_experiment(library, &reference.experiment);
        table.problem_here(format!("[{text}]: {message}"));
    }
}

/// The one thing that the check compares.
fn what(table: &Reader<'_>, claim: &Said, formulas: &mut Formulas<'_, '_>) -> Option<What> {
    let meaning = meaning(table).unwrap_or_default();
    let values = values(table, formulas, meaning);
    let order = formulas.conditions("order");
    let holds = formulas.conditions("holds");
    let unjudged = texts(table, "unjudged");
    let out_of_reach = table.text("out_of_reach");
    let given = [
        !values.is_empty(),
        !holds.is_empty(),
        out_of_reach.is_some(),
    ];
    let whats = "value or values, holds, out_of_reach";
    if given.iter().filter(|given| **given).count() != 1 {
        let all = ["value", "values", "holds", "out_of_reach"];
        // What was not readable has been reported.
        if all.iter().filter(|key| table.has(key)).count() != 1 {
            table.problem_here(format!("expected exactly one of {whats}"));
        }
        return None;
    }
    if !order.is_empty() && (values.is_empty() || claim.kind != Kind::Quantitative) {
        table.problem("order", "goes with values of quantitative claims only");
    }
    // If the order were forgotten, one that is not ours would pass as the paper's.
    if values.len() > 1 && claim.kind == Kind::Quantitative && !table.has("order") {
        table.problem_here(
            "expected order, the claim's direction in formulas, such as [\"[cfs] < [balance]\"], or [] \
             if it says no more than the signs of its values",
        );
    }
    if !values.is_empty() && claim.kind == Kind::Qualitative {
        table.problem_here("the claim is qualitative: expected holds or out_of_reach");
    }
    let has_numbers = !claim.numbers().is_empty();
    if !holds.is_empty() && claim.kind == Kind::Quantitative && has_numbers {
        table.problem(
            "holds",
            "the claim has numbers: expected value or values, with order",
        );
    }
    each_is_judged(table, claim, &formulas.named, &unjudged);
    if let Some(reason) = out_of_reach {
        return Some(What::OutOfReach(reason));
    }
    Some(match values.is_empty() {
        false => What::Values {
            values,
            order,
            unjudged,
        },
        true => What::Holds(holds),
    })
}

/// Has each of the claim's numbers a value, or a formula that takes it, or a reason for neither?
fn each_is_judged(
    table: &Reader<'_>,
    claim: &Said,
    named: &BTreeSet<String>,
    unjudged: &[(String, String)],
) {
    let numbers = claim.numbers();
    let is_said = |key: &str| match table.find("values").map(|node| &node.value) {
        Some(Value::Table(values)) => values.iter().any(|value| value.key == key),
        _ => false,
    };
    let is_judged = |key: &str| named.contains(&format!("paper.{key}")) || is_said(key);
    for (key, _) in unjudged {
        if !numbers.contains_key(&format!("paper.{key}")) {
            let known: Vec<&str> = keys(&numbers).collect();
            let hint = or_nearest(key, &known);
            table.problem(
                "unjudged",
                format!("the claim has no number {key:?}, {hint}"),
            );
        } else if is_judged(key) {
            table.problem(
                "unjudged",
                format!("{key:?} is judged: values or a formula have it"),
            );
        }
    }
    // Conditions are stated completely; among values, any could be left out unnoticed.
    if !table.has("value") && !table.has("values") {
        return;
    }
    let has_reason = |key: &str| unjudged.iter().any(|(of, _)| of == key);
    for key in keys(&numbers).filter(|key| !is_judged(key) && !has_reason(key)) {
        table.problem_here(format!(
            "nothing is compared with the claim's {key:?}: expected values.{key}, or unjudged.{key} = \"why not\""
        ));
    }
}

/// The names of the numbers of a claim that has several.
fn keys(numbers: &BTreeMap<String, f64>) -> impl Iterator<Item = &str> {
    numbers
        .keys()
        .filter_map(|name| name.strip_prefix("paper."))
}

fn meaning(table: &Reader<'_>) -> Option<Meaning> {
    choice(table, "as", Meaning::NAMES)
}

/// One of some words.
pub fn choice<T, const N: usize>(
    table: &Reader<'_>,
    key: &'static str,
    known: [(&'static str, T); N],
) -> Option<T> {
    let said = table.text(key)?;
    let names = known.each_ref().map(|(name, _)| *name);
    let found = known.into_iter().find(|(name, _)| *name == said);
    if found.is_none() {
        table.problem(
            key,
            format!("found {said:?}, {}", or_nearest(&said, &names)),
        );
    }
    found.map(|(_, value)| value)
}

fn values(table: &Reader<'_>, formulas: &mut Formulas<'_, '_>, meaning: Meaning) -> Vec<Compared> {
    let single = table.find("value").map(|node| ("", node));
    let several = entries(table, "values").into_iter();
    let several = several.map(|entry| (entry.key.as_str(), &entry.node));
    let all = single.into_iter().chain(several);
    all.filter_map(|(name, node)| value(table, formulas, meaning, name, node))
        .collect()
}

fn value(
    table: &Reader<'_>,
    formulas: &mut Formulas<'_, '_>,
    meaning: Meaning,
    name: &str,
    node: &Node,
) -> Option<Compared> {
    let path = match name {
        "" => "value".to_string(),
        name => format!("values.{name}"),
    };
    let written = |node: &Node| match (&node.value, name) {
        (Value::Text(text), "") => text.clone(),
        (Value::Text(text), name) => format!("{name} = {text}"),
        _ => path.clone(),
    };
    if !matches!(node.value, Value::Table(_)) {
        return Some(Compared {
            name: name.to_string(),
            text: written(node),
            ours: formulas.ours(&path, node)?,
            paper: formulas.of_the_paper(&path, name, node)?,
            readings: Vec::new(),
            meaning,
        });
    }
    let inner = table.inner(&path, node)?;
    let ours = inner.find("ours");
    if ours.is_none() {
        inner.missing("ours", "a formula");
    }
    let text = ours.map(written).unwrap_or_default();
    let ours = ours.and_then(|node| formulas.ours(&path, node));
    let paper = match inner.find("paper") {
        Some(node) => formulas.papers(&path, node),
        None => formulas.of_the_paper(&path, name, node),
    };
    let readings = entries(&inner, "readings").into_iter();
    let readings: Vec<(String, Number)> = readings
        .filter_map(|entry| Some((entry.key.clone(), formulas.papers(&path, &entry.node)?)))
        .collect();
    let meaning = self::meaning(&inner).unwrap_or(meaning);
    inner.finish();
    Some(Compared {
        name: name.to_string(),
        text,
        ours: ours?,
        paper: paper?,
        readings,
        meaning,
    })
}
