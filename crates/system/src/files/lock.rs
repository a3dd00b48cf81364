// SPDX-License-Identifier: GPL-2.0-only
//! One daemon at a time: a lock beside the file that it works with.
//!
//! flock() needs no right to write. If everybody could open the lock's file, any user could hold the lock, and so keep
//! a daemon, or a command that cleans up after a killed one, from starting. So the file is ours alone, and one that
//! somebody else has put there is refused. Those who may not open the file look into /proc/locks instead.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A process that asks whether the lock is taken ([`Lock::is_taken`]) has it for a moment. Assumed: for less than this,
/// also where its CPU is away meanwhile.
const MOMENT: Duration = Duration::from_millis(200);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Ensures that nobody else works with a file: held until it is dropped, or its process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    _held: File,
}

impl Lock {
    /// Takes the lock for `file`, whose folder is made if need be; `None`: somebody else has it, and not only for a
    /// moment.
    ///
    /// # Errors
    /// If `file` is no file, or the lock's file, beside it, cannot be made or is somebody else's.
    pub fn take(file: &Path) -> io::Result<Option<Self>> {
        super::spare_others(file)?;
        let beside = beside(file);
        if beside == file {
            let error =
                "names that end in .lock are for the locks of other files: take another name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let held = open_own(&beside).map_err(|error| about(&beside, error))?;
        let taken = within(MOMENT, &held)?;
        Ok(taken.then_some(Self { _held: held }))
    }

    /// Does somebody hold the lock?
    ///
    /// # Errors
    /// If the caller may not know.
    pub fn is_taken(file: &Path) -> io::Result<bool> {
        let beside = beside(file);
        match File::open(&beside) {
            Ok(lock) => Ok(!flock(&lock, libc::LOCK_SH)?),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let about = fs::metadata(&beside)?;
                let held = fs::read_to_string("/proc/locks")?;
                Ok(is_among(&held, about.dev(), about.ino()))
            }
            Err(_) => Ok(false),
        }
    }
}

fn beside(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

/// Names the lock's file, since nobody chose that name; a lack of rights is reported as the system reports it.
fn about(file: &Path, error: io::Error) -> io::Error {
    let is_lack = error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_some();
    match is_lack {
        true => error,
        false => io::Error::new(error.kind(), format!("{}: {error}", file.display())),
    }
}

/// Opens the lock's file, or makes it, so that nobody else may open it.
fn open_own(file: &Path) -> io::Result<File> {
    let held = open_or_make(file)?;
    let found = held.metadata()?;
    super::is_file(&found)?;
    super::belongs_to_us(&found)?;
    if found.nlink() != 1 {
        // It may be any file of ours that somebody has linked here: a lock must not change its mode.
        return Err(super::refused(
            "has a second name (hard link): look at it, then remove it",
        ));
    }
    // An earlier daemon may have made one that everybody may open.
    held.set_permissions(Permissions::from_mode(0o600))?;
    Ok(held)
}

/// The file is created only where there is none: asked to create one that exists, the kernel may refuse without showing
/// whose it is (`fs.protected_regular`). A pipe without a reader is not waited for.
fn open_or_make(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    match options.clone().create_new(true).open(file) {
        // Another daemon was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(file),
        other => other,
    }
}

/// Locks a file for ourselves, if that is possible within this time. Returns whether.
fn within(patience: Duration, file: &File) -> io::Result<bool> {
    let until = Instant::now() + patience;
    while !flock(file, libc::LOCK_EX)? {
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
    Ok(true)
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
        assert!(!Lock::is_taken(&file).unwrap());
        let lock = Lock::take(&file).unwrap().unwrap();
        assert!(Lock::is_taken(&file).unwrap());
        assert!(Lock::take(&file).unwrap().is_none());
        drop(lock);
        assert!(!Lock::is_taken(&file).unwrap());
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
        // On some file systems /proc/locks shows another device, but not on that of /run.
        let line = |kind| {
            let (major, minor) = (libc::major(about.dev()), libc::minor(about.dev()));
            let number = about.ino();
            format!("3: {kind}  ADVISORY  WRITE 7 {major:02x}:{minor:02x}:{number} 0 EOF\n")
        };
        assert!(is_among(&line("FLOCK"), about.dev(), about.ino()));
        assert!(!is_among(&line("POSIX"), about.dev(), about.ino()));
        assert!(!is_among(&line("FLOCK"), about.dev(), about.ino() + 1));
    }

    /// "Nobody has it" would be wrong.
    #[test]
    fn who_may_not_look_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        let _held = Lock::take(&file).unwrap().unwrap();
        let closed = |mode| fs::set_permissions(folder.path(), Permissions::from_mode(mode));
        closed(0o000).unwrap();
        let asks = || {
            // SAFETY: takes a number; concerns only this thread, which then ends. `nobody` has none of root's rights.
            unsafe { libc::setfsuid(65_534) };
            Lock::is_taken(&file).map_err(|refused| refused.kind())
        };
        let told = thread::scope(|threads| threads.spawn(asks).join().unwrap());
        closed(0o700).unwrap();
        assert_eq!(told, Err(io::ErrorKind::PermissionDenied));
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

    /// `corun guest status` may ask at any moment, and a start or a restore that fails because of it is not tried
    /// again.
    #[test]
    fn who_only_asks_keeps_nobody_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        drop(Lock::take(&file).unwrap().unwrap());
        let asked = File::open(beside(&file)).unwrap();
        assert!(flock(&asked, libc::LOCK_SH).unwrap());
        let answered = thread::spawn(move || {
            thread::sleep(MOMENT / 4);
            drop(asked);
        });
        assert!(Lock::take(&file).unwrap().is_some());
        answered.join().unwrap();
    }

    /// `--state /tmp/g.json`: any user may have put a lock there, and hold it, or have linked one of root's files.
    #[test]
    fn a_file_of_somebody_else_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let [file, other] = ["state.json", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "precious").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
        fs::hard_link(&other, beside(&file)).unwrap();
        let refused = Lock::take(&file).unwrap_err().to_string();
        assert!(
            refused.contains("state.lock: has a second name"),
            "{refused}"
        );
        assert_eq!(fs::metadata(&other).unwrap().mode() & 0o777, 0o644);
        fs::remove_file(beside(&file)).unwrap();
        fs::write(beside(&file), "").unwrap();
        if std::os::unix::fs::chown(beside(&file), Some(65_534), None).is_err() {
            return; // needs root
        }
        let refused = Lock::take(&file).unwrap_err().to_string();
        assert!(
            refused.contains("state.lock: belongs to user 65534"),
            "{refused}"
        );
        assert_eq!(fs::metadata(beside(&file)).unwrap().uid(), 65_534);
    }

    /// Opening a pipe that nobody reads would wait for a reader.
    #[test]
    fn a_pipe_is_no_lock_and_nothing_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        let name = std::ffi::CString::new(beside(&file).to_str().unwrap()).unwrap();
        // SAFETY: a name that ends with 0.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(Lock::take(&file).is_err());
    }

    #[test]
    fn a_file_has_another_name_than_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let refused = Lock::take(&folder.path().join("s.lock")).unwrap_err();
        assert!(refused.to_string().contains("another name"), "{refused}");
    }
}
