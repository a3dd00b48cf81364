// SPDX-License-Identifier: GPL-2.0-only
//! The place in the file system: made with the right mode from the start, removed at the end, and
//! never taken from another daemon that is alive.

use super::connect;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Access for owner and group only: mode 0660.
const UMASK: libc::mode_t = 0o117;
/// The same for the directory that is made for it: 0750, as in the service.
const DIRECTORY: u32 = 0o750;
/// One above that is for others' sockets, too.
const ABOVE: u32 = 0o755;

/// How long a process that listens at an address may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A daemon lives there.
    #[error(
        "another corun host answers on {0}: change its policy with `corun policy NAME`, or end it; \
         a second one needs --socket PATH"
    )]
    Taken(PathBuf),
    /// Something else has this name.
    #[error("{0} is there and is no socket: it is left alone; name another with --socket PATH")]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {path}: {cause}")]
    Refused {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A listening socket that removes its name when it goes.
#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode of the name: a file that another process has put in its place stays.
    identity: (u64, u64),
}

impl Listener {
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        let refused = |cause| SocketError::Refused {
            path: path.to_path_buf(),
            cause,
        };
        make_directory(path, DIRECTORY).map_err(refused)?;
        let socket = match listen(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                clear(path)?;
                listen(path)
            }
            other => other,
        };
        let socket = socket.map_err(refused)?;
        let identity = fs::symlink_metadata(path).map_err(refused)?;
        Ok(Self {
            socket,
            path: path.to_path_buf(),
            identity: identity_of(&identity),
        })
    }

    /// The first client that waits, without blocking; `None` if it has left again.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        let stream = match self.socket.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                return match error.kind() {
                    ConnectionAborted | Interrupted | WouldBlock => Ok(None),
                    _ => Err(error),
                };
            }
        };
        stream.set_nonblocking(true)?;
        Ok(Some(stream))
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| identity_of(&metadata) == self.identity);
        if ours {
            // Nothing is left to be done about a failure; the next daemon replaces what stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Makes the directory of `path`, one level at most: a path with a slip should not make a tree.
fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let make = |directory| fs::DirBuilder::new().mode(mode).create(directory);
    match path.parent().map(make) {
        Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => match path.parent() {
            // If it is there already, that is fine, whatever the error is (a read-only file
            // system).
            Some(directory) if directory.is_dir() || directory.as_os_str().is_empty() => Ok(()),
            _ => Err(error),
        },
        _ => Ok(()),
    }
}

/// Makes the directory above that of `path`, so that [`Listener::bind`] can make the latter.
pub(super) fn make_above(path: &Path) -> Result<(), SocketError> {
    let make = |directory| make_directory(directory, ABOVE);
    let made = path.parent().map_or(Ok(()), make);
    made.map_err(|cause| SocketError::Refused {
        path: path.to_path_buf(),
        cause,
    })
}

/// The umask is the process's: only one thread may change it at a time.
static UMASK_CHANGED: Mutex<()> = Mutex::new(());

/// Binds with mode 0660: changed afterwards, it would be open to more for a moment.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let changing = UMASK_CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: an integer in, an integer out.
    let before = unsafe { libc::umask(UMASK) };
    let socket = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    drop(changing);
    let socket = socket?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Removes a socket on which no process listens.
fn clear(path: &Path) -> Result<(), SocketError> {
    let refused = |cause| SocketError::Refused {
        path: path.to_path_buf(),
        cause,
    };
    if !fs::symlink_metadata(path)
        .map_err(refused)?
        .file_type()
        .is_socket()
    {
        return Err(SocketError::NoSocket(path.to_path_buf()));
    }
    match connect::within(PATIENCE, path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused)
        }
        Ok(_) => Err(SocketError::Taken(path.to_path_buf())),
        // Its queue is full: a daemon listens there, and is busy.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(SocketError::Taken(path.to_path_buf()))
        }
        Err(error) => Err(refused(error)),
    }
}
