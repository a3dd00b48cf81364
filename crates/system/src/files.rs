// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read at any time and that outlive a crash.
//!
//! What replaces a file has a fixed name beside it rather than a random one (as the crate `tempfile` would give):
//! a crash in between leaves one file to overwrite, not one more each time. It has the mode that the
//! umask gives, since status files and metrics are for other users, too.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The most that is read of one: 200 bytes for each of 300,000 threads.
const MOST: u64 = 60 << 20;

/// Reads a file that a daemon wrote. Its name may be an option, so it may be anything: a device that never ends,
/// a pipe that nobody writes to.
///
/// # Errors
/// If it cannot be read, is no file, or is longer than any of ours.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    read_up_to(MOST, file)
}

fn read_up_to(most: u64, file: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe that nobody writes to would wait for somebody who does.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(file)?;
    is_file(&file.metadata()?)?;
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => Err(refused("this is longer than any file that corun writes")),
        false => Ok(content),
    }
}

/// Makes sure that what is called so is a file, if there is anything: names are options, and a file in the
/// place of `/dev/null` breaks a host.
///
/// # Errors
/// If it is something else.
pub fn spare_others(file: &Path) -> io::Result<()> {
    fs::metadata(file).map_or(Ok(()), |found| is_file(&found))
}

fn is_file(found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(refused("this is no file: expected one that corun has written")),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Writes a file so that readers find the old one or the new one, never half of it.
///
/// # Errors
/// If it cannot be written, or what is called so is no file; what was there stays.
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
    spare_others(file)?;
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
    /// If `file` is no file, or the one that is locked, beside it, cannot be made.
    pub fn take(file: &Path) -> io::Result<Option<Self>> {
        spare_others(file)?;
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
    fn what_is_no_file_is_neither_read_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = read(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        // A file in its place would break the host.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(replace(&link, b"text").is_err());
        assert!(Lock::take(&link).is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(read(&pipe).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_too_long_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        replace(&path, b"12345").unwrap();
        assert_eq!(read_up_to(5, &path).unwrap(), b"12345");
        let error = read_up_to(4, &path).unwrap_err();
        assert!(error.to_string().contains("longer"));
        assert_eq!(read(&path).unwrap(), b"12345");
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
