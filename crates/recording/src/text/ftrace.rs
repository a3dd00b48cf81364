// SPDX-License-Identifier: GPL-2.0-only
//! The columns of ftrace's own text, which trace-cmd prints too: `COMM-TID`, `(TGID)`, latency.

use crate::event;
use crate::event::Context;

/// Name, thread id and process id before the pCPU column.
pub(super) fn task(text: &str) -> Result<(&str, u32, Option<u32>), &'static str> {
    let mut text = text.trim();
    let mut tgid = None;
    if let Some((before, number)) = text.strip_suffix(')').and_then(|t| t.rsplit_once('(')) {
        // "(-----)" means that the process was not recorded.
        tgid = event::tid(number).ok();
        text = before.trim_end();
    }
    let (comm, tid) = text.rsplit_once('-').ok_or("no task-tid before the pCPU")?;
    Ok((comm, event::tid(tid)?, tgid))
}

/// The context that a latency column such as `d.h3.` shows by its third character.
pub(super) fn context(column: Option<&str>) -> Context {
    let Some(column) = column.filter(|c| (3..=8).contains(&c.len())) else {
        return Context::Unknown;
    };
    match column.as_bytes().get(2) {
        Some(b'h' | b'H' | b's' | b'S' | b'z' | b'Z') => Context::Interrupt,
        Some(b'.') => Context::Task,
        _ => Context::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_columns() {
        assert_eq!(context(Some("d..2.")), Context::Task);
        assert_eq!(context(Some("dN.2")), Context::Task);
        for column in ["d.h3.", "dBs4.", "dlH1.", "d.Z1.", "d.z1."] {
            assert_eq!(context(Some(column)), Context::Interrupt, "{column}");
        }
        assert_eq!(context(None), Context::Unknown);
        assert_eq!(context(Some("+")), Context::Unknown);
    }

    #[test]
    fn names_with_dashes_and_brackets() {
        assert_eq!(
            task(" kworker/u4:2-ev-99 "),
            Ok(("kworker/u4:2-ev", 99, None))
        );
        assert_eq!(task(" a (b)-7 ( 5) "), Ok(("a (b)", 7, Some(5))));
        assert!(task("nobody").is_err());
    }
}
