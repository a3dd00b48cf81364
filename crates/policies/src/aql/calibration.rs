// SPDX-License-Identifier: GPL-2.0-only
//! What calibration finds out about a machine: the best slice of each type, and the limits between
//! types (AQL_Sched, EuroSys 2016, §3.4).
//!
//! The paper's slices hold for its machine, and it gives no limits. `corun calibrate` measures both and writes a file,
//! which names the machine and is refused on another one. The defaults are the paper's slices, and the limits that
//! `corun calibrate` finds on a model of the paper's machine.
//!
//! The file is TOML; `corun_scenario::calibration` reads it.

use super::kind::Kind;
use super::vtrs::Limits;
use crate::AGNOSTIC;
use corun_model::time::MS;
use corun_model::{Nanos, Topology};
use std::fmt;

/// The best slice of each type, ns; `None`: it does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// For pools where types with different best slices meet, or none that has one.
    pub default: Nanos,
    /// IOInt.
    pub io_int: Option<Nanos>,
    /// ConSpin.
    pub con_spin: Option<Nanos>,
    /// LLCF.
    pub llcf: Option<Nanos>,
    /// LLCO.
    pub llco: Option<Nanos>,
    /// LoLCF.
    pub lo_lcf: Option<Nanos>,
}

impl Default for Slices {
    fn default() -> Self {
        Self {
            default: 30 * MS,
            io_int: Some(MS),
            con_spin: Some(MS),
            llcf: Some(90 * MS),
            llco: None,
            lo_lcf: None,
        }
    }
}

impl Slices {
    /// The best slice of a type; `None`: agnostic, or not known.
    pub fn best(&self, kind: Kind) -> Option<Nanos> {
        match kind {
            Kind::IoInt => self.io_int,
            Kind::ConSpin => self.con_spin,
            Kind::Llcf => self.llcf,
            Kind::Llco => self.llco,
            Kind::LoLcf => self.lo_lcf,
            Kind::Unknown => None,
        }
    }

    /// Sets the best slice of one of the paper's types.
    pub fn set(&mut self, kind: Kind, slice: Option<Nanos>) {
        match kind {
            Kind::IoInt => self.io_int = slice,
            Kind::ConSpin => self.con_spin = slice,
            Kind::Llcf => self.llcf = slice,
            Kind::Llco => self.llco = slice,
            Kind::LoLcf => self.lo_lcf = slice,
            Kind::Unknown => {}
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            io_events: 2,
            pause_exits: 56,
            llc_references: 7_718,
            llc_misses: 527_958,
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Slices.
    pub slices: Slices,
    /// Limits.
    pub limits: Limits,
}

/// The machine that a calibration holds for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Nodes, caches, cores, SMT threads.
    pub topology: Topology,
    /// Bytes of a core's L2.
    pub l2: u64,
    /// Bytes of a last-level cache.
    pub llc: u64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use corun_model::size::show;
        let (l2, llc) = (show(self.l2), show(self.llc));
        write!(f, "{}, L2 {l2}, LLC {llc}", self.topology)
    }
}

impl Machine {
    /// Does what was found on this machine hold on `other`? Which slices are best depends on the caches, on SMT and on
    /// how many cores share a cache, not on how many such caches there are.
    ///
    /// # Errors
    /// What differs.
    pub fn fits(&self, other: &Machine) -> Result<(), String> {
        let per_llc = |it: &Machine| (it.topology.cores_per_llc(), it.topology.threads_per_core());
        let same = (self.l2, self.llc, per_llc(self)) == (other.l2, other.llc, per_llc(other));
        match same {
            true => Ok(()),
            false => Err(format!(
                "it was made on another machine: {self}; this one is {other}"
            )),
        }
    }
}

/// The version of the file that is written and read.
pub const FORMAT: &str = "corun-calibration-1";

/// A calibration as a file.
pub fn write(found: &Calibration, machine: &Machine) -> String {
    let slice = |kind: Kind| match found.slices.best(kind) {
        Some(slice) => format!("{} = \"{}us\"\n", kind.name(), slice / 1000),
        None => format!("{} = \"{AGNOSTIC}\"\n", kind.name()),
    };
    let slices: String = Kind::KNOWN.into_iter().map(slice).collect();
    let limits = &found.limits;
    format!(
        "# Calibration of AQL_Sched, written by `corun calibrate`.\n\
         format = \"{FORMAT}\"\n\n\
         [machine]\ntopology = \"{}\"\nl2 = \"{}B\"\nllc = \"{}B\"\n\n\
         # The best slice of each type; agnostic: it does not matter.\n\
         [slice]\ndefault = \"{}us\"\n{slices}\n\
         # In 30 ms: I/O events of a vCPU, pause-loop exits of a VM. References to the last-level\n\
         # cache per million instructions, misses per million references.\n\
         [limit]\nio_events = {}\npause_exits = {}\nllc_references = {}\nllc_misses = {}\n",
        machine.topology,
        machine.l2,
        machine.llc,
        found.slices.default / 1000,
        limits.io_events,
        limits.pause_exits,
        limits.llc_references,
        limits.llc_misses,
    )
}
