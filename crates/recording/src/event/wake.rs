// SPDX-License-Identifier: GPL-2.0-only
//! `sched_waking`, `sched_wakeup`, `sched_wakeup_new`: a task is made ready.
//!
//! `sched_waking` happens on the waker's pCPU and gives the cause; `sched_wakeup` may happen
//! later, on another pCPU, and gives the runqueue. Recordings have one of them or both.

use super::{TaskRef, cpu, named_task, plugin_task, word};

/// Reads either style: the task and, if given, the pCPU.
///
/// `comm=A pid=1 prio=120 target_cpu=000` or `A:1 [120] CPU:000`.
pub(super) fn parse(fields: &str) -> Result<(TaskRef, Option<u32>), &'static str> {
    if fields.starts_with("comm=") {
        let target = word(fields, "target_cpu=").map(cpu).transpose()?;
        return Ok((named_task(fields)?, target));
    }
    let (text, target) = match fields.rsplit_once(" CPU:") {
        Some((text, number)) => (text, Some(cpu(number)?)),
        None => (fields, None),
    };
    let text = text.split_once(" success=").map_or(text, |(text, _)| text);
    plugin_task(text.trim()).map(|(task, _)| (task, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(comm: &str, tid: u32) -> TaskRef {
        TaskRef {
            tid,
            comm: comm.to_string(),
        }
    }

    #[test]
    fn kernel_style() {
        let text = "comm=CPU 1/KVM pid=131 prio=120 target_cpu=001";
        assert_eq!(parse(text), Ok((task("CPU 1/KVM", 131), Some(1))));
        let text = "comm=kworker/1:1 pid=34 prio=120 success=1 target_cpu=001";
        assert_eq!(parse(text), Ok((task("kworker/1:1", 34), Some(1))));
    }

    #[test]
    fn plugin_style() {
        assert_eq!(
            parse("CPU 1/KVM:131 [120] CPU:001"),
            Ok((task("CPU 1/KVM", 131), Some(1)))
        );
        let old = "kworker/1:1:34 [120] success=1 CPU:001";
        assert_eq!(parse(old), Ok((task("kworker/1:1", 34), Some(1))));
        assert_eq!(parse("a:3 [120]"), Ok((task("a", 3), None)));
    }

    #[test]
    fn cut_lines() {
        assert!(parse("comm=CPU 1/KVM pi").is_err());
        assert!(parse("comm=a pid=1 prio=120 target_cpu=").is_err());
        assert!(parse("").is_err());
    }
}
