// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU a woken thread goes to (`select_task_rq_fair()` of Linux' CFS, 4.13 to 5.4).
//!
//! It goes to the vCPU it was on, or to the one that its wake-up comes from, if either idles, else to another idle one.
//! If all are busy those two are compared: the thread goes to the waker's vCPU if that is less loaded
//! (`wake_affine()`), or at once if the waker is alone there and, as the kernel assumes, about to wait itself (a
//! *synchronous* wake-up: by a pipe or socket that has something to read); but not if the waker wakes many others, as a
//! server does (`wake_wide()`).
//!
//! All vCPUs count as sharing one cache, and all of them are looked at.

use super::vm::Vm;
use corun_model::{Nanos, time::SEC};

/// `sd->imbalance_pct` where a cache is shared, of which half counts at wake-ups.
const SLACK: u64 = 100 + (117 - 100) / 2;

/// The threads that a thread wakes: the last one, and how often that changed, halved every second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wakes {
    last: Option<u32>,
    flips: u32,
    since: Nanos,
}

impl Wakes {
    pub fn book(&mut self, thread: u32, now: Nanos) {
        if now.saturating_sub(self.since) > SEC {
            self.flips /= 2;
            self.since = now;
        }
        if self.last.replace(thread) != Some(thread) {
            self.flips = self.flips.saturating_add(1);
        }
    }
}

impl Vm {
    /// The vCPU for `thread`, woken from the running vCPU `by`; `sync`: by one that is about to wait.
    pub(super) fn place(&mut self, thread: u32, by: u32, sync: bool, now: Nanos) -> u32 {
        let state = &self.threads[thread as usize];
        let (last, pinned) = (state.vcpu, state.pinned);
        if let Some(home) = state.home {
            return home;
        }
        let wide = self.wakes_many(thread, by, now);
        let first = self.first_vcpu();
        let idle = |vcpu: u32| vcpu >= first && self.vcpus[vcpu as usize].idle();
        if pinned || idle(last) {
            return last;
        }
        if idle(by) {
            return by;
        }
        let count = self.vcpus.len() as u32;
        let mut others = (1..count).map(|step| (last + step) % count);
        if let Some(found) = others.find(|vcpu| idle(*vcpu)) {
            return found;
        }
        match !wide && by >= first && self.is_drawn(thread, by, last, sync, now) {
            true => by,
            false => last,
        }
    }

    /// Does `thread`, which was on `last`, rather go to `by`, from where it is woken? Both are
    /// busy.
    fn is_drawn(&mut self, thread: u32, by: u32, last: u32, sync: bool, now: Nanos) -> bool {
        let (mut here, there) = (self.crowd(by, now), self.crowd(last, now));
        if sync && here.threads <= 1 {
            return true;
        }
        if sync && let Some(waker) = self.vcpus[by as usize].current {
            // The waker is as good as gone.
            here.load -= self.threads[waker as usize].load.value;
        }
        // Its load as of when it went to sleep: the kernel brings it up to date here only where CPUs differ in capacity
        // (`wake_cap()`).
        let own = self.threads[thread as usize].load.value;
        // It is subtracted from the load of the vCPU where the thread slept even though that does
        // not include it (until 5.4).
        (here.load + own) * 100 < there.load.saturating_sub(own) * SLACK
    }

    /// Does the thread that runs on `by` wake so many others that drawing them to it would not help? Books this
    /// wake-up, too.
    fn wakes_many(&mut self, thread: u32, by: u32, now: Nanos) -> bool {
        let Some(waker) = self.vcpus[by as usize].current else {
            return false;
        };
        let wakes = &mut self.threads[waker as usize].wakes;
        wakes.book(thread, now);
        let (a, b) = (wakes.flips, self.threads[thread as usize].wakes.flips);
        let factor = self.vcpus.len() as u32;
        a.min(b) >= factor && a.max(b) >= a.min(b).saturating_mul(factor)
    }
}
