// SPDX-License-Identifier: GPL-2.0-only
//! Affinity masks of threads: on which CPUs they may run.
//!
//! A thread that was free to run everywhere gets back a mask of *all* numbers, not of those online now: the kernel cuts
//! it to the thread's cpuset and keeps the rest for CPUs that are plugged in later (`user_cpus_ptr` in
//! kernel/sched/core.c, since Linux 6.2).
//!
//! Masks come from a system call instead of `/proc/<tid>/status`: a daemon that wants those of hundreds of threads
//! every second does not want to format and parse a page for each. CPUs that are off-line are only in the latter
//! ([`crate::procfs::Thread::allowed`]).

use corun_model::{PcpuId, PcpuSet, Topology};
use std::io;

fn thread(tid: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(tid).map_err(io::Error::other)
}

/// Words of a mask that every kernel accepts: it refuses masks with fewer bits than the machine could ever have CPUs
/// (`sched_getaffinity()` in kernel/sched/syscalls.c), whether they are there or not, and no kernel is built for more
/// than 8192.
const WORDS: usize = 8192 / 64;

/// The CPUs thread `tid` (0: the caller) may use by affinity and cpuset, of those that are online. Numbers of
/// [`Topology::MAX_PCPUS`] and more are left out: both daemons refuse machines that have them.
///
/// # Errors
/// `ESRCH` if the thread has gone.
pub fn get(tid: u32) -> io::Result<PcpuSet> {
    let mut words = [0u64; WORDS];
    // SAFETY: `words` is writable and as long as said; the kernel writes whole longs, 8 bytes each.
    let got = unsafe {
        libc::sched_getaffinity(thread(tid)?, size_of_val(&words), words.as_mut_ptr().cast())
    };
    match words.first_chunk() {
        Some(first) if got == 0 => Ok(PcpuSet::from_words(*first)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets thread `tid` (0: the caller) use these CPUs only.
///
/// # Errors
/// `ESRCH` if the thread has gone, `EPERM` if it is somebody else's, `EINVAL` if its cpuset has none of them.
pub fn set(tid: u32, cpus: &PcpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: `words` is readable and as long as said.
    let set =
        unsafe { libc::sched_setaffinity(thread(tid)?, size_of_val(words), words.as_ptr().cast()) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The mask of a thread that is pinned to `cpu`.
pub fn only(cpu: u32) -> PcpuSet {
    [PcpuId(cpu)].into_iter().collect()
}

/// Lets thread `tid` run on one CPU.
///
/// # Errors
/// As [`set`].
pub fn pin(tid: u32, cpu: PcpuId) -> io::Result<()> {
    set(tid, &only(cpu.0))
}

/// Lets thread `tid` run wherever its cpuset allows.
///
/// # Errors
/// As [`set`].
pub fn free(tid: u32) -> io::Result<()> {
    set(tid, &PcpuSet::first(Topology::MAX_PCPUS))
}

/// Has the thread gone? Then nothing is left to do, and nothing went wrong.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_and_freed() {
        std::thread::spawn(|| {
            let before = get(0).unwrap();
            let last = before.iter().last().unwrap();
            pin(0, last).unwrap();
            assert_eq!(get(0).unwrap(), [last].into_iter().collect());
            free(0).unwrap();
            assert_eq!(get(0).unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_not_there() {
        let error = get(u32::MAX >> 1).unwrap_err();
        assert!(is_gone(&error));
        assert!(is_gone(&free(u32::MAX >> 1).unwrap_err()));
        assert!(get(u32::MAX).is_err());
    }

    /// A machine with empty sockets may have thousands of possible CPUs.
    #[test]
    fn masks_are_long_enough_for_any_kernel() {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last = possible.trim().rsplit(['-', ',']).next().unwrap();
        assert!(last.parse::<usize>().unwrap() < 64 * WORDS);
        const { assert!(64 * WORDS >= 8192) };
    }
}
