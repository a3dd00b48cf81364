// SPDX-License-Identifier: GPL-2.0-only
//! From bytes to events: what kind of file it is, its lines, and what each line says.
//!
//! ftrace and trace-cmd print the same head on each line, perf another one; a line's own form shows
//! which, so no file needs to declare its format.

pub(crate) mod comment;
pub(crate) mod foreign;
mod ftrace;
pub(crate) mod import;
pub(crate) mod input;
mod perf;

use crate::event::{self, Context, Event};
use corun_model::Nanos;

/// Where and when an event happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub comm: &'a str,
    pub tid: u32,
    pub tgid: Option<u32>,
    pub cpu: u32,
    pub context: Context,
    /// ns on the recorded clock.
    pub at: Nanos,
    pub event: &'a str,
    pub fields: &'a str,
    /// Whether the event is written with its subsystem (`sched:sched_switch`), as perf does.
    pub perf: bool,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// An event that happened.
    Event(Head<'a>, Event),
    /// A statement about the recording, without its `#` if it had one.
    Comment(&'a str),
    /// Events of a pCPU were lost; how many, if the line says so.
    Lost {
        cpu: Option<u32>,
        events: Option<u64>,
    },
    /// Nothing of interest: empty, a call chain, a tool's remark.
    Nothing,
    /// Not understood, and why.
    Unparsed(&'static str),
}

/// Reads one line, without its line end.
pub(crate) fn parse(line: &str) -> Line<'_> {
    if let Some(comment) = line.strip_prefix('#') {
        return Line::Comment(comment);
    }
    if line.trim().is_empty() {
        return Line::Nothing;
    }
    if let Some(lost) = lost(line) {
        return lost;
    }
    if is_remark(line) {
        return Line::Nothing;
    }
    if line.starts_with("cpus=") {
        return Line::Comment(line);
    }
    match head(line) {
        Err(why) => Line::Unparsed(why),
        Ok(head) => match event::parse(head.event, head.fields) {
            Ok(event) => Line::Event(head, event),
            Err(why) => Line::Unparsed(why),
        },
    }
}

/// The rest of a text after the lines with which `trace-cmd report` begins (`version = 7`, `cpus=2`). `None` if an
/// event follows them, or nothing: then it can only be a recording.
pub(crate) fn behind_headers(text: &str) -> Option<&str> {
    let is_header = |line: &str| line.starts_with("cpus=") || is_remark(line);
    let (mut rest, mut headers) = (text, false);
    while let Some(line) = rest.lines().next() {
        let line = line.trim_end();
        if is_header(line) {
            headers = true;
        } else if head(line).is_ok() {
            return None;
        } else if !line.is_empty() && !line.starts_with('#') {
            return Some(rest);
        }
        rest = rest.split_once('\n').map_or("", |(_, behind)| behind);
    }
    (!headers).then_some(rest)
}

/// `CPU:0 [LOST 12 EVENTS]`, `CPU:0 [12 EVENTS DROPPED]`, perf's `PERF_RECORD_LOST lost 12`.
fn lost(line: &str) -> Option<Line<'_>> {
    let text = line.trim_start();
    let number = |text: &str| {
        text.split([' ', ']', '['])
            .find_map(|word| word.parse().ok())
    };
    if let Some(rest) = text.strip_prefix("CPU:") {
        let (cpu, what) = rest.split_once(' ')?;
        let told = what.contains("EVENTS");
        let lost = Line::Lost {
            cpu: event::cpu(cpu).ok(),
            events: number(what),
        };
        return told.then_some(lost);
    }
    let (_, rest) = text.split_once("PERF_RECORD_LOST")?;
    let events = rest.split_once("lost ").and_then(|(_, n)| number(n));
    Some(Line::Lost { cpu: None, events })
}

/// What tools print between events: `version = 7`, `CPU 3 is empty`, a call chain's addresses.
fn is_remark(line: &str) -> bool {
    if line.starts_with("version = ") || line.starts_with("CPU ") && line.ends_with(" is empty") {
        return true;
    }
    let mut words = line.split_whitespace();
    let address = words.next().unwrap_or("");
    line.starts_with([' ', '\t'])
        && address.len() >= 4
        && address.bytes().all(|b| b.is_ascii_hexdigit())
        && !line.contains(" [0")
}

/// The part before the fields: `COMM-TID (TGID) [CPU] FLAGS TIME: EVENT: ` or perf's
/// `COMM TGID/TID [CPU] TIME: SYSTEM:EVENT: `.
fn head(line: &str) -> Result<Head<'_>, &'static str> {
    let mut why = "no task, [pCPU] and timestamp at its beginning";
    for (at, _) in line.match_indices('[') {
        let (Some(task), Some(rest)) = (line.get(..at), line.get(at + 1..)) else {
            continue;
        };
        match head_at(task, rest) {
            Ok(head) => return Ok(head),
            Err(Some(reason)) => why = reason,
            Err(None) => {}
        }
        // The pCPU column is never this far to the right: do not search long lines.
        if at > 200 {
            break;
        }
    }
    Err(why)
}

/// The head whose pCPU column begins after `task`; `Err(None)` if there is no such column.
fn head_at<'a>(task: &'a str, rest: &'a str) -> Result<Head<'a>, Option<&'static str>> {
    let (cpu, rest) = rest.split_once(']').ok_or(None)?;
    if !task.ends_with(' ') || cpu.is_empty() || !cpu.bytes().all(|b| b.is_ascii_digit()) {
        return Err(None);
    }
    let (column, at, rest) = timestamp(rest)?;
    let (event, fields, perf) = event_name(rest).ok_or("no event name after the timestamp")?;
    let task = if perf {
        perf::task(task)
    } else {
        ftrace::task(task)
    };
    let (comm, tid, tgid) = task?;
    let cpu = event::cpu(cpu)?;
    let context = ftrace::context(column);
    Ok(Head {
        comm,
        tid,
        tgid,
        cpu,
        context,
        at,
        event,
        fields,
        perf,
    })
}

/// The latency column, if there is one, the timestamp, and the rest.
fn timestamp(text: &str) -> Result<(Option<&str>, Nanos, &str), Option<&'static str>> {
    let mut column = None;
    let mut rest = text.trim_start();
    // Latency column and a possible delay mark come first.
    for _ in 0..3 {
        let (word, after) = rest.split_once(' ').ok_or(None)?;
        if let Some(stamp) = word.strip_suffix(':') {
            return Ok((column, nanos(stamp)?, after.trim_start()));
        }
        column = column.or(Some(word));
        rest = after.trim_start();
    }
    Err(None)
}

/// Seconds with a fraction of up to nine digits, as ns.
fn nanos(stamp: &str) -> Result<Nanos, Option<&'static str>> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let Some((seconds, fraction)) = stamp.split_once('.') else {
        let counter = digits(stamp);
        return Err(counter.then_some(
            "the timestamp is a plain counter: record with a clock that counts time, such as mono",
        ));
    };
    if !digits(seconds) || !digits(fraction) {
        return Err(None);
    }
    let too_large = "timestamp out of range";
    let seconds: u64 = seconds.parse().map_err(|_| too_large)?;
    let scale = match fraction.len() {
        len @ 1..=9 => 10u64.pow(9 - len as u32),
        _ => return Err(Some("more than nine digits after the timestamp's point")),
    };
    let fraction: u64 = fraction.parse().map_err(|_| too_large)?;
    let whole = seconds
        .checked_mul(corun_model::time::SEC)
        .ok_or(too_large)?;
    Ok(whole.checked_add(fraction * scale).ok_or(too_large)?)
}

/// Splits `EVENT: fields` or `[PERIOD] SYSTEM:EVENT: fields`.
fn event_name(text: &str) -> Option<(&str, &str, bool)> {
    let (first, after) = text.split_once(' ').unwrap_or((text, ""));
    if first.bytes().all(|b| b.is_ascii_digit()) && !first.is_empty() {
        return event_name(after.trim_start());
    }
    let name = first.strip_suffix(':')?;
    let fields = after.trim_start();
    match name.split_once(':') {
        Some((_, event)) => Some((event, fields, true)),
        None if name.is_empty() => None,
        None => Some((name, fields, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Head<'_> {
        match parse(line) {
            Line::Event(head, _) => head,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn ftrace_line() {
        let head = read("       CPU 0/KVM-128     [001] d.h3.    42.805334: kvm_entry: vcpu 0");
        assert_eq!((head.comm, head.tid, head.tgid), ("CPU 0/KVM", 128, None));
        assert_eq!((head.cpu, head.at), (1, 42_805_334_000));
        assert_eq!(head.context, Context::Interrupt);
        assert_eq!((head.event, head.fields), ("kvm_entry", "vcpu 0"));
    }

    #[test]
    fn ftrace_line_with_tgid() {
        let line = "  <...>-128   (   118) [000] d..2. 42.5: kvm_entry: vcpu 0";
        assert_eq!((read(line).comm, read(line).tgid), ("<...>", Some(118)));
        let line = "  <idle>-0   (-------) [000] d..2. 42.5: kvm_entry: vcpu 0";
        assert_eq!((read(line).tid, read(line).tgid), (0, None));
    }

    #[test]
    fn trace_cmd_line_without_latency_column() {
        let head = read("   worker-1-20  [003]  1234.567890123: tlb_flush:     pages:-1");
        assert_eq!((head.comm, head.tid, head.cpu), ("worker-1", 20, 3));
        assert_eq!(
            (head.at, head.context),
            (1_234_567_890_123, Context::Unknown)
        );
    }

    #[test]
    fn perf_lines() {
        let head = read(" CPU 0/KVM  118/128  [001]  42.805334:  sched:sched_stat: a=b");
        assert_eq!(
            (head.comm, head.tid, head.tgid),
            ("CPU 0/KVM", 128, Some(118))
        );
        assert!(head.perf);
        let head = read("kworker/0:1-ev    34 [000] 42.805334:   1 kvm:kvm_entry: vcpu 0");
        assert_eq!(
            (head.comm, head.tid, head.event),
            ("kworker/0:1-ev", 34, "kvm_entry")
        );
    }

    #[test]
    fn lost_events() {
        let lost = |cpu, events| Line::Lost { cpu, events };
        assert_eq!(parse("CPU:1 [LOST 123 EVENTS]"), lost(Some(1), Some(123)));
        assert_eq!(parse("CPU:0 [7 EVENTS DROPPED]"), lost(Some(0), Some(7)));
        assert_eq!(parse("CPU:0 [EVENTS DROPPED]"), lost(Some(0), None));
        let perf = "qemu 12 [001] 1.5: PERF_RECORD_LOST lost 99";
        assert_eq!(parse(perf), lost(None, Some(99)));
    }

    #[test]
    fn remarks_are_no_trouble() {
        for line in [
            "",
            "   ",
            "version = 7",
            "CPU 3 is empty",
            "\tffffffff81 schedule+0x2e",
        ] {
            assert_eq!(parse(line), Line::Nothing, "{line:?}");
        }
    }

    #[test]
    fn what_only_a_recording_begins_with() {
        let event = "[kthread]-12 [000] d..2. 42.5: kvm_entry: vcpu 0";
        for begins in [
            "",
            "cpus=2\n",
            "version = 7\r\n\ncpus=2\n",
            "# tracer: nop\n",
        ] {
            assert_eq!(behind_headers(&format!("{begins}{event}\n")), None);
        }
        assert_eq!(behind_headers("cpus=2"), None);
        assert_eq!(behind_headers("cpus=2\n[host]\nx"), Some("[host]\nx"));
        assert_eq!(behind_headers("cpus = 2\n"), Some("cpus = 2\n"));
        assert_eq!(behind_headers("# no more\n"), Some(""));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |line| match parse(line) {
            Line::Unparsed(why) => why,
            other => panic!("{line:?}: {other:?}"),
        };
        assert!(why("hello world").contains("no task"));
        assert!(why(" a-1 [000] d..2. 99999999999.5: x: y").contains("timestamp out of range"));
        assert!(why(" a-1 [000] d..2. 123456: x: y").contains("plain counter"));
        assert!(why(" a-1 [512] d..2. 1.5: x: y").contains("pCPU number out of range"));
        assert!(why(" a-99999999 [000] d..2. 1.5: x: y").contains("thread id out of range"));
        assert!(why(" a-1 [000] d..2. 1.5: sched_switch: prev_co").contains("no"));
    }
}
