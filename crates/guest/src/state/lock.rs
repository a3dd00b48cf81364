// SPDX-License-Identifier: GPL-2.0-only
//! One daemon at a time: a lock beside the state file.
//!
//! flock() takes no right to write. Were the lock's file one that everybody may open, any user of the guest could
//! hold it, and neither a daemon nor `corun guest restore` could begin. Who may not open it looks into /proc/locks.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn file_of(state: &Path) -> PathBuf {
    state.with_extension("lock")
}

/// The lock, as long as it is kept; `None`: a daemon has it.
pub(super) fn take(state: &Path) -> io::Result<Option<File>> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(file_of(state))?;
    // A daemon before may have made one that everybody may open.
    lock.set_permissions(Permissions::from_mode(0o600))?;
    Ok(flock(&lock, libc::LOCK_EX).then_some(lock))
}

fn flock(lock: &File, how: libc::c_int) -> bool {
    // SAFETY: a descriptor of ours and constants; the lock goes with the descriptor.
    unsafe { libc::flock(lock.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

/// Is a daemon at work with this state file?
pub(crate) fn is_held(state: &Path) -> bool {
    let file = file_of(state);
    match File::open(&file) {
        Ok(lock) => !flock(&lock, libc::LOCK_SH),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let held = fs::read_to_string("/proc/locks").unwrap_or_default();
            fs::metadata(&file).is_ok_and(|about| is_among(&held, about.dev(), about.ino()))
        }
        Err(_) => false,
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
    fn nobody_else_may_hold_it_and_everybody_may_see_that_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("guest.json");
        let file = file_of(&state);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let held = take(&state).unwrap();
        assert!(held.is_some() && take(&state).unwrap().is_none());
        let about = fs::metadata(&file).unwrap();
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
        assert!(is_held(&state));
        drop(held);
        assert!(!is_held(&state));
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let state = folder.path().join("guest.json");
        std::os::unix::fs::symlink(&victim, file_of(&state)).unwrap();
        assert!(take(&state).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}
