// SPDX-License-Identifier: GPL-2.0-only
//! The daemon goes before the guests it schedules: it needs little, but on time.

/// The best a process can have without real-time scheduling.
const BEST: libc::c_int = -20;

/// Asks for it; without the privilege everything still works, only later on a busy host.
pub(crate) fn raise() {
    // SAFETY: three integers; the call touches no memory of this process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BEST) };
}
