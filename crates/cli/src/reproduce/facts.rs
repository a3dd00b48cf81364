// SPDX-License-Identifier: GPL-2.0-only
//! Claims about rules and constants: functions that look whether corun does so.

use corun_scenario::or_nearest;

/// What was looked at, and whether it is as claimed.
pub struct Seen {
    /// What corun does, in words.
    pub ours: String,
    /// Is it what the paper says?
    pub equal: bool,
}

/// A function that looks.
pub struct Fact {
    /// Its name in files of checks.
    pub name: &'static str,
    /// Looks.
    pub look: fn() -> Seen,
}

/// All there are.
pub const ALL: &[Fact] = &[];

/// The function of this name.
///
/// # Errors
/// What is accepted.
pub fn find(name: &str) -> Result<&'static Fact, String> {
    ALL.iter().find(|fact| fact.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|fact| fact.name).collect();
        format!("found {name:?}, {}", or_nearest(name, &names))
    })
}
