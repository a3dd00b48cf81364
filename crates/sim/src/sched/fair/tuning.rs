// SPDX-License-Identifier: GPL-2.0-only
//! What placement and balancing need to know about a kernel's version and settings.

use super::gang::Gangs;
use super::search::Search;
use super::siblings::Siblings;
use corun_model::{Nanos, time::SEC, time::US};

/// The longest time a setting may have: an hour. Longer ones count as this.
pub(crate) const LONGEST: Nanos = 3600 * SEC;

/// The kernels whose placement and balancing rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// 2.6.32–2.6.38: instantaneous and ticked load averages, balancing by weighted load.
    Linux2_6_33,
    /// 4.13–5.4: per-entity load tracking, balancing by load.
    Linux4,
    /// 5.5–7.x: per-entity load tracking, balancing by kind of group.
    Linux6,
}

/// Settings of placement and balancing that CFS and EEVDF have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    pub(crate) generation: Generation,
    /// A task that ran within this time is cache-hot, and a shorter idle time is not worth a pull,
    /// ns.
    pub(crate) migration_cost: Nanos,
    /// How far a wake-up looks for an idle pCPU.
    pub(crate) search: Search,
    /// Does a pCPU about to idle try to pull only as often as that succeeds (`NI_RANDOM`)?
    pub(crate) pulls_by_success: bool,
    /// And more often if it is seldom about to idle (`NI_RATE`)?
    pub(crate) pulls_if_rare: bool,
    /// The longest time that a pCPU about to idle takes to look for work in one domain, ns (5.5 and
    /// later).
    pub(crate) newidle_cost: Nanos,
    /// Does the idle time that a pCPU learns from end when it gets a task in any way
    /// (`put_prev_task_idle()` of 7.2.13)? Before, it ended when a task woke up there.
    pub(crate) idles_until_switch: bool,
    /// Do only idle pCPUs even out numbers of tasks, those of idle cores before others?
    pub(crate) spreads_if_idle: bool,
    /// The interval at which a busy pCPU balances, ns; `None`: the domains' own ones.
    pub(crate) balance_interval: Option<Nanos>,
    /// Does a pCPU notice a remote wake-up's preemption only when it enters the kernel anyway?
    pub(crate) lazy_preemption: bool,
    /// Is the slice timer set only when a pCPU changes its task or a task joins a runqueue that has
    /// none running, not when the same task is picked again?
    pub(crate) slice_at_switch: bool,
    /// Does the slice timer of a task that left stay, if the pCPU goes on with a single one?
    pub(crate) timer_stays: bool,
    /// Does balancing distinguish ghosts from ready tasks ([`super::ghosts`])?
    pub(crate) sees_ghosts_asleep: bool,
    /// Do the periods of cgroups' quotas begin at different times?
    pub(crate) interleaves_quotas: bool,
    /// What is done about sibling vCPUs.
    pub(crate) siblings: Siblings,
    /// How siblings come to run at the same time.
    pub(crate) gangs: Gangs,
}

impl Tuning {
    /// A kernel's defaults.
    pub(crate) fn of(generation: Generation) -> Self {
        Self {
            generation,
            migration_cost: 500 * US,
            search: Search::All,
            pulls_by_success: false,
            pulls_if_rare: false,
            newidle_cost: 0,
            idles_until_switch: false,
            spreads_if_idle: false,
            balance_interval: None,
            lazy_preemption: false,
            slice_at_switch: false,
            timer_stays: false,
            sees_ghosts_asleep: false,
            interleaves_quotas: false,
            siblings: Siblings::Free,
            gangs: Gangs::None,
        }
    }

    /// Is load an average over the past?
    pub(crate) fn tracks_load(&self) -> bool {
        self.generation != Generation::Linux2_6_33
    }

    /// Does a pCPU's load include that of the tasks that sleep there?
    pub(crate) fn counts_sleepers(&self) -> bool {
        self.generation == Generation::Linux6
    }
}

/// `1 + log2(min(pcpus, 8))`, by which Linux multiplies its base times
/// (`get_update_sysctl_factor()`, `SCHED_TUNABLESCALING_LOG`).
pub(crate) fn scaling(pcpus: u32) -> u64 {
    1 + u64::from(pcpus.clamp(1, 8).ilog2())
}
