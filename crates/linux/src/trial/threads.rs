// SPDX-License-Identifier: GPL-2.0-only
//! A trial with threads of this process.

use super::programs::{self, Crowd};
use super::{Done, Outcome, Program, Trial, TrialError, Turns, VcpuCounters, settle};
use corun_model::Nanos;
use corun_system::clock;
use std::sync::{Barrier, OnceLock};

/// Runs a trial: takes its warm-up and time, and what programs need to get ready.
///
/// # Errors
/// [`TrialError`].
pub fn run(trial: &Trial) -> Result<Outcome, TrialError> {
    trial.check_memory()?;
    let (subject, count) = trial.subject;
    let mut programs = vec![subject; count];
    programs.extend(&trial.others);
    let shared = Shared {
        ready: Barrier::new(programs.len()),
        began: OnceLock::new(),
        crowd: Crowd::default(),
        per_us: programs::iterations_per_us(),
    };
    let done: Vec<Result<Done, TrialError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&programs)
            .map(|(number, program)| {
                let shared = &shared;
                scope.spawn(move || body(trial, *program, number, shared))
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(TrialError::Ended))
        };
        threads.into_iter().map(join).collect()
    });
    let done = done.into_iter().collect::<Result<Vec<Done>, _>>()?;
    Ok(Outcome::of(done, count))
}

/// What the threads of a trial have in common.
struct Shared {
    ready: Barrier,
    began: OnceLock<Nanos>,
    crowd: Crowd,
    per_us: u64,
}

fn body(
    trial: &Trial,
    program: Program,
    number: usize,
    shared: &Shared,
) -> Result<Done, TrialError> {
    let mut work = program.make(number as u64, shared.per_us);
    let set = trial.pcpu(number).and_then(|cpu| settle(cpu, trial.slice));
    // All wait for all, whatever went wrong.
    shared.ready.wait();
    let tid = set?;
    let began = *shared.began.get_or_init(clock::now);
    let from = began + trial.warm_up;
    let until = from + trial.time;
    let mut turns = Turns::new(clock::now(), from);
    while turns.last() < from {
        work.step(&shared.crowd, until, &mut turns);
    }
    let counters = VcpuCounters::open(tid);
    let before = counters.read();
    let (counted, since) = (work.done(), turns.last());
    while turns.last() < until {
        work.step(&shared.crowd, until, &mut turns);
    }
    let llc = counters.read().since(&before).llc;
    let (done, busy) = work.done().since(&counted, turns.last() - since);
    Ok(Done {
        work: done,
        time: busy,
        turns: turns.into_lengths(),
        llc,
        periods: Vec::new(),
    })
}
