// SPDX-License-Identifier: GPL-2.0-only
//! Calibration's programs as guests: what `corun calibrate --here` measures (AQL_Sched, EuroSys 2016, §3.4).
//!
//! Problem: which slice suits a program shows only at full speed; and some hosts run only code in ring 3 at that speed
//! (KVM without the processor's help emulates the rest).
//! How: the programs need no kernel. They begin in ring 3 (or in 0), have no interrupts, read the time-stamp counter
//! and take their random numbers from tables. What they send to devices is a store to an address without memory, which
//! leaves the guest from any ring and is counted (`kvm_mmio`).

mod code;
mod image;

pub use image::{LINE, MOST_LIST, MOST_TURNS, MOST_VCPUS, TABLE};

use crate::MachineError;
use crate::machine::{Machine, Ring};
use std::io;
use std::time::Duration;

/// What all vCPUs of a guest do.
#[derive(Clone, Debug)]
pub enum Job {
    /// Run a loop of this many rounds over and over.
    Measure {
        /// Rounds.
        rounds: u64,
    },
    /// Walk a linked list.
    List {
        /// For each line, which one is next; at most [`MOST_LIST`] bytes of [`LINE`].
        next: Vec<u32>,
    },
    /// Serve pages that are due this many ticks after each other, one number or [`TABLE`] of them, and compute in
    /// between.
    Pages {
        /// Ticks.
        gaps: Vec<u64>,
    },
    /// Compute this many rounds, one number or [`TABLE`] of them, then 1 us under a ticket lock of all vCPUs.
    Spin {
        /// Rounds, 1 at least.
        rounds: Vec<u64>,
    },
}

impl Job {
    fn table(&self) -> &[u64] {
        match self {
            Self::Pages { gaps } => gaps,
            Self::Spin { rounds } => rounds,
            Self::Measure { .. } | Self::List { .. } => &[0],
        }
    }

    /// Hops along a list between two looks at the clock: 40 us, if memory serves them in 150 ns.
    fn batch(&self) -> u64 {
        match self {
            Self::Measure { rounds } => *rounds,
            _ => 256,
        }
    }
}

/// A guest to be started.
#[derive(Clone, Debug)]
pub struct Guest {
    /// What its vCPUs do.
    pub job: Job,
    /// How many, at most [`MOST_VCPUS`].
    pub vcpus: usize,
    /// Where they run.
    pub ring: Ring,
    /// A longer jump of the clock ends a turn, ticks.
    pub gap: u64,
    /// Rounds of a loop in a microsecond, 1 at least.
    pub per_us: u64,
}

/// What a vCPU has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Hops, pages, or rounds of locking or of measuring.
    pub work: u64,
    /// Ticks that pages were waited for; for a measuring guest, the fewest that its loop took.
    pub ticks: u64,
    /// Turns that are over.
    pub turns: usize,
    /// When it last looked at the clock, ticks; 0 if it never did.
    pub last: u64,
}

/// A guest at work.
pub struct Running {
    machine: Machine,
    vcpus: usize,
}

impl Guest {
    /// Starts it; `prepare` as in [`Machine::start`].
    ///
    /// # Errors
    /// [`MachineError`].
    ///
    /// # Panics
    /// If it is larger than allowed.
    pub fn start(
        &self,
        prepare: impl Fn(usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Running, MachineError> {
        let machine = Machine::start(image::setup(self)?, prepare)?;
        Ok(Running {
            machine,
            vcpus: self.vcpus,
        })
    }
}

impl Running {
    /// How many vCPUs it has.
    pub fn vcpus(&self) -> usize {
        self.vcpus
    }

    /// What a vCPU has done so far.
    ///
    /// # Panics
    /// If there is no vCPU of this number.
    pub fn look(&self, vcpu: usize) -> Seen {
        assert!(vcpu < self.vcpus);
        let at = image::block(vcpu);
        let memory = self.machine.memory();
        let [work, ticks, turns, last] = [0, 8, 16, 24].map(|of| memory.read_u64(at + of));
        Seen {
            work,
            ticks,
            turns: turns as usize,
            last,
        }
    }

    /// Lengths of a vCPU's turns from the `from`-th on, ticks; the first [`MOST_TURNS`] are kept.
    ///
    /// # Panics
    /// If there is no vCPU of this number.
    pub fn turns(&self, vcpu: usize, from: usize) -> Vec<u64> {
        let until = self.look(vcpu).turns.min(MOST_TURNS);
        let length = |turn| {
            self.machine
                .memory()
                .read_u64(image::turns(vcpu) + turn * 8)
        };
        (from..until).map(length).collect()
    }

    /// Fails if a vCPU has ended.
    ///
    /// # Errors
    /// [`MachineError`]: why it ended.
    pub fn check(&self) -> Result<(), MachineError> {
        self.machine.check()
    }

    /// Stops all vCPUs, and waits until they have stopped: 5 s each, since others may have their pCPUs.
    ///
    /// # Errors
    /// [`MachineError`], if one ended before or does not end.
    pub fn stop(self) -> Result<(), MachineError> {
        self.machine.memory().write_u64(image::STOP, 1);
        self.machine.ended(Duration::from_secs(5))
    }
}
