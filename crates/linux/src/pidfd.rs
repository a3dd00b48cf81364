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

/// Words of a mask that every kernel takes: it refuses masks with fewer bits than the host could ever have pCPUs
/// (`sched_getaffinity()` in kernel/sched/syscalls.c), whether they are there or not, and there is none built for more
/// than 8192.
const WORDS: usize = 8192 / 64;

/// The pCPUs thread `tid` may use by affinity and cpuset; `None` if it has gone. The kernel leaves out those that are
/// not there, and preflight refuses hosts where a number is higher than a set holds.
///
/// Asked of the kernel instead of read from `/proc/<tid>/status`: a daemon that asks for hundreds of
/// vCPUs every second does not want to format and parse a page for each.
pub(crate) fn allowed(tid: u32) -> Option<PcpuSet> {
    let mut words = [0u64; WORDS];
    let tid = libc::pid_t::try_from(tid).ok()?;
    // SAFETY: `words` is writable and as long as said; the kernel writes whole longs, 8 bytes each.
    let got =
        unsafe { libc::sched_getaffinity(tid, size_of_val(&words), words.as_mut_ptr().cast()) };
    let first = words.first_chunk().filter(|_| got == 0)?;
    Some(PcpuSet::from_words(*first))
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

    /// A host with sockets that are not there may have thousands of possible pCPUs.
    #[test]
    fn masks_are_long_enough_for_any_kernel() {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last = possible.trim().rsplit(['-', ',']).next().unwrap();
        assert!(last.parse::<usize>().unwrap() < 64 * WORDS);
        const { assert!(64 * WORDS >= 8192) };
    }

    #[test]
    fn the_pcpus_are_those_that_proc_says() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status
            .lines()
            .find_map(|it| it.strip_prefix("Cpus_allowed_list:"));
        let said: PcpuSet = list.unwrap().trim().parse().unwrap();
        // SAFETY: takes nothing and always works.
        let me = unsafe { libc::gettid() } as u32;
        let online = crate::preflight::online().unwrap();
        assert_eq!(allowed(me), Some(said.and(&online)));
    }
}
