// SPDX-License-Identifier: GPL-2.0-only
//! How tasks depend on each other: which task wakes which, which come to a barrier, which share a
//! timer.

use super::event::What;
use super::log::Log;
use super::task::Task;
use std::collections::{BTreeMap, BTreeSet};

/// What the events of all tasks add up to.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Conditions that some task signals, broadcasts, syncs on or resumes.
    woken: BTreeSet<String>,
    /// Conditions that some task waits on, suspended tasks included.
    awaited: BTreeSet<String>,
    /// Threads that come to each barrier.
    barriers: BTreeMap<String, u32>,
    posted: BTreeSet<String>,
    taken: BTreeSet<String>,
    timers: BTreeMap<String, TimerUse>,
}

/// How a timer is used.
#[derive(Debug, Default)]
struct TimerUse {
    /// One absolute use makes it absolute for all, as in rt-app.
    absolute: bool,
    /// What uses it: a task's first thread, and one more entry for its further instances.
    users: BTreeSet<(usize, bool)>,
}

/// Is there one timer of this name for each thread, rather than one for all?
pub(super) fn unique(timer: &str) -> bool {
    timer.starts_with("unique")
}

/// A timer's name among all: unique ones are known within their task.
fn timer_key(task: &Task, timer: &str) -> String {
    match unique(timer) {
        true => format!("{}/{timer}", task.name),
        false => timer.into(),
    }
}

impl Links {
    pub fn of(tasks: &[Task], log: &mut Log) -> Self {
        let mut links = Self::default();
        for (index, task) in tasks.iter().enumerate() {
            for event in task.phases.iter().flat_map(|phase| &phase.events) {
                links.add(index, task, &event.what);
            }
        }
        for task in tasks {
            for event in task.phases.iter().flat_map(|phase| &phase.events) {
                if let What::Suspend(text) = &event.what {
                    let condition = links.suspended_on(task, text).to_string();
                    if condition != task.name {
                        let message = format!(
                            "suspends on {condition:?}, as rt-app did before 2025: nothing resumes {:?}",
                            task.name
                        );
                        log.note(event.at, &event.key, message);
                    }
                    links.awaited.insert(condition);
                }
            }
        }
        tasks.iter().for_each(|task| links.check(task, log));
        links
    }

    fn add(&mut self, index: usize, task: &Task, what: &What) {
        match what {
            What::Signal(name) | What::Broadcast(name) | What::Resume(name) => {
                self.woken.insert(name.clone());
            }
            What::Wait { condition, .. } => {
                self.awaited.insert(condition.clone());
            }
            What::Sync { condition, .. } => {
                self.woken.insert(condition.clone());
                self.awaited.insert(condition.clone());
            }
            What::Barrier(name) => {
                let threads = self.barriers.entry(name.clone()).or_default();
                *threads = threads.saturating_add(task.instances);
            }
            What::Post(name) => {
                self.posted.insert(name.clone());
            }
            What::Take(name) => {
                self.taken.insert(name.clone());
            }
            What::Timer { name, absolute, .. } => {
                let used = self.timers.entry(timer_key(task, name)).or_default();
                used.absolute |= absolute;
                used.users.insert((index, false));
                if task.instances > 1 && !unique(name) {
                    used.users.insert((index, true));
                }
            }
            _ => {}
        }
    }

    /// What a task suspends on: itself, or, in files from before rt-app ignored the event's text,
    /// what the text says, if that makes sense and the task does not.
    pub fn suspended_on<'a>(&self, task: &'a Task, text: &'a str) -> &'a str {
        match self.woken.contains(text) && !self.woken.contains(&task.name) {
            true => text,
            false => &task.name,
        }
    }

    /// Does any task wait on this condition?
    pub fn awaited(&self, condition: &str) -> bool {
        self.awaited.contains(condition)
    }

    /// Does the barrier hold any task up?
    pub fn holds_up(&self, barrier: &str) -> bool {
        self.barriers.get(barrier).is_some_and(|users| *users > 1)
    }

    /// Does the semaphore hold any task up?
    pub fn is_taken(&self, semaphore: &str) -> bool {
        self.taken.contains(semaphore)
    }

    /// Is the timer absolute?
    pub fn absolute(&self, task: &Task, timer: &str) -> bool {
        let used = self.timers.get(&timer_key(task, timer));
        used.is_some_and(|used| used.absolute)
    }

    /// Reports a task that waits for ever, because no task does what it waits for.
    fn check(&self, task: &Task, log: &mut Log) {
        let mut barriers = BTreeSet::new();
        for event in task.phases.iter().flat_map(|phase| &phase.events) {
            let for_ever = |what: String| format!("waits for ever: nothing {what}");
            match &event.what {
                What::Suspend(text) => {
                    let on = self.suspended_on(task, text);
                    if !self.woken.contains(on) {
                        log.fault(event.at, &event.key, for_ever(format!("resumes {on:?}")));
                    }
                }
                What::Wait { condition, .. } if !self.woken.contains(condition) => {
                    let what = for_ever(format!("signals {condition:?}"));
                    log.fault(event.at, &event.key, what);
                }
                What::Take(name) if !self.posted.contains(name) => {
                    let what = for_ever(format!("posts semaphore {name:?}"));
                    log.fault(event.at, &event.key, what);
                }
                What::Barrier(name) if !barriers.insert(name) => {
                    let why = "the task comes to the barrier already, so that rt-app would wait \
                               for one more thread than there is";
                    log.unsupported(event.at, &event.key, "barrier", why);
                }
                What::Timer { name, .. } if task.delay > 0 && self.shared(task, name) => {
                    let why = "threads that begin at different times share the timer";
                    log.unsupported(event.at, &event.key, "timer", why);
                }
                _ => {}
            }
        }
    }

    fn shared(&self, task: &Task, timer: &str) -> bool {
        let used = self.timers.get(&timer_key(task, timer));
        used.is_some_and(|used| used.users.len() > 1)
    }
}
