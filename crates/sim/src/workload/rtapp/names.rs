// SPDX-License-Identifier: GPL-2.0-only
//! Names of the workload language for rt-app's, which may have any character and length.

use crate::workload::LONGEST_NAME;
use crate::workload::parser::KEYWORDS;
use std::collections::{BTreeMap, BTreeSet};

/// Names given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Names {
    /// The name for `raw`: `raw` itself if it is a valid name and not very long, else a unique one that resembles it.
    pub fn of(&mut self, raw: &str) -> String {
        if let Some(name) = self.given.get(raw) {
            return name.clone();
        }
        let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let mut name: String = raw
            .chars()
            .map(|c| if fine(c) { c } else { '_' })
            // Room for a number.
            .take(LONGEST_NAME - 8)
            .collect();
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || KEYWORDS.contains(&name.as_str()) {
            name.insert(0, '_');
        }
        let stem = name.clone();
        let mut number = 1;
        while !self.used.insert(name.clone()) {
            number += 1;
            name = format!("{stem}_{number}");
        }
        self.given.insert(raw.into(), name.clone());
        name
    }
}
