// SPDX-License-Identifier: GPL-2.0-only
//! CFS's settings, and presets with those of the papers' hosts.

use crate::sched::fair::{Gangs, Generation, LONGEST, LOOK, Search, Siblings, Tuning, scaling};
use corun_model::time::{MS, US};
use corun_model::{Nanos, Parameter, Value};

/// Settings of CFS. Times in ns, as they hold on the host: already scaled by its number of pCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfsParams {
    /// Within this time every ready task runs once (`sched_latency_ns`).
    pub latency: Nanos,
    /// The least slice; with more tasks the period grows (`sched_min_granularity_ns`).
    pub min_granularity: Nanos,
    /// The least slice of idle groups while tasks of others are on the runqueue (`sched_idle_min_granularity`, 5.15).
    /// If it is set, no slice of others is shorter than `min_granularity`, however little they weigh (`BASE_SLICE`,
    /// 5.13), and sleepers of idle groups are credited with `min_granularity` instead of a latency (5.15).
    pub idle_min_granularity: Option<Nanos>,
    /// By how much a woken task must be behind to preempt (`sched_wakeup_granularity_ns`).
    pub wakeup_granularity: Nanos,
    /// Are sleepers credited with half a latency rather than a whole one
    /// (`GENTLE_FAIR_SLEEPERS`)?
    pub gentle_fair_sleepers: bool,
    /// Overrides that: how far behind its runqueue a woken task may be placed, in virtual time, so how much of the time
    /// that it did not use it may use later.
    pub sleeper_credit: Option<Nanos>,
    /// Does a new task begin one slice behind (`START_DEBIT`)?
    pub start_debit: bool,
    /// Do woken tasks preempt at all (`WAKEUP_PREEMPTION`)?
    pub wakeup_preemption: bool,
    /// The interval at which a busy pCPU balances; `None`: that of the kernel's domains (64 ms to
    /// 256 ms on a quad-core with 2.6.33).
    pub balance_interval: Option<Nanos>,
    /// A task that ran within this time is not moved (`sched_migration_cost_ns`).
    pub migration_cost: Nanos,
    /// How long it takes to look whether another pCPU idles, by which wake-ups decide how far to
    /// look (`SIS_PROP`, 4.13 to 5.19); 0: they look at all pCPUs that share the LLC.
    pub search_cost: Nanos,
    /// The kernels whose placement and balancing rules hold.
    pub generation: Generation,
    /// What is done about sibling vCPUs.
    pub siblings: Siblings,
    /// How siblings come to run at the same time.
    pub gangs: Gangs,
}

/// The default of [`CfsParams::idle_min_granularity`] (`sysctl_sched_idle_min_granularity`).
const IDLE_LEAST: Nanos = 750 * US;

impl CfsParams {
    /// Names of the presets, for help and error messages.
    pub const PRESETS: [&'static str; 5] = [
        "2.6.33",
        "2.6.33-as-stated",
        "4.x",
        "5.x",
        "rhel-virtual-host",
    ];

    /// The named preset for a host with so many pCPUs; `None` if there is none of this name.
    ///
    /// - `2.6.33`: 5 / 1 / 1 ms times 1 + log2(min(pCPUs, 8)) (`kernel/sched_fair.c` of 2.6.33):
    ///   15 / 3 / 3 ms on a quad-core, the host of the balance-scheduling paper.
    /// - `2.6.33-as-stated`: 5 / 1 / 1 ms unscaled, as that paper's §5.1 states.
    /// - `4.x`: 6 / 0.75 / 1 ms times the same factor (`kernel/sched/fair.c` of 4.4 to 5.4):
    ///   24 / 3 / 4 ms from 8 pCPUs on.
    /// - `5.x`: the same times, with the balancing of 5.5 to 6.5, which goes by kinds of groups
    ///   rather than by load, and the least slices of 5.15 to 6.5; 0.75 ms for idle groups, not scaled.
    /// - `rhel-virtual-host`: 80 / 10 / 15 ms, not scaled: tuned's `virtual-host` profile sets the
    ///   granularities; the latency is the one that vMigrater's `set_rh.sh` sets along with them.
    pub fn preset(name: &str, pcpus: u32) -> Option<Self> {
        let factor = scaling(pcpus);
        let set = |latency, min_granularity, wakeup_granularity, generation| Self {
            latency,
            min_granularity,
            idle_min_granularity: match generation {
                Generation::Linux6 => Some(IDLE_LEAST),
                _ => None,
            },
            wakeup_granularity,
            gentle_fair_sleepers: true,
            sleeper_credit: None,
            start_debit: true,
            wakeup_preemption: true,
            balance_interval: None,
            migration_cost: Tuning::of(generation).migration_cost,
            search_cost: match generation {
                Generation::Linux2_6_33 => 0,
                _ => LOOK,
            },
            generation,
            siblings: Siblings::Free,
            gangs: Gangs::None,
        };
        let old = Generation::Linux2_6_33;
        let four = Generation::Linux4;
        Some(match name {
            "2.6.33" => set(5 * MS * factor, MS * factor, MS * factor, old),
            "2.6.33-as-stated" => set(5 * MS, MS, MS, old),
            "4.x" => set(6 * MS * factor, 750_000 * factor, MS * factor, four),
            "5.x" => set(
                6 * MS * factor,
                750_000 * factor,
                MS * factor,
                Generation::Linux6,
            ),
            // RHEL 7 has Linux 3.10.
            "rhel-virtual-host" => Self {
                search_cost: 0,
                ..set(80 * MS, 10 * MS, 15 * MS, four)
            },
            _ => return None,
        })
    }

    /// How far behind its runqueue a woken task may be placed (`place_entity()`). `idle`: is it in an idle group?
    pub(super) fn credit(&self, idle: bool) -> Nanos {
        let whole = match idle && self.idle_min_granularity.is_some() {
            true => self.min_granularity,
            false => self.latency,
        };
        let gentle = match self.gentle_fair_sleepers {
            true => whole / 2,
            false => whole,
        };
        self.sleeper_credit.unwrap_or(gentle)
    }

    /// With times cut that are so long that they could overflow.
    pub(super) fn bounded(self) -> Self {
        Self {
            latency: self.latency.min(LONGEST),
            min_granularity: self.min_granularity.min(LONGEST),
            idle_min_granularity: self.idle_min_granularity.map(|least| least.min(LONGEST)),
            wakeup_granularity: self.wakeup_granularity.min(LONGEST),
            migration_cost: self.migration_cost.min(LONGEST),
            search_cost: self.search_cost.min(LONGEST),
            sleeper_credit: self.sleeper_credit.map(|credit| credit.min(LONGEST)),
            balance_interval: self.balance_interval.map(|interval| interval.min(LONGEST)),
            ..self
        }
    }

    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            generation: self.generation,
            migration_cost: self.migration_cost,
            search: match self.search_cost {
                0 => Search::All,
                cost => Search::Worthwhile(cost),
            },
            balance_interval: self.balance_interval,
            siblings: self.siblings,
            gangs: self.gangs,
            ..Tuning::of(self.generation)
        }
    }
}

/// The preset that holds if a scenario names none: that of the balance-scheduling paper's hosts.
pub const DEFAULT_PRESET: &str = "2.6.33";

/// The numbers this model rests on: those of the default preset on a host of one pCPU, before they
/// are scaled.
pub fn parameters() -> Vec<Parameter> {
    let Some(default) = CfsParams::preset(DEFAULT_PRESET, 1) else {
        return Vec::new();
    };
    let of = |key, meaning, value, source| {
        Parameter::new(key, meaning, value, source, "all presets in tests")
    };
    let scaled = "kernel/sched_fair.c of Linux 2.6.33, which scales them so";
    let feature = "kernel/sched_features.h of Linux 2.6.33 and later";
    let (latency, least) = (default.latency, default.min_granularity);
    vec![
        of(
            "scheduler.cfs.preset",
            "whose settings hold",
            Value::Choice(DEFAULT_PRESET),
            "the papers' hosts",
        ),
        of(
            "scheduler.cfs.latency",
            "within this time every ready task runs once; the default is scaled by 1 + log2(min(pCPUs, 8)), a set \
             value is not",
            Value::Scaled(latency),
            scaled,
        ),
        of(
            "scheduler.cfs.min_granularity",
            "the least slice; the default is scaled likewise, a set value is not",
            Value::Scaled(least),
            scaled,
        ),
        of(
            "scheduler.cfs.idle_min_granularity",
            "preset `5.x`: the least slice of idle groups beside others; the least of others, which older kernels do \
             not keep, is `min_granularity`",
            Value::Time(IDLE_LEAST),
            "kernel/sched/fair.c of Linux 5.15 to 6.5 (sysctl_sched_idle_min_granularity, which is not scaled; \
             BASE_SLICE, since 5.13)",
        ),
        of(
            "scheduler.cfs.wakeup_granularity",
            "by how much a woken task must be behind to preempt; the default is scaled likewise, a set value is not",
            Value::Scaled(default.wakeup_granularity),
            scaled,
        ),
        of(
            "scheduler.cfs.migration_cost",
            "a task that ran so recently is not moved",
            Value::Time(default.migration_cost),
            "sysctl_sched_migration_cost of Linux 2.6.33 to 6.5",
        ),
        of(
            "scheduler.cfs.search_cost",
            "presets `4.x` and `5.x`: what a look at whether another pCPU idles takes, by which wake-ups decide \
             how far to look (`SIS_PROP`); 0: they look at all that share the LLC",
            Value::Time(LOOK),
            "a read of what another core has modified: 50.3 ns on a Xeon (Skylake), Intel's Memory Latency Checker in \
             github.com/FDio/csit, test_environment_sut_calib_skx.rst",
        ),
        of(
            "scheduler.cfs.balance_interval",
            "the interval at which a busy pCPU balances, instead of the scheduling domains' own",
            default.balance_interval.map_or(Value::None, Value::Time),
            "include/linux/topology.h, kernel/sched/topology.c",
        ),
        of(
            "scheduler.cfs.gentle_fair_sleepers",
            "are sleepers credited with half a latency rather than a whole one?",
            Value::Switch(default.gentle_fair_sleepers),
            feature,
        ),
        of(
            "scheduler.cfs.sleeper_credit",
            "how far behind its runqueue a woken task may be placed, in virtual time, instead of half a latency or a \
             whole one",
            default.sleeper_credit.map_or(Value::None, Value::Time),
            "place_entity() has no such setting: for Figure 4.4 of the dissertation, whose leaky bucket keeps unused \
             time",
        ),
        of(
            "scheduler.cfs.start_debit",
            "does a new task begin one slice behind?",
            Value::Switch(default.start_debit),
            feature,
        ),
        of(
            "scheduler.cfs.wakeup_preemption",
            "do woken tasks preempt at all?",
            Value::Switch(default.wakeup_preemption),
            feature,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_scale_with_the_pcpus() {
        let times = |name, pcpus| {
            let p = CfsParams::preset(name, pcpus).unwrap();
            (p.latency, p.min_granularity, p.wakeup_granularity)
        };
        assert_eq!(times("2.6.33", 4), (15 * MS, 3 * MS, 3 * MS));
        assert_eq!(times("2.6.33-as-stated", 4), (5 * MS, MS, MS));
        assert_eq!(times("4.x", 8), (24 * MS, 3 * MS, 4 * MS));
        assert_eq!(times("4.x", 64), (24 * MS, 3 * MS, 4 * MS));
        assert_eq!(times("rhel-virtual-host", 16), (80 * MS, 10 * MS, 15 * MS));
        assert!(
            CfsParams::PRESETS
                .iter()
                .all(|name| CfsParams::preset(name, 4).is_some())
        );
        assert_eq!(times("5.x", 8), times("4.x", 8));
        assert!(CfsParams::preset("6.x", 4).is_none());
    }
}
