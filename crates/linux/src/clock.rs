// SPDX-License-Identifier: GPL-2.0-only
//! The clock the dispatcher reads: CLOCK_MONOTONIC, in ns.

use corun_model::Nanos;

/// Now.
pub(crate) fn now() -> Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing; the call has no other effect, and this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
