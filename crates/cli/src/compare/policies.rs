// SPDX-License-Identifier: GPL-2.0-only
//! From `[policy.NAME]` to the settings of corun's policies.

use super::schedulers::set;
use corun_model::Skew;
use corun_policies::Settings;
use corun_scenario::{PolicyKeys, SkewKeys};

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
    settings
}

fn set_skew(skew: &mut Skew, said: &SkewKeys) {
    set(&mut skew.stop, said.stop);
    set(&mut skew.resume, said.resume);
    set(&mut skew.sample, said.sample);
}
