// SPDX-License-Identifier: GPL-2.0-only
//! The Completely Fair Scheduler, as the papers' hosts ran it (Linux 2.6.23 to 6.5).
//!
//! A model written from how `kernel/sched_fair.c` (2.6.33) and `kernel/sched/fair.c` (4.x) work:
//! the order of a runqueue is [`order`], its settings and presets are [`params`]; placement and
//! balancing are shared with EEVDF ([`fair`](crate::sched::fair)). Where a policy steers it, that is
//! [`steered`].

#[cfg(test)]
mod gang_tests;
mod order;
mod params;
mod steered;
#[cfg(test)]
mod tests;

pub use super::fair::{Gangs, Generation, Siblings};
pub(crate) use order::CfsOrder;
pub use params::{CfsParams, DEFAULT_PRESET, parameters};
pub use steered::SteeredCfs;

use super::HostScheduler;
use super::fair::Fair;
use super::forward::forward;
use crate::host::HostParams;

/// A host that runs CFS.
pub struct Cfs(Fair<CfsOrder>);

impl Cfs {
    /// CFS with these settings on this host.
    pub fn new(params: CfsParams, host: &HostParams) -> Self {
        Self(fair(params, host))
    }
}

/// The fair class in CFS's order.
pub(crate) fn fair(params: CfsParams, host: &HostParams) -> Fair<CfsOrder> {
    let params = params.bounded();
    let order = CfsOrder::new(params, host.topology.pcpus() as usize);
    Fair::new(order, params.tuning(), host)
}

impl HostScheduler for Cfs {
    forward! { 0: know_vms know_cgroups add wake block pick tick timer flush_ipi throttled directs_yields yield_pcpu }
}
