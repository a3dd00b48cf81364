// SPDX-License-Identifier: GPL-2.0-only
//! What both sides ask of the kernel.

use std::io;
use std::mem::MaybeUninit;

/// CLOCK_MONOTONIC, ns.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing, and this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Sleeps until `time` of that clock.
pub fn sleep_until(time: u64) {
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

/// Ties the calling thread to one CPU.
pub fn pin(cpu: u64) -> io::Result<()> {
    let cpu = usize::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: all zero is an empty set; CPU_SET writes within it or not at all.
    let set = unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        libc::CPU_SET(cpu, &mut set);
        set
    };
    // SAFETY: `set` is readable and as long as said.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread the least weight.
pub fn be_nice() -> io::Result<()> {
    // SAFETY: three integers; on Linux 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many CPUs the calling thread may use.
pub fn allowed() -> io::Result<i32> {
    // SAFETY: all zero is an empty set, writable and as long as said.
    unsafe {
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
        match libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) {
            0 => Ok(libc::CPU_COUNT(&set)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
