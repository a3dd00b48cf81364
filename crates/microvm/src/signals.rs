// SPDX-License-Identifier: GPL-2.0-only
//! Waiting for a request to end.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// SIGTERM and SIGINT, blocked in this thread and in all that it starts, so that they can be waited for.
pub struct EndSignals(libc::sigset_t);

impl EndSignals {
    /// Blocks the signals. To be called before other threads exist.
    pub fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given; the other calls get that set.
        let (set, result) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            let set = set.assume_init();
            (
                set,
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()),
            )
        };
        if result == 0 {
            Ok(Self(set))
        } else {
            Err(io::Error::from_raw_os_error(result))
        }
    }

    /// Waits for one of them, or for the time to pass. True: a signal came.
    pub fn wait(&self, time: Duration) -> bool {
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: set and time are valid for the call; no information about the signal is asked for.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.0, std::ptr::null_mut(), &raw const time) };
        signal > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_and_time_does_too() {
        let signals = EndSignals::block().unwrap();
        assert!(!signals.wait(Duration::from_millis(1)));
        // SAFETY: the signal is blocked in this thread, the only one it is sent to.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert!(signals.wait(Duration::from_secs(10)));
    }
}
