// SPDX-License-Identifier: GPL-2.0-only
//! What things may be called: names that results list, terminals show, and programs, options and other sections use.

use crate::problem::Problem;
use crate::reader::Reader;
use crate::tree::Entry;

/// Longest name of a VM, device and the like: it must fit a column of a table.
const LONGEST: usize = 40;
/// Longest name of a case: it must fit a line.
const LONGEST_OF_CASES: usize = 80;

/// Checks the name of a VM, device, client, channel, group or host task, whose table this is.
pub(crate) fn check(table: &Reader<'_>, name: &str) {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_. ".contains(c);
    if !fits(name, LONGEST) || !name.chars().all(fine) {
        let expected = format!(
            "a name of 1 to {LONGEST} letters, digits, '-', '_', '.' and, not at its ends, spaces"
        );
        table.problem_here(format!("found {name:?}, expected {expected}"));
    }
}

/// Checks the name of a case.
///
/// # Errors
/// If it is not accepted; says what it should be.
pub(crate) fn check_case(case: &Entry) -> Result<(), Problem> {
    let name = &case.key;
    if fits(name, LONGEST_OF_CASES) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!(
        "expected a name of 1 to {LONGEST_OF_CASES} characters, none of them a control character, and no space \
         at its ends"
    );
    Err(Problem {
        place: case.place.clone(),
        key: format!("case.{name:?}"),
        message,
    })
}

fn fits(name: &str, longest: usize) -> bool {
    !name.is_empty() && name.chars().count() <= longest && name.trim() == name
}
