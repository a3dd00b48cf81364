// SPDX-License-Identifier: GPL-2.0-only
//! What policies about slices are told: `[policy.aql]`, `[policy.vslicer]`, `[policy.vturbo]`,
//! `[policy.microsliced]`; and the calibration files that `corun calibrate` writes for the first.

use crate::problem::{Located, Problems};
use crate::reader::{Collected, Reader};
use crate::tree;
use corun_model::time::{SEC, US};
use corun_model::{Nanos, Topology, time};
use std::ops::RangeInclusive;

/// Shorter slices would only switch, longer ones are none.
const SLICE: RangeInclusive<Nanos> = 100 * US..=SEC;
/// What a limit may be.
const LIMIT: RangeInclusive<u32> = 1..=1_000_000;

/// What is said of the best slice of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// This one, ns.
    Slice(Nanos),
    /// It does not matter.
    Agnostic,
}

/// What calibration finds: of each type the best slice, and the limits between types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalibrationKeys {
    /// Slice where types disagree.
    pub default: Option<Nanos>,
    /// IOInt.
    pub io_int: Option<Best>,
    /// ConSpin.
    pub con_spin: Option<Best>,
    /// LLCF.
    pub llcf: Option<Best>,
    /// LLCO.
    pub llco: Option<Best>,
    /// LoLCF.
    pub lo_lcf: Option<Best>,
    /// I/O events of a vCPU in 30 ms.
    pub io_events: Option<u32>,
    /// Pause-loop exits of a VM in 30 ms.
    pub pause_exits: Option<u32>,
    /// References to the last-level cache per million instructions.
    pub llc_references: Option<u32>,
    /// Misses per million references.
    pub llc_misses: Option<u32>,
}

impl CalibrationKeys {
    /// What is said here, else what is said in `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            default: self.default.or(other.default),
            io_int: self.io_int.or(other.io_int),
            con_spin: self.con_spin.or(other.con_spin),
            llcf: self.llcf.or(other.llcf),
            llco: self.llco.or(other.llco),
            lo_lcf: self.lo_lcf.or(other.lo_lcf),
            io_events: self.io_events.or(other.io_events),
            pause_exits: self.pause_exits.or(other.pause_exits),
            llc_references: self.llc_references.or(other.llc_references),
            llc_misses: self.llc_misses.or(other.llc_misses),
        }
    }
}

/// `[policy.aql]`.
#[derive(Clone, Debug, Default)]
pub struct AqlKeys {
    /// A file of `corun calibrate`, to be read by whoever reads files.
    pub calibration: Option<Located<String>>,
    /// What is said beside it, and stronger.
    pub found: CalibrationKeys,
}

/// `[policy.vslicer]`, `[policy.vturbo]` and `[policy.microsliced]`, as far as each has the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceKeys {
    /// The short slice.
    pub slice: Option<Nanos>,
    /// The others'.
    pub default: Option<Nanos>,
    /// Turbo pCPUs.
    pub pcpus: Option<u32>,
}

pub(crate) fn aql(table: Reader<'_>) -> AqlKeys {
    let keys = AqlKeys {
        calibration: table.located("calibration"),
        found: limits(&table, best(&table)),
    };
    table.finish();
    keys
}

pub(crate) fn vslicer(table: Reader<'_>) -> SliceKeys {
    let keys = SliceKeys {
        slice: table.duration("slice", SLICE),
        default: table.duration("default", SLICE),
        pcpus: None,
    };
    table.finish();
    keys
}

pub(crate) fn vturbo(table: Reader<'_>) -> SliceKeys {
    let keys = SliceKeys {
        slice: table.duration("slice", SLICE),
        default: table.duration("default", SLICE),
        pcpus: table.whole("pcpus", 1..=Topology::MAX_PCPUS - 1),
    };
    table.finish();
    keys
}

pub(crate) fn microsliced(table: Reader<'_>) -> SliceKeys {
    let keys = SliceKeys {
        slice: table.duration("slice", SLICE),
        ..SliceKeys::default()
    };
    table.finish();
    keys
}

fn best(table: &Reader<'_>) -> CalibrationKeys {
    let best = |key: &'static str| {
        let said = table.located(key)?;
        if said.value == "agnostic" {
            return Some(Best::Agnostic);
        }
        let slice = time::parse(&said.value).filter(|slice| SLICE.contains(slice));
        if slice.is_none() {
            let expected = "a duration from 100 µs to 1.00 s, or \"agnostic\"";
            table.problem(key, format!("found {:?}, expected {expected}", said.value));
        }
        slice.map(Best::Slice)
    };
    CalibrationKeys {
        default: table.duration("default", SLICE),
        io_int: best("IOInt"),
        con_spin: best("ConSpin"),
        llcf: best("LLCF"),
        llco: best("LLCO"),
        lo_lcf: best("LoLCF"),
        ..CalibrationKeys::default()
    }
}

fn limits(table: &Reader<'_>, slices: CalibrationKeys) -> CalibrationKeys {
    CalibrationKeys {
        io_events: table.whole("io_events", LIMIT),
        pause_exits: table.whole("pause_exits", LIMIT),
        llc_references: table.whole("llc_references", LIMIT),
        llc_misses: table.whole("llc_misses", LIMIT),
        ..slices
    }
}

/// A calibration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationFile {
    /// Topology of the machine that it holds for.
    pub topology: Topology,
    /// Bytes of its L2s.
    pub l2: u64,
    /// Bytes of its last-level caches.
    pub llc: u64,
    /// What was found there: all of it.
    pub found: CalibrationKeys,
}

/// The version that is written and read.
pub const CALIBRATION_FORMAT: &str = "corun-calibration-1";

/// Reads a calibration file called `file`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn calibration(file: &str, text: &str) -> Result<CalibrationFile, Problems> {
    let document = tree::parse(file, text)?;
    let problems = Collected::default();
    let top = Reader::top(&document, file, &problems);
    let read = calibration_in(&top);
    problems.into_result()?;
    // Whatever is missing has been told.
    read.ok_or_else(Problems::default)
}

fn calibration_in(top: &Reader<'_>) -> Option<CalibrationFile> {
    let expected = format!("{CALIBRATION_FORMAT:?}, a file of `corun calibrate`");
    let format = top.required("format", &expected)?;
    if format.value != CALIBRATION_FORMAT {
        top.problem(
            "format",
            format!("found {:?}, expected {expected}", format.value),
        );
        return None;
    }
    let within = |key: &'static str, keys: &[&'static str]| {
        if !top.has(key) {
            top.missing(key, &format!("a table with {}", keys.join(", ")));
        }
        let table = top.table(key)?;
        for key in keys.iter().filter(|key| !table.has(key)) {
            table.missing(key, "a value: the file is not whole");
        }
        Some(table)
    };
    let machine = within("machine", &["topology", "l2", "llc"]);
    let slices = within(
        "slice",
        &["default", "IOInt", "ConSpin", "LLCF", "LLCO", "LoLCF"],
    );
    let limit_keys = ["io_events", "pause_exits", "llc_references", "llc_misses"];
    let limit = within("limit", &limit_keys);
    top.finish();
    let (machine, slices, limit) = (machine?, slices?, limit?);
    let (topology, l2, llc) = (
        machine.parsed("topology", "a topology such as \"1n1l4c2t\""),
        machine.size("l2", 64..=1 << 30),
        machine.size("llc", 64..=1 << 30),
    );
    let found = limits(&limit, best(&slices));
    [machine, slices, limit].iter().for_each(Reader::finish);
    Some(CalibrationFile {
        topology: topology?,
        l2: l2?,
        llc: llc?,
        found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    const GOOD: &str = "format = \"corun-calibration-1\"\n\
        [machine]\ntopology = \"1n1l4c1t\"\nl2 = \"256KB\"\nllc = \"8MB\"\n\
        [slice]\ndefault = \"30ms\"\nIOInt = \"1ms\"\nConSpin = \"1ms\"\nLLCF = \"90ms\"\n\
        LLCO = \"agnostic\"\nLoLCF = \"agnostic\"\n\
        [limit]\nio_events = 3\npause_exits = 30\nllc_references = 3000\nllc_misses = 500000\n";

    #[test]
    fn a_whole_file_is_read() {
        let read = calibration("c.toml", GOOD).unwrap();
        assert_eq!((read.l2, read.llc), (256 << 10, 8 << 20));
        assert_eq!(read.found.llcf, Some(Best::Slice(90 * MS)));
        assert_eq!(read.found.llco, Some(Best::Agnostic));
        assert_eq!(read.found.io_events, Some(3));
    }

    /// What is said of a broken file.
    fn problems(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        calibration("c.toml", &GOOD.replace(from, to))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_broken_one_is_refused_with_its_reasons() {
        let other = problems("corun-calibration-1", "corun-calibration-9");
        assert!(
            other.contains("c.toml:1: format: found \"corun-calibration-9\""),
            "{other}"
        );
        let missing = problems("LLCF = \"90ms\"\n", "");
        assert!(missing.contains("slice.LLCF: is missing"), "{missing}");
        let long = problems("\"90ms\"", "\"90s\"");
        assert!(
            long.contains("found \"90s\", expected a duration from 100 µs"),
            "{long}"
        );
        let zero = problems("io_events = 3", "io_events = 0");
        assert!(zero.contains("limit.io_events: found 0"), "{zero}");
        let unknown = problems("[limit]\n", "[limit]\nx = 1\n");
        assert!(unknown.contains("limit.x: unknown key"), "{unknown}");
        assert!(problems("[machine]", "[engine]").contains("machine: is missing"));
        assert!(calibration("c.toml", "").is_err());
        assert!(calibration("c.toml", "[[").is_err());
    }
}
