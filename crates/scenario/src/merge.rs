// SPDX-License-Identifier: GPL-2.0-only
//! Laying one document over another: cases over their scenario, the command line over both.

use crate::limits;
use crate::names;
use crate::problem::{Place, Problem, Problems};
use crate::reader::dotted;
use crate::suggest::or_nearest;
use crate::tree::{self, Entry, Node, Table, Value};

/// Keys that mean the same thing in different words: giving one takes the others back. Dotted ones are in a table
/// beside the others.
const ALTERNATIVES: [(&str, &[&str]); 8] = [
    ("idle_states", &["costs.idle_wake"]),
    ("costs.idle_wake", &["idle_states"]),
    ("topology", &["pcpus"]),
    ("pcpus", &["topology"]),
    ("seed", &["seeds"]),
    ("seeds", &["seed"]),
    ("workload", &["thread"]),
    ("thread", &["workload", "threads"]),
];

/// Tables of things that have names.
const NAMED: [&str; 6] = ["group", "vm", "device", "client", "channel", "task"];

/// Something that the command line says about the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Override(Table);

impl Override {
    /// Reads `key.of.some.value=VALUE`, as given with `option` (such as `--set`). The value is TOML; what is not a TOML
    /// value is taken as text, so that quotes may be left out.
    ///
    /// # Errors
    /// If there is no key or no `=`.
    pub fn parse(option: &str, assignment: &str) -> Result<Self, Problems> {
        let source = format!("{option} {assignment}");
        let Some((key, value)) = assignment.split_once('=') else {
            return Err(refused(
                &source,
                "expected KEY=VALUE, such as vm.web.count=3",
            ));
        };
        Self::read(&source, key, value)
    }

    /// `key` is `value`, as `option` on the command line says.
    ///
    /// # Errors
    /// If the value cannot be written as TOML.
    pub fn of(option: &str, key: &str, value: &str) -> Result<Self, Problems> {
        Self::read(&format!("{option} {value}"), key, value)
    }

    fn read(source: &str, key: &str, value: &str) -> Result<Self, Problems> {
        if value.trim().is_empty() {
            return Err(refused(
                source,
                "there is no value after the =, expected KEY=VALUE",
            ));
        }
        let is_empty = value.trim().strip_prefix('{').map(str::trim_start) == Some("}");
        if is_empty && !means_something_empty(key) {
            return Err(refused(
                source,
                "an empty table changes nothing here, expected a key within it, such as vm.web.count=3",
            ));
        }
        let wrong_key = || refused(source, "expected KEY=VALUE, such as vm.web.count=3");
        if !is_one_key(key) {
            return Err(wrong_key());
        }
        // In an inline table nothing can follow the value except what is part of it.
        if tree::parse(source, &format!("it = {{ {key} = {value}\n}}")).is_ok()
            && let Ok(table) = tree::parse(source, &format!("{key} = {value}"))
        {
            return Ok(Self(table));
        }
        let text = value.trim();
        if text.starts_with(['"', '\'', '[', '{']) || text.contains(char::is_control) {
            let message = match text.starts_with(['[', '{']) {
                true => {
                    "the value is no TOML value; texts within a list or a table are in quotes, such as \
                     run.policies=[\"cfs\", \"balance\"]"
                }
                false => "the value is neither a TOML value nor plain text",
            };
            return Err(refused(source, message));
        }
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        tree::parse(source, &format!("{key} = \"{quoted}\""))
            .map(Self)
            .map_err(|_| wrong_key())
    }
}

/// Is this one dotted key, and nothing else?
fn is_one_key(key: &str) -> bool {
    parts_of_key(key).is_some()
}

/// The parts of a dotted key, each of which may be in quotes; `None` if it is not one key, or is more than that.
pub fn parts_of_key(key: &str) -> Option<Vec<String>> {
    if key.contains(char::is_control) {
        return None;
    }
    let table = tree::parse("", &format!("{key} = 0")).ok()?;
    let (mut parts, mut here) = (Vec::new(), &table);
    loop {
        let mut entries = here.iter();
        let entry = entries.next().filter(|_| entries.next().is_none())?;
        parts.push(entry.key.clone());
        match &entry.node.value {
            Value::Table(inner) => here = inner,
            Value::Whole(0) => return Some(parts),
            _ => return None,
        }
    }
}

/// Does an empty table of this key mean something: that there is one more thing with a name, or that the host has a
/// thread for the VM's devices?
fn means_something_empty(key: &str) -> bool {
    let parts = parts_of_key(key).unwrap_or_default();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match &parts[..] {
        ["case", _, key @ ..] | key => match key {
            [section, _] => NAMED.contains(section),
            ["vm", _, "emulator"] => true,
            _ => false,
        },
    }
}

fn refused(source: &str, message: &str) -> Problems {
    Problem {
        place: Place {
            source: source.into(),
            line: 0,
        },
        key: String::new(),
        message: message.to_string(),
    }
    .into()
}

/// The documents to read, one per case, by name: the scenario with each case and the overrides laid
/// over it. A scenario without cases is one case without a name.
///
/// # Errors
/// If `case` is not a table of tables.
pub fn cases(
    mut document: Table,
    overrides: &[Override],
) -> Result<Vec<(String, Table)>, Problems> {
    let mut wrong = Problems::default();
    // Cases may have what the scenario lacks: then what counts is theirs, below.
    let has_cases = document.get("case").is_some();
    for Override(table) in overrides {
        let checked = cases_are_there(table, &document).and(some_cases_have(table, &document));
        if wrong.take(checked).is_some() {
            let laid = overlay(&mut document, table);
            wrong.take(if has_cases { Ok(()) } else { laid });
        }
    }
    wrong.or_ok(())?;
    let Some(cases) = document.remove("case") else {
        return Ok(vec![(String::new(), document)]);
    };
    let table_of = |node: Node, key: String| match node.value {
        Value::Table(table) => Ok(table),
        other => Err(Problems::from(Problem {
            place: node.place,
            key,
            message: format!("found {}, expected a table", other.show()),
        })),
    };
    let place = cases.place;
    let cases = table_of(cases.node, "case".into())?;
    let count = cases.iter().count();
    if count > limits::CASES {
        return Err(Problem {
            place,
            key: "case".into(),
            message: format!("found {count} cases, expected at most {}", limits::CASES),
        }
        .into());
    }
    let (mut documents, mut problems) = (Vec::new(), Problems::default());
    for case in cases.iter() {
        problems.take(names::check_case(case));
        let over = table_of(case.node.clone(), format!("case.{:?}", case.key));
        let Some(over) = problems.take(over) else {
            continue;
        };
        let mut merged = document.clone();
        problems.take(overlay(&mut merged, &over));
        for Override(table) in overrides {
            let mut table = table.clone();
            table.remove("case");
            problems.take(overlay(&mut merged, &table));
        }
        documents.push((case.key.clone(), merged));
    }
    problems.or_ok(())?;
    match documents.is_empty() {
        true => Ok(vec![(String::new(), document)]),
        false => Ok(documents),
    }
}

/// Are the cases that an override names among those of the scenario?
///
/// # Errors
/// If one is not: it would be an additional case.
fn cases_are_there(over: &Table, document: &Table) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let known = within(document, "case");
    let has = |name: &str| known.is_some_and(|cases| cases.get(name).is_some());
    let told = within(over, "case").into_iter().flat_map(Table::iter);
    for entry in told.filter(|entry| !has(&entry.key)) {
        let names = known.into_iter().flat_map(Table::iter);
        let names: Vec<&str> = names.map(|case| case.key.as_str()).collect();
        let message = match names.is_empty() {
            true => format!(
                "the scenario has no cases, expected the key alone: {}",
                innermost(&entry.node, "")
            ),
            false => format!(
                "there is no case {:?}, {}",
                entry.key,
                or_nearest(&entry.key, &names)
            ),
        };
        problems.push(Problem {
            place: entry.place.clone(),
            key: dotted("case", &entry.key),
            message,
        });
    }
    problems.or_ok(())
}

/// The dotted key of the first value in `node`.
fn innermost(node: &Node, path: &str) -> String {
    match &node.value {
        Value::Table(table) => match table.iter().next() {
            Some(entry) => innermost(&entry.node, &dotted(path, &entry.key)),
            None => path.to_string(),
        },
        _ => path.to_string(),
    }
}

/// Does the override concern something with a name that some cases have, and others do not? It holds for all of them.
///
/// # Errors
/// If so.
fn some_cases_have(over: &Table, document: &Table) -> Result<(), Problems> {
    let mut problems = Problems::default();
    let cases = within(document, "case").into_iter().flat_map(Table::iter);
    let cases: Vec<&Entry> = cases.collect();
    for section in NAMED {
        let has = |table: &Table, name: &str| {
            within(table, section).is_some_and(|it| it.get(name).is_some())
        };
        let told = within(over, section).into_iter().flat_map(Table::iter);
        for entry in told.filter(|entry| !has(document, &entry.key)) {
            let having = cases.iter().filter(|case| match &case.node.value {
                Value::Table(case) => has(case, &entry.key),
                _ => false,
            });
            let having: Vec<String> = having.map(|case| format!("{:?}", case.key)).collect();
            // What no case has is new for all, and what all have may be overridden for all.
            let Some(first) = having.first().filter(|_| having.len() < cases.len()) else {
                continue;
            };
            let key = dotted(section, &entry.key);
            let whose = match &having[..] {
                [one] => format!("only {one} has it"),
                some => format!(
                    "only {} of {} cases have it, such as {first}",
                    some.len(),
                    cases.len()
                ),
            };
            problems.push(Problem {
                place: entry.place.clone(),
                message: format!("{whose}, expected case.{first}.{key} in its place"),
                key,
            });
        }
    }
    problems.or_ok(())
}

/// The table of this name, if there is one.
fn within<'a>(table: &'a Table, key: &str) -> Option<&'a Table> {
    match &table.get(key)?.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

/// Lays `over` over `base`: tables are merged key by key, everything else is replaced. What cannot be merged is left.
///
/// # Errors
/// If `over` names tables of a list that are not there.
pub fn overlay(base: &mut Table, over: &Table) -> Result<(), Problems> {
    let mut problems = Problems::default();
    lay(base, over, "", &mut problems);
    problems.or_ok(())
}

/// Does the same for the tables at `path`.
fn lay(base: &mut Table, over: &Table, path: &str, problems: &mut Problems) {
    for (_, others) in ALTERNATIVES.iter().filter(|(name, _)| says(over, name)) {
        for other in others.iter().filter(|other| !says(over, other)) {
            take_back(base, other);
        }
    }
    for Entry { key, place, node } in over.iter() {
        if let Value::Table(inner) = &node.value {
            let path = dotted(path, key);
            let merged = match base.get_mut(key).map(|node| &mut node.value) {
                Some(Value::Table(old)) => {
                    lay(old, inner, &path, problems);
                    true
                }
                Some(Value::List(list)) if is_of_tables(list) => {
                    lay_numbered(list, inner, &path, problems);
                    true
                }
                _ => false,
            };
            if merged {
                continue;
            }
        }
        base.set(Entry {
            key: key.clone(),
            place: place.clone(),
            node: node.clone(),
        });
    }
}

fn is_of_tables(list: &[Node]) -> bool {
    let is_table = |node: &Node| matches!(node.value, Value::Table(_));
    !list.is_empty() && list.iter().all(is_table)
}

/// Lays `over` over tables of a list, which are numbered from 1 on: `thread.2.count` is the second one's.
fn lay_numbered(list: &mut [Node], over: &Table, path: &str, problems: &mut Problems) {
    let count = list.len();
    for Entry { key, place, node } in over.iter() {
        let mut refuse = |key: &str, message: String| {
            problems.push(Problem {
                place: place.clone(),
                key: key.to_string(),
                message,
            });
        };
        let at = key.parse::<usize>().ok().and_then(|at| at.checked_sub(1));
        let Some(old) = at.and_then(|at| list.get_mut(at)) else {
            refuse(path, not_there(key, count, path));
            continue;
        };
        match (&mut old.value, &node.value) {
            (Value::Table(old), Value::Table(new)) => lay(old, new, &dotted(path, key), problems),
            (_, other) => {
                let key = dotted(path, key);
                let found = other.show();
                let message =
                    format!("found {found}, expected a table, or one of its keys: {key}.KEY");
                refuse(&key, message);
            }
        }
    }
}

/// Says that a list of `count` tables has none with the number `key`.
fn not_there(key: &str, count: usize, path: &str) -> String {
    let digits = key.strip_prefix('-').unwrap_or(key);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (found, such_as) = match is_number {
        true => (format!("number {key}"), String::new()),
        false => {
            let found = Value::Text(key.to_string()).show();
            (found, format!(": {path}.1.{}", dotted("", key)))
        }
    };
    let expected = match count {
        1 => format!("1, the number of the only [[{path}]]"),
        2 => format!("the number of a [[{path}]], 1 or 2, as they stand in the scenario"),
        _ => format!("the number of a [[{path}]], 1 to {count}, as they stand in the scenario"),
    };
    format!("found {found}, expected {expected}{such_as}")
}

/// Is this key present, or the one in a table that a dotted key means?
fn says(table: &Table, key: &str) -> bool {
    match key.split_once('.') {
        None => table.get(key).is_some(),
        Some((outer, inner)) => match table.get(outer).map(|node| &node.value) {
            Some(Value::Table(within)) => says(within, inner),
            _ => false,
        },
    }
}

fn take_back(table: &mut Table, key: &str) {
    match key.split_once('.') {
        None => {
            table.remove(key);
        }
        Some((outer, inner)) => {
            if let Some(Node {
                value: Value::Table(within),
                ..
            }) = table.get_mut(outer)
            {
                take_back(within, inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(table: &Table, path: &[&str]) -> Option<i64> {
        let (last, tables) = path.split_last()?;
        let mut here = table;
        for key in tables {
            match &here.get(key)?.value {
                Value::Table(inner) => here = inner,
                _ => return None,
            }
        }
        match here.get(last)?.value {
            Value::Whole(number) => Some(number),
            _ => None,
        }
    }

    #[test]
    fn a_case_replaces_what_it_names_and_the_command_line_wins() {
        let text = "host.pcpus = 4\nvm.a = { count = 1, vcpus = 2 }\ncase.two.vm.a.count = 2\ncase.one = {}";
        let document = tree::parse("f", text).unwrap();
        let vcpus = Override::parse("--set", "vm.a.vcpus=8").unwrap();
        let cases = cases(document, &[vcpus]).unwrap();
        let names: Vec<_> = cases.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["two", "one"]);
        assert_eq!(whole(&cases[0].1, &["vm", "a", "count"]), Some(2));
        assert_eq!(whole(&cases[1].1, &["vm", "a", "count"]), Some(1));
        assert_eq!(whole(&cases[1].1, &["vm", "a", "vcpus"]), Some(8));
    }

    #[test]
    fn tables_of_a_list_are_told_of_by_their_numbers() {
        let text = "[[vm.a.thread]]\ncount = 1\n[[vm.a.thread]]\ncount = 2\n";
        let over = |set: &str| {
            let mut base = tree::parse("f", text).unwrap();
            let Override(table) = Override::parse("--set", set).unwrap();
            overlay(&mut base, &table).ok()?;
            let vm = within(within(&base, "vm").unwrap(), "a").unwrap();
            let Value::List(list) = &vm.get("thread")?.value else {
                return None;
            };
            let counts = list.iter().map(|node| match &node.value {
                Value::Table(table) => whole(table, &["count"]),
                _ => None,
            });
            counts.collect::<Option<Vec<i64>>>()
        };
        assert_eq!(over("vm.a.thread.2.count=7"), Some(vec![1, 7]));
        assert_eq!(over("vm.a.thread.1.count=7"), Some(vec![7, 2]));
        for none in [
            "vm.a.thread.0.count=7",
            "vm.a.thread.3.count=7",
            "vm.a.thread.count=7",
        ] {
            assert_eq!(over(none), None, "{none}");
        }
    }

    #[test]
    fn another_word_for_the_same_takes_the_first_back() {
        let mut base = tree::parse("f", "topology = \"1n1l4c1t\"").unwrap();
        overlay(&mut base, &tree::parse("g", "pcpus = 8").unwrap()).unwrap();
        assert!(base.get("topology").is_none());
        assert_eq!(whole(&base, &["pcpus"]), Some(8));
    }

    #[test]
    fn idle_states_and_a_cost_of_waking_take_each_other_back() {
        let states = "host.idle_states = [\"2us/2us\"]";
        let (ipi, wake) = ("host.costs.ipi = 5", "host.costs.idle_wake = 3");
        let costs = format!("{ipi}\n{wake}");
        let over = |base: &str, over: &str| {
            let mut base = tree::parse("f", base).unwrap();
            overlay(&mut base, &tree::parse("g", over).unwrap()).unwrap();
            base
        };
        let table = over(&costs, states);
        assert!(says(&table, "host.idle_states") && !says(&table, "host.costs.idle_wake"));
        assert!(says(&table, "host.costs.ipi"));
        let table = over(states, wake);
        assert!(says(&table, "host.costs.idle_wake") && !says(&table, "host.idle_states"));
        assert!(says(&over(states, ipi), "host.idle_states"));
        let both = over("", &format!("{states}\n{wake}"));
        assert!(says(&both, "host.costs.idle_wake") && says(&both, "host.idle_states"));
    }

    #[test]
    fn quotes_may_be_left_out_on_the_command_line() {
        let Override(table) = Override::parse("--set", "run.duration=5s").unwrap();
        assert!(format!("{table:?}").contains("Text(\"5s\")"));
        for (set, value) in [
            ("a.b = 3 # three", "Whole(3)"),
            (" a.\"b c\" = \"x\"", "Text(\"x\")"),
            ("a={ b = 3, c = 4 }", "Whole(4)"),
            ("a=[1,\n2]", "Whole(2)"),
            ("a=\"\"\"x\ny\"\"\"", "Text(\"x\\ny\")"),
            ("a=3, b=4", "Text(\"3, b=4\")"),
            ("a=#3", "Text(\"#3\")"),
        ] {
            let Override(table) = Override::parse("--set", set).unwrap();
            assert!(format!("{table:?}").contains(value), "{set}: {table:?}");
        }
        for nonsense in [
            "",
            "=",
            "a",
            "a=",
            "a= ",
            "=3",
            "a=\"",
            "a b=1",
            "a=[1",
            "a={}",
            "a= { }",
            "#=3",
            "#a=3",
            "a\n=3",
            "a=3\nb=4",
            "a.b=3\na.c=4",
            "[a]\nb=3",
            "b=4\n[a]",
        ] {
            let parsed = Override::parse("--set", nonsense);
            assert!(parsed.is_err(), "{nonsense}: {parsed:?}");
        }
    }
}
