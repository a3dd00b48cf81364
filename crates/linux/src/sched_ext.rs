// SPDX-License-Identifier: GPL-2.0-only
//! What /sys/kernel/sched_ext says: which scheduler is in charge.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where the kernel reports about sched_ext.
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
    read_at(Path::new(ROOT), file)
}

fn read_at(root: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(file)).ok()?;
    Some(text.trim().to_string())
}

/// Who is in charge instead of the kernel's own scheduler, or about to be, or about to leave; `None`: nobody.
pub fn in_charge() -> Option<String> {
    in_charge_by(Path::new(ROOT))
}

fn in_charge_by(root: &Path) -> Option<String> {
    let state = read_at(root, "state").filter(|state| state != "disabled")?;
    let name = read_at(root, "root/ops").filter(|name| !name.is_empty());
    Some(name.unwrap_or_else(|| format!("that is {state}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_charge_is_told_by_name_or_by_what_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |file: &str, text: &str| fs::write(root.join(file), text).unwrap();
        assert_eq!(in_charge_by(root), None, "a kernel without sched_ext");
        put("state", "disabled\n");
        assert_eq!(in_charge_by(root), None);
        put("state", "enabling\n");
        assert_eq!(in_charge_by(root), Some("that is enabling".into()));
        fs::create_dir(root.join("root")).unwrap();
        put("root/ops", "lavd\n");
        assert_eq!(in_charge_by(root), Some("lavd".into()));
    }
}
