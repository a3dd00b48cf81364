// SPDX-License-Identifier: GPL-2.0-only
//! How long a vCPU is expected to wait for a lock whose holder is preempted, under plain CFS and
//! under balance scheduling.
//!
//! Sukwong & Kim, EuroSys 2011, §4.4 and Appendix A, Eq. 1 and 2. Each of `|CPU|` runqueues has
//! `|RQ|` slots, run in order, one slice each; `|VW|` vCPUs of a VM sit in slots drawn at random and
//! want one lock. Under CFS all may be in one runqueue (`P_stack`); under balance scheduling that
//! does not happen.
//!
//! The available text of the equations is damaged (factors and bounds are lost), and `T_P` is not defined. What is here
//! is a reading of them, not a quotation; [`super::placements`] counts all placements one by one to see how far the
//! reading describes the model, and says where it does not.

use super::synchronisation::{LOCK_HOLD, MIN_PERIOD, MIN_SLICE, cfs_slice};

/// What the undefined `T_P` stands for: how long a vCPU waits that comes to the lock before its
/// holder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// The runqueue's period, `|RQ| · T_TS`: until the vCPU's turn comes round again. That is what
    /// §2.2 means by `T_period`, and what counting placements gives.
    Runqueue,
    /// One slice, `T_TS`.
    Slice,
}

/// A host and its lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// `|CPU|`: pCPUs, at least `wanting`.
    pub pcpus: u32,
    /// `|RQ|`: tasks on each runqueue, at least 1.
    pub queue: u32,
    /// `|VW|`: vCPUs that want the lock, at least 2.
    pub wanting: u32,
    /// `T_TS`: the slice, ns.
    pub slice: f64,
    /// `T_H`: for how long the lock is held, ns.
    pub hold: f64,
}

impl Setting {
    /// Two vCPUs and a lock of 1 µs on a host with CFS's slices, as in Figure 4.
    pub fn figure_4(pcpus: u32, queue: u32) -> Self {
        Self {
            pcpus,
            queue,
            wanting: 2,
            slice: cfs_slice(queue, MIN_PERIOD, MIN_SLICE),
            hold: LOCK_HOLD,
        }
    }

    /// `T_P` in this reading, ns.
    pub fn period(&self, reading: Period) -> f64 {
        match reading {
            Period::Runqueue => self.slice * f64::from(self.queue),
            Period::Slice => self.slice,
        }
    }
}

/// Expected lock latencies, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// `P_stack`: the probability that all vCPUs that want the lock are in one runqueue.
    pub stacking: f64,
    /// If they are; 0 where they cannot be.
    pub stacked: f64,
    /// Under balance scheduling (Eq. 2), and under CFS if they are not.
    pub balance: f64,
}

impl Expected {
    /// Under CFS (Eq. 1).
    pub fn default_scheduler(&self) -> f64 {
        self.stacking * self.stacked + (1.0 - self.stacking) * self.balance
    }

    /// By what share of CFS's latency balance scheduling's is less (Figure 4B).
    pub fn improvement(&self) -> f64 {
        match self.default_scheduler() {
            latency if latency > 0.0 => 1.0 - self.balance / latency,
            _ => 0.0,
        }
    }
}

/// Equations 1 and 2, as read.
///
/// With `α = Σᵢ C(|RQ|−i, |VW|−1) (|VW|−1)! i T_TS` and
/// `β = C(|CPU||RQ|, |VW|) |VW|! − |CPU| C(|RQ|, |VW|) |VW|!`, stacked:
/// `(C(|RQ|, |VW|) (|VW|−1)! |CPU| T_P + |CPU| α) / (|CPU| C(|RQ|, |VW|) |VW|!)`, and not stacked the
/// sum of what comes too early (`T_P`), at the same time (`T_H`) and late (`α`), over β.
pub fn equations(setting: &Setting, reading: Period) -> Expected {
    let (cpus, queue, wanting) = (setting.pcpus, setting.queue, setting.wanting);
    let c = f64::from(cpus);
    let (period, orders) = (setting.period(reading), factorial(wanting));
    let in_one = choose(queue, wanting) * c;
    let early_orders = factorial(wanting - 1);
    let alpha = (1..=queue)
        .map(|i| choose(queue - i, wanting - 1) * early_orders * f64::from(i))
        .sum::<f64>()
        * setting.slice;
    let all = choose(cpus * queue, wanting);
    let beta = (all - in_one) * orders;
    let early = (2..=queue)
        .map(|i| c * choose((i - 1) * cpus, wanting - 1) * early_orders)
        .sum::<f64>()
        - in_one * early_orders;
    let together = (2..=wanting)
        .map(|i| choose(cpus, i) * f64::from(queue) * elsewhere(setting, i))
        .sum::<f64>();
    Expected {
        stacking: in_one / all,
        stacked: match in_one > 0.0 {
            true => (in_one * early_orders * period + c * alpha) / (in_one * orders),
            false => 0.0,
        },
        balance: (period * early + together * setting.hold + c * alpha) / beta,
    }
}

/// Ways to put the vCPUs after the `together`-th into other slots: `Π (|RQ|−1)|CPU| − (k−i−1)`.
fn elsewhere(setting: &Setting, together: u32) -> f64 {
    let places = f64::from((setting.queue - 1) * setting.pcpus);
    (0..setting.wanting - together)
        .map(|taken| (places - f64::from(taken)).max(0.0))
        .product()
}

/// n over k.
fn choose(n: u32, k: u32) -> f64 {
    match k <= n {
        true => (0..k).fold(1.0, |ways, i| ways * f64::from(n - i) / f64::from(i + 1)),
        false => 0.0,
    }
}

fn factorial(n: u32) -> f64 {
    (1..=n).map(f64::from).product()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The equations for two vCPUs, simplified: `P_stack = (R−1)/(CR−1)`; stacked `T_P/2 + T_TS (R+1)/6`;
    /// not stacked `T_P (R−1)/(2R) + T_H/(2R) + T_TS (R²−1)/(6R(C−1))`.
    pub(crate) fn two_wanting(setting: &Setting, reading: Period) -> Expected {
        let (c, r) = (f64::from(setting.pcpus), f64::from(setting.queue));
        let (period, slice) = (setting.period(reading), setting.slice);
        Expected {
            stacking: (r - 1.0) / (c * r - 1.0),
            stacked: match setting.queue {
                1 => 0.0,
                _ => period / 2.0 + slice * (r + 1.0) / 6.0,
            },
            balance: period * (r - 1.0) / (2.0 * r)
                + setting.hold / (2.0 * r)
                + slice * (r * r - 1.0) / (6.0 * r * (c - 1.0)),
        }
    }

    /// Figure 4B: by what share balance scheduling improves on CFS with two vCPUs and CFS's slices.
    fn figure_4b(pcpus: u32, queue: u32, reading: Period) -> f64 {
        equations(&Setting::figure_4(pcpus, queue), reading).improvement()
    }

    const READINGS: [Period; 2] = [Period::Runqueue, Period::Slice];

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    #[test]
    fn the_closed_form_is_the_equations_with_two_vcpus() {
        for (pcpus, queue) in (2..=64).flat_map(|c| (1..=12).map(move |r| (c, r))) {
            let setting = Setting::figure_4(pcpus, queue);
            for reading in READINGS {
                let (long, short) = (equations(&setting, reading), two_wanting(&setting, reading));
                assert!(close(long.stacking, short.stacking), "{setting:?}");
                assert!(close(long.stacked, short.stacked), "{setting:?}");
                assert!(close(long.balance, short.balance), "{setting:?}");
            }
        }
    }

    /// Figure 4B on four pCPUs says "more than 14.4 %" below six tasks per runqueue: so in the second
    /// reading, and up to two tasks in the first.
    #[test]
    fn improvement_on_four_pcpus() {
        let of = |reading| [2, 3, 4, 5].map(|r| (1000.0 * figure_4b(4, r, reading)).round() / 10.0);
        assert_eq!(of(Period::Runqueue), [18.3, 13.9, 11.6, 10.3]);
        assert_eq!(of(Period::Slice), [22.2, 20.5, 20.4, 20.8]);
        for reading in READINGS {
            assert!(close(figure_4b(4, 1, reading), 0.0));
        }
    }

    /// Figure 4A's trends.
    #[test]
    fn latency_by_queue_and_pcpus() {
        for (pcpus, queue) in (2..=16).flat_map(|c| (2..=8).map(move |r| (c, r))) {
            let here = equations(&Setting::figure_4(pcpus, queue), Period::Runqueue);
            let shorter = equations(&Setting::figure_4(pcpus, queue - 1), Period::Runqueue);
            let wider = equations(&Setting::figure_4(pcpus + 1, queue), Period::Runqueue);
            assert!(here.default_scheduler() > shorter.default_scheduler());
            assert!(here.balance > shorter.balance);
            assert!(here.default_scheduler() > wider.default_scheduler());
            assert!(here.balance < here.default_scheduler());
        }
    }

    /// With CFS's slices, which shrink as runqueues grow, the second reading does not show Figure
    /// 4A's growth; it does with a slice that stays.
    #[test]
    fn the_second_reading_grows_with_the_queue_only_if_slices_do_not_shrink() {
        let shrinking = |r| two_wanting(&Setting::figure_4(4, r), Period::Slice).balance;
        assert!(shrinking(3) < shrinking(2) && shrinking(5) < shrinking(3));
        let fixed = |queue| {
            let setting = Setting {
                slice: 5e6,
                ..Setting::figure_4(4, queue)
            };
            two_wanting(&setting, Period::Slice).balance
        };
        assert!((2..8).all(|r| fixed(r) > fixed(r - 1)));
    }
}
