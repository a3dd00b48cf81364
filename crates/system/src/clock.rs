// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's clocks, ns.

use corun_model::{Nanos, time::SEC};

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing; the call has no other effect, and these clocks exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * SEC + time.tv_nsec.cast_unsigned()
}

/// Now: CLOCK_MONOTONIC, which the dispatcher reads, too.
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// As [`now`], plus the time for which this machine was suspended: the clock of start times.
pub fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// CPU time that all threads of this process have used, user and system.
pub fn own_time() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps until [`now`] is `time`; returns early only when a signal arrives.
pub fn sleep_until(time: Nanos) {
    let until = libc::timespec {
        tv_sec: (time / SEC).cast_signed(),
        tv_nsec: (time % SEC).cast_signed(),
    };
    // SAFETY: `until` is readable; the time that is left is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_takes_as_long_as_asked() {
        let began = now();
        sleep_until(began + 20_000_000);
        assert!(now() >= began + 20_000_000);
        // A time that has passed is no reason to wait.
        sleep_until(0);
    }

    #[test]
    fn suspended_time_only_adds() {
        let now = now();
        assert!(since_boot() >= now);
        assert!(own_time() > 0);
    }
}
