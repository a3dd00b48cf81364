// SPDX-License-Identifier: GPL-2.0-only
//! What is to be known about a check: text, with numbers of ours in it, such as `corun's balance gives {balance:0.0}`.
//!
//! A number that is typed into a note is that of the day on which it was typed. One that is named is taken from the
//! runs that the verdict is taken from, and is as new as that.

use crate::reproduce::formula::Number;
use crate::reproduce::seen::Seen;
use corun_report::tables::{Cell, Format};
use corun_scenario::or_nearest;

/// A note.
#[derive(Debug, Default)]
pub struct Note {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
enum Part {
    Text(String),
    /// A name that formulas have, and how its number is written.
    Number(Number, Format),
}

impl Note {
    /// Reads one that may use these names.
    ///
    /// # Errors
    /// What was found in braces and what was expected.
    pub fn parse(text: &str, names: &[String]) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (inner, after) = after.split_once('}').ok_or_else(|| {
                format!("found \"{{{after}\", expected a name and '}}', as in \"{{gain:0.0}}\"")
            })?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(number(inner, names)?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self { parts })
    }

    /// The note with its numbers: medians over the seeds, or means, as the check takes them.
    pub fn filled(&self, seen: &Seen<'_>) -> String {
        let show = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Number(number, format) => {
                let spread = seen.spread(&seen.each(number));
                Cell::new(spread, format, false).shown
            }
        };
        self.parts.iter().map(show).collect()
    }

    /// Is nothing to be known?
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How it begins, up to the first number.
    #[cfg(test)]
    pub fn begins(&self) -> &str {
        match self.parts.first() {
            Some(Part::Text(text)) => text,
            _ => "",
        }
    }
}

/// `NAME:EXAMPLE`, as it stands in braces.
fn number(inner: &str, names: &[String]) -> Result<Part, String> {
    let (name, example) = inner.split_once(':').ok_or_else(|| {
        format!("found {{{inner}}}, expected a name, ':' and an example, as in \"{{gain:0.0}}\"")
    })?;
    if !names.iter().any(|known| known == name) {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(format!(
            "unknown name {name:?}, {}",
            or_nearest(name, &known)
        ));
    }
    let format = example.parse().map_err(|_| {
        let expected = Format::EXPECTED;
        format!("{{{inner}}}: found {example:?}, expected {expected}")
    })?;
    Ok(Part::Number(Number::Name(name.to_owned()), format))
}
