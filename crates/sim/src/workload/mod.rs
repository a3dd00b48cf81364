// SPDX-License-Identifier: GPL-2.0-only
//! What a thread does: a small language of phases, and the benchmarks written in it.
//!
//! Problem: results hang on how guest threads compute, lock and wait for each other, so a reader
//! must be able to see that at a glance and to change it in a scenario file. A program is a list of
//! statements, separated by `;` (optional after `}`); `#` begins a comment:
//!
//! ```text
//! queue jobs 16;                      # capacity of a queue, default 1
//! loop {
//!     recv jobs;                      # blocks while the queue is empty
//!     compute 1ms ±10%;               # evenly 0.9–1.1 ms of undisturbed pCPU time
//!     lock inode { compute 20us };    # kernel spin lock: guest preemption is off inside
//!     mutex cache { compute 5us };    # blocking lock
//!     barrier step;                   # blocks until all threads that name it are there
//!     spin-barrier fine;              # the same, spinning in user space
//!     sleep 5ms exp;                  # exponentially distributed about 5 ms
//!     send results;                   # blocks while the queue is full
//!     count 1 requests                # finished work: throughput is in requests/s
//! }
//! ```
//!
//! Names are shared by the threads of one VM. `loop N { … }` ends after N rounds, `loop { … }`
//! never; a thread exits at the end of its program. What can be seen to be wrong in one program is
//! refused by [`Program::parse`] — a loop that takes no time, waiting inside a spin lock, a lock
//! inside itself, statements that are never reached — and what needs all programs of a VM by
//! [`crate::guest::Guests::new`].

mod code;
mod lexer;
mod parser;
mod presets;
mod print;
#[cfg(test)]
mod tests;

pub(crate) use code::{Code, LockOrder, Names, Op};
pub use parser::ParseError;
pub use presets::{Preset, PresetThread, names as preset_names, preset};

use crate::rng::Rng;
use corun_model::Nanos;
use corun_model::time::SEC;

/// The longest program text, bytes.
pub const MOST_TEXT: usize = 64 * 1024;
/// The most statements in a program.
pub const MOST_STATEMENTS: usize = 4096;
/// The deepest nesting of blocks.
pub const DEEPEST: usize = 16;
/// The longest name, bytes.
pub const LONGEST_NAME: usize = 64;
/// The longest duration: a day, so that no sum of times comes near the end of `u64`.
pub const LONGEST: Nanos = 86_400 * SEC;
/// The most rounds of a counted loop, units of one `count`, and places of a queue.
pub const MOST_TIMES: u32 = 1_000_000_000;

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    queues: Vec<(String, u32)>,
    body: Vec<Statement>,
}

impl Program {
    /// Reads a program.
    ///
    /// # Errors
    /// The first thing wrong: where, what was seen, what is accepted.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parser::parse(text)
    }

    /// Its statements in order.
    pub fn statements(&self) -> &[Statement] {
        &self.body
    }

    /// The queue capacities it declares.
    pub fn queues(&self) -> &[(String, u32)] {
        &self.queues
    }
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Work, ns of undisturbed progress.
    Compute(Length),
    /// Off the vCPU for this time.
    Sleep(Length),
    /// Statements under a kernel spin lock.
    Lock(String, Vec<Statement>),
    /// Statements under a blocking lock.
    Mutex(String, Vec<Statement>),
    /// Waits, blocked, for all threads that name this barrier.
    Barrier(String),
    /// Waits, spinning in user space, for all threads that name this barrier.
    SpinBarrier(String),
    /// Puts an item into a queue; blocks while it is full.
    Send(String),
    /// Takes an item from a queue; blocks while it is empty.
    Recv(String),
    /// Repeats: so many times, or for ever.
    Loop(Option<u32>, Vec<Statement>),
    /// So many units of work are finished; the unit's name if it has one.
    Count(u32, Option<String>),
}

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Mean, ns, 1 to [`LONGEST`].
    pub mean: Nanos,
    /// How it varies.
    pub vary: Vary,
}

/// How a length varies from one time to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Not at all.
    Fixed,
    /// Evenly by up to this many percent either way, 1–100.
    Percent(u32),
    /// Exponentially distributed.
    Exponential,
}

impl Length {
    /// One length, at least 1 ns: nothing takes no time.
    pub(crate) fn draw(self, rng: &mut Rng) -> Nanos {
        let drawn = match self.vary {
            Vary::Fixed => self.mean,
            Vary::Percent(percent) => rng.about(self.mean, percent),
            Vary::Exponential => rng.exponential(self.mean),
        };
        drawn.max(1)
    }
}
