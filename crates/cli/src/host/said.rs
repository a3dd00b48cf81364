// SPDX-License-Identifier: GPL-2.0-only
//! Who gave an option: the command line, or a line of the file. Messages name what somebody has written.

use super::config::options;
use crate::failure::Invalid;
use clap::ArgMatches;
use clap::parser::ValueSource;
use corun_scenario::Place;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The options that were given, by their long names.
pub(super) struct Said {
    matches: ArgMatches,
    /// Where the file gives an option, for those that it gives.
    lines: BTreeMap<String, Place>,
}

impl Said {
    /// All of it on the command line.
    pub(super) fn on_the_line(matches: &ArgMatches) -> Self {
        Self::with_lines(matches.clone(), BTreeMap::new())
    }

    /// Some of it in a file, in these `lines`.
    pub(super) fn with_lines(matches: ArgMatches, lines: BTreeMap<String, Place>) -> Self {
        Self { matches, lines }
    }

    /// Was this one given?
    pub(super) fn has(&self, long: &str) -> bool {
        let command = options();
        let mut known = command.get_arguments();
        let arg = known.find(|arg| arg.get_long() == Some(long));
        let source = arg.and_then(|arg| self.matches.value_source(arg.get_id().as_str()));
        source == Some(ValueSource::CommandLine)
    }

    /// Says that an option is refused.
    pub(super) fn refuse(&self, long: &str, why: impl Display) -> anyhow::Error {
        match self.lines.get(long) {
            Some(place) => Invalid::error(format!("{place}: {long}: {why}")),
            None => Invalid::error(format!("--{long}: {why}")),
        }
    }

    /// The same for several, all at once: lines in their order, after what the command line gives.
    pub(super) fn refuse_all(&self, mut wrong: Vec<(&str, String)>) -> anyhow::Error {
        wrong.sort_by_key(|(long, _)| self.lines.get(*long));
        let each = wrong.iter().map(|(long, why)| self.refuse(long, why));
        let lines: Vec<String> = each.map(|error| error.to_string()).collect();
        Invalid::error(lines.join("\n"))
    }
}
