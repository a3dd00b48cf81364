// SPDX-License-Identifier: GPL-2.0-only
//! Affinity masks of threads: what a migration sets and a restore sets back.
//!
//! To a guest's kernel a vCPU is a CPU, so that masks are sets of CPU numbers. A thread that was free
//! to run everywhere gets back a mask of *all* numbers, not of those online now: the kernel cuts it to
//! its cpuset and keeps the rest for vCPUs that are plugged in later (`user_cpus_ptr` in
//! kernel/sched/core.c, since Linux 6.2).

use corun_model::{PcpuId, PcpuSet, Topology};
use std::io;

fn thread(tid: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(tid).map_err(io::Error::other)
}

/// The vCPUs thread `tid` may use, by affinity and cpuset.
///
/// # Errors
/// `ESRCH` if it has gone; `EINVAL` on guests of more than [`Topology::MAX_PCPUS`] vCPUs.
pub(crate) fn get(tid: u32) -> io::Result<PcpuSet> {
    let mut words = *PcpuSet::default().words();
    // SAFETY: `words` is writable and as long as said; the kernel writes whole longs, 8 bytes each.
    let got = unsafe {
        libc::sched_getaffinity(thread(tid)?, size_of_val(&words), words.as_mut_ptr().cast())
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PcpuSet::from_words(words))
}

/// Lets thread `tid` (0: the caller) use these vCPUs only.
///
/// # Errors
/// `ESRCH` if it has gone, `EPERM` if it is somebody else's, `EINVAL` if its cpuset has none of them.
pub(crate) fn set(tid: u32, vcpus: &PcpuSet) -> io::Result<()> {
    let words = vcpus.words();
    // SAFETY: `words` is readable and as long as said.
    let set =
        unsafe { libc::sched_setaffinity(thread(tid)?, size_of_val(words), words.as_ptr().cast()) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The mask of a thread that is pinned to `vcpu`.
pub(crate) fn only(vcpu: u32) -> PcpuSet {
    [PcpuId(vcpu)].into_iter().collect()
}

/// Lets thread `tid` run on one vCPU.
///
/// # Errors
/// As [`set`].
pub(crate) fn pin(tid: u32, vcpu: PcpuId) -> io::Result<()> {
    set(tid, &only(vcpu.0))
}

/// Lets thread `tid` run wherever its cpuset allows.
///
/// # Errors
/// As [`set`].
pub(crate) fn free(tid: u32) -> io::Result<()> {
    set(tid, &PcpuSet::first(Topology::MAX_PCPUS))
}

/// Has the thread gone? Then there is nothing left to do, and nothing went wrong.
pub(crate) fn is_gone(error: &io::Error) -> bool {
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
}
