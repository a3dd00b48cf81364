// SPDX-License-Identifier: GPL-2.0-only
//! What keeps a host safe from its scheduler, beyond what the kernel's watchdog sees.
//!
//! The kernel throws out a scheduler that leaves a task waiting for 5 s, and goes back to its own when
//! the daemon's process ends. [`guard`] is for what it does not see: a promise that is broken although
//! everybody runs now and then; the daemon then hands the host back and says why. [`runs`] remembers
//! how runs ended: one that keeps failing is not started again and again. [`postmortem`] writes down
//! what there was to know when a run ended. What becomes of a daemon that hangs is the dispatcher's
//! business (dispatcher/platform/lease.h).

pub mod guard;
pub mod postmortem;
pub mod pressure;
pub mod runs;

pub use guard::{Breach, Limits};

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Where runs are remembered unless one is told otherwise.
pub const STATE_DIR: &str = "/var/lib/corun";

/// The most that is read of a file that [`write_whole`] wrote.
const MOST: u64 = 64 << 20;

/// Makes sure that what is called so is a file, if there is anything: names are options, and a file in the
/// place of `/dev/null` breaks a host.
///
/// # Errors
/// If it is something else.
pub fn only_files(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is no file, and will not be replaced by one",
        )),
        _ => Ok(()),
    }
}

/// Reads such a file.
pub(crate) fn read_whole(file: &Path) -> io::Result<Vec<u8>> {
    only_files(file)?;
    let mut text = Vec::new();
    fs::File::open(file)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

/// Writes a file so that readers find the old one or the new one, never half of it.
///
/// # Errors
/// If it cannot be written, or is no file.
pub(crate) fn write_whole(file: &Path, text: &[u8]) -> io::Result<()> {
    only_files(file)?;
    let beside = file.with_extension("new");
    let mut new = fs::File::create(&beside)?;
    new.write_all(text)?;
    new.sync_all()?;
    fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [link.as_path(), place.path()] {
            assert!(write_whole(path, b"text").is_err());
            assert!(read_whole(path).is_err());
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let file = place.path().join("file");
        write_whole(&file, b"one").unwrap();
        write_whole(&file, b"two").unwrap();
        assert_eq!(read_whole(&file).unwrap(), b"two");
    }
}
