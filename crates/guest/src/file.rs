// SPDX-License-Identifier: GPL-2.0-only
//! Files of the daemon's that are read back. Their names are options, so they may be anything: devices
//! that never end, pipes that nobody writes to.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The most that is read of one: 200 bytes for each of 300,000 threads.
const MOST: u64 = 60 << 20;

/// The text of a file.
///
/// # Errors
/// If it cannot be read, is no file, or is too long to be one of the daemon's.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    read_up_to(MOST, path)
}

fn read_up_to(most: u64, path: &Path) -> io::Result<String> {
    // Opening a pipe that nobody writes to would wait for somebody who does.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    only_files(&file.metadata()?)?;
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    match text.len() as u64 > most {
        true => Err(refused(
            "this is longer than any file that `corun guest` writes",
        )),
        false => Ok(text),
    }
}

/// Makes sure that what is called so is a file, if there is anything.
///
/// # Errors
/// If it is something else.
pub(crate) fn spare_others(path: &Path) -> io::Result<()> {
    fs::metadata(path).map_or(Ok(()), |found| only_files(&found))
}

fn only_files(found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(refused(
            "this is no file: expected one that `corun guest` has written",
        )),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Writes a file whole or not at all.
///
/// # Errors
/// If it cannot be written, or is no file; what was there stays.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    spare_others(path)?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_neither_read_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = read(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        // A file in its place would break the guest.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(replace(&link, "text").is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(read(&pipe).is_err());
    }

    #[test]
    fn what_is_too_long_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        replace(&path, "12345").unwrap();
        assert_eq!(read_up_to(5, &path).unwrap(), "12345");
        assert!(
            read_up_to(4, &path)
                .unwrap_err()
                .to_string()
                .contains("longer")
        );
        assert_eq!(read(&path).unwrap(), "12345");
    }
}
