// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a recorded host.

use super::Args;
use crate::failure::Invalid;
use crate::output;
use corun_report::{Comparison, html};
use std::path::Path;

/// Reads the recording and replays its demand under each policy.
///
/// # Errors
/// [`Invalid`] if the file is no usable recording.
pub fn compare(args: &Args, path: &Path) -> anyhow::Result<(Comparison, html::About)> {
    let import = corun_recording::read(path).map_err(Invalid::error)?;
    if !args.quiet {
        import
            .notes
            .iter()
            .for_each(|note| output::note(&note.to_string()));
    }
    anyhow::bail!(
        "{}: recordings cannot be replayed by this version yet",
        path.display()
    )
}
