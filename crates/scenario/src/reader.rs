// SPDX-License-Identifier: GPL-2.0-only
//! Typed access to a table of the document.
//!
//! Each question names the key, the type and the range; a wrong answer becomes a problem and `None`,
//! so that reading goes on and finds the next problem. Keys nobody asked for are unknown keys.

use crate::problem::{Located, Place, Problem, Problems};
use crate::suggest::meant;
use crate::tree::{Entry, Node, Table, Value};
use corun_model::{Nanos, PcpuSet, size, time};
use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The problems that readers have found so far.
#[derive(Default)]
pub struct Collected(RefCell<Problems>);

impl Collected {
    fn push(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// Ok if there are no problems.
    ///
    /// # Errors
    /// The problems.
    pub fn into_result(self) -> Result<(), Problems> {
        self.into_all().or_ok(())
    }

    /// All of them.
    pub fn into_all(self) -> Problems {
        self.0.into_inner()
    }
}

/// Reads one table.
pub struct Reader<'a> {
    table: &'a Table,
    place: Place,
    path: String,
    problems: &'a Collected,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Reader<'a> {
    /// Reads a document.
    pub fn top(table: &'a Table, file: &str, problems: &'a Collected) -> Self {
        let place = Place {
            source: file.into(),
            line: 0,
        };
        Self::new(table, place, String::new(), problems)
    }

    fn new(table: &'a Table, place: Place, path: String, problems: &'a Collected) -> Self {
        Self {
            table,
            place,
            path,
            problems,
            known: RefCell::default(),
        }
    }

    /// The dotted key of `key` in this table.
    pub fn key(&self, key: &str) -> String {
        dotted(&self.path, key)
    }

    /// Is the key there?
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Is there nothing under the key, not even a table?
    pub fn is_empty(&self, key: &str) -> bool {
        match self.table.get(key).map(|node| &node.value) {
            None => true,
            Some(Value::Table(table)) => table.iter().next().is_none(),
            Some(_) => false,
        }
    }

    /// The value of a key, whatever it is, for what no other question fits.
    pub fn find(&self, key: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    /// Adds a problem with the value of `key`.
    pub fn problem(&self, key: &str, message: impl Into<String>) {
        let node = self.table.get(key);
        self.problems.push(Problem {
            place: node.map_or(&self.place, |node| &node.place).clone(),
            key: self.key(key),
            message: message.into(),
        });
    }

    /// Adds a problem with a value that was read from the table.
    pub fn add(&self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Where the table was written.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Adds a problem at a place within the table.
    pub fn problem_at(&self, place: &Place, message: impl Into<String>) {
        self.problems.push(Problem {
            place: place.clone(),
            key: self.path.clone(),
            message: message.into(),
        });
    }

    /// Adds a problem with the table as a whole.
    pub fn problem_here(&self, message: impl Into<String>) {
        self.problems.push(Problem {
            place: self.place.clone(),
            key: self.path.clone(),
            message: message.into(),
        });
    }

    /// Adds the problem that `key` is missing.
    pub fn missing(&self, key: &str, expected: &str) {
        self.problem(key, format!("is missing, expected {expected}"));
    }

    fn wrong<T>(&self, key: &str, found: &Value, expected: &str) -> Option<T> {
        self.problem(key, format!("found {}, expected {expected}", found.show()));
        None
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Option<String> {
        self.located(key).map(|text| text.value)
    }

    /// A text that is checked later.
    pub fn located(&self, key: &'static str) -> Option<Located<String>> {
        let node = self.find(key)?;
        let said = |text: String| Located {
            value: text,
            key: self.key(key),
            place: node.place.clone(),
        };
        // On the command line quotes may be left out, even around what looks like a number: preset=6.12.
        let unquoted = node.place.line == 0;
        match &node.value {
            Value::Text(text) => Some(said(text.clone())),
            Value::Other(written) if unquoted => Some(said(written.clone())),
            Value::Whole(number) if unquoted => Some(said(number.to_string())),
            other => self.wrong(key, other, "text in quotes"),
        }
    }

    /// A text that is checked later; a missing one is a problem.
    pub fn required(&self, key: &'static str, expected: &str) -> Option<Located<String>> {
        if !self.has(key) {
            self.missing(key, expected);
        }
        self.located(key)
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        match &self.find(key)?.value {
            Value::Flag(flag) => Some(*flag),
            other => self.wrong(key, other, "true or false"),
        }
    }

    /// A whole number within a range.
    pub fn whole(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let value = &self.find(key)?.value;
        let number = match value {
            Value::Whole(number) => u32::try_from(*number).ok(),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(number),
            None => self.wrong(key, value, &expected),
        }
    }

    /// A list of whole numbers, at least one; a single number is a list of one.
    pub fn wholes(&self, key: &'static str) -> Option<Vec<u64>> {
        let value = &self.find(key)?.value;
        let one = |value: &Value| match value {
            Value::Whole(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let wrong = |found: &Value| {
            let expected = "a whole number from 0 to 9223372036854775807, or a list of such";
            self.wrong(key, found, expected)
        };
        match value {
            Value::List(list) if !list.is_empty() => {
                let number = |item: &Node| one(&item.value).or_else(|| wrong(&item.value));
                list.iter().map(number).collect()
            }
            single => Some(vec![one(single).or_else(|| wrong(single))?]),
        }
    }

    /// A list of texts, at least one, checked later; `such_as` is one that is accepted.
    pub fn texts(&self, key: &'static str, such_as: &str) -> Option<Vec<Located<String>>> {
        let value = &self.find(key)?.value;
        let one = |node: &Node| match &node.value {
            Value::Text(text) => Some(Located {
                value: text.clone(),
                key: self.key(key),
                place: node.place.clone(),
            }),
            _ => None,
        };
        let expected = format!("a list of texts such as {such_as}");
        let list = match value {
            Value::List(list) if !list.is_empty() => list,
            _ => return self.wrong(key, value, &expected),
        };
        let other = list.iter().find(|node| one(node).is_none());
        match other {
            Some(other) => self.wrong(key, &other.value, &format!("{expected} only")),
            None => list.iter().map(one).collect(),
        }
    }

    /// A text, or a list of texts.
    pub fn text_or_texts(&self, key: &'static str, such_as: &str) -> Option<Vec<Located<String>>> {
        match &self.find(key)?.value {
            Value::List(_) => self.texts(key, such_as),
            _ => self.located(key).map(|text| vec![text]),
        }
    }

    /// A duration within a range.
    pub fn duration(&self, key: &'static str, range: RangeInclusive<Nanos>) -> Option<Nanos> {
        let value = &self.find(key)?.value;
        let parsed = match value {
            Value::Text(text) if time::is_beyond(text) => Some(Nanos::MAX),
            Value::Text(text) => time::parse(text),
            _ => None,
        };
        let Some(duration) = parsed else {
            return self.wrong(key, value, time::ACCEPTED);
        };
        if range.contains(&duration) {
            return Some(duration);
        }
        let (low, high) = (time::show(*range.start()), time::show(*range.end()));
        self.wrong(key, value, &format!("a duration from {low} to {high}"))
    }

    /// A duration within a range that is checked again later.
    pub fn located_duration(
        &self,
        key: &'static str,
        range: RangeInclusive<Nanos>,
    ) -> Option<Located<Nanos>> {
        let value = self.duration(key, range)?;
        self.said(key, value)
    }

    /// The value of a key that is present, with where it was written.
    pub fn said<T>(&self, key: &'static str, value: T) -> Option<Located<T>> {
        Some(Located {
            value,
            key: self.key(key),
            place: self.find(key)?.place.clone(),
        })
    }

    /// A size in bytes within a range.
    pub fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = &self.find(key)?.value;
        let parsed = match value {
            Value::Text(text) => size::parse(text),
            _ => None,
        };
        if let Some(bytes) = parsed.filter(|bytes| range.contains(bytes)) {
            return Some(bytes);
        }
        let (low, high) = (size::show(*range.start()), size::show(*range.end()));
        let expected = format!("{}, {low} to {high}", size::ACCEPTED);
        self.wrong(key, value, &expected)
    }

    /// Anything that is read from text.
    pub fn parsed<T: FromStr<Err: Display>>(&self, key: &'static str, expected: &str) -> Option<T> {
        let node = self.find(key)?;
        let Value::Text(text) = &node.value else {
            return self.wrong(key, &node.value, expected);
        };
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(key, error.to_string());
                None
            }
        }
    }

    /// A set of pCPUs, all of them on a host of `pcpus` (if that is known).
    pub fn pcpu_set(&self, key: &'static str, pcpus: Option<u32>) -> Option<PcpuSet> {
        self.to_pcpu_set(key, &self.find(key)?.value, pcpus)
    }

    /// Sets of pCPUs, one for each of several things; see [`Self::pcpu_set`].
    pub fn pcpu_sets(&self, key: &'static str, pcpus: Option<u32>) -> Option<Vec<PcpuSet>> {
        let value = &self.find(key)?.value;
        let Value::List(sets) = value else {
            return self.wrong(
                key,
                value,
                "a list of them, such as [\"0\", \"1\", \"2-3\"]",
            );
        };
        let set = |node: &Node| self.to_pcpu_set(key, &node.value, pcpus);
        sets.iter().map(set).collect()
    }

    fn to_pcpu_set(&self, key: &'static str, value: &Value, pcpus: Option<u32>) -> Option<PcpuSet> {
        let parsed: Option<PcpuSet> = match value {
            // The number of one of them.
            Value::Whole(number) => number.to_string().parse().ok(),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        };
        let Some(set) = parsed else {
            let most = corun_model::Topology::MAX_PCPUS;
            let expected = match value {
                // The message does not mean TOML's lists.
                Value::List(_) => format!("text that lists pCPUs below {most}, such as \"0-3,8\""),
                _ => format!("a list of pCPUs below {most} such as \"0-3,8\""),
            };
            return self.wrong(key, value, &expected);
        };
        let pcpus = pcpus.unwrap_or(corun_model::Topology::MAX_PCPUS);
        if set.and(&PcpuSet::first(pcpus)) == set {
            return Some(set);
        }
        let last = pcpus - 1;
        self.problem(
            key,
            format!("found \"{set}\", but the host has pCPUs 0 to {last} only"),
        );
        None
    }

    /// A table within this one.
    pub fn table(&self, key: &'static str) -> Option<Reader<'a>> {
        let node = self.find(key)?;
        self.inner(key, node)
    }

    /// The value `node` of `key`, which is expected to be a table.
    pub fn inner(&self, key: &str, node: &'a Node) -> Option<Reader<'a>> {
        let Value::Table(table) = &node.value else {
            return self.wrong(key, &node.value, "a table");
        };
        Some(Reader::new(
            table,
            node.place.clone(),
            self.key(key),
            self.problems,
        ))
    }

    /// All tables within the table `key`, by name: `[vm.web]`, `[vm.db]`.
    pub fn named(&self, key: &'static str) -> Vec<(&'a str, Reader<'a>)> {
        let Some(outer) = self.find(key) else {
            return Vec::new();
        };
        let Value::Table(_) = &outer.value else {
            let name = self.key(key);
            let expected = format!("tables with a name each, such as [{name}.NAME]");
            self.wrong::<()>(key, &outer.value, &expected);
            return Vec::new();
        };
        let Some(outer) = self.inner(key, outer) else {
            return Vec::new();
        };
        let inner =
            |Entry { key, node, .. }: &'a Entry| Some((key.as_str(), outer.inner(key, node)?));
        outer.table.iter().filter_map(inner).collect()
    }

    /// The tables of a list, at least one: `[[vm.db.thread]]`.
    pub fn tables(&self, key: &'static str) -> Option<Vec<Reader<'a>>> {
        let node = self.find(key)?;
        let expected = &format!("a list of tables, written [[{}]]", self.key(key));
        let list = match &node.value {
            Value::List(list) if !list.is_empty() => list,
            // From the command line: a number says which table is meant, if there are some.
            Value::Table(_) if node.place.line == 0 => {
                let name = self.key(key);
                let message = format!(
                    "found a table, but no [[{name}]] that it could belong to, expected a list of tables, \
                     such as {name}=[{{ KEY = VALUE }}]"
                );
                self.problem(key, message);
                return None;
            }
            other => return self.wrong(key, other, expected),
        };
        let one = |item: &'a Node| match &item.value {
            Value::Table(table) => {
                let path = self.key(key);
                Some(Reader::new(table, item.place.clone(), path, self.problems))
            }
            other => self.wrong(key, other, expected),
        };
        Some(list.iter().filter_map(one).collect())
    }

    /// No more questions: what was not asked for is unknown.
    pub fn finish(&self) {
        let mut known = self.known.borrow().clone();
        known.sort_unstable();
        known.dedup();
        for entry in self
            .table
            .iter()
            .filter(|entry| !known.contains(&entry.key.as_str()))
        {
            let guess = meant(&entry.key, &known);
            let guess = guess.map_or(String::new(), |guess| format!(", did you mean {guess:?}?"));
            self.problems.push(Problem {
                place: entry.place.clone(),
                key: self.key(&entry.key),
                message: format!("unknown key{guess} (known here: {})", known.join(", ")),
            });
        }
    }
}

/// The dotted key of `key` in the table at `path`, in quotes where TOML needs them.
pub(crate) fn dotted(path: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let key = match key.chars().all(bare) && !key.is_empty() {
        true => key.to_string(),
        false => format!("{key:?}"),
    };
    match path.is_empty() {
        true => key,
        false => format!("{path}.{key}"),
    }
}
