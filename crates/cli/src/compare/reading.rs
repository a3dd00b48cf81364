// SPDX-License-Identifier: GPL-2.0-only
//! Reading a recording: as text, hours of a busy host are gigabytes, which take minutes.

use super::input::Unread;
use super::progress::target;
use crate::failure::Invalid;
use corun_recording::Import;
use indicatif::{ProgressBar, ProgressStyle};

/// Smaller files are read in no time.
const LARGE: u64 = 16 << 20;

/// Reads a recording; on a terminal with a bar if it is large, unless `quiet`. `besides` is what the command takes
/// besides recordings, if anything: the message says so if the file is neither.
///
/// # Errors
/// [`Invalid`] if it cannot be read or is no recording.
pub fn read(recording: Unread, besides: Option<&str>, quiet: bool) -> anyhow::Result<Import> {
    let bar = bar(recording.bytes, quiet);
    let import = corun_recording::read_from(&recording.name, bar.wrap_read(recording.source));
    bar.finish_and_clear();
    import.map_err(|error| match besides {
        Some(besides) if error.is_something_else() => {
            Invalid::error(format!("{error}; and {besides}"))
        }
        _ => Invalid::error(error),
    })
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
    fn what_is_no_recording_is_named() {
        let unread = Unread {
            name: "host.corun".to_string(),
            bytes: 0,
            source: Box::new(&b"no recording\n"[..]),
        };
        let said = read(unread, Some("scenarios"), true)
            .unwrap_err()
            .to_string();
        assert!(said.starts_with("host.corun: "), "{said}");
        assert!(said.ends_with("; and scenarios"), "{said}");
    }
}
