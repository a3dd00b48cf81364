// SPDX-License-Identifier: GPL-2.0-only
//! Dynamic time-slice (DT) co-scheduling: Sukwong & Kim, EuroSys 2011, §5.2.2 and Algorithm 3.
//!
//! vCPUs are placed as by balance scheduling. When the first of a VM's vCPUs gets its turn, the
//! pCPUs where its siblings wait are interrupted and run them at once; otherwise fair order holds.
//! This is the paper's own co-scheduler, made to compare balance scheduling with.

use super::gang_all;
use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Gang, Nanos, Placement, Plan, Snapshot};

/// Siblings are called when the first of them starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedDt;

impl Policy for CoschedDt {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::Dynamic);
    }
}
