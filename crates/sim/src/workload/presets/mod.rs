// SPDX-License-Identifier: GPL-2.0-only
//! Benchmarks by name, written in the workload language.
//!
//! Problem: experiments name benchmarks, the simulator needs phases. Each preset states where its
//! structure and its times come from; none was fitted to a result. Where no source gives a figure
//! the text says "assumed" and why it has that order of magnitude; "cited from memory" marks
//! published counts that were not compared with the publication again.
//!
//! How: [`shapes`] has one constructor for each way that programs are parallel; the families of
//! benchmarks ([`Family`]) are lists of data for them, a file each. Two conventions hold throughout:
//! an instruction takes a cycle of a 2.6 GHz core (so 2600 instructions are 1 µs) unless a time was
//! measured; a thread's share of a working set is the whole divided by the threads, unless the whole
//! is larger than any last-level cache.

mod balance;
mod bigdata;
mod calibration;
mod clients;
mod colocated;
mod database;
mod ocean;
mod parsec;
mod radiosity;
mod servers;
mod shapes;
mod spec;
mod splash;
mod storage;
mod x264;
mod xgboost;

pub use clients::{PresetClient, Sends};

use super::{ParseError, Program};
use shapes::Shape;

/// Benchmarks that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// What the balance scheduling paper runs.
    Balance,
    /// PARSEC.
    Parsec,
    /// SPLASH-2 with PARSEC's inputs.
    Splash,
    /// SPEC CPU2006.
    Spec,
    /// Programs that are mostly disk.
    Storage,
    /// Databases.
    Database,
    /// Servers with their clients in the same VM.
    Colocated,
    /// Web, mail and media servers, and network tests.
    Server,
    /// Hadoop, Spark, learning, matrices.
    BigData,
    /// Programs made to show one behaviour only.
    Calibration,
}

impl Family {
    /// All, in the order of lists.
    pub const ALL: [Family; 10] = [
        Family::Balance,
        Family::Parsec,
        Family::Splash,
        Family::Spec,
        Family::Storage,
        Family::Database,
        Family::Colocated,
        Family::Server,
        Family::BigData,
        Family::Calibration,
    ];

    /// Its name, for headings.
    pub fn title(self) -> &'static str {
        match self {
            Family::Balance => "Balance scheduling paper",
            Family::Parsec => "PARSEC",
            Family::Splash => "SPLASH2X",
            Family::Spec => "SPEC CPU2006",
            Family::Storage => "Storage",
            Family::Database => "Databases",
            Family::Colocated => "Servers and clients in one VM",
            Family::Server => "Servers and network",
            Family::BigData => "Data and learning",
            Family::Calibration => "Calibration",
        }
    }

    /// What its members have in common, above all their sources.
    pub fn about(self) -> &'static str {
        match self {
            Family::Balance => balance::ABOUT,
            Family::Parsec => parsec::ABOUT,
            Family::Splash => splash::ABOUT,
            Family::Spec => spec::ABOUT,
            Family::Storage => storage::ABOUT,
            Family::Database => database::ABOUT,
            Family::Colocated => colocated::ABOUT,
            Family::Server => servers::ABOUT,
            Family::BigData => bigdata::ABOUT,
            Family::Calibration => calibration::ABOUT,
        }
    }

    fn members(self) -> &'static [Preset] {
        match self {
            Family::Balance => balance::ALL,
            Family::Parsec => parsec::ALL,
            Family::Splash => splash::ALL,
            Family::Spec => spec::ALL,
            Family::Storage => storage::ALL,
            Family::Database => database::ALL,
            Family::Colocated => colocated::ALL,
            Family::Server => servers::ALL,
            Family::BigData => bigdata::ALL,
            Family::Calibration => calibration::ALL,
        }
    }
}

/// A benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What scenarios call it.
    pub name: &'static str,
    /// What it is known for, and where its structure and times come from.
    pub about: &'static str,
    shape: Shape,
    clients: &'static [PresetClient],
    calls: Option<Calls>,
}

/// Which preset serves the calls of another preset, in a VM of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// The port that the caller's programs `transmit` on.
    pub port: &'static str,
    /// The preset that serves them.
    pub preset: &'static str,
    /// The port at which that preset takes them.
    pub serves: &'static str,
}

/// A thread of a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetThread {
    /// Name within the VM.
    pub name: String,
    /// What it does.
    pub program: Program,
}

impl Preset {
    const fn new(name: &'static str, about: &'static str, shape: Shape) -> Self {
        Self {
            name,
            about,
            shape,
            clients: &[],
            calls: None,
        }
    }

    /// The same, with the clients that its port has unless a scenario gives others.
    const fn with(mut self, clients: &'static [PresetClient]) -> Self {
        self.clients = clients;
        self
    }

    /// The same, calling another VM.
    const fn calling(mut self, calls: Calls) -> Self {
        self.calls = Some(calls);
        self
    }

    /// The family of benchmarks that it belongs to.
    pub fn family(&self) -> Family {
        let has = |family: &Family| family.members().iter().any(|one| one.name == self.name);
        // All presets come from one of the lists.
        Family::ALL
            .into_iter()
            .find(has)
            .unwrap_or(Family::Calibration)
    }

    /// How many threads it has in a VM with `vcpus` vCPUs unless told otherwise.
    pub fn default_threads(&self, vcpus: u32) -> u32 {
        self.shape.default_threads(vcpus.max(1))
    }

    /// Its threads, `threads` of them: as near to that as its structure allows (pairs, stages with
    /// equally many threads). `ping` has none.
    ///
    /// # Errors
    /// None; the programs are parsed here, and a test parses them all.
    pub fn threads(&self, threads: u32) -> Result<Vec<PresetThread>, ParseError> {
        let texts = self.shape.threads(threads.max(1)).into_iter();
        let thread = |(name, text): (String, String)| {
            let program = Program::parse(&text)?;
            Ok(PresetThread { name, program })
        };
        texts.map(thread).collect()
    }

    /// The clients it has unless a scenario gives its ports other clients.
    pub fn clients(&self) -> &'static [PresetClient] {
        self.clients
    }

    /// The VM it calls, if it needs one.
    pub fn calls(&self) -> Option<Calls> {
        self.calls
    }
}

fn all() -> impl Iterator<Item = &'static Preset> {
    Family::ALL.into_iter().flat_map(Family::members)
}

/// The preset called `name`.
pub fn preset(name: &str) -> Option<Preset> {
    all().find(|preset| preset.name == name).copied()
}

/// All names, family by family.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|preset| preset.name)
}
