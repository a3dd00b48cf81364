// SPDX-License-Identifier: GPL-2.0-only
//! Reads a file from its first byte to the finished recording: recognises its form and hands it on.

use crate::error::ImportError;
use crate::model::Recording;
use crate::native;
use crate::note::Note;
use crate::perfetto;
use crate::text::{self, foreign, input};
use std::io::Read;

/// A recording and what there is to know about how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The recording.
    pub recording: Recording,
    /// What was skipped, repaired or guessed; empty if nothing was.
    pub notes: Vec<Note>,
}

/// Reads a recording from anything that can be read; `file` is its name in messages.
pub(crate) fn import(file: &str, source: impl Read) -> Result<Import, ImportError> {
    let unpacked = input::open(source).map_err(|source| ImportError::Io {
        file: file.to_string(),
        source,
    })?;
    if unpacked.head().starts_with(&native::MAGIC) {
        return native::import::import(file, unpacked);
    }
    if perfetto::looks_like(unpacked.head()) {
        return perfetto::import(file, unpacked);
    }
    if let Some(foreign::Foreign { what, remedy }) = foreign::recognise(unpacked.head()) {
        return Err(ImportError::Foreign {
            file: file.to_string(),
            what,
            remedy,
        });
    }
    text::import::import(file, unpacked)
}
