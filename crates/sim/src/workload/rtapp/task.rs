// SPDX-License-Identifier: GPL-2.0-only
//! Reads tasks and their phases. rt-app: `parse_task_data()` and `parse_task_phase_data()`,
//! src/rt-app_parse_config.c.

use super::attributes::{self, Cpus};
use super::event::{self, Event, LONGEST_US, nanos};
use super::json::Entry;
use super::log::{Log, Object};
use crate::workload::MOST_TIMES;
use crate::workload::lexer::Place;
use corun_model::Nanos;

/// The most threads of a file.
pub(super) const MOST_THREADS: i64 = 65_536;

/// How often something is done; `None`: for ever.
pub(super) type Times = Option<u32>;

/// A task: one or more equal threads.
#[derive(Debug)]
pub(super) struct Task {
    /// Its name, which no other task has.
    pub name: String,
    pub at: Place,
    /// The path to it.
    pub key: String,
    pub instances: u32,
    pub delay: Nanos,
    /// The vCPU that its threads stay on.
    pub vcpu: Option<u32>,
    /// How often all phases are done.
    pub times: Times,
    pub phases: Vec<Phase>,
}

#[derive(Debug)]
pub(super) struct Phase {
    pub at: Place,
    pub key: String,
    pub times: Times,
    pub events: Vec<Event>,
}

/// What the reading of tasks needs to know.
pub(super) struct Context<'a> {
    /// vCPUs of the VM.
    pub vcpus: u32,
    /// Kinds of events to leave out.
    pub ignore: &'a [String],
}

/// All tasks that have threads.
pub(super) fn tasks(object: &Object<'_>, context: &Context<'_>, log: &mut Log) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut threads = 0;
    for entry in object.entries {
        let key = object.key(&entry.key);
        let Some(inner) = Object::of(entry, key.clone(), log) else {
            continue;
        };
        let instances = inner.whole("instance", 0..=MOST_THREADS, log).unwrap_or(1);
        threads += instances;
        if threads > MOST_THREADS {
            log.fault(
                entry.at,
                &inner.key("instance"),
                format!("{threads} threads with the tasks before, expected at most {MOST_THREADS}"),
            );
            return tasks;
        }
        let name = unused(&entry.key, &tasks);
        let task = task(name, &inner, context, log);
        match u32::try_from(instances) {
            Ok(instances) if instances > 0 => tasks.push(Task { instances, ..task }),
            _ => log.note(entry.at, &key, "has no instance: no thread does this"),
        }
    }
    tasks
}

/// The name, with a number added if there is such a task already, as workgen does.
fn unused(name: &str, tasks: &[Task]) -> String {
    let known = |name: &str| tasks.iter().any(|task| task.name == name);
    let numbered = (1..).map(|n: u32| format!("{name}{n}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names
        .find(|name| !known(name))
        .unwrap_or_else(|| name.into())
}

fn task(name: String, object: &Object<'_>, context: &Context<'_>, log: &mut Log) -> Task {
    let delay = object.whole("delay", 0..=LONGEST_US, log);
    attributes::scheduling(object, log);
    let mut cpus = Cpus::of_task(object, context.vcpus, log);
    let (times, phases) = match object.find("phases") {
        Some(entry) => {
            check_keys(object, Level::TaskWithPhases, log);
            let inner = Object::of(entry, object.key("phases"), log);
            let phases = inner.map(|inner| phases(&inner, &mut cpus, context, log));
            (times(object, None, log), phases.unwrap_or_default())
        }
        None => {
            check_keys(object, Level::Task, log);
            let times = times(object, None, log);
            let once = phase(object, Some(1), context, log);
            (times, vec![once])
        }
    };
    if phases.iter().all(|phase| phase.events.is_empty()) && log.faults.is_empty() {
        let message = "has no events left, expected run, sleep, timer or the like";
        log.fault(object.at, &object.path, message);
    }
    Task {
        name,
        at: object.at,
        key: object.path.clone(),
        instances: 0,
        delay: nanos(delay.unwrap_or(0)),
        vcpu: cpus.bound(object, log),
        times,
        phases,
    }
}

/// The phases in order, up to one that never ends.
fn phases(
    object: &Object<'_>,
    cpus: &mut Cpus,
    context: &Context<'_>,
    log: &mut Log,
) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for entry in object.entries {
        // Two phases with the same name are still two phases.
        let Some(inner) = Object::of(entry, object.key(&entry.key), log) else {
            continue;
        };
        if let Some(last) = phases.last().filter(|last| last.times.is_none()) {
            let message = format!("is never reached: {} never ends", last.key);
            log.note(entry.at, &inner.path, message);
            continue;
        }
        check_keys(&inner, Level::Phase, log);
        attributes::scheduling(&inner, log);
        cpus.of_phase(&inner, context.vcpus, log);
        let times = times(&inner, Some(1), log);
        phases.push(phase(&inner, times, context, log));
    }
    phases
}

fn phase(object: &Object<'_>, times: Times, context: &Context<'_>, log: &mut Log) -> Phase {
    let read = |entry: &Entry| {
        let kind = event::kind(&entry.key)?;
        let path = object.key(&entry.key);
        event::read(entry, (kind, &path), context.ignore, log)
    };
    Phase {
        at: object.at,
        key: object.path.clone(),
        times,
        events: object.entries.iter().filter_map(read).collect(),
    }
}

/// `loop`: -1 is for ever.
fn times(object: &Object<'_>, default: Times, log: &mut Log) -> Times {
    let Some(entry) = object.find("loop") else {
        return default;
    };
    let key = object.key("loop");
    match super::log::whole(entry, &key, -1..=i64::from(MOST_TIMES), log) {
        Some(0) => {
            let message = "found 0, expected -1 (for ever) or a number of rounds from 1";
            log.fault(entry.node.at, &key, message);
            default
        }
        Some(-1) => None,
        Some(times) => u32::try_from(times).ok(),
        None => default,
    }
}

/// What tasks and phases may have besides events.
const KNOWN: [&str; 4] = ["loop", "cpus", "taskgroup", "nodes_membind"];
/// What tasks may have.
const KNOWN_OF_TASKS: [&str; 3] = ["instance", "delay", "phases"];

/// In what kind of object keys are.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Task,
    TaskWithPhases,
    Phase,
}

/// Notes the keys that rt-app ignores.
fn check_keys(object: &Object<'_>, level: Level, log: &mut Log) {
    for entry in object.entries {
        let key = entry.key.as_str();
        let of_tasks = level != Level::Phase && KNOWN_OF_TASKS.contains(&key);
        if of_tasks || attributes::SCHEDULING.contains(&key) || KNOWN.contains(&key) {
            continue;
        }
        let message = match (event::kind(key), level) {
            (Some(_), Level::TaskWithPhases) => {
                "is passed over, as rt-app does: events go into phases here"
            }
            (Some(_), _) => continue,
            (None, _) => "is passed over: rt-app has no such event or property",
        };
        log.note(entry.at, &object.key(key), message);
    }
}
