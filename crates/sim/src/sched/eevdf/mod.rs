// SPDX-License-Identifier: GPL-2.0-only
//! Earliest Eligible Virtual Deadline First, Linux' fair scheduler since 6.6.
//!
//! A model written from how `kernel/sched/fair.c` of 6.6 to 7.x works: the order of a runqueue is
//! [`order`], with its exact arithmetic in [`queue`]; settings and presets are [`params`]; placement
//! and balancing are shared with CFS ([`fair`](crate::sched::fair)).

mod order;
mod params;
mod queue;
#[cfg(test)]
mod tests;

pub use params::{DEFAULT_PRESET, EevdfParams, parameters};

use super::HostScheduler;
use super::fair::Fair;
use super::forward::forward;
use crate::host::HostParams;
use order::EevdfOrder;

/// A host that runs EEVDF.
pub struct Eevdf(Fair<EevdfOrder>);

impl Eevdf {
    /// EEVDF with these settings on this host.
    pub fn new(params: EevdfParams, host: &HostParams) -> Self {
        let params = params.bounded();
        let order = EevdfOrder::new(params, host);
        Self(Fair::new(order, params.tuning(), host))
    }
}

/// The fair class in this order, for tests of what is shared with CFS.
#[cfg(test)]
pub(crate) fn fair(
    params: EevdfParams,
    host: &HostParams,
) -> Fair<impl super::fair::Order + use<>> {
    Fair::new(EevdfOrder::new(params, host), params.tuning(), host)
}

impl HostScheduler for Eevdf {
    forward! { 0: know_vms know_cgroups add wake block pick tick timer flush_ipi throttled directs_yields yield_pcpu }
}
