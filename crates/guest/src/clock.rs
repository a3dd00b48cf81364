// SPDX-License-Identifier: GPL-2.0-only
//! The guest's clock, CLOCK_MONOTONIC in ns, and this process's own use of vCPUs.

use corun_model::Nanos;

fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing; the call has no other effect, and these clocks exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Now.
pub(crate) fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// As [`now`], with the time that this guest was suspended itself: the clock of start times.
pub(crate) fn since_boot() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

/// CPU time that all threads of this process have used, user and system.
pub(crate) fn own_time() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps until `time`; returns early only when a signal arrives.
pub(crate) fn sleep_until(time: Nanos) {
    let until = libc::timespec {
        tv_sec: (time / 1_000_000_000).cast_signed(),
        tv_nsec: (time % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `until` is readable; nothing is to be told about the time that is left.
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
    fn sleeping_takes_as_long_as_asked_and_no_cpu_time() {
        let (began, used) = (now(), own_time());
        sleep_until(began + 20_000_000);
        assert!(now() >= began + 20_000_000);
        assert!(own_time() >= used);
        // A time that has passed is no reason to wait.
        sleep_until(0);
    }
}
