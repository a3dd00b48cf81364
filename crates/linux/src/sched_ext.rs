// SPDX-License-Identifier: GPL-2.0-only
//! What /sys/kernel/sched_ext says: which scheduler is in charge.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where the kernel tells about sched_ext.
pub(crate) const ROOT: &str = "/sys/kernel/sched_ext";

/// `disabled`, `enabling`, `enabled`, `disabling`; `None` without sched_ext.
pub fn state() -> Option<String> {
    read("state")
}

/// The name of the scheduler in charge, if it is a sched_ext one.
pub fn scheduler() -> Option<String> {
    read("root/ops")
}

fn read(file: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(ROOT).join(file)).ok()?;
    Some(text.trim().to_string())
}

/// Waits for the kernel's own scheduler; false if it is not back in time.
pub(crate) fn wait_until_disabled(limit: Duration) -> bool {
    let began = Instant::now();
    while state().is_some_and(|state| state != "disabled") {
        if began.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(2));
    }
    true
}
