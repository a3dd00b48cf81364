// SPDX-License-Identifier: GPL-2.0-only
//! From `[policy.NAME]` to the settings of corun's policies.

use super::schedulers::set;
use corun_model::Skew;
use corun_policies::{JupiterParams, Settings};
use corun_scenario::{JupiterKeys, PolicyKeys, SkewKeys};

/// The settings of all policies: the defaults, and what was said.
pub fn settings(said: &PolicyKeys) -> Settings {
    let mut settings = Settings::default();
    set(&mut settings.balance_load.light, said.balance_load.light);
    let slots = &mut settings.cosched_strict.slots;
    set(&mut slots.length, said.cosched_strict.slot);
    set(&mut slots.fill, said.cosched_strict.fill);
    let (demand, keys) = (&mut settings.cosched_demand, &said.cosched_demand);
    set(&mut demand.light, keys.light);
    set(&mut demand.boost.wake, keys.wake_boost);
    set(&mut demand.boost.sees_flushes, keys.sees_flushes);
    set(&mut demand.boost.flush, keys.flush_boost);
    set(&mut demand.boost.limit, keys.boost_limit);
    set(&mut demand.boost.lead, keys.boost_lead);
    set_skew(&mut settings.cosched_relaxed.skew, &said.cosched_relaxed);
    let all = &mut settings.cosched_relaxed_all.skew;
    set_skew(all, &said.cosched_relaxed_all);
    set_jupiter(&mut settings.jupiter, &said.jupiter);
    settings
}

fn set_jupiter(params: &mut JupiterParams, said: &JupiterKeys) {
    set(&mut params.period, said.period);
    set(&mut params.dats, said.dats);
    set(&mut params.dasl, said.dasl);
    set(&mut params.rcr, said.rcr);
    set(&mut params.elb, said.elb);
    set(&mut params.weight_step, said.weight_step);
    set(&mut params.latency, said.latency);
    set(&mut params.latency_least, said.latency_least);
    set(&mut params.latency_most, said.latency_most);
    set(&mut params.latency_step, said.latency_step);
    set(&mut params.slice_conflict, said.slice_conflict);
    set(&mut params.latency_conflict, said.latency_conflict);
    set(&mut params.loan_step, said.loan_step);
    set(&mut params.loan_harm, said.loan_harm);
    set(&mut params.bucket, said.bucket);
    set(&mut params.repayment, said.repayment);
    set(&mut params.error, said.error);
    set(&mut params.wrong, said.wrong);
    set(&mut params.right, said.right);
    set(&mut params.grain, said.grain);
}

fn set_skew(skew: &mut Skew, said: &SkewKeys) {
    set(&mut skew.stop, said.stop);
    set(&mut skew.resume, said.resume);
    set(&mut skew.sample, said.sample);
}
