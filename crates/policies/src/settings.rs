// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of each policy.

use crate::aql::Calibration;
use crate::vslicer::VSlicerSlices;
use crate::vturbo::VTurboPools;
use crate::{
    BalanceLoad, CoschedDemand, CoschedRelaxed, CoschedRelaxedAll, CoschedStrict, JupiterParams,
    Microsliced, PolicyInfo, VsmtIoParams,
};
use corun_model::time::{MS, SEC, US};
use corun_model::{Nanos, Skew, time};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The settings of all policies that have some: each is the policy itself, which is remade from it,
/// or what it is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// `balance-load`.
    pub balance_load: BalanceLoad,
    /// `cosched-strict`.
    pub cosched_strict: CoschedStrict,
    /// `cosched-demand`.
    pub cosched_demand: CoschedDemand,
    /// `cosched-relaxed`.
    pub cosched_relaxed: CoschedRelaxed,
    /// `cosched-relaxed-all`.
    pub cosched_relaxed_all: CoschedRelaxedAll,
    /// `jupiter`.
    pub jupiter: JupiterParams,
    /// `aql`.
    pub aql: Calibration,
    /// `vsmtio`.
    pub vsmtio: VsmtIoParams,
    /// `vslicer`.
    pub vslicer: VSlicerSlices,
    /// `vturbo`.
    pub vturbo: VTurboPools,
    /// `microsliced`.
    pub microsliced: Microsliced,
}

/// A setting, and what it may be.
enum Field<'a> {
    Time(&'a mut Nanos, RangeInclusive<Nanos>),
    Percent(&'a mut u32, RangeInclusive<u32>),
    Count(&'a mut u32, RangeInclusive<u32>),
    Limit(&'a mut u64),
    /// The best slice of a type, or none.
    Best(&'a mut Option<Nanos>),
    Switch(&'a mut bool),
}

/// What a best slice is if it does not matter.
const AGNOSTIC: &str = "agnostic";
/// What a limit may be.
const LIMIT: RangeInclusive<u64> = 1..=1_000_000;

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The policy has none of this name.
    #[error("{policy} has no parameter {key:?}")]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What was asked for.
        key: String,
    },
    /// It cannot have this value.
    #[error("{key} of {policy}: found {found:?}, expected {expected}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// Which.
        key: String,
        /// What was said.
        found: String,
        /// What is accepted.
        expected: String,
    },
}

impl Settings {
    /// The names of what can be set of `policy` on a host: what only a simulator can see is left out.
    pub fn keys(policy: &PolicyInfo) -> Vec<&'static str> {
        let names = (policy.parameters)()
            .into_iter()
            .filter_map(|parameter| parameter.key.rsplit('.').next());
        names
            .filter(|key| Self::default().field(policy.name, key).is_some())
            .collect()
    }

    /// What can be set of `policy` on a host, with what it is set to, as it would be set.
    pub fn values(&self, policy: &PolicyInfo) -> BTreeMap<String, String> {
        let mut settings = *self;
        let mut value = |key: &'static str| {
            let field = settings.field(policy.name, key)?;
            Some((key.to_string(), field.show()))
        };
        let keys = Self::keys(policy);
        keys.into_iter().filter_map(&mut value).collect()
    }

    /// Sets `key` of `policy` on a host, as `[policy.NAME] key = value` does in a scenario.
    ///
    /// # Errors
    /// [`SettingError`]; nothing is set then.
    pub fn set(&mut self, policy: &PolicyInfo, key: &str, value: &str) -> Result<(), SettingError> {
        let policy = policy.name;
        let Some(field) = self.field(policy, key) else {
            let key = key.to_string();
            return Err(SettingError::Unknown { policy, key });
        };
        field.set(value).map_err(|expected| SettingError::Value {
            policy,
            key: key.to_string(),
            found: value.to_string(),
            expected,
        })
    }

    /// Do the settings of `policy` fit each other?
    ///
    /// # Errors
    /// [`SettingError::Value`] of one that does not.
    pub fn check(&self, policy: &PolicyInfo) -> Result<(), SettingError> {
        if policy.name == "jupiter" {
            return self.check_latencies(policy.name);
        }
        if policy.name == "vsmtio" {
            return self.check_timeouts(policy.name);
        }
        let skew = match policy.name {
            "cosched-relaxed" => self.cosched_relaxed.skew,
            "cosched-relaxed-all" => self.cosched_relaxed_all.skew,
            _ => return Ok(()),
        };
        match skew.resume <= skew.stop {
            true => Ok(()),
            false => Err(SettingError::Value {
                policy: policy.name,
                key: "resume".to_string(),
                found: time::show(skew.resume),
                expected: format!("at most stop, which is {}", time::show(skew.stop)),
            }),
        }
    }

    /// Does vSMT-IO begin with a timeout within its bounds?
    fn check_timeouts(&self, policy: &'static str) -> Result<(), SettingError> {
        let (bounds, timeout) = (&self.vsmtio.bounds, self.vsmtio.timeout);
        if bounds.least <= timeout && timeout <= bounds.most {
            return Ok(());
        }
        let (least, most) = (time::show(bounds.least), time::show(bounds.most));
        Err(SettingError::Value {
            policy,
            key: "timeout".to_string(),
            found: time::show(timeout),
            expected: format!(
                "at least least, which is {least}, and at most most, which is {most}"
            ),
        })
    }

    /// Is Jupiter's least latency the least, and its longest the longest?
    fn check_latencies(&self, policy: &'static str) -> Result<(), SettingError> {
        let (params, show) = (&self.jupiter, time::show);
        let error = |key: &str, found, expected| SettingError::Value {
            policy,
            key: key.to_string(),
            found: show(found),
            expected,
        };
        if params.latency_least > params.latency {
            let expected = format!("at most latency, which is {}", show(params.latency));
            return Err(error("latency_least", params.latency_least, expected));
        }
        if params.latency_most < params.latency {
            let expected = format!("at least latency, which is {}", show(params.latency));
            return Err(error("latency_most", params.latency_most, expected));
        }
        Ok(())
    }

    fn field(&mut self, policy: &str, key: &str) -> Option<Field<'_>> {
        let boost = &mut self.cosched_demand.boost;
        Some(match (policy, key) {
            ("balance-load", "light") => Field::Percent(&mut self.balance_load.light, LIGHT),
            ("cosched-strict", "slot") => {
                Field::Time(&mut self.cosched_strict.slots.length, MS..=SEC)
            }
            ("cosched-strict", "fill") => Field::Switch(&mut self.cosched_strict.slots.fill),
            ("cosched-demand", "light") => Field::Percent(&mut self.cosched_demand.light, LIGHT),
            ("cosched-demand", "wake_boost") => Field::Time(&mut boost.wake, 0..=100 * MS),
            ("cosched-demand", "boost_limit") => Field::Time(&mut boost.limit, 0..=100 * MS),
            ("cosched-demand", "boost_lead") => Field::Time(&mut boost.lead, 0..=SEC),
            ("aql", "default") => Field::Time(&mut self.aql.slices.default, SLICE),
            ("aql", _) => aql(&mut self.aql, key)?,
            ("vsmtio", _) => vsmtio(&mut self.vsmtio, key)?,
            ("vslicer", "slice") => Field::Time(&mut self.vslicer.slice, SLICE),
            ("vslicer", "default") => Field::Time(&mut self.vslicer.default, SLICE),
            ("vturbo", "slice") => Field::Time(&mut self.vturbo.slice, SLICE),
            ("vturbo", "default") => Field::Time(&mut self.vturbo.default, SLICE),
            ("vturbo", "pcpus") => Field::Count(&mut self.vturbo.pcpus, 1..=511),
            ("microsliced", "slice") => Field::Time(&mut self.microsliced.slice, SLICE),
            ("cosched-relaxed", _) => skew(&mut self.cosched_relaxed.skew, key)?,
            ("jupiter", _) => jupiter(&mut self.jupiter, key)?,
            ("cosched-relaxed-all", _) => skew(&mut self.cosched_relaxed_all.skew, key)?,
            _ => return None,
        })
    }
}

const LIGHT: RangeInclusive<u32> = 100..=1000;
/// Shorter ones would only switch, longer ones are none.
const SLICE: RangeInclusive<Nanos> = 100 * US..=SEC;

fn aql<'a>(calibration: &'a mut Calibration, key: &str) -> Option<Field<'a>> {
    let (slices, limits) = (&mut calibration.slices, &mut calibration.limits);
    Some(match key {
        "IOInt" => Field::Best(&mut slices.io_int),
        "ConSpin" => Field::Best(&mut slices.con_spin),
        "LLCF" => Field::Best(&mut slices.llcf),
        "LLCO" => Field::Best(&mut slices.llco),
        "LoLCF" => Field::Best(&mut slices.lo_lcf),
        "io_events" => Field::Limit(&mut limits.io_events),
        "pause_exits" => Field::Limit(&mut limits.pause_exits),
        "llc_references" => Field::Limit(&mut limits.llc_references),
        "llc_misses" => Field::Limit(&mut limits.llc_misses),
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
        "weight_step" => Field::Percent(&mut params.weight_step, percent),
        "latency" => Field::Time(&mut params.latency, 100 * US..=100 * MS),
        "latency_least" => Field::Time(&mut params.latency_least, 100 * US..=100 * MS),
        "latency_most" => Field::Time(&mut params.latency_most, 100 * US..=100 * MS),
        "latency_step" => Field::Percent(&mut params.latency_step, percent),
        "slice_conflict" => Field::Percent(&mut params.slice_conflict, percent),
        "latency_conflict" => Field::Percent(&mut params.latency_conflict, 1..=100),
        "loan_step" => Field::Percent(&mut params.loan_step, percent),
        "loan_harm" => Field::Percent(&mut params.loan_harm, percent),
        "bucket" => Field::Percent(&mut params.bucket, 0..=10_000),
        "repayment" => Field::Percent(&mut params.repayment, percent),
        "error" => Field::Percent(&mut params.error, percent),
        "wrong" => Field::Percent(&mut params.wrong, 0..=1000),
        "right" => Field::Percent(&mut params.right, 1..=1000),
        "grain" => Field::Time(&mut params.grain, 0..=100 * MS),
        _ => return None,
    })
}

/// What only simulated guests can do is left out.
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
        "timeout" => Field::Time(&mut params.timeout, TIMEOUT),
        "least" => Field::Time(&mut params.bounds.least, TIMEOUT),
        "most" => Field::Time(&mut params.bounds.most, TIMEOUT),
        "step" => Field::Percent(&mut params.bounds.step, 1..=50),
        "margin" => Field::Percent(&mut params.bounds.margin, 0..=100),
        "homogeneous" => Field::Percent(&mut params.homogeneous, 0..=100),
        "cooldown" => Field::Count(&mut params.cooldown, 0..=1000),
        "base" => Field::Count(&mut of.base, coefficient),
        "wait" => Field::Count(&mut of.wait, coefficient),
        "wait_wait" => Field::Count(&mut of.wait_wait, coefficient),
        "miss" => Field::Count(&mut of.miss, coefficient),
        "miss_miss" => Field::Count(&mut of.miss_miss, coefficient),
        _ => return None,
    })
}

/// What a retention timeout may be: longer ones are no retention, shorter ones only timers.
const TIMEOUT: RangeInclusive<Nanos> = 10 * US..=100 * MS;

impl Field<'_> {
    /// The value as a text that [`Self::set`] takes.
    fn show(&self) -> String {
        match self {
            Self::Time(time, _) => time::exact(**time),
            Self::Limit(number) => number.to_string(),
            Self::Best(slice) => slice.map_or_else(|| AGNOSTIC.to_string(), time::exact),
            Self::Percent(number, _) | Self::Count(number, _) => number.to_string(),
            Self::Switch(on) => on.to_string(),
        }
    }

    /// Takes the value from a text; else says what is accepted.
    fn set(self, text: &str) -> Result<(), String> {
        match self {
            Self::Time(time, range) => {
                let said = time::parse(text).filter(|said| range.contains(said));
                let (least, most) = (time::show(*range.start()), time::show(*range.end()));
                *time = said.ok_or_else(|| format!("a time from {least} to {most}"))?;
            }
            Self::Limit(number) => {
                let said = text.parse().ok().filter(|said| LIMIT.contains(said));
                *number = said.ok_or_else(|| "a number from 1 to 1000000".to_string())?;
            }
            Self::Best(slice) if text == AGNOSTIC => *slice = None,
            Self::Best(slice) => {
                let said = time::parse(text).filter(|said| SLICE.contains(said));
                let accepted = || "a time from 100 µs to 1 s, or agnostic".to_string();
                *slice = Some(said.ok_or_else(accepted)?);
            }
            Self::Percent(number, range) | Self::Count(number, range) => {
                let said = text.parse().ok().filter(|said| range.contains(said));
                let (least, most) = range.into_inner();
                *number = said.ok_or_else(|| format!("a number from {least} to {most}"))?;
            }
            Self::Switch(on) => {
                let said = text.parse().ok();
                *on = said.ok_or_else(|| "true or false".to_string())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find;

    #[test]
    fn what_is_set_is_in_the_plan_that_follows() {
        let mut settings = Settings::default();
        let strict = find("cosched-strict").unwrap();
        settings.set(strict, "slot", "20ms").unwrap();
        settings.set(strict, "fill", "true").unwrap();
        let slots = settings.cosched_strict.slots;
        assert_eq!((slots.length, slots.fill), (20 * MS, true));
        assert_eq!(Settings::keys(strict), ["slot", "fill"]);
        assert!(Settings::keys(find("fair").unwrap()).is_empty());
    }

    #[test]
    fn what_is_in_force_can_be_set_again() {
        for policy in crate::all() {
            let mut settings = Settings::default();
            let values = settings.values(policy);
            let keys: Vec<&str> = values.keys().map(String::as_str).collect();
            let mut known = Settings::keys(policy);
            known.sort_unstable();
            assert_eq!(keys, known);
            for (key, value) in &values {
                settings.set(policy, key, value).unwrap();
            }
            assert_eq!(settings.values(policy), values);
        }
        let mut settings = Settings::default();
        let aql = find("aql").unwrap();
        settings.set(aql, "LLCF", "agnostic").unwrap();
        settings.set(aql, "IOInt", "1500us").unwrap();
        let values = settings.values(aql);
        assert_eq!(
            (values["LLCF"].as_str(), values["IOInt"].as_str()),
            ("agnostic", "1500us")
        );
    }

    #[test]
    fn what_only_a_simulator_sees_cannot_be_set_on_a_host() {
        let demand = find("cosched-demand").unwrap();
        let keys = ["light", "wake_boost", "boost_limit", "boost_lead"];
        assert_eq!(Settings::keys(demand), keys);
        assert!(
            Settings::default()
                .set(demand, "sees_flushes", "true")
                .is_err()
        );
    }

    #[test]
    fn what_is_refused_says_why() {
        let mut settings = Settings::default();
        let relaxed = find("cosched-relaxed").unwrap();
        let mut refused = |key, value| settings.set(relaxed, key, value).unwrap_err().to_string();
        assert_eq!(
            refused("stp", "1ms"),
            "cosched-relaxed has no parameter \"stp\""
        );
        let expected =
            "stop of cosched-relaxed: found \"2h\", expected a time from 100 µs to 1.00 s";
        assert_eq!(refused("stop", "2h"), expected);
        settings.set(relaxed, "resume", "4ms").unwrap();
        let error = settings.check(relaxed).unwrap_err().to_string();
        assert!(
            error.contains("expected at most stop, which is 3.00 ms"),
            "{error}"
        );
    }
}
