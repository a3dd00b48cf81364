// SPDX-License-Identifier: GPL-2.0-only
//! A thread's slice, which can be set since Linux 6.12.
//!
//! `sched_setattr()` takes `sched_runtime` of an ordinary thread for the slice it asks for, 0.1 to
//! 100 ms; 0 is the scheduler's own (`__setparam_fair()` in kernel/sched/syscalls.c). Older kernels
//! ignore it, so this tries whether it works.

use corun_model::Nanos;
use corun_model::time::{MS, US};
use std::io;
use std::ops::RangeInclusive;
use std::thread;

/// The slices that the kernel takes.
pub const SLICES: RangeInclusive<Nanos> = 100 * US..=100 * MS;

/// `struct sched_attr` (linux/sched/types.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;

fn get(tid: u32) -> io::Result<SchedAttr> {
    let mut attr = SchedAttr::default();
    // SAFETY: `attr` is writable and as long as said.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, SIZE, 0) };
    match got {
        0 => Ok(attr),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The slice of an ordinary thread, ns; the scheduler's own looks the same as one that was asked
/// for. Threads of other classes have none.
pub(crate) fn slice(tid: u32) -> io::Result<Option<Nanos>> {
    let attr = get(tid)?;
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH]
        .iter()
        .any(|policy| u32::try_from(*policy) == Ok(attr.policy));
    Ok(ordinary.then_some(attr.runtime))
}

/// Asks for a slice, or (`None`) for the scheduler's own. Everything else stays.
pub(crate) fn set_slice(tid: u32, slice: Option<Nanos>) -> io::Result<()> {
    let attr = SchedAttr {
        size: SIZE,
        runtime: slice.unwrap_or(0),
        ..get(tid)?
    };
    // SAFETY: `attr` is readable and as long as it says.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attr, 0) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The scheduler's own slice, ns; `None`: this kernel takes no others.
pub fn own_slice() -> Option<Nanos> {
    // A new thread's, so that nobody's slice is changed.
    let tried = thread::spawn(|| {
        // SAFETY: takes nothing and always works.
        let me = u32::try_from(unsafe { libc::gettid() }).ok()?;
        let own = slice(me).ok()??;
        set_slice(me, Some(7 * MS)).ok()?;
        (slice(me).ok()? == Some(7 * MS)).then_some(own)
    });
    tried.join().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_set_and_taken_back() {
        let Some(own) = own_slice() else {
            return; // an older kernel
        };
        thread::spawn(move || {
            // SAFETY: as above.
            let me = unsafe { libc::gettid() } as u32;
            for (asked, found) in [(5 * MS, 5 * MS), (US, 100 * US), (500 * MS, 100 * MS)] {
                set_slice(me, Some(asked)).unwrap();
                assert_eq!(slice(me).unwrap(), Some(found));
            }
            set_slice(me, None).unwrap();
            assert_eq!(slice(me).unwrap(), Some(own));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_not_there() {
        assert!(slice(u32::MAX >> 1).is_err());
        assert!(set_slice(u32::MAX >> 1, None).is_err());
    }
}
