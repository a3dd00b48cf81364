// SPDX-License-Identifier: GPL-2.0-only
//! Playing a recording back: inputs from the file, decisions compared with it.

use super::format::{Entry, Record, Recording};
use crate::conf::Knobs;
use crate::layout::TaskStruct;
use crate::native::{Build, Kick, Native, Services, passes};
use corun_model::Nanos;
use std::collections::HashMap;

/// `enum tap_op`.
const OPS: [(u32, &str); 8] = [
    (1, "select_cpu"),
    (2, "enqueue"),
    (3, "dispatch"),
    (4, "running"),
    (5, "stopping"),
    (7, "timer"),
    (9, "release"),
    (10, "yield"),
];
/// `IN_NEXT_QUEUED`: a walk over a queue goes on.
const NEXT_QUEUED: u32 = 10;
/// Kinds from here on are decisions.
const FIRST_DECISION: u32 = 64;
/// Divergences kept for the report; all are counted.
const KEPT: usize = 10;

/// A place where the two builds part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Which record, from 0.
    pub record: usize,
    /// The callback.
    pub op: &'static str,
    /// The task's id.
    pub task: u32,
    /// Which entry of the record.
    pub entry: usize,
    /// What the kernel has there; `None`: nothing more.
    pub kernel: Option<Entry>,
    /// What the native build has; `None`: nothing more.
    pub native: Option<Entry>,
}

/// What was compared while a policy was in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderPolicy {
    /// Its name.
    pub policy: String,
    /// Callbacks replayed.
    pub callbacks: u64,
    /// Decisions compared.
    pub decisions: u64,
    /// Callbacks that differed.
    pub diverged: u64,
}

/// How a replay went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Callbacks replayed.
    pub callbacks: u64,
    /// Decisions compared.
    pub decisions: u64,
    /// Inputs handed over.
    pub inputs: u64,
    /// Callbacks by name.
    pub by_op: Vec<(&'static str, u64)>,
    /// Tasks seen.
    pub tasks: usize,
    /// The same by policy, in the order in which policies were in force; empty if the recording does not say. A change
    /// shows in the recording a moment late: some callbacks count for the policy before.
    pub by_policy: Vec<UnderPolicy>,
    /// Callbacks left out because an earlier one of their task is missing, or they were cut.
    pub skipped: u64,
    /// Callbacks that differed.
    pub diverged: u64,
    /// The first of them.
    pub divergences: Vec<Divergence>,
}

/// The host of a replay: it knows the record being replayed and nothing else.
#[derive(Default)]
struct Tape {
    entries: Vec<Entry>,
    at: usize,
    differs: Option<(usize, Option<Entry>, Option<Entry>)>,
    decisions: u64,
    /// Stands for any task met in a queue.
    other: usize,
}

impl Tape {
    fn load(&mut self, entries: &[Entry]) {
        self.entries.clear();
        self.entries.extend_from_slice(entries);
        self.at = 0;
        self.differs = None;
    }

    fn differ(&mut self, native: Option<Entry>) {
        let kernel = self.entries.get(self.at).copied();
        self.differs.get_or_insert((self.at, kernel, native));
    }

    /// After the callback: entries that are left over are a difference, too.
    fn rest(&mut self) -> Option<(usize, Option<Entry>, Option<Entry>)> {
        if self.at < self.entries.len() {
            self.differ(None);
        }
        self.differs
    }
}

impl Services for Tape {
    const BUILD: Build = Build::Tapped;

    fn tap_in(&mut self, kind: u32, value: u64) -> u64 {
        match self.entries.get(self.at) {
            Some(entry) if entry.kind == kind && self.differs.is_none() => {
                self.at += 1;
                entry.value
            }
            _ if !passes(kind, 0) => 0,
            _ => {
                self.differ(Some(Entry { kind, value }));
                value
            }
        }
    }

    fn tap_out(&mut self, kind: u32, value: u64) {
        let native = Entry { kind, value };
        if self.differs.is_none() && self.entries.get(self.at) == Some(&native) {
            self.at += 1;
            self.decisions += 1;
        } else {
            self.differ(Some(native));
        }
    }

    /// A walk goes on where the recording says so; the length of any walk is bounded by that.
    fn next_queued(&mut self, _queue: u64, _after: Option<usize>) -> Option<usize> {
        let next = self
            .entries
            .get(self.at)
            .filter(|entry| entry.kind == NEXT_QUEUED);
        next.filter(|_| self.differs.is_none()).map(|_| self.other)
    }

    // What these return is an input, which the tap replaces.
    fn claim_idle(&mut self, _cpu: u32) -> bool {
        false
    }
    fn queue_length(&mut self, _queue: u64) -> u32 {
        0
    }
    fn move_first(&mut self, _queue: u64) -> bool {
        false
    }
    fn move_queued(&mut self, _task: usize, _cpu: u32) -> bool {
        false
    }

    fn requeue(&mut self, _task: usize, _queue: u64, _vtime: u64) -> bool {
        false
    }

    // What these are asked to do was compared at the tap.
    fn insert(&mut self, _task: usize, _queue: u64, _slice: Nanos, _vtime: u64) {}
    fn insert_next(&mut self, _task: usize, _cpu: u32, _slice: Nanos) {}
    fn insert_local(&mut self, _task: usize, _slice: Nanos) {}
    fn kick(&mut self, _cpu: u32, _how: Kick) {}
    fn set_slice(&mut self, _task: usize, _slice: Nanos) {}
    fn start_timer(&mut self, _timer: u32, _delay: Nanos) {}
}

/// Runs the native build through a recording.
pub fn replay(recording: &Recording) -> Outcome {
    let mut replay = Replay::new(recording.knobs);
    let mut policies = recording.policies.iter().peekable();
    for (number, record) in recording.records.iter().enumerate() {
        while let Some((_, policy)) = policies.next_if(|&&(from, _)| from <= number) {
            replay.begin_policy(policy);
        }
        replay.record(number, record);
    }
    replay.finish()
}

/// A replay under way.
struct Replay {
    native: Native<Tape>,
    /// By id: index in `native`, and number of the callback expected next.
    tasks: HashMap<u32, (usize, u64)>,
    /// Callbacks replayed, by place in [`OPS`].
    by_op: [u64; OPS.len()],
    outcome: Outcome,
}

impl Replay {
    fn new(knobs: Knobs) -> Self {
        // The recording says when the dispatcher looked at gangs; it needs room for them whenever it did.
        let knobs = Knobs { gangs: 1, ..knobs };
        let mut native = Native::new(knobs, Tape::default());
        let other = native.add_task(TaskStruct::default(), 0);
        native.services().other = other;
        Self {
            native,
            tasks: HashMap::new(),
            by_op: [0; OPS.len()],
            outcome: Outcome::default(),
        }
    }

    fn begin_policy(&mut self, policy: &str) {
        self.outcome.by_policy.push(UnderPolicy {
            policy: policy.to_string(),
            ..UnderPolicy::default()
        });
    }

    /// Replays one callback, unless it is unknown, cut, or its task missed an earlier one.
    fn record(&mut self, number: usize, record: &Record) {
        let Some(op) = OPS.iter().position(|&(op, _)| op == record.op) else {
            self.outcome.skipped += 1;
            return;
        };
        let task = task_of(&mut self.native, &mut self.tasks, record);
        let whole = record.counted as usize == record.entries.len();
        let (Some(task), true) = (task, whole) else {
            self.outcome.skipped += 1;
            return;
        };
        self.native.services().load(&record.entries);
        let decided = self.native.services().decisions;
        call(&mut self.native, record, task);
        let difference = self.native.services().rest();
        let decisions = self.native.services().decisions - decided;
        self.by_op[op] += 1;
        self.count(inputs(record), decisions, difference.is_some());
        if let Some((entry, kernel, native)) = difference
            && self.outcome.divergences.len() < KEPT
        {
            self.outcome.divergences.push(Divergence {
                record: number,
                op: OPS[op].1,
                task: record.task,
                entry,
                kernel,
                native,
            });
        }
    }

    /// Counts a callback, in all and under the policy in force.
    fn count(&mut self, inputs: u64, decisions: u64, diverged: bool) {
        let outcome = &mut self.outcome;
        outcome.callbacks += 1;
        outcome.inputs += inputs;
        outcome.decisions += decisions;
        outcome.diverged += u64::from(diverged);
        if let Some(under) = outcome.by_policy.last_mut() {
            under.callbacks += 1;
            under.decisions += decisions;
            under.diverged += u64::from(diverged);
        }
    }

    fn finish(self) -> Outcome {
        let names = OPS.iter().map(|&(_, name)| name);
        Outcome {
            tasks: self.tasks.len(),
            by_op: names.zip(self.by_op).collect(),
            ..self.outcome
        }
    }
}

fn inputs(record: &Record) -> u64 {
    record
        .entries
        .iter()
        .filter(|entry| entry.kind < FIRST_DECISION)
        .count() as u64
}

/// The record's task, with its number checked, or the stand-in if it has none. `None`: an earlier record of the task is
/// missing.
fn task_of(
    native: &mut Native<Tape>,
    tasks: &mut HashMap<u32, (usize, u64)>,
    record: &Record,
) -> Option<usize> {
    if record.task == 0 {
        return Some(native.services().other);
    }
    if record.seq == 1 {
        // A new task, perhaps with the id of one that is gone.
        let task = TaskStruct {
            id: record.task,
            ..TaskStruct::default()
        };
        let index = native.add_task(task, 0);
        tasks.insert(record.task, (index, 2));
        return Some(index);
    }
    let (index, expected) = tasks.get_mut(&record.task)?;
    if *expected != record.seq {
        tasks.remove(&record.task);
        return None;
    }
    *expected += 1;
    Some(*index)
}

fn call(native: &mut Native<Tape>, record: &Record, task: usize) {
    let cpu = record.cpu.max(0) as u32;
    match record.op {
        1 => {
            native.select_cpu(0, cpu, task, record.arg as u32, None);
        }
        2 => native.enqueue(0, cpu, task),
        3 => native.dispatch(0, record.arg as u32, (record.task != 0).then_some(task)),
        4 => native.running(0, cpu, task),
        5 => native.stopping(0, cpu, task, record.arg != 0),
        7 => native.timer(0, record.arg as u32),
        9 => native.release(0, record.arg as u32),
        _ => {
            let other = native.services().other;
            native.yields(0, cpu, task, (record.arg != 0).then_some(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recordings older than such an input replay as ever, and new ones hold it where it is not 0.
    #[test]
    fn what_is_not_there_is_0_where_that_may_be() {
        const MICRO: u32 = 24;
        const SHARED: u32 = 12;
        let entry = |kind| Entry { kind, value: 1 };
        let mut tape = Tape::default();
        tape.load(&[entry(SHARED), entry(MICRO), entry(SHARED)]);
        let read = [MICRO, SHARED, MICRO, SHARED, MICRO].map(|kind| tape.tap_in(kind, 1));
        assert_eq!((read, tape.rest()), ([0, 1, 1, 1, 0], None));
    }
}
