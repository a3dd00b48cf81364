// SPDX-License-Identifier: GPL-2.0-only
//! Balance scheduling: sibling vCPUs on different pCPUs, without co-scheduling them.
//!
//! Sukwong & Kim, "Is Co-scheduling Too Expensive for SMP VMs?", EuroSys 2011, §3. When a vCPU is
//! about to be queued, the pCPUs that have a sibling queued or running are left out. The paper
//! applies it to every SMP VM at all times, so all there is to decide here is the mode; the
//! mechanism is `dispatcher/placement.h`.

use crate::{NEW_VM_WAIT, Policy, place_all};
use corun_model::{Nanos, Placement, Plan, Snapshot};

/// Siblings never share a pCPU, as long as the VM has no more vCPUs than pCPUs that it may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Balance;

impl Policy for Balance {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        place_all(seen, plan, Placement::Balance);
    }
}
