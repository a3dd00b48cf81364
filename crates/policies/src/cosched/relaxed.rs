// SPDX-License-Identifier: GPL-2.0-only
//! Relaxed co-scheduling: what VMware published of ESX, in the words of Sukwong & Kim, EuroSys 2011,
//! §6.
//!
//! Siblings may run at different times, but none may get far ahead of the slowest: [`CoschedRelaxed`]
//! stops the one that does until the others have caught up (ESX 4), [`CoschedRelaxedAll`] stops the
//! whole VM then, which starts again together (ESX 2). VMware's thresholds are not published; those
//! here are of the order that is said of them, some ms.

use super::gang_all;
use crate::{NEW_VM_WAIT, Policy};
use corun_model::{Gang, Nanos, Placement, Plan, Skew, Snapshot};

/// Who is ahead of its siblings is stopped until they catch up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedRelaxed {
    /// How far ahead is too far.
    pub skew: Skew,
}

impl Policy for CoschedRelaxed {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::Relaxed(self.skew));
    }
}

/// When one is ahead of its siblings, all stop; they start again together.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoschedRelaxedAll {
    /// How far ahead is too far.
    pub skew: Skew,
}

impl Policy for CoschedRelaxedAll {
    fn period(&self) -> Nanos {
        NEW_VM_WAIT
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        gang_all(seen, plan, Placement::Balance, Gang::RelaxedAll(self.skew));
    }
}
