// SPDX-License-Identifier: GPL-2.0-only
//! Relaxed co-scheduling: what VMware published of ESX, in the words of Sukwong & Kim, EuroSys 2011,
//! §6.
//!
//! Siblings may run at different times, but none may get far ahead of the slowest:
//! [`CoschedRelaxed`] stops a vCPU that does until the others have caught up (ESX 4); when the
//! slowest then starts, it calls the siblings that wait. [`CoschedRelaxedAll`] stops the whole VM,
//! and the vCPUs that lag start together (ESX 3). VMware's thresholds are not published; those here
//! have the published order of magnitude, some ms.

use super::gang_all;
use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Gang, Nanos, Parameter, Placement, Plan, Skew, Snapshot, Value};

/// The rows of the table of parameters for a skew, under these keys: stop, resume, sample.
fn skew_parameters(keys: [&'static str; 3], default: Skew) -> Vec<Parameter> {
    let row = |key, meaning, value, source| {
        Parameter::new(key, meaning, Value::Time(value), source, "the default only")
    };
    let [stop, resume, sample] = keys;
    vec![
        row(
            stop,
            "lead in progress over the slowest sibling at which a vCPU is stopped",
            default.stop,
            "assumed: VMware publishes no number; descriptions suggest some ms",
        ),
        row(
            resume,
            "lead below which it goes on; at most `stop`",
            default.resume,
            "assumed: half of `stop`, so that it does not stop again at once",
        ),
        row(
            sample,
            "how often leads are looked at",
            default.sample,
            "assumed: some looks within `stop`; accepted: 100 µs to 100 ms",
        ),
    ]
}

impl CoschedRelaxed {
    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        let keys = [
            "policy.cosched-relaxed.stop",
            "policy.cosched-relaxed.resume",
            "policy.cosched-relaxed.sample",
        ];
        skew_parameters(keys, Self::default().skew)
    }
}

impl CoschedRelaxedAll {
    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        let keys = [
            "policy.cosched-relaxed-all.stop",
            "policy.cosched-relaxed-all.resume",
            "policy.cosched-relaxed-all.sample",
        ];
        skew_parameters(keys, Self::default().skew)
    }
}

/// A vCPU that is ahead of its siblings is stopped until they catch up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedRelaxed {
    /// How far ahead is too far.
    pub skew: Skew,
}

impl Policy for CoschedRelaxed {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::Relaxed(self.skew));
    }
}

/// When a vCPU is ahead of its siblings, all stop; those that lag start together.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedRelaxedAll {
    /// How far ahead is too far.
    pub skew: Skew,
}

impl Policy for CoschedRelaxedAll {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::RelaxedAll(self.skew));
    }
}
