// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of each policy: its values here, its keys and ranges in [`fields`].

mod fields;

pub use fields::{AGNOSTIC, Field, OWN};

use crate::aql::AqlParams;
use crate::vslicer::VSlicerSlices;
use crate::vturbo::VTurboPools;
use crate::{
    BalanceLoad, CoschedDemand, CoschedRelaxed, CoschedRelaxedAll, CoschedStrict, JupiterParams,
    Microsliced, PolicyInfo, VsmtIoParams,
};
use corun_model::{Nanos, time};
use std::collections::BTreeMap;

/// The settings of all policies that have any: each is either the policy itself, from which it is made anew, or what it
/// is made of.
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
    pub aql: AqlParams,
    /// `vsmtio`.
    pub vsmtio: VsmtIoParams,
    /// `vslicer`.
    pub vslicer: VSlicerSlices,
    /// `vturbo`.
    pub vturbo: VTurboPools,
    /// `microsliced`.
    pub microsliced: Microsliced,
}

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
    /// It is about something that only a simulator can see or do.
    #[error(
        "{key} of {policy} is for simulations only ([policy.{policy}] of a scenario): no host can do that"
    )]
    Simulated {
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
        /// The value that was given.
        found: String,
        /// What is accepted.
        expected: String,
    },
}

impl Settings {
    /// The keys of all parameters of `policy`.
    pub fn all_keys(policy: &PolicyInfo) -> Vec<&'static str> {
        let names = (policy.parameters)()
            .into_iter()
            .filter_map(|parameter| parameter.key.rsplit('.').next());
        names
            .filter(|key| Self::default().field(policy.name, key).is_some())
            .collect()
    }

    /// The keys of `policy` that can be set on a host: without those of what only a simulator can see or do.
    pub fn keys(policy: &PolicyInfo) -> Vec<&'static str> {
        let mut keys = Self::all_keys(policy);
        keys.retain(|key| !fields::SIMULATED.contains(&(policy.name, *key)));
        keys
    }

    /// The parameters of `policy` that can be set on a host, with their values in the form in which they would be set.
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
        if fields::SIMULATED.contains(&(policy, key)) {
            let key = key.to_string();
            return Err(SettingError::Simulated { policy, key });
        }
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

    /// Takes one setting over from `other`.
    pub fn take(&mut self, policy: &str, key: &str, mut other: Settings) {
        match (self.field(policy, key), other.field(policy, key)) {
            (Some(Field::Time(ours, _)), Some(Field::Time(theirs, _))) => *ours = *theirs,
            (Some(Field::Whole(ours, _)), Some(Field::Whole(theirs, _))) => *ours = *theirs,
            (Some(Field::Limit(ours, _)), Some(Field::Limit(theirs, _))) => *ours = *theirs,
            (Some(Field::Slice(ours, ..)), Some(Field::Slice(theirs, ..))) => *ours = *theirs,
            (Some(Field::Switch(ours)), Some(Field::Switch(theirs))) => *ours = *theirs,
            _ => {}
        }
    }

    /// Do the settings of `policy` fit each other?
    ///
    /// # Errors
    /// [`SettingError::Value`] of one that does not.
    pub fn check(&self, policy: &PolicyInfo) -> Result<(), SettingError> {
        let no_longer = |of, than| no_longer(policy.name, of, than);
        match policy.name {
            "jupiter" => self.check_latencies(policy.name),
            "vsmtio" => {
                let of = &self.vsmtio;
                no_longer(("slice_least", of.slice_least), ("latency", of.latency))?;
                self.check_timeouts(policy.name)
            }
            "cosched-relaxed" => {
                let skew = self.cosched_relaxed.skew;
                no_longer(("resume", skew.resume), ("stop", skew.stop))
            }
            "cosched-relaxed-all" => {
                let skew = self.cosched_relaxed_all.skew;
                no_longer(("resume", skew.resume), ("stop", skew.stop))
            }
            // vCPUs that do I/O have the short slices.
            "vslicer" => {
                let of = self.vslicer;
                no_longer(("slice", of.slice), ("default", of.default))
            }
            "vturbo" => {
                let of = self.vturbo;
                no_longer(("slice", of.slice), ("default", of.default))
            }
            _ => Ok(()),
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
        let least = ("latency_least", params.latency_least);
        no_longer(policy, least, ("latency", params.latency))?;
        if params.latency_most < params.latency {
            let expected = format!("at least latency, which is {}", show(params.latency));
            return Err(SettingError::Value {
                policy,
                key: "latency_most".to_string(),
                found: show(params.latency_most),
                expected,
            });
        }
        Ok(())
    }
}

/// Is the setting `of` of a policy, given with its name, no longer than another one?
fn no_longer(
    policy: &'static str,
    (key, of): (&str, Nanos),
    (other, than): (&str, Nanos),
) -> Result<(), SettingError> {
    if of <= than {
        return Ok(());
    }
    Err(SettingError::Value {
        policy,
        key: key.to_string(),
        found: time::show(of),
        expected: format!("at most {other}, which is {}", time::show(than)),
    })
}

#[cfg(test)]
mod tests;
