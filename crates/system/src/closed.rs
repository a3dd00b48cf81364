// SPDX-License-Identifier: GPL-2.0-only
//! Whether this process was given a standard output at all.
//!
//! Problem: where it is closed (`corun … >&-`), results would be lost without a word, since Rust's runtime puts
//! `/dev/null` in its place before `main`, so that no file is opened under its number.
//! How: the C library calls what `.init_array` lists before the runtime starts. An output that others redirected
//! (`>/dev/null`) does not count as closed.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
// SAFETY: the C library calls what is in this section once, before `main` and before there are threads; what is there
// is a function of the C calling convention that touches an atomic and asks the kernel.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: takes no pointer, and may be called with any number.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Was the standard output closed when the process began?
pub fn stdout_was() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
