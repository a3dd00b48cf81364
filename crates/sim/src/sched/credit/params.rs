// SPDX-License-Identifier: GPL-2.0-only
//! Credit's settings.

use corun_model::{Nanos, Parameter, Value, time::MS, time::SEC, time::US};

/// Settings of Xen's Credit scheduler. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditParams {
    /// How long a vCPU runs before others of its priority get a turn, and the period of accounting
    /// (`sched_credit_tslice_ms`): 1 ms to 1 s. Xen itself takes whole milliseconds.
    pub slice: Nanos,
    /// The slice at boot, 1 ms to 1 s, if ticks and the credits that an accounting hands out keep following it: until
    /// 4.3 `xl sched-credit -t` changed `tslice_ms` only, that is, turns and how often accounting happens
    /// (`csched_sys_cntl()`; mended by commit 1320b8100c of November 2013). `None`: they follow the slice.
    pub boot_slice: Option<Nanos>,
    /// How long a vCPU runs before another one may preempt it (`sched_ratelimit_us`), at most a
    /// slice; 0: not protected.
    pub ratelimit: Nanos,
    /// Do vCPUs wake up with priority BOOST? They always do in Xen; off to see what BOOST does.
    pub boost: bool,
}

impl Default for CreditParams {
    fn default() -> Self {
        Self {
            slice: 30 * MS,
            boot_slice: None,
            ratelimit: MS,
            boost: true,
        }
    }
}

/// Accepted slices (`XEN_SYSCTL_CSCHED_TSLICE_MIN` and `_MAX`).
pub(super) const SLICES: (Nanos, Nanos) = (MS, SEC);
/// A timer is never set to less (`CSCHED_MIN_TIMER`).
pub(super) const LEAST_TIMER: Nanos = 100 * US;
/// What running costs (`CSCHED_CREDITS_PER_MSEC`).
pub(super) const CREDITS_PER_MS: u64 = 10;
/// The weight of a domain that sets none (`CSCHED_DEFAULT_WEIGHT`).
pub(super) const WEIGHT: u32 = 256;
/// Ticks per slice (`CSCHED_TICKS_PER_TSLICE`).
const TICKS_PER_SLICE: u64 = 3;

impl CreditParams {
    /// Brought into the accepted ranges; a rate limit beyond the slice becomes the slice, as at
    /// Xen's boot.
    pub(super) fn bounded(self) -> Self {
        let slice = self.slice.clamp(SLICES.0, SLICES.1);
        Self {
            slice,
            boot_slice: self.boot_slice.map(|it| it.clamp(SLICES.0, SLICES.1)),
            ratelimit: self.ratelimit.min(slice),
            ..self
        }
    }

    /// The period of the tick that finds out which vCPU is using a pCPU (`__csched_set_tslice()`).
    pub(super) fn tick(&self) -> Nanos {
        let slice = self.boot_slice.unwrap_or(self.slice);
        match slice < TICKS_PER_SLICE * MS {
            true => slice,
            false => slice / TICKS_PER_SLICE,
        }
    }

    /// What an accounting hands out for each pCPU: what running for a slice costs, or for the one at boot.
    pub(super) fn credits_per_slice(&self) -> i64 {
        (self.boot_slice.unwrap_or(self.slice) * CREDITS_PER_MS / MS) as i64
    }
}

/// The numbers this model rests on.
pub fn parameters() -> Vec<Parameter> {
    let default = CreditParams::default();
    let of = Parameter::new;
    vec![
        of(
            "scheduler.credit.slice",
            "how long a vCPU runs before others of its priority, and the period of accounting",
            Value::Time(default.slice),
            "Xen, xen/common/sched/credit.c: CSCHED_DEFAULT_TSLICE_MS",
            "1 ms to 100 ms in tests; Xen accepts 1 ms to 1 s",
        ),
        of(
            "scheduler.credit.boot_slice",
            "the slice to which ticks and credits stay fitted when it is changed later",
            Value::None,
            "Xen, csched_sys_cntl(): until 4.3; since 4.4 (commit 1320b8100c) they follow the slice",
            "30 ms in experiments/aql/calibration.toml",
        ),
        of(
            "scheduler.credit.ratelimit",
            "how long a vCPU runs before another may preempt it",
            Value::Time(default.ratelimit),
            "Xen, xen/common/sched: SCHED_DEFAULT_RATELIMIT_US",
            "0 and 1 ms in tests",
        ),
        of(
            "scheduler.credit.boost",
            "do vCPUs that have credit wake up with priority BOOST?",
            Value::Switch(default.boost),
            "Xen, csched_unit_wake()",
            "on and off in tests",
        ),
        of(
            "corun_sim::sched::credit::params::CREDITS_PER_MS",
            "what running costs",
            Value::Number(CREDITS_PER_MS as f64, "credits/ms"),
            "Xen, CSCHED_CREDITS_PER_MSEC",
            "fixed: only its ratio to the credits handed out matters",
        ),
        of(
            "corun_sim::sched::credit::params::TICKS_PER_SLICE",
            "ticks per slice; one if the slice is below 3 ms",
            Value::Number(TICKS_PER_SLICE as f64, ""),
            "Xen, CSCHED_TICKS_PER_TSLICE",
            "fixed in Xen",
        ),
        of(
            "vm.*.cap",
            "the most pCPU time a VM gets, in percent of one pCPU",
            Value::None,
            "Xen, xl sched-credit -c: off unless asked for",
            "25 in tests",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_credits_follow_the_slice() {
        let of = |slice| CreditParams {
            slice,
            ..CreditParams::default()
        };
        assert_eq!(
            (of(30 * MS).tick(), of(30 * MS).credits_per_slice()),
            (10 * MS, 300)
        );
        assert_eq!(
            (of(2 * MS).tick(), of(2 * MS).credits_per_slice()),
            (2 * MS, 20)
        );
        assert_eq!(of(3 * MS).tick(), MS);
        let changed = CreditParams {
            boot_slice: Some(30 * MS),
            ..of(2 * MS)
        };
        assert_eq!(
            (changed.tick(), changed.credits_per_slice()),
            (10 * MS, 300)
        );
        assert_eq!(of(0).bounded().slice, MS);
        assert_eq!(of(2 * MS).bounded().ratelimit, MS);
        let strict = CreditParams {
            ratelimit: SEC,
            ..of(5 * MS)
        };
        assert_eq!(strict.bounded().ratelimit, 5 * MS);
    }
}
