// SPDX-License-Identifier: GPL-2.0-only
//! The calibration files that `corun calibrate` writes: here those with AQL_Sched's slices and limits, in [`symbiosis`]
//! those for vSMT-IO's symbiosis. A file says which kind it is.

use crate::hardware::CACHE;
use crate::policy::setting;
use crate::problem::Problems;
use crate::reader::{Collected, Reader};
use crate::{symbiosis, tree};
use corun_policies::aql::calibration::FORMAT;
use corun_policies::aql::{Calibration, Machine};
use corun_policies::{Settings, vsmtio};
use std::collections::BTreeMap;

/// The slices in a file of types.
const SLICES: [&str; 6] = ["default", "IOInt", "ConSpin", "LLCF", "LLCO", "LoLCF"];
/// And the limits between types.
const LIMITS: [&str; 4] = ["io_events", "pause_exits", "llc_references", "llc_misses"];

/// A calibration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalibrationFile {
    /// The machine that it holds for.
    pub machine: Machine,
    /// What was found there.
    pub found: Calibrated,
}

/// What calibration found, by kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calibrated {
    /// Slices of types and what divides them, for aql and those that use its recognition.
    Aql(Calibration),
    /// Coefficients and events of symbiosis, for vsmtio.
    VsmtIo(vsmtio::calibration::Calibration),
}

impl Calibrated {
    /// The policy that it is for.
    pub fn policy(&self) -> &'static str {
        match self {
            Self::Aql(_) => "aql",
            Self::VsmtIo(_) => "vsmtio",
        }
    }

    /// Is it of use to this policy? For policies that use none, any may be given: it may serve a policy that comes
    /// later.
    ///
    /// # Errors
    /// If it is of the other kind; says what would be the right one.
    pub fn is_for(&self, policy: &str) -> Result<(), String> {
        let wrong = |is: &str, wants: &str| {
            Err(format!(
                "found a calibration for {}, written by `{is}`; expected one for {policy}: `{wants}` writes it",
                self.policy()
            ))
        };
        let (of_types, of_symbiosis) = ("corun calibrate", "corun calibrate --symbiosis");
        match (self, policy) {
            (Self::Aql(_), "vsmtio") => wrong(of_types, of_symbiosis),
            (Self::VsmtIo(_), "aql" | "vslicer" | "vturbo") => wrong(of_symbiosis, of_types),
            _ => Ok(()),
        }
    }

    /// The settings of its policy that it gives, as `--set` would.
    pub fn values(&self) -> BTreeMap<String, String> {
        let mut settings = Settings::default();
        self.put_into(&mut settings);
        let policy = corun_policies::find(self.policy());
        let mut values = policy.map_or_else(BTreeMap::new, |policy| settings.values(policy));
        values.retain(|key, _| match self {
            Self::VsmtIo(_) => symbiosis::COEFFICIENTS.contains(&key.as_str()),
            Self::Aql(_) => SLICES.contains(&key.as_str()) || LIMITS.contains(&key.as_str()),
        });
        values
    }

    /// Puts it into the settings of policies.
    pub fn put_into(&self, settings: &mut Settings) {
        match self {
            Self::Aql(found) => settings.aql.calibration = *found,
            Self::VsmtIo(found) => settings.vsmtio.calibrate(found),
        }
    }
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
    // Whatever is missing has been reported.
    read.ok_or_else(Problems::default)
}

fn calibration_in(top: &Reader<'_>) -> Option<CalibrationFile> {
    let expected = format!(
        "{FORMAT:?} or {:?}, a file of `corun calibrate`",
        symbiosis::FORMAT
    );
    let format = top.required("format", &expected)?;
    let of = match format.value.as_str() {
        FORMAT => of_types,
        symbiosis::FORMAT => symbiosis::of_symbiosis,
        _ => {
            top.problem(
                "format",
                format!("found {:?}, expected {expected}", format.value),
            );
            return None;
        }
    };
    let machine = machine(top);
    let found = of(top);
    top.finish();
    Some(CalibrationFile {
        machine: machine?,
        found: found?,
    })
}

/// A table that must have these keys.
pub(crate) fn within<'a>(
    top: &Reader<'a>,
    key: &'static str,
    keys: &[&'static str],
) -> Option<Reader<'a>> {
    if !top.has(key) {
        top.missing(key, &format!("a table with {}", keys.join(", ")));
    }
    let table = top.table(key)?;
    for key in keys.iter().filter(|key| !table.has(key)) {
        table.missing(key, "a value: the file is not whole");
    }
    Some(table)
}

/// The machine that a file was made on.
fn machine(top: &Reader<'_>) -> Option<Machine> {
    let machine = within(top, "machine", &["topology", "l2", "llc"])?;
    let (topology, l2, llc) = (
        machine.parsed("topology", "a topology such as \"1n1l4c2t\""),
        machine.size("l2", CACHE),
        machine.size("llc", CACHE),
    );
    machine.finish();
    Some(Machine {
        topology: topology?,
        l2: l2?,
        llc: llc?,
    })
}

/// AQL's values: slices of types, limits between them.
fn of_types(top: &Reader<'_>) -> Option<Calibrated> {
    let slices = within(top, "slice", &SLICES);
    let limits = within(top, "limit", &LIMITS);
    let (slices, limits) = (slices?, limits?);
    let mut settings = Settings::default();
    for key in SLICES {
        setting(&slices, &mut settings, "aql", key);
    }
    for key in LIMITS {
        setting(&limits, &mut settings, "aql", key);
    }
    [slices, limits].iter().for_each(Reader::finish);
    Some(Calibrated::Aql(settings.aql.calibration))
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
        let Calibrated::Aql(found) = read.found else {
            panic!("of another kind: {read:?}");
        };
        assert_eq!(found.slices.llcf, Some(90 * MS));
        assert_eq!(found.slices.llco, None);
        assert_eq!(found.limits.io_events, 3);
    }

    /// The problems reported for a broken file.
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
        for (from, key) in [("l2 = \"256KB\"", "l2"), ("llc = \"8MB\"", "llc")] {
            let lines = problems(from, &format!("{key} = \"64B\""));
            let expected = format!("machine.{key}: found \"64B\", expected a size such as");
            assert!(lines.contains(&expected), "{lines}");
        }
        let unknown = problems("[limit]\n", "[limit]\nx = 1\n");
        assert!(unknown.contains("limit.x: unknown key"), "{unknown}");
        assert!(problems("[machine]", "[engine]").contains("machine: is missing"));
        assert!(calibration("c.toml", "").is_err());
        assert!(calibration("c.toml", "[[").is_err());
    }
}
