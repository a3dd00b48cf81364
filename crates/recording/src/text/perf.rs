// SPDX-License-Identifier: GPL-2.0-only
//! The columns of `perf script`: `COMM TID` or `COMM PID/TID`, where perf's PID is the process.

use crate::event;

/// Name, thread id and process id before the pCPU column.
pub(super) fn task(text: &str) -> Result<(&str, u32, Option<u32>), &'static str> {
    let text = text.trim();
    let (comm, ids) = text
        .rsplit_once(char::is_whitespace)
        .ok_or("no task and tid")?;
    let (tgid, tid) = match ids.split_once('/') {
        Some((tgid, tid)) => (event::tid(tgid).ok(), tid),
        None => (None, ids),
    };
    Ok((comm.trim_end(), event::tid(tid)?, tgid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form() {
        assert_eq!(
            task("       CPU 0/KVM   128 "),
            Ok(("CPU 0/KVM", 128, None))
        );
        assert_eq!(
            task(" CPU 0/KVM   118/128   "),
            Ok(("CPU 0/KVM", 128, Some(118)))
        );
        assert_eq!(task("swapper     0 "), Ok(("swapper", 0, None)));
        assert!(task(":-1    -1 ").is_err());
    }
}
