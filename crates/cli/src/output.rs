// SPDX-License-Identifier: GPL-2.0-only
//! Standard output and error. A reader that has gone (`corun … | head`) is no failure.

use serde::Serialize;
use std::io::{self, Write};

/// Writes results.
///
/// # Errors
/// If they cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes results as one JSON value.
///
/// # Errors
/// As [`print`].
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a line for people beside the results; where nobody reads it, it is lost.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes why the command failed.
pub fn error(error: &anyhow::Error) {
    note(&format!("corun: {error:#}"));
}

/// Did the command fail only because nobody reads its output any more?
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Columns of the terminal, 80 where there is none.
pub fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok();
    columns.and_then(|text| text.parse().ok()).unwrap_or(80)
}
