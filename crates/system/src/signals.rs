// SPDX-License-Identifier: GPL-2.0-only
//! Signals that ask a daemon to end: it takes back what it has set, and ends.
//!
//! SIGHUP is one of them: over ssh it comes when the connection drops, and kills a program that does not watch for it.
//! A program that was started to outlive that (`nohup`) ignores it, and goes on.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that SIGINT, SIGTERM and SIGHUP raise, the last one unless it is ignored.
///
/// # Errors
/// If they cannot be watched for.
pub fn watch() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    if !is_ignored(SIGHUP)? {
        signal_hook::flag::register(SIGHUP, Arc::clone(&asked))?;
    }
    Ok(asked)
}

/// Does this process ignore a signal, as what was started to outlive it does?
///
/// # Errors
/// If the kernel does not say.
pub fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is set; what is in force is written to `now`, which is large enough.
    if unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let now = unsafe { now.assume_init() };
    Ok(now.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// How signals are handled is a property of the process: hence both in one test.
    #[test]
    fn a_lost_connection_asks_to_end_unless_that_is_ignored() {
        let raised = || {
            let asked = watch().unwrap();
            // SAFETY: an integer; what was registered sets a flag only.
            assert_eq!(unsafe { libc::raise(SIGHUP) }, 0);
            asked.load(Ordering::Relaxed)
        };
        // SAFETY: as `nohup` does before it starts a program.
        unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
        assert!(!raised());
        // SAFETY: as it is by default.
        unsafe { libc::signal(SIGHUP, libc::SIG_DFL) };
        assert!(raised());
    }
}
