// SPDX-License-Identifier: GPL-2.0-only
//! What symbiosis has to know about a machine (vSMT-IO, dissertation §3.4.3): the coefficients of its model, and the
//! events by which its cycles are divided.
//!
//! The published coefficients were fitted on their authors' machine, which is not named, so a file says
//! which machine it holds for, and where its numbers come from; on another one it is refused, as AQL's is. The file is
//! TOML; `corun_scenario::calibration` reads it, `corun calibrate --symbiosis` writes it. If the file says nothing of
//! events, the host has to know them.
//!
//! What the published code counts (`do_ca()`) is less certain than its coefficients: FIXED1 (cycles),
//! RESOURCE_STALLS.ANY (0xA2/01) as S, and 0xA3/04 as M. CYCLE_ACTIVITY (0xA3) counts cycles only with a counter mask,
//! which the code leaves out; with the one that the manual has for 04 it is CYCLE_ACTIVITY.STALLS_TOTAL (before Skylake
//! CYCLES_NO_EXECUTE), stalls for any reason, and no misses. Here that event, with its mask, is what stalls are, and
//! CYCLE_ACTIVITY.STALLS_L2_MISS, which counts a part of them, is M: so B, M and W are shares that add up. The
//! published coefficients were not fitted to these events; no others are known.

use super::symbiosis::Coefficients;
use crate::aql::Machine;
use crate::pmu::Events;
use std::fmt::Write;

/// The version of the file that is written and read.
pub const FORMAT: &str = "corun-symbiosis-1";

/// What a file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// The model's coefficients.
    pub coefficients: Coefficients,
    /// The events that divide cycles; `None`: those that the host knows for its processor.
    pub events: Option<Events>,
}

/// A calibration as a file. `source`: where it comes from.
pub fn write(found: &Calibration, machine: &Machine, source: &str) -> String {
    let of = &found.coefficients;
    let mut text = format!(
        "# Symbiosis of vSMT-IO, written by `corun calibrate --symbiosis`.\n\
         format = \"{FORMAT}\"\nsource = {source:?}\n\n\
         [machine]\ntopology = \"{}\"\nl2 = \"{}B\"\nllc = \"{}B\"\n\n\
         # How much longer an instruction takes beside another thread, thousandths.\n\
         [coefficient]\nbase = {}\nwait = {}\nwait_wait = {}\nmiss = {}\nmiss_miss = {}\n",
        machine.topology,
        machine.l2,
        machine.llc,
        of.base,
        of.wait,
        of.wait_wait,
        of.miss,
        of.miss_miss,
    );
    for (name, event) in found.events.iter().flat_map(Events::named) {
        let (kind, config) = (event.kind_text(), event.config_text());
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[event.{name}]\ntype = {kind}\nconfig = {config}\n");
    }
    text
}
