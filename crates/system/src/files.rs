// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read at any time and that outlive a crash.
//!
//! What replaces a file has a fixed name beside it rather than a random one (as the crate `tempfile` would give):
//! a crash in between leaves one file to overwrite, not one more each time. It has the mode that the
//! umask gives, since status files and metrics are for other users, too.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Writes a file so that readers find the old one or the new one, never half of it.
///
/// # Errors
/// If it cannot be written; the old one is still there then.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    put(file, content, false)
}

/// As [`replace`], and what is found after a power failure is one of the two as well: for what must be taken
/// back by the next run.
///
/// # Errors
/// As [`replace`].
pub fn replace_durably(file: &Path, content: &[u8]) -> io::Result<()> {
    put(file, content, true)
}

fn put(file: &Path, content: &[u8], durably: bool) -> io::Result<()> {
    let beside = with_suffix(file, ".new");
    let mut new = File::create(&beside)?;
    new.write_all(content)?;
    if durably {
        new.sync_all()?;
    }
    fs::rename(&beside, file)
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file; that there is none is no failure.
///
/// # Errors
/// If it is there and stays.
pub fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// That nobody else works with a file: held until it is dropped, or its process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    _held: File,
}

impl Lock {
    /// Takes it for `file`, whose folder is made if need be; `None`: somebody else has it.
    ///
    /// # Errors
    /// If the file that is locked, beside `file`, cannot be made.
    pub fn take(file: &Path) -> io::Result<Option<Self>> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let held = File::create(file.with_extension("lock"))?;
        let taken = flock(&held, libc::LOCK_EX);
        Ok(taken.then_some(Self { _held: held }))
    }

    /// Does somebody have it?
    pub fn is_taken(file: &Path) -> bool {
        let lock = File::open(file.with_extension("lock"));
        lock.is_ok_and(|lock| !flock(&lock, libc::LOCK_SH))
    }
}

/// Locks a file for as long as it is open, if that is possible at once.
fn flock(file: &File, how: libc::c_int) -> bool {
    // SAFETY: an open descriptor and a constant.
    unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        for (put, text) in [
            (replace as fn(&Path, &[u8]) -> _, "long before"),
            (replace_durably, "after"),
        ] {
            put(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Others may read what is for them, unless the umask says otherwise.
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&plain));
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        replace(&file, b"old").unwrap();
        // In the way of what replaces it.
        fs::create_dir(folder.path().join("state.new")).unwrap();
        assert!(replace(&file, b"new").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"old");
    }

    #[test]
    fn removing_what_is_not_there_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state");
        replace(&file, b"").unwrap();
        remove(&file).unwrap();
        assert!(!file.exists());
        remove(&file).unwrap();
        assert!(remove(folder.path()).is_err(), "a folder is no file");
    }

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/state.json");
        assert!(!Lock::is_taken(&file));
        let lock = Lock::take(&file).unwrap().unwrap();
        assert!(Lock::is_taken(&file));
        assert!(Lock::take(&file).unwrap().is_none());
        drop(lock);
        assert!(!Lock::is_taken(&file));
        assert!(Lock::take(&file).unwrap().is_some());
    }
}
