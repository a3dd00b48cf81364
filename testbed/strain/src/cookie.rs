// SPDX-License-Identifier: GPL-2.0-only
//! A task that wants a core-scheduling cookie, as cloud-hypervisor's vCPUs do by default. The cookie ends with this
//! task.

use std::io;

/// `PR_SCHED_CORE` and `PR_SCHED_CORE_CREATE` (linux/prctl.h).
const PR_SCHED_CORE: libc::c_int = 62;
const CREATE: libc::c_ulong = 1;

/// Makes a cookie and prints that, or why it could not.
pub fn run() {
    // SAFETY: takes integers only.
    match unsafe { libc::prctl(PR_SCHED_CORE, CREATE, 0, 0, 0) } {
        0 => println!("cookie\tmade"),
        _ => println!("cookie\t{}", io::Error::last_os_error()),
    }
}
