// SPDX-License-Identifier: GPL-2.0-only
//! One daemon at a time: a lock beside the file that it works with.
//!
//! flock() takes no right to write. If everybody could open the lock's file, any user could hold the lock, and so keep
//! a daemon, or a command that cleans up after a killed one, from starting. Those who may not open the file look
//! into /proc/locks instead.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// That nobody else works with a file: held until it is dropped, or its process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    _held: File,
}

impl Lock {
    /// Takes it for `file`, whose folder is made if need be; `None`: somebody else has it.
    ///
    /// # Errors
    /// If `file` is no file, or the one that is locked, beside it, cannot be made.
    pub fn take(file: &Path) -> io::Result<Option<Self>> {
        super::spare_others(file)?;
        let beside = beside(file);
        if beside == file {
            let error = "names that end in .lock are for files beside others: take another name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let held = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(beside)?;
        // A daemon before may have made one that everybody may open.
        held.set_permissions(Permissions::from_mode(0o600))?;
        let taken = flock(&held, libc::LOCK_EX)?;
        Ok(taken.then_some(Self { _held: held }))
    }

    /// Does somebody have it?
    pub fn is_taken(file: &Path) -> bool {
        let beside = beside(file);
        match File::open(&beside) {
            Ok(lock) => !flock(&lock, libc::LOCK_SH).unwrap_or(true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let held = fs::read_to_string("/proc/locks").unwrap_or_default();
                fs::metadata(&beside).is_ok_and(|about| is_among(&held, about.dev(), about.ino()))
            }
            Err(_) => false,
        }
    }
}

fn beside(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

/// Locks a file for as long as it is open, if that is possible at once. Returns whether.
fn flock(file: &File, how: libc::c_int) -> io::Result<bool> {
    // SAFETY: an open descriptor and constants.
    match unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// Is a file with this number, on this device, among those that /proc/locks lists (man 5 proc_locks)?
fn is_among(held: &str, device: u64, number: u64) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let wanted = format!("{major:02x}:{minor:02x}:{number}");
    let is = |line: &str| line.contains("FLOCK") && line.split(' ').any(|word| word == wanted);
    held.lines().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn nobody_else_may_hold_it_and_everybody_may_see_that_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        fs::write(beside(&file), "").unwrap();
        fs::set_permissions(beside(&file), Permissions::from_mode(0o644)).unwrap();
        let _held = Lock::take(&file).unwrap().unwrap();
        let about = fs::metadata(beside(&file)).unwrap();
        assert_eq!(about.mode() & 0o777, 0o600);
        // On some file systems /proc/locks has another device: on those of /run it has not.
        let line = |kind| {
            let (major, minor) = (libc::major(about.dev()), libc::minor(about.dev()));
            let number = about.ino();
            format!("3: {kind}  ADVISORY  WRITE 7 {major:02x}:{minor:02x}:{number} 0 EOF\n")
        };
        assert!(is_among(&line("FLOCK"), about.dev(), about.ino()));
        assert!(!is_among(&line("POSIX"), about.dev(), about.ino()));
        assert!(!is_among(&line("FLOCK"), about.dev(), about.ino() + 1));
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let [file, victim] = ["state.json", "victim"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, beside(&file)).unwrap();
        assert!(Lock::take(&file).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_file_has_another_name_than_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Lock::take(&folder.path().join("s.lock")).unwrap_err();
        assert!(refused.to_string().contains("another name"), "{refused}");
    }
}
