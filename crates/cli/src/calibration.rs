// SPDX-License-Identifier: GPL-2.0-only
//! A calibration file on a real host: `corun host --calibration`, `corun policy --calibration`.

use crate::compare::calibration;
use crate::failure::Invalid;
use corun_linux::machine::Layout;
use corun_policies::aql::Machine;
use corun_scenario::Calibrated;
use std::path::Path;

/// The content of a file, if it holds on this machine and is of the kind for `policy`.
///
/// # Errors
/// Why it cannot be read, is broken, of the other kind, or was made on another machine.
pub fn read(path: &Path, policy: &str) -> anyhow::Result<Calibrated> {
    let here = machine()?;
    calibration::read(path, &here, policy).map_err(Invalid::error)
}

/// This machine, as far as calibrations distinguish machines.
///
/// # Errors
/// [`Invalid`] if it cannot be distinguished from others.
pub fn machine() -> anyhow::Result<Machine> {
    let found = Layout::of_this_host().and_then(|layout| layout.machine());
    found.map_err(|why| Invalid::error(format!("calibrations cannot be told apart here: {why}")))
}
