// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of each policy.

use crate::{BalanceLoad, CoschedDemand, CoschedRelaxed, CoschedRelaxedAll, CoschedStrict};

/// The settings of all policies that have some: each is the policy itself, which is remade from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// `balance-load`.
    pub balance_load: BalanceLoad,
    /// `cosched-strict`.
    pub cosched_strict: CoschedStrict,
    /// `cosched-demand`.
    pub cosched_demand: CoschedDemand,
    /// `cosched-relaxed`.
    pub cosched_relaxed: CoschedRelaxed,
    /// `cosched-relaxed-all`.
    pub cosched_relaxed_all: CoschedRelaxedAll,
}
