// SPDX-License-Identifier: GPL-2.0-only
//! Threads by descriptor: a pidfd stands for one thread for ever, a thread id does not.

use crate::descriptors;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// `PIDFD_THREAD`, since Linux 6.9: any thread, not only a process's first.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// A descriptor for thread `tid`.
pub(crate) fn open_thread(tid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    descriptors::to_keep(unsafe { OwnedFd::from_raw_fd(fd) })
}
