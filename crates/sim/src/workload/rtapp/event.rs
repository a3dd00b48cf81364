// SPDX-License-Identifier: GPL-2.0-only
//! Reads events. rt-app: `parse_task_event_data()`, src/rt-app_parse_config.c.

use super::json::Entry;
use super::log::{Log, Object, text, whole};
use crate::workload::lexer::Place;
use corun_model::Nanos;
use corun_model::time::{LONGEST, US};

/// The longest time in a file, µs.
pub(super) const LONGEST_US: i64 = (LONGEST / US) as i64;

/// The names of events, longer names before those that they begin with: rt-app accepts any key that
/// begins with one of them, so `run1` and `run2` are both `run`.
pub(super) const EVENTS: [&str; 20] = [
    "lock", "unlock", "wait", "signal", "broad", "sync", "sleep", "runtime", "run", "timer",
    "suspend", "resume", "memrun", "mem", "iorun", "yield", "barrier", "fork", "sem_post",
    "sem_wait",
];

/// The event that a key stands for.
pub(super) fn kind(key: &str) -> Option<&'static str> {
    EVENTS.into_iter().find(|event| key.starts_with(event))
}

/// An event that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// Where its key is.
    pub at: Place,
    /// The path to its key.
    pub key: String,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Run(Nanos),
    Runtime(Nanos),
    Sleep(Nanos),
    Timer {
        name: String,
        period: Nanos,
        absolute: bool,
    },
    Lock(String),
    Unlock(String),
    Wait {
        condition: String,
        mutex: String,
    },
    Sync {
        condition: String,
        mutex: String,
    },
    Signal(String),
    Broadcast(String),
    Barrier(String),
    /// With the text that rt-app ignores since 2025.
    Suspend(String),
    Resume(String),
    Post(String),
    Take(String),
    Yield,
}

/// Reads an event of this `kind`; `None` if it is left out or wrong.
pub(super) fn read(
    entry: &Entry,
    (kind, path): (&str, &str),
    ignore: &[String],
    log: &mut Log,
) -> Option<Event> {
    let group = if kind == "unlock" { "lock" } else { kind };
    if ignore.iter().any(|name| name == group) {
        log.note(entry.at, path, "left out, as rt_app_ignore says");
        return None;
    }
    let what = match kind {
        "run" => What::Run(time(entry, path, log)?),
        "runtime" => What::Runtime(time(entry, path, log)?),
        "sleep" => What::Sleep(time(entry, path, log)?),
        "lock" => What::Lock(text(entry, path, log)?.into()),
        "unlock" => What::Unlock(text(entry, path, log)?.into()),
        "signal" => What::Signal(text(entry, path, log)?.into()),
        "broad" => What::Broadcast(text(entry, path, log)?.into()),
        "barrier" => What::Barrier(text(entry, path, log)?.into()),
        "resume" => What::Resume(text(entry, path, log)?.into()),
        "sem_post" => What::Post(text(entry, path, log)?.into()),
        "sem_wait" => What::Take(text(entry, path, log)?.into()),
        "suspend" => What::Suspend(match &entry.node.value {
            super::json::Value::Text(text) => text.clone(),
            _ => String::new(),
        }),
        "yield" => What::Yield,
        "timer" => timer(&Object::of(entry, path.into(), log)?, log)?,
        "wait" | "sync" => {
            let object = Object::of(entry, path.into(), log)?;
            object.note_others(&["ref", "mutex"], log);
            let mut name = |key| object.text(key, log).unwrap_or("unknown").to_string();
            let (condition, mutex) = (name("ref"), name("mutex"));
            match kind {
                "wait" => What::Wait { condition, mutex },
                _ => What::Sync { condition, mutex },
            }
        }
        _ => {
            log.unsupported(entry.at, path, kind, why_not(kind));
            return None;
        }
    };
    Some(Event {
        at: entry.at,
        key: path.into(),
        what,
    })
}

/// Why an event is not modelled.
fn why_not(kind: &str) -> &'static str {
    match kind {
        "fork" => "threads that begin in the midst of a run are not modelled",
        "iorun" => "it fills the guest's page cache, which is not modelled for writes",
        _ => "how long it takes depends on the memory system of the machine it runs on",
    }
}

/// Microseconds, as ns.
fn time(entry: &Entry, path: &str, log: &mut Log) -> Option<Nanos> {
    whole(entry, path, 0..=LONGEST_US, log).map(nanos)
}

/// ns of µs that are in range.
pub(super) fn nanos(us: i64) -> Nanos {
    us.unsigned_abs() * US
}

fn timer(object: &Object<'_>, log: &mut Log) -> Option<What> {
    object.note_others(&["ref", "period", "mode"], log);
    let period = match object.find("period") {
        Some(entry) => time(entry, &object.key("period"), log)?,
        None => 0,
    };
    Some(What::Timer {
        name: object.text("ref", log).unwrap_or("unknown").into(),
        period,
        absolute: object
            .text("mode", log)
            .is_some_and(|mode| mode.starts_with("absolute")),
    })
}
