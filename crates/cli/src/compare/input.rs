// SPDX-License-Identifier: GPL-2.0-only
//! What kind of input a file is: told by its content, not by its name.

use crate::failure::Invalid;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// An input that can be compared under policies.
#[derive(Debug)]
pub enum Input {
    /// A modelled host.
    Scenario {
        /// The file as the user named it.
        name: String,
        /// Its text.
        text: String,
    },
    /// A recorded host; recordings may be large, so its reader opens it.
    Recording {
        /// The file.
        path: PathBuf,
    },
}

/// As much of a file as it takes to tell.
const HEAD: u64 = 64 * 1024;
/// What gzip'ed files begin with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Finds out what the file is.
///
/// # Errors
/// If it cannot be read.
pub fn open(path: &Path) -> anyhow::Result<Input> {
    let name = path.display().to_string();
    let refuse = |error: std::io::Error| Invalid::error(format!("{name}: {error}"));
    let mut head = Vec::new();
    let file = File::open(path).map_err(refuse)?;
    // It is opened again by whoever reads it; a pipe would have lost its beginning by then.
    if file.metadata().map_err(refuse)?.file_type().is_fifo() {
        return Err(Invalid::error(format!(
            "{name}: this is a pipe, which can be read only once: expected a file"
        )));
    }
    file.take(HEAD).read_to_end(&mut head).map_err(refuse)?;
    if !is_scenario(path, &head) {
        return Ok(Input::Recording { path: path.into() });
    }
    let text = text(path).map_err(Invalid::error)?;
    Ok(Input::Scenario { name, text })
}

/// The text of a file in TOML: all of it, or enough for its reader to refuse it as too long.
///
/// # Errors
/// Where and why it cannot be read, or is no text.
pub fn text(path: &Path) -> Result<String, String> {
    let name = path.display();
    let most = corun_scenario::limits::FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read.map_err(|error| format!("{name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let (line, byte) = first_strange(&error);
        format!("{name}:{line}: byte {byte} of the file is not UTF-8: expected TOML")
    })
}

/// The line and the place of the first byte that is not UTF-8.
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
    !head.starts_with(&GZIP) && (named_so || corun_scenario::looks_like_scenario(&text))
}
