// SPDX-License-Identifier: GPL-2.0-only
//! Turns tasks into programs. rt-app: `run_event()` and `thread_body()`, src/rt-app.c.

use super::event::{Event, What};
use super::links::{Links, unique};
use super::log::Log;
use super::names::Names;
use super::task::{Phase, Task, Times};
use crate::workload::lexer::Place;
use crate::workload::simple;
use crate::workload::{DeclaredQueue, Length, MOST_TIMES, Program, Statement, Timer, Vary};
use corun_model::Nanos;
use corun_model::time::US;

/// What rounds of tasks are counted as.
const UNIT: &str = "loops";
/// The work between two looks at the clock of `runtime`.
const RUNTIME_CHUNK: Nanos = 32 * US;

/// The program of thread number `instance` of a task.
pub(super) fn program(
    (task, instance): (&Task, u32),
    links: &Links,
    names: &mut Names,
    log: &mut Log,
) -> Program {
    let mut builder = Builder {
        task,
        instance,
        links,
        names,
        log,
        held: Vec::new(),
        queues: Vec::new(),
    };
    let body = builder.body();
    Program {
        queues: builder.queues,
        body,
    }
}

/// Do the threads of a task differ in what they do?
pub(super) fn differ(task: &Task) -> bool {
    let mut events = task.phases.iter().flat_map(|phase| &phase.events);
    events.any(|event| matches!(&event.what, What::Timer { name, .. } if unique(name)))
}

/// What is done once in a row: events, or a phase with rounds of its own.
enum Item<'a> {
    Event(&'a Event),
    Rounds(&'a Phase),
}

struct Builder<'a> {
    task: &'a Task,
    instance: u32,
    links: &'a Links,
    names: &'a mut Names,
    log: &'a mut Log,
    /// Mutexes held at the event at hand, innermost last.
    held: Vec<&'a str>,
    queues: Vec<DeclaredQueue>,
}

impl<'a> Builder<'a> {
    fn body(&mut self) -> Vec<Statement> {
        let task = self.task;
        let mut body = self.delay();
        let mut items = Vec::new();
        for phase in &task.phases {
            match phase.times {
                Some(1) => items.extend(phase.events.iter().map(Item::Event)),
                _ => items.push(Item::Rounds(phase)),
            }
        }
        let mut round = self.sequence(&items);
        // A phase that never ends counts its own rounds.
        let endless = task.phases.iter().any(|phase| phase.times.is_none());
        if endless {
            body.append(&mut round);
            return body;
        }
        round.push(count());
        match task.times {
            Some(1) => body.append(&mut round),
            times => body.extend(self.rounds(times, round, (task.at, &task.key))),
        }
        body
    }

    /// What comes before the first event: all timers count from the end of the delay.
    fn delay(&mut self) -> Vec<Statement> {
        let task = self.task;
        if task.delay == 0 {
            return Vec::new();
        }
        let mut timers: Vec<String> = Vec::new();
        for event in task.phases.iter().flat_map(|phase| &phase.events) {
            if let What::Timer { name, .. } = &event.what {
                let name = self.timer(name);
                if !timers.contains(&name) {
                    timers.push(name);
                }
            }
        }
        let first_due = |name| {
            Statement::Timer(Timer {
                name,
                period: task.delay,
                absolute: true,
            })
        };
        match timers.is_empty() {
            true => vec![Statement::Sleep(fixed(task.delay))],
            false => timers.into_iter().map(first_due).collect(),
        }
    }

    /// A loop, unless there is nothing in it.
    fn rounds(
        &mut self,
        times: Times,
        body: Vec<Statement>,
        (at, key): (Place, &str),
    ) -> Option<Statement> {
        if body.iter().all(|statement| *statement == count()) && times.is_some() {
            return None;
        }
        if !takes_time(&body) {
            let message =
                "its rounds take no time, expected a run, runtime, sleep or timer above 0 in them";
            self.log.fault(at, key, message);
        }
        Some(Statement::Loop(times, body))
    }

    /// Statements for a list of items; locks taken in it are released in it.
    fn sequence(&mut self, items: &[Item<'a>]) -> Vec<Statement> {
        let outside = self.held.len();
        let mut blocks: Vec<(Option<&Event>, Vec<Statement>)> = vec![(None, Vec::new())];
        for item in items {
            let statements = match item {
                Item::Rounds(phase) => {
                    let events: Vec<Item<'a>> = phase.events.iter().map(Item::Event).collect();
                    let mut body = self.sequence(&events);
                    if phase.times.is_none() {
                        body.push(count());
                    }
                    let place = (phase.at, phase.key.as_str());
                    self.rounds(phase.times, body, place).into_iter().collect()
                }
                Item::Event(event) => match &event.what {
                    What::Lock(mutex) => {
                        if self.may_lock(event, mutex) {
                            self.held.push(mutex);
                            blocks.push((Some(event), Vec::new()));
                        }
                        Vec::new()
                    }
                    What::Unlock(mutex) => {
                        if self.may_unlock(event, mutex, outside) {
                            self.held.pop();
                            let inner = blocks.pop().map(|(_, inner)| inner).unwrap_or_default();
                            vec![Statement::Mutex(self.names.of(mutex), inner)]
                        } else {
                            Vec::new()
                        }
                    }
                    _ => self.event(event),
                },
            };
            if let Some((_, block)) = blocks.last_mut() {
                block.extend(statements);
            }
        }
        self.close(blocks, outside)
    }

    /// The statements of the outermost block; others were never closed, which is a fault.
    fn close(
        &mut self,
        blocks: Vec<(Option<&Event>, Vec<Statement>)>,
        outside: usize,
    ) -> Vec<Statement> {
        self.held.truncate(outside);
        for (lock, _) in blocks.iter().skip(1) {
            if let Some(event) = lock {
                let why = "there is no unlock before the end of the round or task";
                self.log.unsupported(event.at, &event.key, "lock", why);
            }
        }
        // Such a lock is not carried out, but nothing is wrong with the statements within it: they
        // are kept.
        blocks.into_iter().flat_map(|(_, block)| block).collect()
    }

    fn may_lock(&mut self, event: &Event, mutex: &str) -> bool {
        let held = self.held.contains(&mutex);
        if held {
            let message =
                format!("waits for itself for ever: {mutex:?} is locked already by this thread");
            self.log.fault(event.at, &event.key, message);
        }
        !held
    }

    fn may_unlock(&mut self, event: &Event, mutex: &str, outside: usize) -> bool {
        let own = self.held.get(outside..).unwrap_or_default();
        if own.last() == Some(&mutex) {
            return true;
        }
        let why = match own.last() {
            Some(other) if own.contains(&mutex) => {
                format!("{other:?}, locked after {mutex:?}, is not unlocked before it")
            }
            _ => format!("{mutex:?} is not locked before it in the same round"),
        };
        self.log.unsupported(event.at, &event.key, "lock", &why);
        false
    }

    /// The statements for one event that opens or closes no block.
    fn event(&mut self, event: &'a Event) -> Vec<Statement> {
        match &event.what {
            What::Run(0) | What::Timer { period: 0, .. } => Vec::new(),
            What::Run(work) => vec![Statement::Compute(fixed(*work))],
            // rt-app does one chunk of work before its first look at the clock.
            What::Runtime(0) => vec![Statement::Compute(fixed(RUNTIME_CHUNK))],
            What::Runtime(time) => vec![Statement::Busy(fixed(*time))],
            // The thread still sleeps until the timer slack is over.
            What::Sleep(time) => vec![Statement::Sleep(fixed((*time).max(1)))],
            What::Timer { name, period, .. } => vec![Statement::Timer(Timer {
                absolute: self.links.absolute(self.task, name),
                name: self.timer(name),
                period: *period,
            })],
            What::Yield => vec![Statement::Yield],
            What::Barrier(name) => self.barrier(event, name),
            What::Post(name) if !self.links.is_taken(name) => Vec::new(),
            What::Post(name) => vec![Statement::Send(self.semaphore(name))],
            What::Take(name) => vec![Statement::Recv(self.semaphore(name))],
            _ => self.condition(event),
        }
    }

    /// The statements for waiting and waking.
    fn condition(&mut self, event: &'a Event) -> Vec<Statement> {
        match &event.what {
            What::Signal(name) => vec![Statement::Signal(self.woken(event, name))],
            What::Broadcast(name) => vec![Statement::Broadcast(self.woken(event, name))],
            What::Resume(name) => {
                let broadcast = Statement::Broadcast(self.woken(event, name));
                self.locked(event, name, vec![broadcast])
            }
            What::Suspend(text) => {
                let on = self.links.suspended_on(self.task, text);
                let wait = Statement::Wait(self.names.of(on));
                self.locked(event, on, vec![wait])
            }
            What::Wait { condition, mutex } => {
                self.lets_go(event, mutex);
                vec![Statement::Wait(self.names.of(condition))]
            }
            What::Sync { condition, mutex } => {
                let condition = self.names.of(condition);
                let both = vec![
                    Statement::Signal(condition.clone()),
                    Statement::Wait(condition),
                ];
                if !self.held.contains(&mutex.as_str()) {
                    return self.locked(event, mutex, both);
                }
                self.lets_go(event, mutex);
                both
            }
            _ => Vec::new(),
        }
    }

    /// Statements between lock and unlock.
    fn locked(&mut self, event: &Event, mutex: &str, body: Vec<Statement>) -> Vec<Statement> {
        self.may_lock(event, mutex);
        vec![Statement::Mutex(self.names.of(mutex), body)]
    }

    /// Checks that the mutex is the innermost one, which is what a `wait` lets go.
    fn lets_go(&mut self, event: &Event, mutex: &str) {
        if self.held.last() == Some(&mutex) {
            return;
        }
        let why = match self.held.contains(&mutex) {
            true => format!("another mutex was locked after {mutex:?} and stays locked"),
            false => format!("{mutex:?} is not locked before it in the same round"),
        };
        let kind = match event.what {
            What::Sync { .. } => "sync",
            _ => "wait",
        };
        self.log.unsupported(event.at, &event.key, kind, &why);
    }

    /// The name of a condition that is signalled.
    fn woken(&mut self, event: &Event, name: &str) -> String {
        if !self.links.awaited(name) {
            let message = format!("has no effect: nothing waits or is suspended on {name:?}");
            self.log.note(event.at, &event.key, message);
        }
        self.names.of(name)
    }

    fn barrier(&mut self, event: &Event, name: &str) -> Vec<Statement> {
        if !self.links.holds_up(name) {
            return Vec::new();
        }
        if let Some(mutex) = self.held.last() {
            let why = format!("{mutex:?} is locked, and the others may need it to get there");
            self.log.unsupported(event.at, &event.key, "barrier", &why);
        }
        vec![Statement::Barrier(self.names.of(name))]
    }

    /// The queue that stands for a semaphore: its items are the count, and it is never full.
    fn semaphore(&mut self, name: &str) -> String {
        let name = self.names.of(name);
        if !self.queues.iter().any(|known| known.name == name) {
            self.queues.push(DeclaredQueue {
                name: name.clone(),
                places: MOST_TIMES,
                writable: None,
            });
        }
        name
    }

    /// The name of a timer; that of a unique timer contains its thread's.
    fn timer(&mut self, name: &str) -> String {
        match unique(name) {
            true => {
                let own = format!("{}-{}-{name}", self.task.name, self.instance);
                self.names.of(&own)
            }
            false => self.names.of(name),
        }
    }
}

fn fixed(mean: Nanos) -> Length {
    Length {
        mean,
        vary: Vary::Fixed,
    }
}

fn count() -> Statement {
    Statement::Count(1, Some(UNIT.into()))
}

/// Does doing all of it take time?
fn takes_time(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Loop(_, body) | Statement::Mutex(_, body) => takes_time(body),
        other => simple::takes_time(other),
    })
}
