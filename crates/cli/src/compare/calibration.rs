// SPDX-License-Identifier: GPL-2.0-only
//! The calibration files that `[policy.aql]` and `[policy.vsmtio]` name.

use super::input;
use super::setup::host_params;
use crate::failure::Invalid;
use corun_policies::aql::Machine;
use corun_scenario::{Calibrated, Case, Problems, Scenario};
use std::path::Path;

/// Reads the calibration files that a scenario names. What its cases set beside one takes precedence.
///
/// # Errors
/// [`Invalid`] if one cannot be read, is broken, or was made on another machine.
pub fn load(scenario: &mut Scenario) -> anyhow::Result<()> {
    let mut problems = Problems::default();
    for case in &mut scenario.cases {
        let machine = machine(case);
        let keys = &mut case.schedulers.policies;
        for said in std::mem::take(&mut keys.calibrations) {
            match read(&input::named(&said.file), &machine, said.policy) {
                Ok(found) => keys.calibrate(&said, &found),
                Err(message) => problems.push(said.file.problem(message)),
            }
        }
    }
    problems.or_ok(()).map_err(Invalid::error)
}

/// The content of a file, if it holds on `machine` and is of the kind for `policy`.
///
/// # Errors
/// Why not.
pub fn read(path: &Path, machine: &Machine, policy: &str) -> Result<Calibrated, String> {
    let name = path.display().to_string();
    let writes = match policy {
        "vsmtio" => "corun calibrate --symbiosis",
        _ => "corun calibrate",
    };
    let unread = |error: String| format!("{error}; expected a file that `{writes}` wrote");
    let text = input::text(path).map_err(unread)?;
    let file = corun_scenario::calibration(&name, &text).map_err(|found| found.to_string())?;
    let fits = file.found.is_for(policy);
    let fits = fits.and_then(|()| file.machine.fits(machine));
    fits.map_err(|why| format!("{name}: {why}"))?;
    Ok(file.found)
}

/// The machine of a case, as far as calibrations distinguish machines.
pub fn machine(case: &Case) -> Machine {
    let params = host_params(case);
    let caches = params.hardware.caches.unwrap_or_default();
    Machine {
        topology: params.topology,
        l2: caches.l2,
        llc: caches.llc_bytes(&params.topology),
    }
}
