// SPDX-License-Identifier: GPL-2.0-only
//! rt-app's workloads in a modelled guest, from the very files that rt-app runs.
//!
//! Problem: rt-app describes scheduling problems as threads that run, sleep, lock and wake each
//! other, and people have such files. A guest here should do the same as rt-app would in a real one,
//! and where it cannot, say so rather than do something else.
//!
//! How: [`convert`] reads the file (`json`: laxer than the standard, in order, with places), its
//! tasks and events (`task`, `event`), finds how tasks depend on each other (`links`), and makes a
//! [`Program`] for every thread (`build`). An event that cannot be carried out is a [`Fault`],
//! unless the user leaves it out; a thread's property that is not modelled is a [`Note`].
//!
//! Events mean what `run_event()` of rt-app's src/rt-app.c does; docs/scenario.md has the list. The
//! file's times are µs, on a pCPU at full speed: `calibration`, by which rt-app turns them into
//! work, is not needed.

mod attributes;
mod build;
mod event;
mod json;
mod links;
mod log;
mod names;
mod task;
#[cfg(test)]
mod tests;

use super::Program;
use corun_model::time::SEC;
use corun_model::{Nanos, harmless};
use event::EVENTS;
use json::Value;
use links::Links;
use log::{Log, Object};
use names::Names;
use std::fmt;
use task::{Context, Task};

/// The longest file, bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// A file's threads, and what there is to say about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// The threads, task by task.
    pub threads: Vec<Thread>,
    /// What is not done as the file says.
    pub notes: Vec<Note>,
    /// When rt-app would end, if ever. The threads here go on.
    pub duration: Option<Nanos>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its task's name and its number among all threads, as rt-app names it.
    pub name: String,
    /// What it does.
    pub program: Program,
    /// The vCPU that it stays on, if it does.
    pub vcpu: Option<u32>,
    /// How long it waits before anything else.
    pub delay: Nanos,
}

/// Something that prevents a file from being run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub struct Fault {
    /// Line of the file, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// The path to what is wrong, such as `tasks.worker.run`; empty if that is the file as a whole.
    pub key: String,
    /// What was found and what is accepted.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = with_colon(&self.key);
        let (line, column, message) = (self.line, self.column, &self.message);
        write!(f, "line {line}, column {column}: {key}{message}")
    }
}

/// Something that is not done as the file says, but does not prevent it from being run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Line of the file, from 1.
    pub line: usize,
    /// The path to it.
    pub key: String,
    /// What is different.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = with_colon(&self.key);
        write!(f, "line {}: {key}{}", self.line, self.message)
    }
}

fn with_colon(key: &str) -> String {
    match key.is_empty() {
        true => String::new(),
        false => format!("{key}: "),
    }
}

/// The kinds of events that can be left out; `lock` stands for `unlock`, too.
pub fn event_names() -> impl Iterator<Item = &'static str> {
    EVENTS.into_iter().filter(|name| *name != "unlock")
}

/// The threads of the rt-app file `text` in a VM of so many vCPUs, without the events of the kinds
/// in `ignore` (see [`event_names`]).
///
/// # Errors
/// Everything wrong with the file or not supported, in the order of the file; never empty.
pub fn convert(text: &str, vcpus: u32, ignore: &[String]) -> Result<Converted, Vec<Fault>> {
    let mut log = Log::default();
    let (threads, duration) = read(text, &Context { vcpus, ignore }, &mut log);
    if log.faults.is_empty() {
        log.notes.sort_by_key(|note| note.line);
        return Ok(Converted {
            threads,
            notes: log.notes,
            duration,
        });
    }
    log.faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(log.faults)
}

type Found = (Vec<Thread>, Option<Nanos>);

fn read(text: &str, context: &Context<'_>, log: &mut Log) -> Found {
    let start = super::lexer::Place { line: 1, column: 1 };
    if text.len() > MOST_BYTES {
        let message = format!("found {} bytes, expected at most {MOST_BYTES}", text.len());
        log.fault(start, "", message);
        return Found::default();
    }
    let root = match json::read(text) {
        Ok(root) => root,
        Err((at, message)) => {
            log.fault(at, "", message);
            return Found::default();
        }
    };
    let Value::Object(entries) = &root.value else {
        let message = format!("found {}, expected an object {{ … }}", root.value.show());
        log.fault(root.at, "", message);
        return Found::default();
    };
    let top = Object {
        path: String::new(),
        at: root.at,
        entries,
    };
    for entry in entries {
        if !["tasks", "global", "resources"].contains(&entry.key.as_str()) {
            log.note(entry.at, &top.key(&entry.key), UNKNOWN);
        }
    }
    let global = top.find("global");
    let global = global.and_then(|entry| Object::of(entry, "global".into(), log));
    let duration = global.and_then(|global| duration(&global, log));
    let Some(entry) = top.find("tasks") else {
        let message = "is missing, expected an object of tasks";
        log.fault(top.at, "tasks", message);
        return Found::default();
    };
    let tasks = Object::of(entry, "tasks".into(), log);
    if tasks.as_ref().is_some_and(|tasks| tasks.entries.is_empty()) {
        let message = "is empty, expected at least one task such as \"thread0\": { \"run\": 1000, \"sleep\": 9000 }";
        log.fault(entry.at, "tasks", message);
    }
    let tasks = tasks.map(|tasks| task::tasks(&tasks, context, log));
    (threads(&tasks.unwrap_or_default(), log), duration)
}

const UNKNOWN: &str = "is passed over: rt-app knows no such key";

/// Settings of rt-app that change nothing here: logs, calibration, memory of rt-app itself.
const HARMLESS: [&str; 13] = [
    "duration",
    "calibration",
    "pi_enabled",
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
    "default_policy",
];

/// Checks the global settings; returns when rt-app would end.
fn duration(global: &Object<'_>, log: &mut Log) -> Option<Nanos> {
    attributes::policy(global, "default_policy", log);
    for entry in global.entries {
        if !HARMLESS.contains(&entry.key.as_str()) {
            log.note(entry.at, &global.key(&entry.key), UNKNOWN);
        }
    }
    let seconds = global.whole("duration", -1..=i64::from(u32::MAX), log)?;
    let seconds = u64::try_from(seconds).ok()?;
    Some(seconds * SEC)
}

fn threads(tasks: &[Task], log: &mut Log) -> Vec<Thread> {
    let mut threads: Vec<Thread> = Vec::new();
    if !log.faults.is_empty() {
        return threads;
    }
    let links = Links::of(tasks, log);
    let mut names = Names::default();
    for task in tasks {
        let mut program = build::program((task, 0), &links, &mut names, log);
        // Anything else that the language itself does not allow.
        if let (true, Err(error)) = (log.faults.is_empty(), Program::parse(&program.to_string())) {
            log.fault(task.at, &task.key, error.message);
        }
        if !log.faults.is_empty() {
            continue;
        }
        let differ = build::differ(task);
        let name: String = task.name.chars().map(harmless).collect();
        for instance in 0..task.instances {
            if differ && instance > 0 {
                program = build::program((task, instance), &links, &mut names, log);
            }
            threads.push(Thread {
                name: format!("{name}-{}", threads.len()),
                program: program.clone(),
                vcpu: task.vcpu,
                delay: task.delay,
            });
        }
    }
    threads
}
