// SPDX-License-Identifier: GPL-2.0-only
//! Threads by descriptor: a pidfd stands for one thread for ever, its number does not.

use crate::descriptors;
use corun_model::PcpuSet;
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

/// The pCPUs thread `tid` may use by affinity and cpuset; `None` if it has gone.
///
/// Asked of the kernel instead of read from `/proc/<tid>/status`: a daemon that asks for hundreds of
/// vCPUs every second does not want to format and parse a page for each.
pub(crate) fn allowed(tid: u32) -> Option<PcpuSet> {
    let mut words = *PcpuSet::default().words();
    let tid = libc::pid_t::try_from(tid).ok()?;
    // SAFETY: `words` is writable and as long as said; the kernel writes whole longs, 8 bytes each.
    let got =
        unsafe { libc::sched_getaffinity(tid, size_of_val(&words), words.as_mut_ptr().cast()) };
    (got == 0).then(|| PcpuSet::from_words(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_may_run_somewhere() {
        let tid = std::process::id();
        assert!(!allowed(tid).unwrap().is_empty());
        assert!(allowed(u32::MAX).is_none());
    }
}
