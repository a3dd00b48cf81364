// SPDX-License-Identifier: GPL-2.0-only
//! From `[policy.NAME]` to the settings of corun's policies.

use super::schedulers::set;
use super::setup::host_params;
use crate::failure::Invalid;
use corun_model::Skew;
use corun_policies::aql::{Calibration, Kind, Machine};
use corun_policies::{JupiterParams, Settings, VsmtIoParams};
use corun_scenario::{
    Best, CalibrationKeys, Case, JupiterKeys, PolicyKeys, Problems, Scenario, SkewKeys, VsmtIoKeys,
};
use std::path::Path;

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
    settings.aql = calibration(&said.aql.found);
    set_vsmtio(&mut settings.vsmtio, &said.vsmtio);
    set(&mut settings.vslicer.slice, said.vslicer.slice);
    set(&mut settings.vslicer.default, said.vslicer.default);
    set(&mut settings.vturbo.slice, said.vturbo.slice);
    set(&mut settings.vturbo.default, said.vturbo.default);
    set(&mut settings.vturbo.pcpus, said.vturbo.pcpus);
    set(&mut settings.microsliced.slice, said.microsliced.slice);
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

fn set_vsmtio(params: &mut VsmtIoParams, said: &VsmtIoKeys) {
    set(&mut params.period, said.period);
    set(&mut params.retain, said.retain);
    set(&mut params.adjust, said.adjust);
    set(&mut params.rass, said.rass);
    set(&mut params.symbiosis, said.symbiosis);
    set(&mut params.adjuster, said.adjuster);
    set(&mut params.compensate, said.compensate);
    set(&mut params.guests, said.guests);
    set(&mut params.timeout, said.timeout);
    set(&mut params.bounds.least, said.least);
    set(&mut params.bounds.most, said.most);
    set(&mut params.bounds.step, said.step);
    set(&mut params.bounds.margin, said.margin);
    set(&mut params.homogeneous, said.homogeneous);
    set(&mut params.cooldown, said.cooldown);
    set(&mut params.coefficients.base, said.base);
    set(&mut params.coefficients.wait, said.wait);
    set(&mut params.coefficients.wait_wait, said.wait_wait);
    set(&mut params.coefficients.miss, said.miss);
    set(&mut params.coefficients.miss_miss, said.miss_miss);
}

/// The shipped calibration, and what was said.
pub fn calibration(said: &CalibrationKeys) -> Calibration {
    let mut found = Calibration::default();
    set(&mut found.slices.default, said.default);
    let best = [
        (Kind::IoInt, said.io_int),
        (Kind::ConSpin, said.con_spin),
        (Kind::Llcf, said.llcf),
        (Kind::Llco, said.llco),
        (Kind::LoLcf, said.lo_lcf),
    ];
    for (kind, best) in best {
        match best {
            Some(Best::Slice(slice)) => found.slices.set(kind, Some(slice)),
            Some(Best::Agnostic) => found.slices.set(kind, None),
            None => {}
        }
    }
    set(&mut found.limits.io_events, said.io_events.map(u64::from));
    set(
        &mut found.limits.pause_exits,
        said.pause_exits.map(u64::from),
    );
    set(
        &mut found.limits.llc_references,
        said.llc_references.map(u64::from),
    );
    set(&mut found.limits.llc_misses, said.llc_misses.map(u64::from));
    found
}

/// Reads the calibration files that a scenario names. What its cases say beside one is stronger.
///
/// # Errors
/// [`Invalid`] if one cannot be read, is broken, or was made on another machine.
pub fn load(scenario: &mut Scenario) -> anyhow::Result<()> {
    let folder = Path::new(&scenario.file).parent().unwrap_or(Path::new(""));
    let mut problems = Problems::default();
    for case in &mut scenario.cases {
        let machine = machine(case);
        let keys = &mut case.schedulers.policies.aql;
        let Some(said) = &keys.calibration else {
            continue;
        };
        match read(&folder.join(&said.value), &machine) {
            Ok(found) => keys.found = keys.found.or(found),
            Err(message) => problems.push(said.problem(message)),
        }
    }
    problems.or_ok(()).map_err(Invalid::error)
}

/// What a file says, if it holds on `machine`.
///
/// # Errors
/// Why not.
pub fn read(path: &Path, machine: &Machine) -> Result<CalibrationKeys, String> {
    let name = path.display().to_string();
    let unread = |error| format!("{name}: {error}; expected a file that `corun calibrate` wrote");
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let file = corun_scenario::calibration(&name, &text).map_err(|found| found.to_string())?;
    let of = Machine {
        topology: file.topology,
        l2: file.l2,
        llc: file.llc,
    };
    of.fits(machine).map_err(|why| format!("{name}: {why}"))?;
    Ok(file.found)
}

/// The machine of a case, as far as calibrations tell machines apart.
pub fn machine(case: &Case) -> Machine {
    let params = host_params(case);
    let caches = params.hardware.caches.unwrap_or_default();
    Machine {
        topology: params.topology,
        l2: caches.l2,
        llc: caches.llc_bytes(&params.topology),
    }
}

fn set_skew(skew: &mut Skew, said: &SkewKeys) {
    set(&mut skew.stop, said.stop);
    set(&mut skew.resume, said.resume);
    set(&mut skew.sample, said.sample);
}
