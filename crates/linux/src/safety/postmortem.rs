// SPDX-License-Identifier: GPL-2.0-only
//! What was known when a run ended: in `last-exit.json`, for the run before in `previous-exit.json`.
//!
//! Written after every end, good or bad; for a daemon that was killed, by the next one.

use super::runs::{End, Run};
use super::{Breach, Limits};
use crate::loader::ExitInfo;
use crate::stats::Stats;
use corun_system::files;
use corun_system::procfs::Proc;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::{fs, io};

/// Its name.
const LAST: &str = "last-exit.json";

/// The last thing a run leaves.
#[derive(Clone, Debug, Serialize)]
pub struct PostMortem<'a> {
    /// How it ended; `None`: it was killed and did not say.
    pub end: Option<End>,
    /// Why, in a sentence.
    pub why: &'a str,
    /// When it began and ended, s since 1970.
    pub run: Option<&'a Run>,
    /// corun's version.
    pub version: &'static str,
    /// The kernel's.
    pub kernel: String,
    /// The policy in force at the end.
    pub policy: Option<&'a str>,
    /// What the kernel says.
    pub kernel_says: Option<&'a ExitInfo>,
    /// The promise that was broken.
    pub breach: Option<&'a Breach>,
    /// What was promised.
    pub limits: Option<Limits>,
    /// Findings that were forced at the start.
    pub forced: &'a [String],
    /// How often the dispatcher fell back to fair order because the daemon hung.
    pub lapses: u64,
    /// The last statistics.
    pub last: Option<&'a Stats>,
}

impl Default for PostMortem<'_> {
    /// For a run about which nothing else is known, by this corun on this kernel.
    fn default() -> Self {
        Self {
            end: None,
            why: "",
            run: None,
            version: env!("CARGO_PKG_VERSION"),
            kernel: Proc::default().release().unwrap_or_default(),
            policy: None,
            kernel_says: None,
            breach: None,
            limits: None,
            forced: &[],
            lapses: 0,
            last: None,
        }
    }
}

impl PostMortem<'_> {
    /// Of a run that did not live to write one.
    pub fn of_the_dead(run: &Run) -> PostMortem<'_> {
        PostMortem {
            why: "the daemon was killed, or the host died: it did not say",
            run: Some(run),
            ..PostMortem::default()
        }
    }

    /// Is it of this run, which did not live to write one, that the last one was written?
    pub fn is_written_of(dead: &Run, folder: &Path) -> bool {
        let text = files::read_own(&folder.join(LAST)).ok().flatten();
        let known = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let run = known.and_then(|known| serde_json::from_value(known["run"].clone()).ok());
        run.as_ref() == Some(dead)
    }

    /// Writes it into a directory.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let last = folder.join(LAST);
        match fs::rename(&last, folder.join("previous-exit.json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        files::replace_durably(&last, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run {
            began: 1,
            pid: 2,
            start: 3,
            boot: "b".into(),
            end: None,
            ended: None,
        };
        assert!(!PostMortem::is_written_of(&run, folder.path()));
        for why in ["first", "second", "third"] {
            let last = PostMortem {
                why,
                ..PostMortem::of_the_dead(&run)
            };
            last.write(folder.path()).unwrap();
        }
        let why = |file: &str| {
            let text = fs::read(folder.path().join(file)).unwrap();
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
            json["why"].as_str().unwrap().to_string()
        };
        assert_eq!(why("last-exit.json"), "third");
        assert_eq!(why("previous-exit.json"), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(PostMortem::is_written_of(&run, folder.path()));
        let other = Run { began: 2, ..run };
        assert!(!PostMortem::is_written_of(&other, folder.path()));
    }
}
