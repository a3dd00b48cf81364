// SPDX-License-Identifier: GPL-2.0-only
//! How a guest's kernel evens out its runqueues (`rebalance_domains()`, `load_balance()` of Linux' CFS).
//!
//! Problem: threads that compute wake no others and never wait, so neither wake-ups nor vCPUs about
//! to idle move them. If there are more of them than vCPUs, a thread that shares a vCPU would get
//! half as much as one that has a vCPU to itself, for ever.
//!
//! - A *busy* vCPU looks for a longer runqueue every so often, and takes what evens the two out; at least one thread,
//!   so that another thread gets its turn to be alone (`fix_small_imbalance()`).
//! - An *idle* one has no ticks. A tick that finds threads waiting makes an idle vCPU take one
//!   (`nohz_balancer_kick()`).
//! - A vCPU that is *about to idle* takes a thread itself, without being asked ([`Vm::pull`]).
//!
//! A thread's load is the share of time for which it could run, lately
//! ([`Average`](crate::sched::fair::Average)), so that threads that often sleep are not moved for
//! every sleep of others. vCPUs count as sharing one cache. Simplified: all threads weigh the same,
//! balancing takes no time, and a thread that ran a moment ago is moved like any other.

use super::vm::Vm;
use crate::host::Host;
use crate::sched::fair::FULL;
use corun_model::{Nanos, time::MS};

/// A busy vCPU balances once in this time multiplied by the number of vCPUs (`sd->busy_factor` until 5.9,
/// `sd->min_interval`), and half as often after it found nothing to take (`sd->max_interval`).
const INTERVAL: Nanos = 32 * MS;

/// When a vCPU balances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    next: Nanos,
    interval: Nanos,
}

impl Rounds {
    /// Each vCPU balances at times of its own.
    pub fn of(vcpu: u32) -> Self {
        Self {
            next: Nanos::from(vcpu) * INTERVAL,
            interval: 0,
        }
    }

    /// The vCPU has looked whether there is anything to take.
    fn done(&mut self, took: bool, now: Nanos, vcpus: usize) {
        let least = INTERVAL * vcpus as Nanos;
        self.interval = match took {
            true => least,
            false => (2 * self.interval).clamp(least, 2 * least),
        };
        self.next = now + self.interval;
    }
}

/// A runqueue is longer if its load is more than so many percent of the own one (`sd->imbalance_pct` where a cache is
/// shared).
const IMBALANCE_PCT: u64 = 117;

/// A runqueue as balancing and wake-ups see it.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    vcpu: u32,
    pub threads: u64,
    pub load: u64,
}

impl Crowd {
    fn per_thread(&self) -> u64 {
        self.load.checked_div(self.threads).unwrap_or(0)
    }
}

/// How much load `own` takes from `busiest`, if the average runqueue has `mean`
/// (`calculate_imbalance()`).
fn imbalance(own: Crowd, busiest: Crowd, mean: u64) -> u64 {
    if own.load >= mean || busiest.load * 100 <= own.load * IMBALANCE_PCT {
        return 0;
    }
    let pull = busiest.load.saturating_sub(mean).min(mean - own.load);
    match pull < busiest.per_thread() && one_helps(own, busiest) {
        true => busiest.per_thread(),
        false => pull,
    }
}

/// Does it help to move a thread to `own`, although the imbalance is less than its load (`fix_small_imbalance()`)?
fn one_helps(own: Crowd, busiest: Crowd) -> bool {
    let (one, own_one) = (busiest.per_thread(), own.per_thread());
    let factor = if own.threads > 0 && one > own_one {
        1
    } else {
        2
    };
    if busiest.load + one - own.load >= one * factor {
        return true;
    }
    // What each gets of its vCPU, now and after the move.
    let now = one.min(busiest.load) + own_one.min(own.load);
    let then = one.min(busiest.load - one) + own_one.min(own.load + one);
    then > now
}

impl Vm {
    /// At a tick of `vcpu`, which has a thread.
    pub(super) fn balance(&mut self, host: &mut Host, vcpu: u32) {
        if vcpu < self.first_vcpu() {
            return;
        }
        self.relieve(host, vcpu);
        let now = host.now();
        if now >= self.vcpus[vcpu as usize].rounds.next {
            let took = self.even_out(host, vcpu);
            let vcpus = self.vcpus.len();
            self.vcpus[vcpu as usize].rounds.done(took, now, vcpus);
        }
    }

    /// The busy `vcpu` takes threads from the runqueue of most load, if that has clearly more than its own. True if it
    /// took any.
    fn even_out(&mut self, host: &mut Host, vcpu: u32) -> bool {
        let crowds: Vec<Crowd> = self
            .balanced(vcpu)
            .map(|other| self.crowd(other, host.now()))
            .collect();
        let Some(own) = crowds.first() else {
            return false;
        };
        let mean = crowds.iter().map(|crowd| crowd.load).sum::<u64>() / crowds.len() as u64;
        let others = crowds.iter().filter(|crowd| self.can_give(crowd.vcpu));
        let Some(busiest) = others.reduce(|a, b| if b.load > a.load { b } else { a }) else {
            return false;
        };
        let mut wanted = imbalance(*own, *busiest, mean);
        let mut took = false;
        self.settle(host, busiest.vcpu);
        while wanted > 0
            && let Some(thread) = self.waiting(busiest.vcpu, |load| load / 2 <= wanted)
        {
            wanted = wanted.saturating_sub(self.threads[thread as usize].load.value);
            self.vcpus[busiest.vcpu as usize].queue.remove(thread);
            self.arrive_at(host, thread, vcpu, vcpu);
            took = true;
        }
        took
    }

    /// The threads of `vcpu`, their averages brought up to date.
    pub(super) fn crowd(&mut self, vcpu: u32, now: Nanos) -> Crowd {
        let slot = &self.vcpus[vcpu as usize];
        let mut crowd = Crowd {
            vcpu,
            threads: 0,
            load: 0,
        };
        for thread in slot.queue.iter().chain(slot.current) {
            let load = &mut self.threads[thread as usize].load;
            load.advance(FULL, now, &self.decay);
            crowd.threads += 1;
            crowd.load += load.value;
        }
        crowd
    }

    /// Threads wait for `vcpu` while another vCPU idles: that one gets a thread.
    fn relieve(&mut self, host: &mut Host, vcpu: u32) {
        if !self.can_give(vcpu) {
            return;
        }
        let mut others = self.balanced(vcpu);
        let Some(idle) = others.find(|other| self.vcpus[*other as usize].idle()) else {
            return;
        };
        if let Some(thread) = self.take_waiting(vcpu) {
            self.arrive_at(host, thread, idle, vcpu);
        }
    }

    /// A vCPU about to idle takes a waiting thread from the vCPU that has most.
    pub(super) fn pull(&mut self, to: u32) -> Option<u32> {
        if to < self.first_vcpu() {
            return None;
        }
        let crowded = self.balanced(to).filter(|vcpu| self.can_give(*vcpu));
        let runnable = |vcpu: u32| self.vcpus[vcpu as usize].runnable();
        let most = crowded.reduce(|a, b| if runnable(b) > runnable(a) { b } else { a });
        let thread = self.take_waiting(most?)?;
        self.move_to(thread, to);
        Some(thread)
    }

    /// The vCPUs that take part in balancing, round from `vcpu`.
    fn balanced(&self, vcpu: u32) -> impl Iterator<Item = u32> + use<> {
        let (first, count) = (self.first_vcpu(), self.vcpus.len() as u32);
        (vcpu..count).chain(first..vcpu)
    }

    /// Does `vcpu` have a thread that may go elsewhere, besides another one? A thread that waits alone for a halted
    /// vCPU to wake is not taken.
    fn can_give(&self, vcpu: u32) -> bool {
        let slot = &self.vcpus[vcpu as usize];
        slot.runnable() > 1 && self.waiting(vcpu, |_| true).is_some()
    }

    /// The thread that has waited longest for `vcpu` among those that may leave it and whose load `fits`.
    fn waiting(&self, vcpu: u32, fits: impl Fn(u64) -> bool) -> Option<u32> {
        let may = |thread: u32| {
            let thread = &self.threads[thread as usize];
            !thread.pinned && thread.home.is_none() && fits(thread.load.value)
        };
        self.vcpus[vcpu as usize].queue.first_of(may)
    }

    fn take_waiting(&mut self, vcpu: u32) -> Option<u32> {
        let thread = self.waiting(vcpu, |_| true)?;
        self.vcpus[vcpu as usize].queue.remove(thread);
        Some(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a runqueue of so many hogs takes from one of so many others.
    fn takes(own: u64, most: u64, all: &[u64]) -> u64 {
        let crowd = |threads| Crowd {
            vcpu: 0,
            threads,
            load: threads * FULL,
        };
        let mean = all.iter().sum::<u64>() * FULL / all.len() as u64;
        imbalance(crowd(own), crowd(most), mean)
    }

    #[test]
    fn one_hog_more_is_worth_a_move_two_are_worth_one_too() {
        assert_eq!(takes(1, 2, &[1, 2, 2, 2]), FULL);
        assert_eq!(takes(2, 3, &[2, 3]), FULL);
        assert_eq!(takes(1, 3, &[1, 3]), FULL);
        assert_eq!(takes(1, 5, &[1, 5]), 2 * FULL);
    }

    #[test]
    fn what_is_nearly_even_stays() {
        assert_eq!(takes(1, 1, &[1, 1]), 0);
        // 8 against 7 are 114 %.
        assert_eq!(takes(7, 8, &[7, 8]), 0);
        assert_eq!(
            takes(3, 5, &[3, 5, 1, 1]),
            0,
            "it has more than the average itself"
        );
    }
}
