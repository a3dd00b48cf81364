// SPDX-License-Identifier: GPL-2.0-only
//! Gang modes: how the vCPUs of a VM are scheduled in time with respect to each other.
//!
//! The mechanisms are `dispatcher/gang_*.h`, one for each mode.

use crate::Nanos;
use crate::time::{MS, US};
use serde::{Deserialize, Serialize};

/// How the vCPUs of a VM are scheduled in time with respect to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gang {
    /// Each by itself.
    #[default]
    None,
    /// Siblings are called to run when the first of them gets its turn.
    Dynamic,
    /// Siblings start together in time slots, or not at all.
    Strict(Slots),
    /// A vCPU that a sibling wakes runs at once, for a short while.
    Demand(Boost),
    /// A vCPU that is ahead of its siblings is stopped until they catch up.
    Relaxed(Skew),
    /// When one is too far ahead, all stop; those that lag start together.
    RelaxedAll(Skew),
    /// Each has its own weight and rescheduling latency: its [`Claim`](crate::Claim).
    Asymmetric(Allotments),
}

/// What the claims of a VM's vCPUs refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allotments {
    /// How often allotments begin anew, ns; 1 ms at least.
    pub period: Nanos,
    /// The rescheduling latency with which a vCPU preempts others as it would by default, ns.
    pub neutral: Nanos,
    /// The factor on the VM's weight against others, loans included:
    /// [`Claim::NEUTRAL`](crate::Claim::NEUTRAL) is 1. Shares express it, too, but where a VM has a
    /// weight of its own they only divide that.
    pub has: u32,
}

/// Time slots of strict co-scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// Their length, ns; 1 ms to 1 s.
    pub length: Nanos,
    /// May other VMs run where a slot's owner leaves pCPUs idle?
    pub fill: bool,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            length: 10 * MS,
            fill: false,
        }
    }
}

/// Urgency in demand-based co-scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boost {
    /// Urgent time of a vCPU that a sibling wakes, ns.
    pub wake: Nanos,
    /// Is a ready vCPU that a sibling waits for, for instance to flush its TLB, noticed?
    pub sees_flushes: bool,
    /// If so: urgent time of that vCPU, ns.
    pub flush: Nanos,
    /// Most urgent time that adds up, ns.
    pub limit: Nanos,
    /// How far ahead of its pCPU's clock an urgent vCPU may run, ns of virtual time.
    pub lead: Nanos,
}

impl Default for Boost {
    fn default() -> Self {
        Self {
            wake: 100 * US,
            sees_flushes: true,
            flush: 100 * US,
            limit: 500 * US,
            lead: 24 * MS,
        }
    }
}

/// Skew in relaxed co-scheduling, ns of progress: run time and halted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// Lead over the slowest sibling at which a vCPU is stopped.
    pub stop: Nanos,
    /// Lead below which it goes on; less than `stop`.
    pub resume: Nanos,
    /// How often leads are looked at, ns; 100 µs to 100 ms.
    pub sample: Nanos,
}

impl Default for Skew {
    fn default() -> Self {
        Self {
            stop: 3 * MS,
            resume: 1_500 * US,
            sample: MS,
        }
    }
}

impl Gang {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dynamic => "dynamic",
            Self::Strict(_) => "strict",
            Self::Demand(_) => "demand",
            Self::Relaxed(_) => "relaxed",
            Self::RelaxedAll(_) => "relaxed-all",
            Self::Asymmetric(_) => "asymmetric",
        }
    }
}
