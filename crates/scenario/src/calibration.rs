// SPDX-License-Identifier: GPL-2.0-only
//! The calibration files that `corun calibrate` writes for AQL_Sched.

use crate::policy::setting;
use crate::problem::Problems;
use crate::reader::{Collected, Reader};
use crate::tree;
use corun_policies::Settings;
use corun_policies::aql::calibration::FORMAT;
use corun_policies::aql::{Calibration, Machine};

/// A calibration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationFile {
    /// The machine that it holds for.
    pub machine: Machine,
    /// What was found there.
    pub found: Calibration,
}

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
    let expected = format!("{FORMAT:?}, a file of `corun calibrate`");
    let format = top.required("format", &expected)?;
    if format.value != FORMAT {
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
    let slice_keys = ["default", "IOInt", "ConSpin", "LLCF", "LLCO", "LoLCF"];
    let slices = within("slice", &slice_keys);
    let limit_keys = ["io_events", "pause_exits", "llc_references", "llc_misses"];
    let limits = within("limit", &limit_keys);
    top.finish();
    let (machine, slices, limits) = (machine?, slices?, limits?);
    let (topology, l2, llc) = (
        machine.parsed("topology", "a topology such as \"1n1l4c2t\""),
        machine.size("l2", 64..=1 << 30),
        machine.size("llc", 64..=1 << 30),
    );
    let mut settings = Settings::default();
    for key in slice_keys {
        setting(&slices, &mut settings, "aql", key);
    }
    for key in limit_keys {
        setting(&limits, &mut settings, "aql", key);
    }
    [machine, slices, limits].iter().for_each(Reader::finish);
    Some(CalibrationFile {
        machine: Machine {
            topology: topology?,
            l2: l2?,
            llc: llc?,
        },
        found: settings.aql,
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
        let machine = (read.machine.l2, read.machine.llc);
        assert_eq!(machine, (256 << 10, 8 << 20));
        assert_eq!(read.found.slices.llcf, Some(90 * MS));
        assert_eq!(read.found.slices.llco, None);
        assert_eq!(read.found.limits.io_events, 3);
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
