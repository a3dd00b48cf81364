// SPDX-License-Identifier: GPL-2.0-only
//! A TOML document as a tree in which everything knows where it was written.

use crate::limits;
use crate::problem::{Place, Problem, Problems};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it was written.
    pub place: Place,
}

/// TOML's values, without dates: no key takes one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number that fits.
    Whole(i64),
    /// `true` or `false`.
    Flag(bool),
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// Anything else, as it was written: fractions, dates, numbers beyond 64 bits.
    Other(String),
}

impl Value {
    /// The value as shown in a message.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) => match text.char_indices().nth(60) {
                Some((at, _)) => format!("{:?}…", &text[..at]),
                None => format!("{text:?}"),
            },
            Self::Whole(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(list) if list.is_empty() => "an empty list".to_string(),
            Self::List(_) => "a list".to_string(),
            Self::Table(_) => "a table".to_string(),
            Self::Other(text) => text.clone(),
        }
    }
}

/// A table in the order in which it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table(Vec<Entry>);

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

impl Table {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let entry = self.0.iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.node)
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let entry = self.0.iter_mut().find(|entry| entry.key == key);
        entry.map(|entry| &mut entry.node)
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.0.iter().position(|entry| entry.key == key)?;
        Some(self.0.remove(at))
    }

    /// Adds a key, or replaces its value where it stands.
    pub fn set(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|old| old.key == entry.key) {
            Some(old) => *old = entry,
            None => self.0.push(entry),
        }
    }

    /// All keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
}

/// Reads a document; `source` names it in messages.
///
/// # Errors
/// All syntax errors, with lines.
pub fn parse(source: &str, text: &str) -> Result<Table, Problems> {
    let places = Places::new(source, text);
    check_size(text, &places)?;
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems::default();
    for error in errors {
        let span = error.span().unwrap_or_default();
        let mut message = format!("not TOML: {}", error.message().replace('\n', ": "));
        if let Some(key) = text.get(span.clone())
            && error.message() == "duplicate key"
        {
            let key = Value::Text(key.into()).show();
            message.push_str(&format!(" {key}: it has a value already, further up"));
        }
        problems.push(Problem {
            place: places.at(span.start),
            key: String::new(),
            message,
        });
    }
    problems.or_ok(())?;
    Ok(table(document.get_ref(), &places))
}

/// Refuses sizes that no scenario needs.
fn check_size(text: &str, places: &Places) -> Result<(), Problem> {
    let most = limits::FILE_BYTES;
    if text.len() <= most {
        return Ok(());
    }
    Err(Problem {
        place: places.at(0),
        key: String::new(),
        message: format!(
            "{} bytes are too many for a scenario: at most {most}",
            text.len()
        ),
    })
}

/// Turns byte offsets into places.
struct Places {
    source: Arc<str>,
    line_starts: Vec<usize>,
    lines: bool,
}

impl Places {
    fn new(source: &str, text: &str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            source: source.into(),
            line_starts: breaks.collect(),
            lines: !source.starts_with("--"),
        }
    }

    fn at(&self, offset: usize) -> Place {
        let line = self.line_starts.partition_point(|&start| start <= offset) + 1;
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        Place {
            source: self.source.clone(),
            line: if self.lines { line } else { 0 },
        }
    }
}

fn table(from: &DeTable<'_>, places: &Places) -> Table {
    let mut entries: Vec<_> = from.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry =
        |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| Entry {
            key: key.get_ref().to_string(),
            place: places.at(key.span().start),
            node: node(value, places),
        };
    Table(entries.into_iter().map(entry).collect())
}

fn node(from: &Spanned<DeValue<'_>>, places: &Places) -> Node {
    let value = match from.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Other(number.to_string()), Value::Whole),
        DeValue::Float(number) => Value::Other(number.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Other(date.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(|item| node(item, places)).collect()),
        DeValue::Table(inner) => Value::Table(table(inner, places)),
    };
    Node {
        value,
        place: places.at(from.span().start),
    }
}
