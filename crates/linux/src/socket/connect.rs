// SPDX-License-Identifier: GPL-2.0-only
//! A connection that is made in time or not at all.
//!
//! Problem: connecting to a daemon that hangs takes as long as it hangs, once its queue is full, and the standard
//! library cannot limit that for unix sockets.
//!
//! How: the kernel waits for room in the queue no longer than the timeout for sending (man 7 socket, `SO_SNDTIMEO`),
//! which is set before connecting.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the process that listens at `path`; [`io::ErrorKind::WouldBlock`] if it has not
/// accepted the connection after `patience`.
pub(super) fn within(patience: Duration, path: &Path) -> io::Result<UnixStream> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
