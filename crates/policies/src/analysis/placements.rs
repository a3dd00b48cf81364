// SPDX-License-Identifier: GPL-2.0-only
//! The expected lock latency, counted: every placement of the vCPUs, one by one.
//!
//! Problem: Appendix A's equations ([`super::lock_latency`]) are damaged, and several readings look
//! plausible. So the model behind them is enumerated, from its words alone: `|CPU|` runqueues of
//! `|RQ|` slots, run one slice each, all runqueues in step, over and over; the vCPUs in distinct
//! slots, all placements equally likely. One vCPU was preempted with the lock, the others want it.
//! Time counts from when the first of them runs (before that is the paper's `T_preempt`):
//!
//! - a vCPU whose slot is before the holder's spins in vain and gets the lock when its turn comes
//!   round again, `|RQ|` slots later;
//! - one in the holder's slot (on another pCPU) gets it after `T_H`;
//! - one in a later slot gets it then.
//!
//! What the count shows, for two vCPUs (a test has the numbers):
//!
//! - stacked, it is Eq. 1's first part exactly, with `T_P` the runqueue's period;
//! - apart, its share of `T_P` is Eq. 2's exactly;
//! - its share of `T_H` is twice Eq. 2's, which matters little (0.5 µs over `|RQ|`);
//! - its late share is `T_TS (R²−1)/(6R)`, `|CPU|−1` times Eq. 2's: there are `|CPU| (|CPU|−1) α`
//!   such placements, where the equation as read has `|CPU| α`.
//!
//! So with all placements counted the improvement on four pCPUs is 12.5, 8.3, 6.2 and 5.0 % for
//! runqueues of 2 to 5, and never the paper's 14.4 %. With more than two vCPUs the equations as read
//! describe the model in nothing but the probability of stacking.

use super::lock_latency::{Expected, Setting};

/// Latency in slots, and lock holding times, summed over placements and waiters.
#[derive(Clone, Copy, Default)]
struct Sum {
    waiters: u64,
    slots: u64,
    holds: u64,
}

impl Sum {
    fn mean(&self, setting: &Setting) -> f64 {
        let total = self.slots as f64 * setting.slice + self.holds as f64 * setting.hold;
        match self.waiters {
            0 => 0.0,
            waiters => total / waiters as f64,
        }
    }
}

/// Expected latencies by enumeration. The work grows as `(|CPU||RQ|)^|VW|`: small hosts only.
///
/// [`Expected::balance`] is over all placements but those with everybody in one runqueue, as Eq. 2
/// has it; for more than two vCPUs balance scheduling itself would keep any two apart.
pub fn enumerate(setting: &Setting) -> Expected {
    let places = setting.pcpus * setting.queue;
    let (mut stacked, mut apart) = (Sum::default(), Sum::default());
    let mut placed = Vec::with_capacity(setting.wanting as usize);
    place(setting.wanting, places, &mut placed, &mut |placed| {
        let one = placed
            .iter()
            .all(|at| at / setting.queue == placed[0] / setting.queue);
        count(
            setting.queue,
            placed,
            if one { &mut stacked } else { &mut apart },
        );
    });
    let all = stacked.waiters + apart.waiters;
    Expected {
        stacking: stacked.waiters as f64 / all as f64,
        stacked: stacked.mean(setting),
        balance: apart.mean(setting),
    }
}

/// Calls `each` for every way to give `left` more vCPUs distinct places.
fn place(left: u32, places: u32, placed: &mut Vec<u32>, each: &mut dyn FnMut(&[u32])) {
    if left == 0 {
        return each(placed);
    }
    for at in 0..places {
        if !placed.contains(&at) {
            placed.push(at);
            place(left - 1, places, placed, each);
            placed.pop();
        }
    }
}

/// Adds what the waiters of one placement wait; the first vCPU has the lock.
fn count(queue: u32, placed: &[u32], sum: &mut Sum) {
    let slot = |at: &u32| at % queue;
    let first = placed.iter().map(slot).min().unwrap_or(0);
    let (holder, waiters) = (slot(&placed[0]), &placed[1..]);
    for waiter in waiters.iter().map(slot) {
        sum.waiters += 1;
        if waiter == holder {
            sum.holds += 1;
        }
        let until = if waiter < holder {
            waiter + queue
        } else {
            waiter
        };
        sum.slots += u64::from(until - first);
    }
}

/// The latency of two vCPUs on different pCPUs that are *not* in step, in slots: the model's other
/// assumptions as above, but one runqueue's slots begin at any time during the other's.
///
/// Time counts from the beginning of a slot on the holder's or the waiter's pCPU (either as likely)
/// as above; there, the vCPU is in slot `p`. The other one is on its pCPU at that time with a part
/// `v` of its slice left (`j` = −1 below) or begins at `j + v`, with `j` up to `queue` − 2; `v` is
/// evenly distributed, so means are those of its middle. Where both run at once, the waiter spins
/// until the holder is through: that makes overlaps worth as much as the rest of a slice, and the
/// latency shorter than in step.
///
/// For the tests of `corun` (`lock_latency`), which write it into docs/lock-latency.md.
pub fn out_of_step(queue: u32) -> f64 {
    let (r, half) = (f64::from(queue), 0.5);
    let mut sum = 0.0;
    for (p, later) in (0..queue).flat_map(|p| (0..queue).map(move |later| (p, later))) {
        // j + 1 is `later`.
        let (at, j) = (f64::from(p), f64::from(later) - 1.0);
        // The holder begins at p, the waiter at j + v or runs.
        sum += match later {
            _ if later > p => j + half - at,
            // Both at once: the waiter runs since before, or since the beginning.
            _ if later == p => {
                if p == 0 {
                    0.0
                } else {
                    half
                }
            }
            0 => r - half,
            _ => r,
        };
        // The waiter begins at p, the holder at j + v or runs.
        sum += match later {
            0 => at,
            _ if p >= later => at - j - half,
            _ if p + 1 == later => half,
            _ => r,
        };
    }
    sum / (2.0 * r * r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lock_latency::tests::two_wanting;
    use crate::analysis::lock_latency::{Period, equations};

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
    }

    fn unit(pcpus: u32, queue: u32, wanting: u32) -> Setting {
        Setting {
            pcpus,
            queue,
            wanting,
            slice: 1.0,
            hold: 0.0,
        }
    }

    /// Two pCPUs with two slots, by hand. Stacked (4 of 12 orders): the holder first, 1 slot; last, a
    /// round of 2. Apart (8 of 12): in step 0; the holder first 1; last 2; two of each four in step.
    #[test]
    fn by_hand() {
        let counted = enumerate(&unit(2, 2, 2));
        assert!(close(counted.stacking, 1.0 / 3.0));
        assert!(close(counted.stacked, 1.5));
        assert!(close(counted.balance, 0.75));
        assert!(close(counted.improvement(), 0.25));
    }

    /// Which parts of the equations describe the model, and by what the others are off.
    #[test]
    fn two_vcpus_against_the_equations() {
        for (pcpus, queue) in (2..=8).flat_map(|c| (1..=6).map(move |r| (c, r))) {
            let setting = unit(pcpus, queue, 2);
            let (c, r) = (f64::from(pcpus), f64::from(queue));
            let counted = enumerate(&setting);
            let read = equations(&setting, Period::Runqueue);
            assert!(close(counted.stacking, read.stacking));
            assert!(close(counted.stacked, read.stacked));
            let late = (r * r - 1.0) / (6.0 * r);
            assert!(close(
                counted.balance - late,
                read.balance - late / (c - 1.0)
            ));
            // The lock's holding time: the equation has half of it.
            let hold = |setting| {
                let counted = enumerate(&setting).balance - counted.balance;
                (
                    counted,
                    two_wanting(&setting, Period::Runqueue).balance - read.balance,
                )
            };
            let (counted, read) = hold(Setting {
                hold: 1.0,
                ..setting
            });
            assert!(
                close(counted, 1.0 / r) && close(read, 0.5 / r),
                "{counted} {read}"
            );
        }
    }

    /// Queues of two, from the beginning of a holder's slot: the waiter runs too (0), or begins half a
    /// slot later (1/2), if the holder is first; else it is over half a slot before (3/2), or half way
    /// (1/2). From the beginning of a waiter's: 0, 1/2, 1, 1/2.
    #[test]
    fn out_of_step_by_hand() {
        assert!(close(out_of_step(2), 4.5 / 8.0));
        assert_eq!(out_of_step(1), 0.0);
        for queue in 2..10 {
            let step = enumerate(&unit(2, queue, 2)).balance;
            assert!(out_of_step(queue) < step, "{queue}");
        }
    }

    /// With one waiter per holder there is no reading of `T_P` as a slice: it is a round.
    #[test]
    fn a_slice_for_the_period_is_not_the_model() {
        let setting = unit(4, 3, 2);
        let counted = enumerate(&setting).stacked;
        assert!(close(counted, 1.5 + 4.0 / 6.0));
        assert!(close(
            equations(&setting, Period::Slice).stacked,
            0.5 + 4.0 / 6.0
        ));
    }

    #[test]
    fn improvement_on_four_pcpus() {
        let of = |r| (1000.0 * enumerate(&Setting::figure_4(4, r)).improvement()).round() / 10.0;
        assert_eq!([1, 2, 3, 4, 5].map(of), [0.0, 12.5, 8.3, 6.2, 5.0]);
    }

    /// Beyond two vCPUs no part of the equations as read agrees but the probability: they have the
    /// wait of one vCPU where there are several, and count some orders as sets.
    #[test]
    fn three_vcpus() {
        let setting = unit(4, 3, 3);
        let (counted, read) = (enumerate(&setting), equations(&setting, Period::Runqueue));
        assert!(close(counted.stacking, 1.0 / 55.0) && close(read.stacking, 1.0 / 55.0));
        assert!(close(counted.stacked, 2.5) && close(read.stacked, 4.0 / 3.0));
        assert!(close(counted.balance, 65.0 / 36.0) && close(read.balance, 50.0 / 81.0));
    }
}
