// SPDX-License-Identifier: GPL-2.0-only
//! `sched_switch`: a pCPU goes from one task to another.

use super::{Event, TaskRef, between, comm, plugin_task, tid, word};

/// How a task left its pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It still wants to run.
    Ready,
    /// It waits for something, which the kernel's letter stands for.
    Blocked(char),
    /// It is gone.
    Exited,
}

/// Reads either style.
pub(super) fn parse(fields: &str) -> Result<Event, &'static str> {
    if fields.starts_with("prev_comm=") {
        raw(fields)
    } else {
        plugin(fields)
    }
}

/// `prev_comm=A prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=B next_pid=2 next_prio=120`
fn raw(fields: &str) -> Result<Event, &'static str> {
    // Names may contain anything, so each half is read on its own.
    let at = fields.find(" next_comm=").ok_or("no next_comm=")?;
    let (prev, next) = (
        fields.get(..at).unwrap_or(""),
        fields.get(at + 1..).unwrap_or(""),
    );
    let state = word(prev, "prev_state=").ok_or("no prev_state=")?;
    let task = |half: &str, name_key: &str, pid_key: &str| {
        let name = between(half, name_key, &format!(" {pid_key}"))?;
        Some((name.to_string(), word(half, pid_key)?.to_string()))
    };
    let (prev_name, prev_tid) = task(prev, "prev_comm=", "prev_pid=").ok_or("no prev_pid=")?;
    let (next_name, next_tid) = task(next, "next_comm=", "next_pid=").ok_or("no next_pid=")?;
    if word(next, "next_prio=").is_none_or(str::is_empty) {
        return Err("no next_prio=: the line is cut short");
    }
    Ok(Event::Switch {
        prev: TaskRef {
            tid: tid(&prev_tid)?,
            comm: comm(&prev_name),
        },
        left: left(state)?,
        next: TaskRef {
            tid: tid(&next_tid)?,
            comm: comm(&next_name),
        },
    })
}

/// `A:1 [120] S ==> B:2 [120]`
fn plugin(fields: &str) -> Result<Event, &'static str> {
    let (prev, next) = fields.split_once(" ==> ").ok_or("no ==>")?;
    let (prev, rest) = plugin_task(prev.trim())?;
    let state = rest.split_once(']').map_or(rest, |(_, state)| state);
    let (next, _) = plugin_task(next.trim())?;
    Ok(Event::Switch {
        prev,
        left: left(state.trim())?,
        next,
    })
}

/// The state a task left in: letters, possibly several (`D|K`), `+` for preempted; or a number.
fn left(state: &str) -> Result<Left, &'static str> {
    if let Some(bits) = number(state) {
        return Ok(left_bits(bits));
    }
    match state.chars().next() {
        Some('R') => Ok(Left::Ready),
        Some('Z' | 'X' | 'x') => Ok(Left::Exited),
        Some(c) if c.is_ascii_alphabetic() => Ok(Left::Blocked(c)),
        _ => Err("the task's state is not a letter"),
    }
}

fn number(state: &str) -> Option<u64> {
    match state.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => state.parse().ok(),
    }
}

/// The kernel's state bits as the raw event carries them (`TASK_REPORT`).
pub(crate) fn left_bits(bits: u64) -> Left {
    const LETTERS: [(u64, char); 6] = [
        (1, 'S'),
        (2, 'D'),
        (4, 'T'),
        (8, 't'),
        (0x40, 'P'),
        (0x80, 'I'),
    ];
    if bits & (0x10 | 0x20) != 0 {
        return Left::Exited;
    }
    let letter = LETTERS.iter().find(|(bit, _)| bits & bit != 0);
    letter.map_or(Left::Ready, |&(_, letter)| Left::Blocked(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(a: (&str, u32), left: Left, b: (&str, u32)) -> Event {
        let task = |(comm, tid): (&str, u32)| TaskRef {
            tid,
            comm: comm.to_string(),
        };
        Event::Switch {
            prev: task(a),
            left,
            next: task(b),
        }
    }

    #[test]
    fn kernel_style() {
        let text = "prev_comm=CPU 0/KVM prev_pid=128 prev_prio=120 prev_state=R+ ==> \
                    next_comm=swapper/1 next_pid=0 next_prio=120";
        assert_eq!(
            parse(text),
            Ok(switch(("CPU 0/KVM", 128), Left::Ready, ("swapper/1", 0)))
        );
    }

    #[test]
    fn kernel_style_with_awkward_names() {
        let text = "prev_comm=a: b=c prev_pid=1 prev_prio=120 prev_state=D|K ==> \
                    next_comm=kworker/u4:2-ev next_pid=2 next_prio=100";
        let want = switch(("a: b=c", 1), Left::Blocked('D'), ("kworker/u4:2-ev", 2));
        assert_eq!(parse(text), Ok(want));
    }

    #[test]
    fn kernel_style_with_numeric_state() {
        let text = |state: &str| {
            format!(
                "prev_comm=a prev_pid=1 prev_prio=120 prev_state={state} \
                 next_comm=b next_pid=2 next_prio=120"
            )
        };
        let want = |left| Ok(switch(("a", 1), left, ("b", 2)));
        assert_eq!(parse(&text("0x1")), want(Left::Blocked('S')));
        assert_eq!(parse(&text("0x100")), want(Left::Ready));
        assert_eq!(parse(&text("0")), want(Left::Ready));
        assert_eq!(parse(&text("32")), want(Left::Exited));
    }

    #[test]
    fn plugin_style() {
        let text = "CPU 0/KVM:128 [120] S ==> kworker/0:1:34 [120]";
        let want = switch(("CPU 0/KVM", 128), Left::Blocked('S'), ("kworker/0:1", 34));
        assert_eq!(parse(text), Ok(want));
        let text = "swapper/0:0 [120] R ==> sleep:240 [120]";
        assert_eq!(
            parse(text),
            Ok(switch(("swapper/0", 0), Left::Ready, ("sleep", 240)))
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(parse("prev_comm=a prev_pid=1"), Err("no next_comm="));
        assert_eq!(parse("nothing"), Err("no ==>"));
        assert!(parse("a:x [120] S ==> b:2 [120]").is_err());
    }
}
