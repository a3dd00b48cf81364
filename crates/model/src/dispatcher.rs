// SPDX-License-Identifier: GPL-2.0-only
//! The dispatcher's parameters: the same ones on a real host and on a modelled one.

use crate::time::{MS, US};
use crate::{Nanos, Parameter, Value};
use serde::{Deserialize, Serialize};

/// The dispatcher's settings for the host as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatcherParams {
    /// How long a task may run while others wait for its pCPU, unless the policy says otherwise;
    /// ns, [`LEAST_SLICE`](Self::LEAST_SLICE) to 1 s. Default 3 ms: what Linux gives on hosts of 8 and more pCPUs
    /// (`base_slice_ns`).
    pub slice: Nanos,
    /// Lead in virtual time that a waking task needs to take the pCPU at once, ns. Default 1 ms, as CFS had it: with
    /// less, tasks that wake each other in turn would only switch.
    pub wakeup_granularity: Nanos,
    /// How far behind its pCPU's clock a task may start that waited or moved, ns of virtual time. Default one slice: a
    /// task that waited goes first once, and no task hoards time.
    pub sleeper_credit: Nanos,
    /// How far ahead of its pCPU's clock a task may be queued, ns of virtual time. Default two
    /// slices: a task that ran much elsewhere pays for it, but not for long.
    pub max_lead: Nanos,
    /// How often a busy pCPU looks for a busier one, ns. Default 60 ms, some
    /// turns of a crowded pCPU; not measured against other values.
    pub balance_interval: Nanos,
    /// Do slices end by timer? Without, they end at the tick: 4 ms apart at 250 Hz. Default yes.
    pub slice_timer: bool,
}

impl Default for DispatcherParams {
    fn default() -> Self {
        Self {
            slice: 3 * MS,
            wakeup_granularity: MS,
            sleeper_credit: 3 * MS,
            max_lead: 6 * MS,
            balance_interval: 60 * MS,
            slice_timer: true,
        }
    }
}

impl DispatcherParams {
    /// Shorter slices would only switch; `SLICE_MIN` of `dispatcher/types.h`. ns.
    pub const LEAST_SLICE: Nanos = 50 * US;

    /// The dispatcher's numbers, with the defaults of a host that sets nothing else.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let time = |key, meaning, value, source, tried| Parameter {
            key,
            meaning,
            value: Value::Time(value),
            source,
            tried,
        };
        vec![
            time(
                "scheduler.corun.slice",
                "how long a task runs while others wait for its pCPU, if the policy asks nothing else",
                default.slice,
                "Linux `base_slice_ns` on hosts of 8 and more pCPUs (kernel/sched/fair.c, 6.6 on); \
                 accepted: 50 µs to 1 s",
                "500 µs to 24 ms on experiments/example.toml",
            ),
            time(
                "scheduler.corun.wakeup_granularity",
                "lead in virtual time that a waking task needs to take the pCPU at once",
                default.wakeup_granularity,
                "CFS: `sched_wakeup_granularity_ns` unscaled (kernel/sched/fair.c until 6.5)",
                "0 to 4 ms on experiments/example.toml",
            ),
            time(
                "scheduler.corun.sleeper_credit",
                "how far behind its pCPU's clock a task that slept or moved may start, in pCPU time; one that slept \
                 for less than two of its turns keeps what it is owed, up to two turns",
                default.sleeper_credit,
                "one slice: a task that slept goes first once, and none hoards (design)",
                "0 to 12 ms on experiments/example.toml",
            ),
            time(
                "scheduler.corun.max_lead",
                "how far ahead of its pCPU's clock a task may be queued",
                default.max_lead,
                "two slices: a task that ran much elsewhere pays for it, but not for long (design)",
                "1 to 24 ms on experiments/example.toml",
            ),
            time(
                "scheduler.corun.balance_interval",
                "how often a busy pCPU looks for a busier one: each time after 75 to 100 % of this, and up to a slice later if slices are longer than a quarter of it",
                default.balance_interval,
                "assumed: some turns of a crowded pCPU",
                "4 to 240 ms on experiments/example.toml",
            ),
            Parameter {
                key: "scheduler.corun.slice_timer",
                meaning: "do slices end by timer, instead of at the tick?",
                value: Value::Switch(default.slice_timer),
                source: "design: ticks are 4 ms apart at 250 Hz, longer than a slice",
                tried: "both",
            },
        ]
    }
}
