// SPDX-License-Identifier: GPL-2.0-only
//! Files that say what is to be taken back, and what happened: written whole, read only if nobody else could
//! have written them, and one daemon at a time.
//!
//! Whoever runs as root and is told a path where others may write (`--state /tmp/fair.json`) must neither write
//! through a link that somebody has put there, nor take somebody's word for what is to be done to threads.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// More than any of these files has, bytes: of a thread there are some 400, and there are 4096 vCPUs at most.
const LONGEST: u64 = 16 << 20;

/// Writes a file so that readers find the old one or the new one, never half of it, and so that it is there
/// after a power failure: what is written down before something dangerous is read after that.
pub(crate) fn write_whole(file: &Path, text: &[u8]) -> io::Result<()> {
    let beside = file.with_extension("new");
    // What a killed daemon has left, or a link that somebody has put there: made anew, it is ours.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    let written = new.write_all(text).and_then(|()| new.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&beside, file)) {
        // On a full disk half a file would keep others from writing.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    sync_directory(file)
}

/// Until its directory is on disk, a file that was renamed may have its old name.
fn sync_directory(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    match File::open(folder.unwrap_or(Path::new(".")))?.sync_all() {
        // Some file systems have nothing to be synchronised.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

/// What a file says; `None` if there is none.
///
/// # Errors
/// If it cannot be read, or somebody else could have written it.
pub(crate) fn read_own(file: &Path) -> io::Result<Option<Vec<u8>>> {
    // Neither a link nor a pipe that nobody writes to.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(file);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let about = opened.metadata()?;
    let own = fs::metadata("/proc/self")?.uid();
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !about.is_file() {
        return refuse("is no file".to_string());
    }
    if ![0, own].contains(&about.uid()) {
        let owner = about.uid();
        return refuse(format!(
            "belongs to user {owner}, expected root or who runs this (user {own}): look at it, then remove it"
        ));
    }
    if about.mode() & 0o002 != 0 {
        let mode = about.mode() & 0o7777;
        return refuse(format!(
            "anybody may write it (mode {mode:04o}): look at it, then remove it"
        ));
    }
    let mut text = Vec::new();
    opened.take(LONGEST + 1).read_to_end(&mut text)?;
    match text.len() as u64 <= LONGEST {
        true => Ok(Some(text)),
        false => refuse(format!("has more than {LONGEST} bytes")),
    }
}

/// A lock that is held as long as this is kept; `None`: somebody else has it.
///
/// # Errors
/// If there can be no such file.
pub(crate) fn lock(file: &Path) -> io::Result<Option<File>> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(file)?;
    // Whoever may open it may hold it; that one of a daemon before could be opened by everybody.
    lock.set_permissions(Permissions::from_mode(0o600))?;
    // SAFETY: a descriptor of ours and constants.
    match unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(Some(lock)),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, victim] = ["state.json", "victim"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, folder.path().join("state.new")).unwrap();
        write_whole(&file, b"[]").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"[]");
        symlink(&victim, folder.path().join("state.lock")).unwrap();
        assert!(lock(&folder.path().join("state.lock")).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        assert_eq!(read_own(&file).unwrap(), None);
        fs::write(&file, "[]").unwrap();
        assert_eq!(read_own(&file).unwrap().unwrap(), b"[]");
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        let why = read_own(&file).unwrap_err().to_string();
        assert!(why.contains("mode 0666"), "{why}");
        let link = folder.path().join("link");
        symlink(&file, &link).unwrap();
        assert!(read_own(&link).is_err());
        assert!(read_own(folder.path()).is_err());
    }

    #[test]
    fn a_pipe_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a C string and an integer.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let why = read_own(&pipe).unwrap_err().to_string();
        assert!(why.contains("no file"), "{why}");
    }

    /// flock() takes no right to write: whoever may read a file may keep others from it.
    #[test]
    fn a_lock_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.lock");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let held = lock(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert!(held.is_some() && lock(&file).unwrap().is_none());
        drop(held);
        assert!(lock(&file).unwrap().is_some());
    }
}
