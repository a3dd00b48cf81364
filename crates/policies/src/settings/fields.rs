// SPDX-License-Identifier: GPL-2.0-only
//! Every setting by its policy and key, and what it may be: the one list for all code that reads
//! settings, from a scenario, from the command line or from the daemon's socket.

use super::Settings;
use crate::aql::AqlParams;
use crate::{JupiterParams, VsmtIoParams};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, Nanos, Skew, time};
use std::ops::RangeInclusive;

/// A setting, and what it may be.
#[derive(Debug)]
pub enum Field<'a> {
    /// A time, ns.
    Time(&'a mut Nanos, RangeInclusive<Nanos>),
    /// A whole number.
    Whole(&'a mut u32, RangeInclusive<u32>),
    /// A limit between AQL's types.
    Limit(&'a mut u64, RangeInclusive<u32>),
    /// A slice that need not be set, ns, and the word for `None`.
    Slice(&'a mut Option<Nanos>, RangeInclusive<Nanos>, &'static str),
    /// On or off.
    Switch(&'a mut bool),
}

/// The word for a best slice where the slice does not matter.
pub const AGNOSTIC: &str = "agnostic";
/// The word for a slice of its own for each of AQL's pools.
pub const OWN: &str = "own";
/// Settings of what only a simulator can see or do, by policy and key: no host takes these.
pub(super) const SIMULATED: [(&str, &str); 1] = [("vsmtio", "guests")];

const LIGHT: RangeInclusive<u32> = 100..=1000;
/// With shorter slices a pCPU would do little but switch; longer ones are as good as none.
const SLICE: RangeInclusive<Nanos> = 100 * US..=SEC;
/// What a limit between types may be.
const LIMIT: RangeInclusive<u32> = 1..=1_000_000;
/// What a retention timeout may be: a longer one is no retention any more, a shorter one only costs
/// timers.
const TIMEOUT: RangeInclusive<Nanos> = 10 * US..=100 * MS;

impl Settings {
    /// The setting `key` of `policy`, if there is one.
    pub fn field(&mut self, policy: &str, key: &str) -> Option<Field<'_>> {
        Some(match (policy, key) {
            ("balance-load", "light") => Field::Whole(&mut self.balance_load.light, LIGHT),
            ("cosched-strict", "slot") => {
                Field::Time(&mut self.cosched_strict.slots.length, MS..=SEC)
            }
            ("cosched-strict", "fill") => Field::Switch(&mut self.cosched_strict.slots.fill),
            ("cosched-demand", "light") => Field::Whole(&mut self.cosched_demand.light, LIGHT),
            ("cosched-demand", _) => boost(&mut self.cosched_demand.boost, key)?,
            ("cosched-relaxed", _) => skew(&mut self.cosched_relaxed.skew, key)?,
            ("cosched-relaxed-all", _) => skew(&mut self.cosched_relaxed_all.skew, key)?,
            ("jupiter", _) => jupiter(&mut self.jupiter, key)?,
            ("aql", _) => aql(&mut self.aql, key)?,
            ("vsmtio", _) => vsmtio(&mut self.vsmtio, key)?,
            ("vslicer", "slice") => Field::Time(&mut self.vslicer.slice, SLICE),
            ("vslicer", "default") => Field::Time(&mut self.vslicer.default, SLICE),
            ("vturbo", "slice") => Field::Time(&mut self.vturbo.slice, SLICE),
            ("vturbo", "default") => Field::Time(&mut self.vturbo.default, SLICE),
            ("vturbo", "pcpus") => Field::Whole(&mut self.vturbo.pcpus, 1..=511),
            ("microsliced", "slice") => Field::Time(&mut self.microsliced.slice, SLICE),
            _ => return None,
        })
    }
}

fn boost<'a>(boost: &'a mut Boost, key: &str) -> Option<Field<'a>> {
    Some(match key {
        "wake_boost" => Field::Time(&mut boost.wake, 0..=100 * MS),
        "sees_flushes" => Field::Switch(&mut boost.sees_flushes),
        "flush_boost" => Field::Time(&mut boost.flush, 0..=100 * MS),
        "boost_limit" => Field::Time(&mut boost.limit, 0..=100 * MS),
        "boost_lead" => Field::Time(&mut boost.lead, 0..=SEC),
        _ => return None,
    })
}

fn skew<'a>(skew: &'a mut Skew, key: &str) -> Option<Field<'a>> {
    Some(match key {
        "stop" => Field::Time(&mut skew.stop, 100 * US..=SEC),
        "resume" => Field::Time(&mut skew.resume, 100 * US..=SEC),
        "sample" => Field::Time(&mut skew.sample, 100 * US..=100 * MS),
        _ => return None,
    })
}

fn jupiter<'a>(params: &'a mut JupiterParams, key: &str) -> Option<Field<'a>> {
    let percent = 0..=100;
    Some(match key {
        "period" => Field::Time(&mut params.period, 20 * MS..=SEC),
        "dats" => Field::Switch(&mut params.dats),
        "dasl" => Field::Switch(&mut params.dasl),
        "rcr" => Field::Switch(&mut params.rcr),
        "elb" => Field::Switch(&mut params.elb),
        "weight_step" => Field::Whole(&mut params.weight_step, percent),
        "latency" => Field::Time(&mut params.latency, 100 * US..=100 * MS),
        "latency_least" => Field::Time(&mut params.latency_least, 100 * US..=100 * MS),
        "latency_most" => Field::Time(&mut params.latency_most, 100 * US..=100 * MS),
        "latency_step" => Field::Whole(&mut params.latency_step, percent),
        "lack" => Field::Whole(&mut params.lack, percent),
        "slice_conflict" => Field::Whole(&mut params.slice_conflict, percent),
        "latency_conflict" => Field::Whole(&mut params.latency_conflict, 1..=100),
        "loan_step" => Field::Whole(&mut params.loan_step, percent),
        "loan_harm" => Field::Whole(&mut params.loan_harm, percent),
        "bucket" => Field::Whole(&mut params.bucket, 0..=10_000),
        "repayment" => Field::Whole(&mut params.repayment, percent),
        "error" => Field::Whole(&mut params.error, percent),
        "wrong" => Field::Whole(&mut params.wrong, 0..=1000),
        "right" => Field::Whole(&mut params.right, 1..=1000),
        "grain" => Field::Time(&mut params.grain, 0..=100 * MS),
        _ => return None,
    })
}

fn aql<'a>(params: &'a mut AqlParams, key: &str) -> Option<Field<'a>> {
    let found = &mut params.calibration;
    let (slices, limits) = (&mut found.slices, &mut found.limits);
    Some(match key {
        "default" => Field::Time(&mut slices.default, SLICE),
        "IOInt" => Field::Slice(&mut slices.io_int, SLICE, AGNOSTIC),
        "ConSpin" => Field::Slice(&mut slices.con_spin, SLICE, AGNOSTIC),
        "LLCF" => Field::Slice(&mut slices.llcf, SLICE, AGNOSTIC),
        "LLCO" => Field::Slice(&mut slices.llco, SLICE, AGNOSTIC),
        "LoLCF" => Field::Slice(&mut slices.lo_lcf, SLICE, AGNOSTIC),
        "io_events" => Field::Limit(&mut limits.io_events, LIMIT),
        "pause_exits" => Field::Limit(&mut limits.pause_exits, LIMIT),
        "llc_references" => Field::Limit(&mut limits.llc_references, LIMIT),
        "llc_misses" => Field::Limit(&mut limits.llc_misses, LIMIT),
        "uniform" => Field::Slice(&mut params.uniform, SLICE, OWN),
        _ => return None,
    })
}

fn vsmtio<'a>(params: &'a mut VsmtIoParams, key: &str) -> Option<Field<'a>> {
    let of = &mut params.coefficients;
    let coefficient = 0..=10_000;
    Some(match key {
        "period" => Field::Time(&mut params.period, 20 * MS..=SEC),
        "retain" => Field::Switch(&mut params.retain),
        "adjust" => Field::Switch(&mut params.adjust),
        "rass" => Field::Switch(&mut params.rass),
        "symbiosis" => Field::Switch(&mut params.symbiosis),
        "adjuster" => Field::Switch(&mut params.adjuster),
        "compensate" => Field::Switch(&mut params.compensate),
        "guests" => Field::Switch(&mut params.guests),
        "give_way" => Field::Switch(&mut params.give_way),
        "latency" => Field::Time(&mut params.latency, SLICE),
        "slice_least" => Field::Time(&mut params.slice_least, SLICE),
        "timeout" => Field::Time(&mut params.timeout, TIMEOUT),
        "least" => Field::Time(&mut params.bounds.least, TIMEOUT),
        "most" => Field::Time(&mut params.bounds.most, TIMEOUT),
        "step" => Field::Whole(&mut params.bounds.step, 1..=50),
        "margin" => Field::Whole(&mut params.bounds.margin, 0..=100),
        // The means of two cores differ by 100 points at most, and must differ by more than twice
        // this.
        "homogeneous" => Field::Whole(&mut params.homogeneous, 0..=49),
        "cooldown" => Field::Whole(&mut params.cooldown, 0..=1000),
        "base" => Field::Whole(&mut of.base, coefficient),
        "wait" => Field::Whole(&mut of.wait, coefficient),
        "wait_wait" => Field::Whole(&mut of.wait_wait, coefficient),
        "miss" => Field::Whole(&mut of.miss, coefficient),
        "miss_miss" => Field::Whole(&mut of.miss_miss, coefficient),
        _ => return None,
    })
}

impl Field<'_> {
    /// The value as a text that [`Self::set`] takes.
    pub(super) fn show(&self) -> String {
        match self {
            Self::Time(time, _) => time::exact(**time),
            Self::Whole(number, _) => number.to_string(),
            Self::Limit(number, _) => number.to_string(),
            Self::Slice(slice, _, none) => slice.map_or_else(|| none.to_string(), time::exact),
            Self::Switch(on) => on.to_string(),
        }
    }

    /// Takes the value from a text; else says what is accepted.
    pub(super) fn set(self, text: &str) -> Result<(), String> {
        let whole = |range: RangeInclusive<u32>| {
            let said = text.parse().ok().filter(|said| range.contains(said));
            let (least, most) = range.into_inner();
            said.ok_or_else(|| format!("a number from {least} to {most}"))
        };
        match self {
            Self::Time(time, range) => {
                let said = time::parse(text).filter(|said| range.contains(said));
                let (least, most) = (time::show(*range.start()), time::show(*range.end()));
                *time = said.ok_or_else(|| format!("a time from {least} to {most}"))?;
            }
            Self::Whole(number, range) => *number = whole(range)?,
            Self::Limit(number, range) => *number = whole(range)?.into(),
            Self::Slice(slice, _, none) if text == none => *slice = None,
            Self::Slice(slice, range, none) => {
                let said = time::parse(text).filter(|said| range.contains(said));
                let accepted = || format!("a time from 100 µs to 1 s, or {none}");
                *slice = Some(said.ok_or_else(accepted)?);
            }
            Self::Switch(on) => {
                let said = text.parse().ok();
                *on = said.ok_or_else(|| "true or false".to_string())?;
            }
        }
        Ok(())
    }
}
