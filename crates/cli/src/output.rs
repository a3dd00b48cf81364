// SPDX-License-Identifier: GPL-2.0-only
//! Standard output and error. A reader that has gone (`corun … | head`) is no failure.

use anyhow::Context;
use corun_system::closed;
use ratatui::crossterm::terminal;
use serde::Serialize;
use std::io::{self, IsTerminal, Stdout, Write};
use std::process::ExitCode;

/// Writes results.
///
/// # Errors
/// If they cannot be written.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = stdout()?.lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context(CANNOT)
}

/// The standard output.
///
/// # Errors
/// If there is none.
pub fn stdout() -> anyhow::Result<Stdout> {
    let there = match closed::stdout_was() {
        true => Err(io::Error::other("it is closed")),
        false => Ok(io::stdout()),
    };
    there.context(CANNOT)
}

/// What could not be done.
const CANNOT: &str = "cannot write to the standard output";

/// Writes results as one JSON value.
///
/// # Errors
/// As [`print`].
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a line for people besides the results; if nobody reads it, it is lost.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes why the command failed.
pub fn error(error: &anyhow::Error) {
    note(&format!("corun: {error:#}"));
}

/// Prints help, or what is wrong with a command line. Returns the exit code: help that cannot be
/// printed is a failure, as results are.
pub fn usage(told: &clap::Error) -> ExitCode {
    let there = if told.use_stderr() {
        Ok(())
    } else {
        stdout().map(drop)
    };
    let print = || told.print().and_then(|()| io::stdout().flush());
    let printed = there.and_then(|()| print().context(CANNOT));
    match printed {
        Err(why) if !reader_is_gone(&why) => {
            error(&why);
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2)),
    }
}

/// Did the command fail only because nobody reads its output any longer?
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Columns of the terminal that results go to; none if they go elsewhere, so that programs find whole lines.
pub fn known_width() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|text| text.parse().ok());
    said.or_else(asked).filter(|columns| *columns > 0)
}

/// Columns of the terminal that results go to, 80 if they go elsewhere. `COLUMNS` takes precedence, but shells do not
/// export it.
pub fn width() -> u16 {
    known_width().unwrap_or(80)
}

/// Text with its lines broken for the terminal, if it goes to one.
pub fn wrapped(text: String) -> String {
    match known_width() {
        Some(width) => corun_report::paragraphs(&text, width),
        None => text,
    }
}

/// What the terminal says.
fn asked() -> Option<u16> {
    let there = io::stdout().is_terminal();
    there.then(terminal::size)?.ok().map(|(columns, _)| columns)
}
