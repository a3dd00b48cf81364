// SPDX-License-Identifier: GPL-2.0-only
//! How many descriptors the daemon may have open: one for each vCPU and each thread that serves a VM, up to ten
//! more for each vCPU whose events a policy wants to see, three for each pCPU that divides cycles.
//!
//! systemd and shells start programs with a limit of 1024, for the sake of `select()`, which is not used here, and let
//! them raise it. The last few are reserved for files that are open for a moment, without which nothing about the host
//! could be read: requests for descriptors that stay open are refused before these are used up.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Kept for files that are open for a moment, and for clients of the socket (assumed).
const SPARE: u64 = 64;

/// Descriptors with this number or a higher one are spare.
static FIRST_SPARE: AtomicI32 = AtomicI32::new(i32::MAX);

/// Raises the limit as far as it goes. Without that everything still works, for fewer vCPUs.
pub(crate) fn raise_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable and of the type that the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is readable and of the type that the call takes.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        limit.rlim_cur = before;
    }
    FIRST_SPARE.store(first_spare(limit.rlim_cur), Ordering::Relaxed);
}

fn first_spare(limit: u64) -> i32 {
    i32::try_from(limit.saturating_sub(SPARE)).unwrap_or(i32::MAX)
}

/// A descriptor that is to stay open. The kernel gives the lowest free number, so a number from the reserve means that
/// all others are taken.
///
/// # Errors
/// [As the kernel](are_all_taken), a little before it.
pub(crate) fn to_keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    match fd.as_raw_fd() < FIRST_SPARE.load(Ordering::Relaxed) {
        true => Ok(fd),
        false => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

/// Is that what an error says?
pub(crate) fn are_all_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What helps, for people.
pub(crate) const MORE: &str =
    "raise the limit on open files: LimitNOFILE= of corun.service, or `ulimit -Hn`";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        raise_limit();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let mut words = line.unwrap().split_whitespace().skip(3);
        assert_eq!(words.next(), words.next());
        assert!(to_keep(File::open("/dev/null").unwrap().into()).is_ok());
    }

    #[test]
    fn the_last_are_kept() {
        assert_eq!(first_spare(1024), 960);
        assert_eq!(first_spare(10), 0);
        assert_eq!(first_spare(u64::MAX), i32::MAX);
    }
}
