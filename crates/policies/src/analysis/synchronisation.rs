// SPDX-License-Identifier: GPL-2.0-only
//! Slices, the worst case of a lock, what a late packet costs, and the latency of co-scheduling.
//!
//! Sukwong & Kim, EuroSys 2011: §5.2 (slice), §2.2 (worst case), §4.4 (TCP), §5.2.2 (co-scheduling).

/// A millisecond in ns.
const MS: f64 = 1e6;
/// A microsecond in ns.
const US: f64 = 1e3;

/// `MinPeriod` of §5.2, ns: the time in which each task of a runqueue runs once, if that can be.
pub const MIN_PERIOD: f64 = 5.0 * MS;
/// `MinSlice` of §5.2, ns.
pub const MIN_SLICE: f64 = MS;
/// The lock holding time of §4.4, ns.
pub const LOCK_HOLD: f64 = US;

/// CFS's slice on a runqueue of `tasks` ≥ 1 tasks of equal weight, ns (§5.2).
///
/// 5/`tasks` ms up to five tasks and 1 ms beyond, with the paper's constants.
pub fn cfs_slice(tasks: u32, min_period: f64, min_slice: f64) -> f64 {
    let tasks = f64::from(tasks.max(1));
    let period = match tasks <= min_period / min_slice {
        true => min_period,
        false => min_slice * tasks,
    };
    period / tasks
}

/// The longest wait for a lock whose holder was preempted, ns (§2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstCase {
    /// Holder and waiter share a runqueue: `T_preempt + T_period`.
    pub stacked: f64,
    /// They are switched in together: `T_preempt + T_H`.
    pub coscheduled: f64,
}

/// The worst case from `T_preempt` (preemption of the holder until one of the two vCPUs runs again),
/// `T_period` and `T_H`, ns.
pub fn worst_case(preempt: f64, period: f64, hold: f64) -> WorstCase {
    WorstCase {
        stacked: preempt + period,
        coscheduled: preempt + hold,
    }
}

/// §4.4's example: packets, one of which times out because a lock was late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpExample {
    /// Packets sent: 5.
    pub packets: f64,
    /// Response time of a packet without trouble, ns: 10 ms.
    pub response: f64,
    /// Locks taken per second: 100.
    pub locks_per_s: f64,
    /// What a lock takes longer than before, ns: 1 µs (from 1 to 2).
    pub longer: f64,
    /// TCP's retransmission time-out, ns: 200 ms.
    pub timeout: f64,
}

impl Default for TcpExample {
    fn default() -> Self {
        Self {
            packets: 5.0,
            response: 10.0 * MS,
            locks_per_s: 100.0,
            longer: US,
            timeout: 200.0 * MS,
        }
    }
}

impl TcpExample {
    /// By how much the locks delay a packet, ns: the paper's 20 µs, if the packets share the locks of
    /// a second. (A response of 10 ms alone would meet one lock, so this is an upper bound.)
    pub fn delay(&self) -> f64 {
        self.locks_per_s / self.packets * self.longer
    }

    /// The mean response without a time-out, as a share more than before (0.002 is 0.2 %).
    pub fn increase_without_timeout(&self) -> f64 {
        self.delay() / self.response
    }

    /// The mean response with one time-out, ns: the paper's `(50 + 200 + 0.02) / 5` ms.
    pub fn response_with_timeout(&self) -> f64 {
        (self.packets * self.response + self.timeout + self.delay()) / self.packets
    }

    /// The same as a share more than before (4.0 is 400 %).
    pub fn increase_with_timeout(&self) -> f64 {
        self.response_with_timeout() / self.response - 1.0
    }
}

/// Expected synchronisation latency of dynamic time-slice co-scheduling, ns: the lock's holding time,
/// an interrupt and a switch (§5.2.2).
pub fn dt_latency(hold: f64, interrupt_and_switch: f64) -> f64 {
    hold + interrupt_and_switch
}

/// Expected synchronisation latency of classic co-scheduling, ns: `T_H + Σ P_i T_TS (i − 1)`, where
/// `probabilities[i - 1]` is that of finding enough pCPUs in slot i, first slot first (§5.2.2).
///
/// The paper says that the sum is at least `T_TS`. It is not when the first slot is likely: with
/// P₁ = 1 it is 0. In general it is at least `T_TS (1 − P₁)`, so [`dt_latency`] is less if an
/// interrupt and a switch take less than that.
pub fn classic_latency(hold: f64, slice: f64, probabilities: &[f64]) -> f64 {
    let slots = probabilities.iter().zip(0u32..);
    hold + slots
        .map(|(probability, late)| probability * slice * f64::from(late))
        .sum::<f64>()
}

/// Intel's pause-loop exiting as the paper describes it (§6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PauseLoop {
    /// The longest time between two PAUSEs of one loop, cycles (`PLE_Gap`): 41.
    pub gap: f64,
    /// `PLE_Window`: 4096.
    pub window: f64,
    /// The CPU's clock, GHz: 3.
    pub clock: f64,
}

impl Default for PauseLoop {
    fn default() -> Self {
        Self {
            gap: 41.0,
            window: 4096.0,
            clock: 3.0,
        }
    }
}

impl PauseLoop {
    /// The shortest spinning that is found, ns, as the paper has it: a window of this many PAUSEs, each a gap after the
    /// last.
    pub fn spin_of_paper(&self) -> f64 {
        self.window * self.gap / self.clock
    }

    /// The same as Intel's manual has it, where the window is in cycles.
    pub fn spin(&self) -> f64 {
        self.window / self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slices_of_the_paper() {
        let slice = |tasks| cfs_slice(tasks, MIN_PERIOD, MIN_SLICE) / MS;
        assert_eq!([1, 2, 4, 5].map(slice), [5.0, 2.5, 1.25, 1.0]);
        assert!((slice(3) - 5.0 / 3.0).abs() < 1e-12);
        assert_eq!([6, 100].map(slice), [1.0, 1.0]);
    }

    #[test]
    fn the_worst_case_is_a_period_with_stacking() {
        let worst = worst_case(3.0 * MS, 5.0 * MS, LOCK_HOLD);
        assert_eq!(worst.stacked, 8.0 * MS);
        assert_eq!(worst.coscheduled, 3.001 * MS);
    }

    #[test]
    fn a_pause_loop_is_found_after_56_us_or_1_4() {
        let ple = PauseLoop::default();
        assert!((ple.spin_of_paper() / US - 55.98).abs() < 0.01);
        assert!((ple.spin() / US - 1.365).abs() < 0.001);
    }

    #[test]
    fn one_timeout_is_a_step_of_400_percent() {
        let tcp = TcpExample::default();
        assert!((tcp.response_with_timeout() / MS - 50.004).abs() < 1e-9);
        assert!((tcp.increase_with_timeout() - 4.0).abs() < 0.001);
        assert!((tcp.increase_without_timeout() - 0.002).abs() < 1e-12);
        assert_eq!(tcp.delay(), 20.0 * US);
    }

    #[test]
    fn the_papers_inequality_fails_if_the_first_slot_is_likely() {
        let slice = 5.0 * MS;
        assert_eq!(classic_latency(LOCK_HOLD, slice, &[1.0]), LOCK_HOLD);
        let likely = classic_latency(LOCK_HOLD, slice, &[0.9, 0.1]) - LOCK_HOLD;
        assert!((likely - 0.5 * MS).abs() < 1e-6, "{likely}");
        // Still more than an interrupt and a switch, as the paper concludes.
        assert!(dt_latency(LOCK_HOLD, 3.5 * US) < LOCK_HOLD + likely);
        // Not if there is always room at once.
        assert!(dt_latency(LOCK_HOLD, 3.5 * US) > classic_latency(LOCK_HOLD, slice, &[1.0]));
    }

    proptest! {
        #[test]
        fn classic_waits_at_least_a_slice_unless_the_first_slot_does(
            weights in prop::collection::vec(0.01f64..1.0, 1..20)
        ) {
            let sum: f64 = weights.iter().sum();
            let probabilities: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            let latency = classic_latency(0.0, 1.0, &probabilities);
            prop_assert!(latency >= 1.0 - probabilities[0] - 1e-9);
        }
    }
}
