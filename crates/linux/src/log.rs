// SPDX-License-Identifier: GPL-2.0-only
//! What libbpf has to say: kept, so that an error can show it, instead of printed.

use libbpf_rs::PrintLevel;
use std::sync::{Mutex, PoisonError};

/// Lines since [`begin`]. libbpf's hook is one function for the process, hence a static.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The verifier's log can be megabytes; what matters is at its end.
const KEEP: usize = 200;

fn note(_: PrintLevel, line: String) {
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.extend(line.lines().map(str::to_string));
    let surplus = lines.len().saturating_sub(KEEP);
    lines.drain(..surplus);
}

/// Starts afresh.
pub(crate) fn begin() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, note)));
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// What was said since [`begin`].
pub(crate) fn take() -> String {
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner)).join("\n")
}
