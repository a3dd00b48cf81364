// SPDX-License-Identifier: GPL-2.0-only
//! The numbers that a model is based on: value, unit, source, and the range that was tried.
//!
//! Every crate lists its parameters beside the structs that hold them, with the default taken from
//! the code that uses it, so that the table in `docs/parameters.md` (printed by `corun parameters`)
//! cannot differ from what is simulated.

use crate::Nanos;
use std::fmt;

/// One parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The key that sets it in a scenario, such as `host.costs.switch`; `*` stands for a name. For
    /// a parameter that scenarios cannot set, the path of the code that holds it.
    pub key: &'static str,
    /// What it is, in a few words.
    pub meaning: &'static str,
    /// Its default.
    pub value: Value,
    /// Where the default comes from: hardware manual, kernel source, paper and section, measurement.
    pub source: &'static str,
    /// The range that was tried in tests or sensitivity runs, or why there is none.
    pub tried: &'static str,
}

impl Parameter {
    /// A row of the table; the arguments are the fields, in their order.
    pub const fn new(
        key: &'static str,
        meaning: &'static str,
        value: Value,
        source: &'static str,
        tried: &'static str,
    ) -> Self {
        Self {
            key,
            meaning,
            value,
            source,
            tried,
        }
    }

    /// A row for a constant in the code, named by its path.
    pub const fn fixed(
        path: &'static str,
        meaning: &'static str,
        value: Value,
        source: &'static str,
    ) -> Self {
        Self::new(path, meaning, value, source, "fixed")
    }

    /// The same for a whole number of this unit.
    pub const fn fixed_number(
        path: &'static str,
        meaning: &'static str,
        value: u64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self::fixed(path, meaning, Value::Number(value as f64, unit), source)
    }
}

/// A parameter's value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A duration.
    Time(Nanos),
    /// A duration that grows with the host, as those of Linux' fair class do: the value for one
    /// pCPU, times 1 + log2(min(pCPUs, 8)).
    Scaled(Nanos),
    /// Bytes.
    Bytes(u64),
    /// A count, a rate or a ratio, and its unit.
    Number(f64, &'static str),
    /// A choice, such as the name of a preset.
    Choice(&'static str),
    /// On or off.
    Switch(bool),
    /// Not there unless asked for.
    None,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Time(time) => f.write_str(&crate::time::show(*time)),
            Value::Scaled(time) => {
                write!(f, "{} × (1 to 4)", crate::time::show(*time))
            }
            Value::Bytes(bytes) if *bytes >= 1 << 20 && bytes % (1 << 20) == 0 => {
                write!(f, "{} MiB", bytes >> 20)
            }
            // Sizes that are decimal, such as those of disks, few people can read in KiB.
            Value::Bytes(bytes) if (1 << 10..1 << 30).contains(bytes) && bytes % (1 << 10) == 0 => {
                write!(f, "{} KiB", bytes >> 10)
            }
            Value::Bytes(bytes) => write!(f, "{bytes} B"),
            Value::Number(number, "") => write!(f, "{number}"),
            Value::Number(number, unit) => write!(f, "{number} {unit}"),
            Value::Choice(name) => f.write_str(name),
            Value::Switch(true) => f.write_str("on"),
            Value::Switch(false) => f.write_str("off"),
            Value::None => f.write_str("none"),
        }
    }
}
