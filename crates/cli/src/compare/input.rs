// SPDX-License-Identifier: GPL-2.0-only
//! What kind of input a file is: recognised by its content, not by its name.

use crate::failure::Invalid;
use corun_scenario::Located;
use corun_scenario::limits::FILE_BYTES;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// An input that can be compared under policies.
pub enum Input {
    /// A modelled host.
    Scenario {
        /// The file as the user named it.
        name: String,
        /// Its text.
        text: String,
    },
    /// A recorded host; recordings may be large, so its reader reads it.
    Recording(Unread),
}

/// A file that is open, with none of its content lost: it may be a pipe, which can be read only once.
pub struct Unread {
    /// The file as the user named it.
    pub name: String,
    /// How long it is; 0 if that is not known.
    pub bytes: u64,
    /// What is in it.
    pub source: Box<dyn Read>,
}

/// As much of a file as recognising it takes.
const HEAD: u64 = 64 * 1024;
/// What gzip'ed files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What stands for the standard input.
const STDIN: &str = "-";

/// Finds out what the file is, or what comes from the standard input.
///
/// # Errors
/// If it cannot be read.
pub fn open(path: &Path) -> anyhow::Result<Input> {
    let Unread {
        name,
        bytes,
        mut source,
    } = opened(path)?;
    let refuse = |error: io::Error| Invalid::error(unreadable(&name, &error));
    let mut head = Vec::new();
    let mut beginning = source.by_ref().take(HEAD);
    beginning.read_to_end(&mut head).map_err(refuse)?;
    if head.starts_with(&GZIP) && name.ends_with(".toml.gz") {
        let message = format!("{name}: scenarios are not read packed; unpack it first (gunzip)");
        return Err(Invalid::error(message));
    }
    if is_scenario(path, &head) {
        let most = (FILE_BYTES as u64 + 1).saturating_sub(head.len() as u64);
        source.take(most).read_to_end(&mut head).map_err(refuse)?;
        let text = in_utf8(&name, head).map_err(Invalid::error)?;
        return Ok(Input::Scenario { name, text });
    }
    Ok(Input::Recording(Unread {
        name,
        bytes,
        source: Box::new(Cursor::new(head).chain(source)),
    }))
}

fn opened(path: &Path) -> anyhow::Result<Unread> {
    if path == Path::new(STDIN) {
        return Ok(Unread {
            name: "standard input".to_string(),
            bytes: 0,
            source: Box::new(io::stdin()),
        });
    }
    let name = path.display().to_string();
    let refuse = |error: io::Error| Invalid::error(unreadable(&name, &error));
    let file = File::open(path).map_err(refuse)?;
    let bytes = file.metadata().map_err(refuse)?.len();
    Ok(Unread {
        name,
        bytes,
        source: Box::new(file),
    })
}

/// Why a file cannot be read.
fn unreadable(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => format!("{name}: this is a directory, expected a file"),
        _ => format!("{name}: {error}"),
    }
}

/// The file that is read where `path` is named: the standard input has a path of its own.
pub fn place(path: &Path) -> &Path {
    match path == Path::new(STDIN) {
        true => Path::new("/dev/stdin"),
        false => path,
    }
}

/// The file that a scenario names. It is relative to the scenario's folder; if it is named on the command line, or the
/// scenario came from a pipe of the shell's or the standard input, to where the command runs.
pub fn named(file: &Located<String>) -> PathBuf {
    let by = &*file.place.source;
    let folder = match by.starts_with("/dev/") {
        true => None,
        false => Path::new(by).parent(),
    };
    folder.unwrap_or(Path::new("")).join(&file.value)
}

/// The text of a file in TOML: all of it, or enough for its reader to refuse it as too long.
///
/// # Errors
/// Where and why it cannot be read, or is not text.
pub fn text(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let most = FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(&name, &error))?;
    in_utf8(&name, bytes)
}

/// What is to be read as TOML, as text; `name` is the file's.
///
/// # Errors
/// Where it is not UTF-8.
pub fn in_utf8(name: &str, bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let (line, byte) = first_strange(&error);
        let what = encoding(error.as_bytes());
        format!("{name}:{line}: byte {byte} of the file is not UTF-8{what}: expected TOML")
    })
}

/// What the file is instead of UTF-8, if its mark says so: PowerShell and Notepad may write that.
fn encoding(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => " but UTF-16, which an editor saves as UTF-8",
        _ => "",
    }
}

/// The line and the column of the first byte that is not UTF-8.
pub(super) fn first_strange(error: &FromUtf8Error) -> (usize, usize) {
    let at = error.utf8_error().valid_up_to();
    let before = error.as_bytes().iter().take(at);
    (1 + before.filter(|byte| **byte == b'\n').count(), at)
}

fn is_scenario(path: &Path, head: &[u8]) -> bool {
    let named_so = path
        .extension()
        .is_some_and(|extension| extension == "toml");
    let text = String::from_utf8_lossy(head);
    let looks_so = || {
        // `cpus=2` and `version = 7` would be keys of a scenario, too, and `[kthread]` a table.
        let rest = corun_recording::behind_headers(&text);
        rest.is_some_and(corun_scenario::looks_like_scenario)
    };
    !head.starts_with(&GZIP) && (named_so || looks_so())
}
