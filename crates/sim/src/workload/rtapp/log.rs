// SPDX-License-Identifier: GPL-2.0-only
//! What is found while a file is read: faults, which prevent it from being run, and notes.

use super::json::{Entry, Value};
use super::{Fault, Note};
use crate::workload::lexer::Place;
use corun_model::harmless;
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Faults and notes so far.
#[derive(Default)]
pub(super) struct Log {
    pub faults: Vec<Fault>,
    pub notes: Vec<Note>,
    /// What is there already: a file may be full of them.
    known: HashSet<Fault>,
    noted: HashSet<String>,
}

impl Log {
    pub fn fault(&mut self, at: Place, key: &str, message: impl Into<String>) {
        let (key, message) = (key.to_string(), message.into());
        let fault = Fault {
            line: at.line,
            column: at.column,
            key,
            message,
        };
        if self.known.insert(fault.clone()) {
            self.faults.push(fault);
        }
    }

    /// The event cannot be carried out; `kind` is what leaves it out.
    pub fn unsupported(&mut self, at: Place, key: &str, kind: &str, why: &str) {
        let way_out = format!("rt_app_ignore = [\"{kind}\"] leaves all {kind} events out");
        self.fault(at, key, format!("is not supported: {why}; {way_out}"));
    }

    /// Notes something, once for each key.
    pub fn note(&mut self, at: Place, key: &str, message: impl Into<String>) {
        if self.noted.insert(key.to_string()) {
            self.notes.push(Note {
                line: at.line,
                key: key.to_string(),
                message: message.into(),
            });
        }
    }
}

/// The keys of an object, with the path that leads to it.
pub(super) struct Object<'a> {
    pub path: String,
    pub at: Place,
    pub entries: &'a [Entry],
}

impl<'a> Object<'a> {
    /// The object that is the value of `entry`; anything else is a fault.
    pub fn of(entry: &'a Entry, path: String, log: &mut Log) -> Option<Self> {
        match &entry.node.value {
            Value::Object(entries) => Some(Self {
                path,
                at: entry.at,
                entries,
            }),
            other => {
                let found = format!("found {}, expected an object {{ … }}", other.show());
                log.fault(entry.node.at, &path, found);
                None
            }
        }
    }

    /// The path of a key, as a terminal may show it: keys may have any characters.
    pub fn key(&self, key: &str) -> String {
        let key: String = super::json::short(key).chars().map(harmless).collect();
        match self.path.is_empty() {
            true => key,
            false => format!("{}.{key}", self.path),
        }
    }

    /// The first entry with this key: workgen renames the others, so that rt-app does not see them.
    pub fn find(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Notes keys that are not among these, which rt-app ignores.
    pub fn note_others(&self, known: &[&str], log: &mut Log) {
        let others = self.entries.iter();
        for entry in others.filter(|entry| !known.contains(&entry.key.as_str())) {
            let message = format!("is passed over: accepted here are {}", known.join(", "));
            log.note(entry.at, &self.key(&entry.key), message);
        }
    }

    /// A whole number.
    pub fn whole(&self, key: &str, range: RangeInclusive<i64>, log: &mut Log) -> Option<i64> {
        whole(self.find(key)?, &self.key(key), range, log)
    }

    /// A text; `null` counts as none.
    pub fn text(&self, key: &str, log: &mut Log) -> Option<&'a str> {
        let entry = self.find(key)?;
        match &entry.node.value {
            Value::Null => None,
            _ => text(entry, &self.key(key), log),
        }
    }
}

/// The entry's value as a whole number.
pub(super) fn whole(
    entry: &Entry,
    key: &str,
    range: RangeInclusive<i64>,
    log: &mut Log,
) -> Option<i64> {
    match &entry.node.value {
        Value::Whole(number) if range.contains(number) => Some(*number),
        other => {
            let (low, high) = (range.start(), range.end());
            let found = other.show();
            let message = format!("found {found}, expected a whole number from {low} to {high}");
            log.fault(entry.node.at, key, message);
            None
        }
    }
}

/// The entry's value as a text that is not empty.
pub(super) fn text<'a>(entry: &'a Entry, key: &str, log: &mut Log) -> Option<&'a str> {
    match &entry.node.value {
        Value::Text(text) if !text.is_empty() => Some(text),
        other => {
            let message = format!("found {}, expected a name in double quotes", other.show());
            log.fault(entry.node.at, key, message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// A file may be a megabyte of them: comparing each with all before it would take minutes.
    #[test]
    fn many_faults_and_notes_are_found_in_no_time_and_each_once() {
        let began = Instant::now();
        let mut log = Log::default();
        for line in 1..=100_000 {
            let at = Place { line, column: 1 };
            for _ in 0..2 {
                log.fault(at, "tasks", "is wrong");
                log.note(at, &format!("tasks.{line}"), "is passed over");
            }
        }
        assert_eq!((log.faults.len(), log.notes.len()), (100_000, 100_000));
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
