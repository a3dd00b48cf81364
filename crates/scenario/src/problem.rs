// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with a scenario, and where.

use corun_model::harmless;
use std::fmt::{self, Write};
use std::sync::Arc;

/// Where something was written: a line of a file, or an option of the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file's name as the user gave it, or the option.
    pub source: Arc<str>,
    /// Line, counted from 1; 0 if the source has no lines.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

/// A value that is checked later, with what a message about it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its dotted key, such as `vm.web.workload`.
    pub key: String,
    /// Where it was written.
    pub place: Place,
}

impl<T> Located<T> {
    /// A problem with this value.
    pub fn problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            place: self.place.clone(),
            key: self.key.clone(),
            message: message.into(),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub place: Place,
    /// The dotted key; empty if no key is concerned.
    pub key: String,
    /// What was found and what is accepted.
    pub message: String,
}

impl Problem {
    /// A problem that no line of the scenario causes.
    pub fn nowhere(message: impl Into<String>) -> Self {
        Self {
            place: Place {
                source: "scenario".into(),
                line: 0,
            },
            key: String::new(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.is_empty() {
            true => write!(f, "{}: ", self.place)?,
            false => write!(f, "{}: {}: ", self.place, self.key)?,
        }
        // Among what is accepted are names that the scenario gives, whatever is in them.
        let shown = |c| if c == '\n' { c } else { harmless(c) };
        self.message
            .chars()
            .map(shown)
            .try_for_each(|c| f.write_char(c))
    }
}

/// Everything that is wrong, in the order of the places; never empty when it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Problems {
    first: Vec<Problem>,
    more: usize,
}

impl Problems {
    /// More are counted, not kept: the first ones are the ones to fix.
    const KEPT: usize = 20;

    /// Adds a problem, unless exactly this one is known: cases share most of their document.
    pub fn push(&mut self, problem: Problem) {
        if self.first.contains(&problem) {
            return;
        }
        match self.first.len() < Self::KEPT {
            true => self.first.push(problem),
            false => self.more += 1,
        }
    }

    /// The value, if there is one; otherwise adds what is wrong.
    pub fn take<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        let found = result.map_err(Into::into);
        if let Err(found) = &found {
            found.iter().for_each(|problem| self.push(problem.clone()));
        }
        found.ok()
    }

    /// The first problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.first.iter()
    }

    /// `value` if there is no problem.
    ///
    /// # Errors
    /// The problems, sorted by place.
    pub fn or_ok<T>(mut self, value: T) -> Result<T, Self> {
        if self.first.is_empty() {
            return Ok(value);
        }
        self.first.sort_by(|a, b| a.place.cmp(&b.place));
        Err(self)
    }

    fn lines(&self) -> String {
        let mut lines: Vec<String> = self.first.iter().map(Problem::to_string).collect();
        if self.more > 0 {
            lines.push(format!("… and {} more", self.more));
        }
        lines.join("\n")
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self {
            first: vec![problem],
            more: 0,
        }
    }
}
