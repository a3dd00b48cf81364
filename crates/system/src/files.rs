// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read at any time and that outlive a crash.
//!
//! The file that replaces another is written beside it under a fixed name rather than a random one (as the crate
//! `tempfile` would use): a crash in between leaves one file to overwrite, not one more each time. It has the mode that
//! the umask gives, since status files and metrics are for other users, too.
//!
//! A daemon that runs as root may be given a path in a directory where others can write (`--state /tmp/fair.json`). It
//! must neither write through a link that somebody has put there, nor trust somebody else's file that says what is to
//! be done to threads.

mod lock;

pub use lock::Lock;

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most that is read of a file: 200 bytes for each of 300,000 threads.
const MOST: u64 = 60 << 20;

/// Makes a folder, and missing ones above it, for owner and group only: for places that hold nothing for other users.
/// Folders that exist stay as they are.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut all = fs::DirBuilder::new();
    all.recursive(true).mode(0o750).create(folder)
}

/// Reads a file that a daemon wrote. Its name may come from an option, so it may be anything: a device that never ends,
/// a pipe that nobody writes to.
///
/// # Errors
/// If it cannot be read, is no file, or is longer than any of ours.
pub fn read(file: &Path) -> io::Result<Vec<u8>> {
    up_to(MOST, open(file, 0)?)
}

/// As [`read`], for what nobody else could have written; `None` if there is no such file.
///
/// # Errors
/// As [`read`], and if it is a link, belongs to somebody else or anybody may write it.
pub fn read_own(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let opened = match open(file, libc::O_NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    is_own(&opened.metadata()?)?;
    up_to(MOST, opened).map(Some)
}

/// A file to be written that held nothing before.
pub struct Fresh {
    /// The file.
    pub file: File,
    path: PathBuf,
    /// Did it not exist before?
    made: bool,
}

impl Fresh {
    /// Makes a file that only its owner may read, or takes an existing empty one. A file with content is never
    /// overwritten.
    ///
    /// # Errors
    /// If it holds something, cannot be made, or is not one that [`read_own`] would trust.
    pub fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let (file, made) = match options.clone().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
                (options.open(path)?, false)
            }
            made => (made?, true),
        };
        if !made {
            let found = file.metadata()?;
            if !found.is_file() || found.len() > 0 {
                let why = "is there already: expected a new file, or an empty one";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
            is_own(&found)?;
        }
        let path = path.to_path_buf();
        Ok(Self { file, path, made })
    }

    /// Leaves everything as it was before, as far as that is possible.
    pub fn take_back(&self) {
        let _ = match self.made {
            true => fs::remove_file(&self.path),
            false => self.file.set_len(0),
        };
    }
}

/// Opens a file of this name for reading, without waiting: opening a pipe that nobody writes to would wait for a
/// writer.
///
/// # Errors
/// If it cannot be opened.
pub fn open_at_once(file: &Path) -> io::Result<File> {
    open_as(file, 0)
}

fn open_as(file: &Path, how: libc::c_int) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | how);
    options.open(file)
}

fn open(file: &Path, how: libc::c_int) -> io::Result<File> {
    let opened = open_as(file, how)?;
    is_file(&opened.metadata()?)?;
    Ok(opened)
}

fn is_own(found: &Metadata) -> io::Result<()> {
    belongs_to_us(found)?;
    if found.mode() & 0o002 != 0 {
        let mode = found.mode() & 0o7777;
        return Err(distrusted(format!(
            "anybody may write it (mode {mode:04o}): look at it, then remove it"
        )));
    }
    Ok(())
}

fn belongs_to_us(found: &Metadata) -> io::Result<()> {
    let (own, owner) = (fs::metadata("/proc/self")?.uid(), found.uid());
    match [0, own].contains(&owner) {
        true => Ok(()),
        false => Err(distrusted(format!(
            "belongs to user {owner}, expected root or the user who runs this ({own}): look at it, then remove it"
        ))),
    }
}

fn distrusted(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn up_to(most: u64, file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        true => Err(refused("this is longer than any file that corun writes")),
        false => Ok(content),
    }
}

/// Makes sure that what has this name is a file, if it exists: names come from options, and a file in the place of
/// `/dev/null` breaks a host.
///
/// # Errors
/// If it is something else.
pub fn spare_others(file: &Path) -> io::Result<()> {
    fs::metadata(file).map_or(Ok(()), |found| is_file(&found))
}

fn is_file(found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(refused(
            "this is no file: expected one that corun has written",
        )),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Writes a file so that readers find the old one or the new one, never half of it.
///
/// # Errors
/// If it cannot be written, or what has this name is no file; what was there stays.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    put(file, content, false)
}

/// As [`replace`], and afterwards the new file is on disk: what is written down before something dangerous can be read
/// after a power failure.
///
/// # Errors
/// As [`replace`].
pub fn replace_durably(file: &Path, content: &[u8]) -> io::Result<()> {
    put(file, content, true)
}

fn put(file: &Path, content: &[u8], durably: bool) -> io::Result<()> {
    spare_others(file)?;
    let beside = with_suffix(file, ".new");
    // A killed daemon's leftover, or a link that somebody has put there: created anew, the file is ours.
    remove(&beside)?;
    let new = File::create_new(&beside)?;
    let synced = |()| match durably {
        true => new.sync_all(),
        false => Ok(()),
    };
    let written = (&new).write_all(content).and_then(synced);
    if let Err(error) = written.and_then(|()| fs::rename(&beside, file)) {
        // On a full disk, half a file would keep others from writing.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    match durably {
        true => sync_folder(file),
        false => Ok(()),
    }
}

/// Until its folder is on disk, a file that was renamed may have its old name.
fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    match File::open(folder.unwrap_or(Path::new(".")))?.sync_all() {
        // Some file systems cannot synchronise a folder.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file; it is no failure if there is none.
///
/// # Errors
/// If it is there and stays.
pub fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_holds_something_is_not_fresh_and_what_held_nothing_is_left_so() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("full"), "dear").unwrap();
        fs::write(at("empty"), "").unwrap();
        symlink(at("empty"), at("link")).unwrap();
        let refused = Fresh::at(&at("full")).err().unwrap().to_string();
        assert!(
            refused.contains("expected a new file, or an empty one"),
            "{refused}"
        );
        assert!(Fresh::at(&at("link")).is_err() && Fresh::at(folder.path()).is_err());
        for (name, there) in [("new", false), ("empty", true)] {
            let mut fresh = Fresh::at(&at(name)).unwrap();
            fresh.file.write_all(b"half").unwrap();
            fresh.take_back();
            assert_eq!(at(name).exists(), there);
        }
        assert_eq!(fs::metadata(at("empty")).unwrap().len(), 0);
        assert_eq!(fs::read_to_string(at("full")).unwrap(), "dear");
    }

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
        // In the way of the file that is to replace it.
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
        symlink("/dev/null", &link).unwrap();
        assert!(replace(&link, b"text").is_err());
        assert!(Lock::take(&link).is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for read in [read(&pipe).map(Some), read_own(&pipe)] {
            assert!(read.unwrap_err().to_string().contains("no file"));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_too_long_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        replace(&path, b"12345").unwrap();
        let read_up_to = |most| up_to(most, open(&path, 0).unwrap());
        assert_eq!(read_up_to(5).unwrap(), b"12345");
        let error = read_up_to(4).unwrap_err();
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
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, victim] = ["state.json", "victim"].map(|name| folder.path().join(name));
        fs::write(&victim, "precious").unwrap();
        for put in [replace as fn(&Path, &[u8]) -> _, replace_durably] {
            symlink(&victim, folder.path().join("state.json.new")).unwrap();
            put(&file, b"[]").unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"[]");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn folders_that_are_made_are_for_owner_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("lib/corun");
        for _ in 0..2 {
            make_folder(&made).unwrap();
        }
        for each in [&made, &folder.path().join("lib")] {
            let mode = fs::metadata(each).unwrap().permissions().mode();
            assert_eq!(mode & 0o027, 0, "{mode:o}");
        }
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
}
