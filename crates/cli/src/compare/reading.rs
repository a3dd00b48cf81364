// SPDX-License-Identifier: GPL-2.0-only
//! Reading a recording: as text, hours of a busy host are gigabytes, which take minutes.

use super::progress::target;
use crate::failure::Invalid;
use corun_recording::{Import, ImportError};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::path::Path;

/// Smaller files are read in a moment.
const LARGE: u64 = 16 << 20;

/// Reads a recording; on a terminal with a bar if it is large, unless `quiet`.
///
/// # Errors
/// [`Invalid`] if it cannot be read or is none.
pub fn read(path: &Path, quiet: bool) -> anyhow::Result<Import> {
    let name = path.display().to_string();
    let io = |source| {
        let file = name.clone();
        Invalid::error(ImportError::Io { file, source })
    };
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let bar = bar(bytes, quiet);
    let import = corun_recording::read_from(&name, bar.wrap_read(file));
    bar.finish_and_clear();
    import.map_err(Invalid::error)
}

fn bar(bytes: u64, quiet: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(bytes), target(bytes >= LARGE && !quiet));
    let style = ProgressStyle::with_template("reading {wide_bar} {percent:>3} % {eta:>4} left");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_no_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.corun");
        let said = |path: &Path| read(path, true).unwrap_err().to_string();
        assert!(said(&path).contains("host.corun"), "{}", said(&path));
        std::fs::write(&path, "no recording\n").unwrap();
        assert!(said(&path).contains("host.corun"), "{}", said(&path));
    }
}
