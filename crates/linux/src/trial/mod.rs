// SPDX-License-Identifier: GPL-2.0-only
//! Calibration's programs on real pCPUs, beside each other, at a slice: what `corun calibrate --here`
//! measures (AQL_Sched, EuroSys 2016, §3.4).
//!
//! vCPUs of a host without sched_ext are threads that ask the kernel for a slice, as [`crate::stock`]
//! does it. Here they are threads of this process, so that nobody's guests are touched: one vCPU each, on
//! one pCPU each. What threads cannot show is what only guests do: exits. Their limits are not found.
//!
//! A turn on a pCPU ends where the thread's clock jumps: a request for a slice is one thing, what is
//! delivered another, and this shows the latter without the kernel's help.

mod programs;
mod turns;

pub use programs::Program;
pub use turns::Turns;

use crate::clock;
use crate::perf::VcpuCounters;
use crate::stock::thread::{own_slice, set_affinity, set_slice};
use corun_model::{LlcSeen, Nanos, PcpuId, PcpuSet};
use programs::Crowd;
use std::io;
use std::sync::{Barrier, OnceLock};

/// What runs beside each other.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is looked at: so many threads of it, on as many pCPUs.
    pub subject: (Program, usize),
    /// What runs beside it, a thread each.
    pub others: Vec<Program>,
    /// The pCPUs; thread n is on the n-th, over and over.
    pub pcpus: Vec<PcpuId>,
    /// The slice that all ask for, ns; 0.1 to 100 ms.
    pub slice: Nanos,
    /// How long they run before it counts, ns.
    pub warm_up: Nanos,
    /// How long it counts, ns.
    pub time: Nanos,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Time per work of the subject, in any unit; NaN if it did nothing.
    pub time_per_work: f64,
    /// Lengths of all threads' turns, ns.
    pub turns: Vec<Nanos>,
    /// What the subject did in the last-level cache, where this machine counts it.
    pub llc: Option<LlcSeen>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The kernel is too old.
    #[error("this kernel takes no slices from threads: Linux 6.12 and newer do")]
    NoSlices,
    /// The kernel refused something.
    #[error("a thread could not be set up: {0}")]
    Thread(#[from] io::Error),
    /// A thread ended before its time.
    #[error("a thread of a calibration program ended before its time")]
    Ended,
}

/// What a thread has done.
struct Done {
    /// Work, or requests.
    work: u64,
    /// Time that counts against it, ns.
    time: Nanos,
    turns: Vec<Nanos>,
    llc: Option<LlcSeen>,
}

/// Does this kernel take slices from threads?
///
/// # Errors
/// [`TrialError::NoSlices`].
pub fn possible() -> Result<(), TrialError> {
    own_slice().map(|_| ()).ok_or(TrialError::NoSlices)
}

/// Runs a trial: takes its warm-up and time, and what programs need to get ready.
///
/// # Errors
/// [`TrialError`].
pub fn run(trial: &Trial) -> Result<Outcome, TrialError> {
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
    let (work, time) = done[..count].iter().fold((0, 0), |(work, time), one| {
        (work + one.work, time + one.time)
    });
    Ok(Outcome {
        time_per_work: if work == 0 {
            f64::NAN
        } else {
            time as f64 / work as f64
        },
        llc: done.first().and_then(|first| first.llc),
        turns: done.into_iter().flat_map(|one| one.turns).collect(),
    })
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
    let set = settle(trial, number);
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
    })
}

/// Puts this thread on its pCPU, at the slice. Returns its number.
fn settle(trial: &Trial, number: usize) -> io::Result<u32> {
    // SAFETY: takes nothing and always works.
    let tid = u32::try_from(unsafe { libc::gettid() }).map_err(io::Error::other)?;
    let cpu = trial.pcpus.get(number % trial.pcpus.len().max(1));
    let cpu = cpu.ok_or_else(|| io::Error::other("no pCPUs"))?;
    set_affinity(tid, &PcpuSet::from_iter([*cpu]))?;
    set_slice(tid, Some(trial.slice))?;
    Ok(tid)
}

#[cfg(test)]
mod tests;
