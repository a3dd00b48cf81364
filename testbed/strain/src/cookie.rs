// SPDX-License-Identifier: GPL-2.0-only
//! A task that wants a core-scheduling cookie, as cloud-hypervisor's vCPUs do by default. The cookie ends with this
//! task.

use std::io;

/// Makes a cookie and prints that, or why it could not.
pub fn run() {
    // prctl() takes what follows the first number as longs.
    let create = libc::PR_SCHED_CORE_CREATE as libc::c_ulong;
    // SAFETY: takes integers only.
    match unsafe { libc::prctl(libc::PR_SCHED_CORE, create, 0, 0, 0) } {
        0 => println!("cookie\tmade"),
        _ => println!("cookie\t{}", io::Error::last_os_error()),
    }
}
