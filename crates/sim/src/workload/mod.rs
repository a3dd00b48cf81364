// SPDX-License-Identifier: GPL-2.0-only
//! What a thread does: a small language of phases, and the benchmarks written in it.
//!
//! Problem: results depend on how guest threads compute, lock and wait for each other, so a reader
//! must be able to see that at a glance and to change it in a scenario file. A program is a list of
//! statements, separated by `;` (optional after `}`); `#` begins a comment:
//!
//! ```text
//! queue jobs 16;                      # capacity of a queue, default 1
//! queue mail 278 69;                  # the same; senders that found it full are woken, all of them,
//!                                     # once no more than 69 items are left (a Unix socket: a quarter)
//! loop {
//!     recv jobs;                      # blocks while the queue is empty
//!     compute 1ms ±10%;               # evenly 0.9–1.1 ms of undisturbed pCPU time
//!     lock inode { compute 20us };    # kernel spin lock: guest preemption is off inside
//!     mutex cache { compute 5us };    # blocking lock
//!     barrier step;                   # blocks until all threads that name it are there
//!     spin-barrier fine;              # the same, spinning in user space
//!     spin-barrier phase 1ms;         # the same, spinning so long and then blocking (OpenMP)
//!     condition-barrier all 100us;    # the same, made of a mutex and a condition variable
//!     sleep 5ms exp;                  # exponentially distributed about 5 ms
//!     send results;                   # blocks while the queue is full
//!     count 1 requests                # finished work: throughput is in requests/s
//! }
//! ```
//!
//! What a thread does to caches and to its SMT sibling holds from where it is stated until it is
//! stated anew:
//!
//! ```text
//! memory 4MB 30/us;                   # works on 4 MiB, touching 30 cache lines per µs of work
//! mix 60/25/15;                       # cycles: base, misses, waiting for units, in percent
//! ```
//!
//! Devices, clients and the rest of a guest kernel:
//!
//! ```text
//! read 64KB;  read 4KB random;        # from the VM's disk; write likewise; blocks till it is there
//! append wal 8KB;                     # to a log of the VM's threads; blocks till it is on the disk
//! request web; reply web 16KB;        # takes a client's request (blocks), answers it
//! transmit bulk 64KB;                 # sends to a client; blocks while the TCP window is full
//! wait ready; signal ready; broadcast ready;      # condition variable; inside `mutex`, lets it go
//! shootdown;                          # TLB flush on the other vCPUs, waiting for all of them
//! every 16ms;                         # sleeps until 16 ms after this thread was last due here
//! timer frame 16ms;                   # the same, from the VM's start, for all that name `frame`
//! timer frame 16ms absolute;          # … and a period that was missed is made up for
//! busy 2ms;                           # runs until so much time has gone by on the clock
//! yield;                              # lets other threads of its vCPU go first
//! ```
//!
//! Names are shared by the threads of one VM. `loop N { … }` ends after N rounds, `loop { … }`
//! never; a thread exits at the end of its program. [`Program::parse`] refuses what can be seen to
//! be wrong in a single program — a loop that takes no time, waiting inside a spin lock, a lock
//! inside itself, statements that are never reached — and [`crate::guest::Guests::new`] what needs
//! all programs of a VM.

mod code;
mod lexer;
mod parser;
mod presets;
mod print;
mod rooms;
pub mod rtapp;
mod simple;
#[cfg(test)]
mod tests;

pub(crate) use code::{Code, LockOrder, Names, Op};
pub use parser::ParseError;
pub use presets::{
    Calls, Family, Preset, PresetClient, PresetThread, Sends, names as preset_names, preset,
};

use crate::rng::Rng;
use corun_model::Nanos;

/// The longest program text, bytes.
pub const MOST_TEXT: usize = 64 * 1024;
/// Stands for the thread's number in the program of several equal threads, and for the connection's in a client's port.
pub const NUMBER: &str = "{i}";
/// The most statements in a program.
pub const MOST_STATEMENTS: usize = 4096;
/// The deepest nesting of blocks.
pub const DEEPEST: usize = 16;
/// The longest name, bytes.
pub const LONGEST_NAME: usize = 64;
/// The most rounds of a counted loop, units of one `count`, and places of a queue.
pub const MOST_TIMES: u32 = 1_000_000_000;

/// The most bytes of one access, reply or working set: a TiB.
pub const MOST_BYTES: u64 = 1 << 40;

/// Reads a number of bytes such as `1500B`, `64KB` or `4MB`, as after `read` or `reply`.
///
/// # Errors
/// What was seen, what is accepted.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    parser::parse_size(text)
}

/// A queue as a program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredQueue {
    /// Its name.
    pub name: String,
    /// How many items it has room for.
    pub places: u32,
    /// If declared: how many items are left when senders that found it full are woken, all of them at once.
    /// Linux wakes those of a Unix socket when a quarter of its buffer is left (`unix_writable()`).
    pub writable: Option<u32>,
}

/// A checked program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    queues: Vec<DeclaredQueue>,
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

    /// Does it read or write?
    pub fn uses_disk(&self) -> bool {
        fn any(body: &[Statement]) -> bool {
            body.iter().any(|statement| match statement {
                Statement::Read(_) | Statement::Write(_) | Statement::Append(..) => true,
                Statement::Lock(_, body) | Statement::Mutex(_, body) | Statement::Loop(_, body) => {
                    any(body)
                }
                _ => false,
            })
        }
        any(&self.body)
    }

    /// The same with its names in a namespace of their own, so that programs of two workloads in one VM do not share
    /// locks, barriers, conditions and queues. Ports stay what they are, and so does what is counted.
    #[must_use]
    pub fn within(&self, room: &str) -> Self {
        let inside = |name: &String| format!("{room}/{name}");
        let queues = self.queues.iter().map(|queue| DeclaredQueue {
            name: inside(&queue.name),
            ..*queue
        });
        Self {
            queues: queues.collect(),
            body: rooms::list(&self.body, &inside),
        }
    }

    /// The queues whose capacities it declares.
    pub fn queues(&self) -> &[DeclaredQueue] {
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
    /// Work that one thread does on behalf of all threads that have come before it begins; the
    /// others spin, if the statement says for how long and that has mostly been enough, and then
    /// block until it is done.
    Group {
        /// Its name.
        name: String,
        /// The leader's work.
        work: Length,
        /// How long the others spin.
        spin: Option<Nanos>,
    },
    /// Waits, blocked, for all threads that name this barrier.
    Barrier(String),
    /// Waits for all threads that name this barrier, spinning in user space; if it says for how
    /// long, then blocked, and all blocked threads are woken together.
    SpinBarrier(String, Option<Nanos>),
    /// Waits for all threads that name this barrier of a mutex and a condition variable: first
    /// spinning, if it says for how long, then blocked.
    ConditionBarrier(String, Option<Nanos>),
    /// Puts an item into a queue; blocks while it is full.
    Send(String),
    /// Takes an item from a queue; blocks while it is empty.
    Recv(String),
    /// Repeats: so many times, or for ever.
    Loop(Option<u32>, Vec<Statement>),
    /// Finishes so many units of work; the unit's name if it has one.
    Count(u32, Option<String>),
    /// What it works on from here on.
    Memory(Memory),
    /// How its cycles divide up from here on.
    Mix(Mix),
    /// Reads from the VM's disk; blocks until the data is there.
    Read(Access),
    /// Writes to the VM's disk; blocks until it is done.
    Write(Access),
    /// Writes so many bytes to the end of a log that the VM's threads share; blocks until they are
    /// on the disk. Threads that come while it is being written are served together by the next
    /// write.
    Append(String, u64),
    /// Takes a client's request from this port; blocks while there is none.
    Request(String),
    /// Answers the request it took from this port with so many bytes.
    Reply(String, u64),
    /// Sends so many bytes to the client at this port; blocks while TCP's window is full.
    Transmit(String, u64),
    /// Waits for a signal on a condition variable; the innermost `mutex` around is let go meanwhile.
    Wait(String),
    /// Wakes one thread that waits on it; lost if none does.
    Signal(String),
    /// Wakes all threads that wait on it.
    Broadcast(String),
    /// Makes all other vCPUs flush their TLBs, and waits for them.
    Shootdown,
    /// Sleeps until so much time after the thread was last due at this statement (the first time:
    /// after it got there). Several threads of one program keep such periods independently.
    Every(Nanos),
    /// Sleeps until so much time after a timer was last due (the first time: after the VM's start). All statements and
    /// threads that name the timer move its period on together, as in rt-app.
    Timer(Timer),
    /// Runs until so much time has gone by on the clock, whether it had its vCPU or not.
    Busy(Length),
    /// Lets other threads of its vCPU go first.
    Yield,
}

/// What a thread's work does to caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Working set, bytes; 0: negligible, as before the first `memory`.
    pub bytes: u64,
    /// Distinct cache lines touched per µs of undisturbed work, 0–1000.
    pub lines_per_us: u32,
}

/// How a thread's cycles divide up when it has its core to itself, percent; they add up to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Executing instructions with everything they need at hand.
    pub base: u8,
    /// Waiting for caches, TLBs and memory.
    pub miss: u8,
    /// Waiting for units of the core.
    pub wait: u8,
}

impl Mix {
    /// For programs that do not specify it: half executing, a third missing caches, the rest
    /// waiting (assumed; the order that cycle accounting finds for integer programs).
    pub const TYPICAL: Mix = Mix {
        base: 50,
        miss: 30,
        wait: 20,
    };
}

/// An access to the VM's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes, 1 to [`MOST_BYTES`].
    pub bytes: u64,
    /// Is it anywhere on the disk, rather than after the thread's last access?
    pub random: bool,
}

/// A timer and how it goes on. rt-app: `rtapp_timer` in `run_event()`, src/rt-app.c.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Its name; threads that use the same name move the same timer on.
    pub name: String,
    /// From when it was last due until it is due next, ns, 1 to [`corun_model::time::LONGEST`].
    pub period: Nanos,
    /// If a thread comes late, does the timer keep its original grid, rather than count from now
    /// on?
    pub absolute: bool,
}

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Mean, ns, 1 to [`corun_model::time::LONGEST`].
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
    /// Reads `5ms`, `5ms ±10%` or `5ms exp`, as after `compute` or `sleep`.
    ///
    /// # Errors
    /// What was seen, what is accepted.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parser::parse_length(text)
    }

    /// Draws one length, at least 1 ns: nothing takes no time.
    pub(crate) fn draw(self, rng: &mut Rng) -> Nanos {
        let drawn = match self.vary {
            Vary::Fixed => self.mean,
            Vary::Percent(percent) => rng.about(self.mean, percent),
            Vary::Exponential => rng.exponential(self.mean),
        };
        drawn.max(1)
    }
}
