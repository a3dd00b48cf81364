// SPDX-License-Identifier: GPL-2.0-only
//! `[policy.NAME]`: the settings of corun's policies.
//!
//! The policies themselves say which keys there are and what each may be ([`Settings::field`]); here they are read from
//! a scenario, and everything that is wrong is reported at its place.

use crate::calibration::Calibrated;
use crate::problem::Located;
use crate::reader::Reader;
use corun_model::{Nanos, time};
use corun_policies::{Field, Settings};
use std::ops::RangeInclusive;

/// `[policy]`.
#[derive(Clone, Debug, Default)]
pub struct PolicyKeys {
    /// The settings of all policies: the defaults, and what was given.
    pub settings: Settings,
    /// `policy.NAME.calibration`: files of `corun calibrate`, to be read by the caller: this crate reads no files.
    pub calibrations: Vec<CalibrationSaid>,
}

/// A calibration file that a policy is given.
#[derive(Clone, Debug)]
pub struct CalibrationSaid {
    /// The policy.
    pub policy: &'static str,
    /// The file.
    pub file: Located<String>,
    /// The policy's settings that were given beside it.
    beside: Vec<&'static str>,
}

/// Policies that take a calibration file.
pub const CALIBRATED: [&str; 2] = ["aql", "vsmtio"];

impl PolicyKeys {
    /// Takes what a calibration file says; settings given beside it take precedence.
    pub fn calibrate(&mut self, said: &CalibrationSaid, found: &Calibrated) {
        let before = self.settings;
        found.put_into(&mut self.settings);
        for key in &said.beside {
            self.settings.take(said.policy, key, before);
        }
    }
}

pub(crate) fn policies(table: Option<Reader<'_>>) -> PolicyKeys {
    let mut said = PolicyKeys::default();
    let Some(table) = table else {
        return said;
    };
    for policy in corun_policies::known() {
        let keys = Settings::all_keys(policy);
        if keys.is_empty() {
            if table.has(policy.name) {
                table.table(policy.name);
                table.problem(policy.name, "this policy has nothing to set");
            }
            continue;
        }
        let Some(table) = table.table(policy.name) else {
            continue;
        };
        for key in &keys {
            setting(&table, &mut said.settings, policy.name, key);
        }
        check(&table, &said.settings, policy.name);
        let calibrated = CALIBRATED.contains(&policy.name);
        if let Some(file) = calibrated.then(|| table.located("calibration")).flatten() {
            said.calibrations.push(CalibrationSaid {
                policy: policy.name,
                file,
                beside: keys.into_iter().filter(|key| table.has(key)).collect(),
            });
        }
        table.finish();
    }
    table.finish();
    said
}

/// Reads one setting; what is not given stays as it is.
pub(crate) fn setting(
    table: &Reader<'_>,
    settings: &mut Settings,
    policy: &str,
    key: &'static str,
) {
    match settings.field(policy, key) {
        Some(Field::Time(time, range)) => set(time, table.duration(key, range)),
        Some(Field::Whole(number, range)) => set(number, table.whole(key, range)),
        Some(Field::Limit(number, range)) => set(number, table.whole(key, range).map(u64::from)),
        Some(Field::Slice(slice, range, none)) => set(slice, optional(table, key, &range, none)),
        Some(Field::Switch(on)) => set(on, table.flag(key)),
        None => {}
    }
}

fn set<T>(value: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *value = said;
    }
}

/// A slice, or the word for having none.
fn optional(
    table: &Reader<'_>,
    key: &'static str,
    range: &RangeInclusive<Nanos>,
    none: &str,
) -> Option<Option<Nanos>> {
    let said = table.located(key)?;
    if said.value == none {
        return Some(None);
    }
    let slice = time::parse(&said.value).filter(|slice| range.contains(slice));
    if slice.is_none() {
        let (least, most) = (time::show(*range.start()), time::show(*range.end()));
        let expected = format!("a duration from {least} to {most}, or {none:?}");
        table.problem(key, format!("found {:?}, expected {expected}", said.value));
    }
    slice.map(Some)
}

/// Do the settings of a policy fit together?
fn check(table: &Reader<'_>, settings: &Settings, policy: &str) {
    match policy {
        "cosched-relaxed" => {
            let skew = settings.cosched_relaxed.skew;
            check_pair(table, ["resume", "stop"], [skew.resume, skew.stop]);
        }
        "cosched-relaxed-all" => {
            let skew = settings.cosched_relaxed_all.skew;
            check_pair(table, ["resume", "stop"], [skew.resume, skew.stop]);
        }
        "jupiter" => {
            let of = &settings.jupiter;
            let latencies = [of.latency_least, of.latency, of.latency_most];
            check_order(
                table,
                ["latency_least", "latency", "latency_most"],
                latencies,
            );
        }
        "vsmtio" => {
            let of = &settings.vsmtio;
            let timeouts = [of.bounds.least, of.timeout, of.bounds.most];
            check_order(table, ["least", "timeout", "most"], timeouts);
            let slices = [of.slice_least, of.latency];
            check_pair(table, ["slice_least", "latency"], slices);
        }
        "vslicer" => {
            let of = settings.vslicer;
            check_pair(table, ["slice", "default"], [of.slice, of.default]);
        }
        "vturbo" => {
            let of = settings.vturbo;
            check_pair(table, ["slice", "default"], [of.slice, of.default]);
        }
        _ => {}
    }
}

/// Checks that the first is no longer than the second.
fn check_pair(table: &Reader<'_>, keys: [&str; 2], values: [Nanos; 2]) {
    let ([less, more], [least, most]) = (keys, values.map(time::show));
    if values[0] <= values[1] {
        return;
    }
    let key = if table.has(less) { less } else { more };
    let found = format!("found {less} {least} and {more} {most}");
    table.problem(
        key,
        format!("{found}, expected {less} to be no more than {more}"),
    );
}

/// Checks that the least is no longer than the one to begin with, and the longest no shorter.
fn check_order(table: &Reader<'_>, keys: [&str; 3], values: [Nanos; 3]) {
    let [least, begin, most] = values;
    if least <= begin && begin <= most {
        return;
    }
    let said = keys.into_iter().find(|key| table.has(key));
    let [least, begin, most] =
        [0, 1, 2].map(|at| format!("{} {}", keys[at], time::show(values[at])));
    table.problem(
        said.unwrap_or(keys[1]),
        format!("found {least}, {begin} and {most}, expected them in rising order"),
    );
}
