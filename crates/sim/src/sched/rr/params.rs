// SPDX-License-Identifier: GPL-2.0-only
//! Settings of the real-time class.

use crate::sched::fair::LONGEST;
use corun_model::{Nanos, Parameter, Value, time::MS};

/// Settings of SCHED_RR, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RrParams {
    /// What real-time tasks may have of each period on each pCPU, at most a period; a whole period:
    /// they are never throttled.
    pub runtime: Nanos,
    /// The period.
    pub period: Nanos,
    /// How long one of several real-time tasks on a pCPU runs before the next one's turn; counted in
    /// ticks, at least one.
    pub slice: Nanos,
}

impl Default for RrParams {
    fn default() -> Self {
        Self {
            runtime: 950 * MS,
            period: 1000 * MS,
            slice: 100 * MS,
        }
    }
}

impl RrParams {
    /// With times cut that could overflow, and the runtime cut to the period.
    pub(super) fn bounded(self) -> Self {
        let period = self.period.clamp(1, LONGEST);
        Self {
            runtime: self.runtime.min(period),
            period,
            slice: self.slice.min(LONGEST),
        }
    }
}

/// The numbers this model rests on; CFS's are [`cfs::parameters`](crate::sched::cfs::parameters).
pub fn parameters() -> Vec<Parameter> {
    let default = RrParams::default();
    let of = |key, meaning, value, source, tried| {
        Parameter::new(key, meaning, Value::Time(value), source, tried)
    };
    let tried = "15 of 30 ms, 28 of 30 ms, 500 of 1000 ms";
    vec![
        of(
            "scheduler.rr.runtime",
            "what real-time vCPUs may have of each period",
            default.runtime,
            "sysctl_sched_rt_runtime, kernel/sched.c of Linux 2.6.33; EuroSys 2011, Appendix B",
            tried,
        ),
        of(
            "scheduler.rr.period",
            "the period of that",
            default.period,
            "sysctl_sched_rt_period, kernel/sched.c of Linux 2.6.33; EuroSys 2011, Appendix B",
            tried,
        ),
        of(
            "scheduler.rr.slice",
            "turns of real-time vCPUs on one pCPU",
            default.slice,
            "DEF_TIMESLICE, kernel/sched.c of Linux 2.6.33",
            "not varied",
        ),
    ]
}
