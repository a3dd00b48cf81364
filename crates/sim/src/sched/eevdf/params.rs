// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF's settings, and presets with those that kernels come with.

use crate::sched::fair::{Generation, LONGEST, Search, Tuning, scaling};
use corun_model::{Nanos, Parameter, Value, time::US};

/// Settings of EEVDF. Times in ns, as they hold on the host: already scaled by its number of pCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EevdfParams {
    /// The slice of tasks that did not ask for another (`base_slice_ns`).
    pub base_slice: Nanos,
    /// Does a task keep its lag while it sleeps (`PLACE_LAG`)?
    pub place_lag: bool,
    /// Does a new task get half a slice to begin with (`PLACE_DEADLINE_INITIAL`)?
    pub place_deadline_initial: bool,
    /// Is the current task protected from wake-up preemption for a slice (`RUN_TO_PARITY`)?
    pub run_to_parity: bool,
    /// May tasks ask for slices of their own (`sched_attr::sched_runtime`, since 6.12)?
    pub task_slices: bool,
    /// May a woken task with a shorter slice preempt nevertheless (`PREEMPT_SHORT`)?
    pub preempt_short: bool,
    /// Does a sleeper with negative lag stay queued until it has worn off (`DELAY_DEQUEUE`)?
    pub delay_dequeue: bool,
    /// Do woken tasks preempt at all (`WAKEUP_PREEMPTION`)?
    pub wakeup_preemption: bool,
    /// Does a slice protect the task of an idle group even from tasks of no idle group? It does until 6.14; since 6.15,
    /// and in 6.12 since that change was backported, it does not (f553741ac8c0, "sched: Cancel the slice protection of
    /// the idle entity").
    pub protects_idle: bool,
    /// Does a timer end slices (`HRTICK`), rather than the next tick?
    pub hrtick: bool,
    /// Is the protected slice the shortest one on the runqueue, and is its end checked at every
    /// accounting (6.17)? Before, the end of the task's own slice was.
    pub protect_shortest: bool,
    /// Is lag bounded by the longest slice on the runqueue and a tick (`cfs_rq_max_slice()`, 7.0;
    /// 6e3c0a4e1ad1)? Before, the bound was two of the task's own slices, but at least a tick, as
    /// in lines 714 to 737 of 6.12.117's `fair.c`.
    pub longest_bounds_lag: bool,
    /// Does a wake-up take off ghosts that are due before it asks which task is next (7.1; ac8e69e69363), and does a
    /// ghost's debt not grow (`update_entity_lag()`, 7.1)? If so, balancing also distinguishes ghosts from ready tasks,
    /// and does not move a task that owes at its first attempt, as in 7.2.13 but not in 6.12 (`fair::ghosts`); and a
    /// task that balancing brings to an idle pCPU ends its idling (`fair::idle`).
    pub settles_ghosts: bool,
    /// Does a task that is moved while it is ready keep the rest of its slice (`PLACE_REL_DEADLINE`, 6.12;
    /// 82e9d0456e06)? Before, it got a whole one.
    pub keeps_rest: bool,
    /// Does a slice begin, with its timer and its protection, only when the pCPU changes its task?
    /// A task that is picked again at the end of its slice is then not protected from woken ones, and runs to the next
    /// tick. This holds for all versions built with `CONFIG_FAIR_GROUP_SCHED`, as kernels for KVM hosts are:
    /// `pick_next_task_fair()` calls `set_next_entity()`, which protects, only
    /// `if (prev != p)`. That is in 6.6 and in lines 9007 to 9038 of 6.12.117's `fair.c`. As to the timer: 6.6 tries to
    /// set it at each pick, but its `hrtick_start_fair()` does not do so for a task that has had its slice since it got
    /// the pCPU (`delta < 0`); 6.12 tries only where the task changes (`__set_next_task_fair()`, in line 9037).
    pub slice_at_switch: bool,
    /// Does the slice timer of a task that left stay, if the pCPU goes on with a single task? It does since 7.1:
    /// `schedule()` no longer begins with `hrtick_clear()`, `hrtick_schedule_exit()` cancels the timer on an idle
    /// runqueue only, and a single task does not set it anew. A task that sleeps and owes counts as one more task as
    /// long as it stays queued (`hrtick_start_fair()` looks at `h_nr_queued`). With lazy preemption the timer decides
    /// when a wake-up from another pCPU is noticed: at once if the timer has to be set, which takes an interrupt, and
    /// when it fires if it runs already.
    pub timer_stays: bool,
    /// Does the task that another yields to go next, if it is eligible (`PICK_BUDDY`)?
    pub pick_buddy: bool,
    /// Does an eligible task that yields forgo the rest of its slice for good, its vruntime moving on to its deadline?
    /// A task that is not eligible then only lets others be picked. Before, the deadline moved by a slice, and the
    /// vruntime stayed (79104becf42b, "sched/fair: Forfeit vruntime on yield", in stable
    /// kernels, too).
    pub forfeits_on_yield: bool,
    /// Does a wake-up from another pCPU wait for the next tick or slice timer, rather than interrupt
    /// (`PREEMPT_LAZY`)?
    pub lazy_preemption: bool,
    /// Does a pCPU about to idle try to pull only as often as that succeeds (`NI_RANDOM`)?
    pub ni_random: bool,
    /// And more often the longer ago its last thousand chances began (`NI_RATE`)?
    pub ni_rate: bool,
    /// The longest time that a pCPU about to idle takes to look for work in one domain: it does not look if it idles
    /// for less on average (`max_newidle_lb_cost`).
    pub newidle_cost: Nanos,
    /// The interval at which a busy pCPU balances; `None`: that of the kernel's domains.
    pub balance_interval: Option<Nanos>,
    /// A task that ran within this time is not moved (`migration_cost_ns`).
    pub migration_cost: Nanos,
}

impl EevdfParams {
    /// Names of the presets, for help and error messages.
    pub const PRESETS: [&'static str; 3] = ["6.6", "6.12", "7.x"];

    /// The named preset for a host with so many pCPUs; `None` if there is none of this name.
    /// Features as in `kernel/sched/features.h` of the version; times are multiplied by
    /// 1 + log2(min(pCPUs, 8)).
    ///
    /// - `6.6`: 6.6.0. 0.75 ms; slices end at ticks (`HRTICK` is off, in 6.12, too). With 8 pCPUs or more
    ///   and 1000 Hz hogs have turns of 4 ms, one tick more than the slice's 3 (2ae891b82695).
    /// - `6.12`: 6.12.117, as Debian has it (linux-source-6.12). With `DELAY_DEQUEUE`, `PREEMPT_SHORT` and slices
    ///   per task, and, of what was backported to 6.12, slices of 0.7 ms (turns of 3 ms there), `PICK_BUDDY`,
    ///   `forfeits_on_yield` and `NI_RANDOM`.
    /// - `7.x`: slice protection of 6.17, lazy preemption (the default of x86 since 7.0), lag bounded by
    ///   the longest slice (7.0), a timer that ends slices (`HRTICK`, on by default since 7.1) and ghosts that neither
    ///   hold wake-ups up nor come to owe more with time (7.1). `PICK_BUDDY` and `NI_RATE` are among the
    ///   features of 7.2.13.
    ///
    /// In all of them a slice begins where the task changes (`slice_at_switch`). ftrace of 7.2.13
    /// shows no `hrtimer_start` where `schedule()` picks the current task again.
    pub fn preset(name: &str, pcpus: u32) -> Option<Self> {
        let factor = scaling(pcpus);
        let first = Self {
            base_slice: 750 * US * factor,
            place_lag: true,
            place_deadline_initial: true,
            run_to_parity: true,
            task_slices: false,
            preempt_short: false,
            delay_dequeue: false,
            wakeup_preemption: true,
            protects_idle: true,
            hrtick: false,
            protect_shortest: false,
            longest_bounds_lag: false,
            settles_ghosts: false,
            keeps_rest: false,
            slice_at_switch: true,
            timer_stays: false,
            pick_buddy: false,
            forfeits_on_yield: false,
            lazy_preemption: false,
            ni_random: false,
            ni_rate: false,
            newidle_cost: 0,
            balance_interval: None,
            migration_cost: Tuning::of(Generation::Linux6).migration_cost,
        };
        Some(match name {
            "6.6" => first,
            "6.12" => Self {
                base_slice: 700 * US * factor,
                task_slices: true,
                preempt_short: true,
                delay_dequeue: true,
                pick_buddy: true,
                keeps_rest: true,
                forfeits_on_yield: true,
                protects_idle: false,
                ni_random: true,
                ..first
            },
            "7.x" => Self {
                base_slice: 700 * US * factor,
                task_slices: true,
                preempt_short: true,
                delay_dequeue: true,
                hrtick: true,
                protect_shortest: true,
                longest_bounds_lag: true,
                settles_ghosts: true,
                keeps_rest: true,
                timer_stays: true,
                pick_buddy: true,
                forfeits_on_yield: true,
                protects_idle: false,
                lazy_preemption: true,
                ni_random: true,
                ni_rate: true,
                ..first
            },
            _ => return None,
        })
    }

    /// With times cut that are so long that they could overflow.
    pub(super) fn bounded(self) -> Self {
        Self {
            base_slice: self.base_slice.min(LONGEST),
            migration_cost: self.migration_cost.min(LONGEST),
            newidle_cost: self.newidle_cost.min(LONGEST),
            balance_interval: self.balance_interval.map(|interval| interval.min(LONGEST)),
            ..self
        }
    }

    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            generation: Generation::Linux6,
            migration_cost: self.migration_cost,
            search: Search::ByUtil,
            balance_interval: self.balance_interval,
            lazy_preemption: self.lazy_preemption,
            pulls_by_success: self.ni_random,
            pulls_if_rare: self.ni_rate,
            newidle_cost: self.newidle_cost,
            idles_until_switch: self.settles_ghosts,
            // sibling_imbalance() and should_we_balance() since 6.6.
            spreads_if_idle: true,
            slice_at_switch: self.slice_at_switch,
            timer_stays: self.timer_stays,
            sees_ghosts_asleep: self.settles_ghosts,
            // init_cfs_bandwidth() of 6.12.
            interleaves_quotas: true,
            ..Tuning::of(Generation::Linux6)
        }
    }
}

/// The preset that holds if a scenario names none.
pub const DEFAULT_PRESET: &str = "6.12";

/// The numbers this model rests on: those of the default preset on a host of one pCPU, before they
/// are scaled.
pub fn parameters() -> Vec<Parameter> {
    let Some(default) = EevdfParams::preset(DEFAULT_PRESET, 1) else {
        return Vec::new();
    };
    let of = |key, meaning, value, source| {
        Parameter::new(key, meaning, value, source, "all presets in tests")
    };
    let flag = |key, meaning, on| {
        of(
            key,
            meaning,
            Value::Switch(on),
            "kernel/sched/features.h of Linux 6.12",
        )
    };
    vec![
        of(
            "scheduler.eevdf.preset",
            "whose settings hold",
            Value::Choice(DEFAULT_PRESET),
            "the first kernel with sched_ext",
        ),
        of(
            "scheduler.eevdf.base_slice",
            "the slice of tasks that did not ask for another; the default is scaled by 1 + log2(min(pCPUs, 8)), a set \
             value is not",
            Value::Scaled(default.base_slice),
            "sysctl_sched_base_slice of Linux 6.12.117, which scales it so",
        ),
        of(
            "vm.*.slice",
            "the slice that a VM's vCPU threads ask for",
            Value::None,
            "sched_setattr(2) since Linux 6.12, 0.1 to 100 ms",
        ),
        of(
            "scheduler.eevdf.migration_cost",
            "a task that ran so recently is not moved",
            Value::Time(default.migration_cost),
            "sysctl_sched_migration_cost of Linux 6.6 to 7.x",
        ),
        of(
            "scheduler.eevdf.balance_interval",
            "the interval at which a busy pCPU balances, instead of the scheduling domains' own",
            default.balance_interval.map_or(Value::None, Value::Time),
            "kernel/sched/topology.c",
        ),
        flag(
            "scheduler.eevdf.place_lag",
            "does a task keep its lag while it sleeps?",
            default.place_lag,
        ),
        flag(
            "scheduler.eevdf.place_deadline_initial",
            "does a new task get half a slice to begin with?",
            default.place_deadline_initial,
        ),
        flag(
            "scheduler.eevdf.run_to_parity",
            "is the running task protected from wake-up preemption for a slice?",
            default.run_to_parity,
        ),
        flag(
            "scheduler.eevdf.preempt_short",
            "may a woken task with a shorter slice preempt nevertheless?",
            default.preempt_short,
        ),
        flag(
            "scheduler.eevdf.delay_dequeue",
            "does a sleeper with negative lag stay queued until it has worn off?",
            default.delay_dequeue,
        ),
        flag(
            "scheduler.eevdf.wakeup_preemption",
            "do woken tasks preempt at all?",
            default.wakeup_preemption,
        ),
        of(
            "scheduler.eevdf.slice_at_switch",
            "does a slice begin only when the pCPU changes its task?",
            Value::Switch(default.slice_at_switch),
            "pick_next_task_fair() of Linux 6.6 to 7.x with CONFIG_FAIR_GROUP_SCHED",
        ),
        of(
            "scheduler.eevdf.timer_stays",
            "does the slice timer of a task that left stay, if the pCPU goes on with a single one?",
            Value::Switch(default.timer_stays),
            "hrtick_schedule_exit() of Linux 7.1 and later",
        ),
        of(
            "scheduler.eevdf.pick_buddy",
            "does the task that somebody yields to go next, if it is eligible?",
            Value::Switch(default.pick_buddy),
            "`PICK_BUDDY` in kernel/sched/features.h of Linux 6.12.117; 6.6.0 has none",
        ),
        of(
            "scheduler.eevdf.forfeits_on_yield",
            "does a task that yields while it is eligible forgo the rest of its slice as if it had run?",
            Value::Switch(default.forfeits_on_yield),
            "yield_task_fair() of Linux 6.12.117; in 6.6.0 only the deadline moves",
        ),
        of(
            "scheduler.eevdf.lazy_preemption",
            "does a wake-up from another pCPU wait for the next tick or slice timer, rather than interrupt?",
            Value::Switch(default.lazy_preemption),
            "`PREEMPT_LAZY`, the default of x86 since Linux 7.0",
        ),
        flag(
            "scheduler.eevdf.hrtick",
            "does a timer end slices?",
            default.hrtick,
        ),
        of(
            "scheduler.eevdf.ni_random",
            "does a pCPU about to idle try to pull only as often as that brings something?",
            Value::Switch(default.ni_random),
            "`NI_RANDOM` in kernel/sched/features.h of Linux 6.12.117; 6.6.0 has none",
        ),
        of(
            "scheduler.eevdf.newidle_cost",
            "a pCPU about to idle looks for work in a domain only if it idles for longer on average; 0: always",
            Value::Time(default.newidle_cost),
            "max_newidle_lb_cost in sched_balance_newidle() of Linux 6.12 and 7.2, which measure it; assumed to be \
             little on real hosts",
        ),
        of(
            "scheduler.eevdf.protect_shortest",
            "is the slice that is protected the shortest one on the runqueue?",
            Value::Switch(default.protect_shortest),
            "set_protect_slice() of Linux 6.17 and later",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_scale_with_the_pcpus() {
        let slice = |name, pcpus| EevdfParams::preset(name, pcpus).unwrap().base_slice;
        assert_eq!(slice("6.6", 8), 3_000 * US);
        assert_eq!(slice("6.6", 2), 1_500 * US);
        assert_eq!(slice("6.12", 8), 2_800 * US);
        assert_eq!(slice("7.x", 2), 1_400 * US);
        assert_eq!(slice("7.x", 64), 2_800 * US);
        assert!(
            EevdfParams::PRESETS
                .iter()
                .all(|name| EevdfParams::preset(name, 4).is_some())
        );
        assert!(EevdfParams::preset("5.4", 4).is_none());
    }
}
