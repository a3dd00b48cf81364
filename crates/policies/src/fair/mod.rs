// SPDX-License-Identifier: GPL-2.0-only
//! Plain fair order, placement free: what the others are compared with.

use crate::{NEW_VM_WAIT, Policy, place_all};
use corun_model::{Nanos, Placement, Plan, Snapshot};

/// Every vCPU may go wherever there is least to do; pCPU time is shared by weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Policy for Fair {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        place_all(seen, plan, Placement::Free);
    }
}
