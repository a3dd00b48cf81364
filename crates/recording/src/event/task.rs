// SPDX-License-Identifier: GPL-2.0-only
//! `sched_migrate_task`, `sched_process_fork`, `sched_process_free`.

use super::{Event, TaskRef, between, comm, cpu, named_task, plugin_task, tid, word};

/// `comm=A pid=1 prio=120 orig_cpu=0 dest_cpu=1`
pub(super) fn migrate(fields: &str) -> Result<Event, &'static str> {
    let from = word(fields, "orig_cpu=").ok_or("no orig_cpu=")?;
    let to = word(fields, "dest_cpu=").ok_or("no dest_cpu=")?;
    let (from, to) = (cpu(from)?, cpu(to)?);
    Ok(Event::Migrate {
        task: named_task(fields)?,
        from,
        to,
    })
}

/// `comm=A pid=1 child_comm=B child_pid=2`
pub(super) fn fork(fields: &str) -> Result<Event, &'static str> {
    let name = between(fields, "child_comm=", " child_pid=").ok_or("no child_comm=")?;
    let child = word(fields, "child_pid=").ok_or("no child_pid=")?;
    let parent = word(fields, "pid=").ok_or("no pid=")?;
    Ok(Event::Fork {
        parent: tid(parent)?,
        child: TaskRef {
            tid: tid(child)?,
            comm: comm(name),
        },
    })
}

/// `comm=A pid=1 prio=120`
pub(super) fn free(fields: &str) -> Result<Event, &'static str> {
    let task = match fields.starts_with("comm=") {
        true => named_task(fields)?,
        false => plugin_task(fields)?.0,
    };
    Ok(Event::Free { tid: task.tid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event() {
        let task = |tid, comm: &str| TaskRef {
            tid,
            comm: comm.to_string(),
        };
        assert_eq!(
            migrate("comm=khugepaged pid=41 prio=139 orig_cpu=0 dest_cpu=1"),
            Ok(Event::Migrate {
                task: task(41, "khugepaged"),
                from: 0,
                to: 1
            })
        );
        assert_eq!(
            fork("comm=init pid=1 child_comm=in it child_pid=266"),
            Ok(Event::Fork {
                parent: 1,
                child: task(266, "in it")
            })
        );
        assert_eq!(
            free("comm=sleep pid=266 prio=120"),
            Ok(Event::Free { tid: 266 })
        );
    }

    #[test]
    fn cut_lines() {
        assert!(migrate("comm=khugepaged pid=41 prio=139 orig_cpu=0").is_err());
        assert!(fork("comm=init pid=1 child_comm=init").is_err());
        assert!(free("comm=sleep").is_err());
    }
}
