// SPDX-License-Identifier: GPL-2.0-only
//! DASL (dynamically adjusting the rescheduling latencies): how soon a vCPU that becomes ready must run (dissertation,
//! §4.4.1).
//!
//! A vCPU that wants to run at the end of a period, and has not used up its slice, could not use it fast enough: its
//! latency falls by a tenth. One that has used it up and is halted had its due early: its latency rises by a tenth,
//! which spares others its preemptions. A vCPU that wants more than its slice is a matter for DATS; a vCPU that has
//! time left and is halted needs nothing.
//!
//! All this is for VMs that do not get what they are entitled to. "If CPU utilization has been maximized within the CPU
//! share of the VM, we adjust the parameters to lower the priorities": the dissertation considers this and drops it,
//! since it needs a sum over each VM's vCPUs; here that sum is there anyway. Without it, if VMs that synchronise much
//! share a host and each has its share, all latencies fall together: no vCPU has precedence over another, and all
//! interrupt each other. So the latencies of a VM that has its share come back, a step at a time, to what they began
//! with, or rise if other VMs lack theirs. And those of a VM that lacks its share do not rise above what they began
//! with, and come back to that. A vCPU that does little but wake siblings has a small slice, is seldom found ready and
//! is always early: by the rule alone it would end at the longest latency, and hold up the siblings that wait for it.
//!
//! A vCPU may have the least latency and still not use its slice, because it waits for slower siblings. Those show as
//! the sources of its wake-ups, and their latencies fall instead, once each in a period. If hardware hides these
//! sources, the latencies of all siblings that have high ones fall instead. A vCPU that only timers and devices wake
//! waits for no sibling.

use corun_model::{Doing, Nanos};

/// A latency is low if it is at most what vCPUs begin with, divided by this.
pub(super) const LOW: u64 = 2;

/// The range in which latencies move, and by how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub least: Nanos,
    /// What vCPUs begin with.
    pub neutral: Nanos,
    pub most: Nanos,
    /// Percent.
    pub step: u32,
}

/// How a vCPU's period went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Went {
    pub doing: Doing,
    /// Has it used up its slice?
    pub consumed: bool,
    /// Which siblings woke it: their places in the VM.
    pub wakers: Vec<usize>,
    /// Was it woken while hardware hides by which task?
    pub hidden: bool,
}

impl Went {
    /// Does it want to run and has not used up its slice?
    pub fn came_late(&self) -> bool {
        !self.consumed && self.doing != Doing::Waiting
    }

    fn had_its_due_early(&self) -> bool {
        self.consumed && self.doing == Doing::Waiting
    }
}

impl Limits {
    fn less(&self, latency: Nanos) -> Nanos {
        let step = Nanos::from(self.step.min(100));
        (latency * (100 - step) / 100).max(self.least)
    }

    fn more(&self, latency: Nanos) -> Nanos {
        (latency * (100 + Nanos::from(self.step)) / 100).min(self.most)
    }

    /// Is this one of the low latencies?
    pub fn is_low(&self, latency: Nanos) -> bool {
        latency <= self.neutral / LOW
    }
}

/// The latencies in the next period of a VM that lacks its share: none is less urgent than at first.
pub(super) fn adjust(latencies: &mut [Nanos], went: &[Went], limits: &Limits) {
    let sources = sources(latencies, went, limits);
    for (latency, went) in latencies.iter_mut().zip(went) {
        *latency = if went.came_late() {
            limits.less(*latency)
        } else if *latency > limits.neutral {
            limits.less(*latency).max(limits.neutral)
        } else if went.had_its_due_early() {
            limits.more(*latency).min(limits.neutral)
        } else {
            *latency
        };
    }
    for (latency, _) in latencies.iter_mut().zip(sources).filter(|(_, is)| *is) {
        *latency = limits.less(*latency);
    }
}

/// The latencies in the next period of a VM that has its share: they come back, a step at a time,
/// to what they began with. But as long as another VM lacks its share (`others_lack`), a vCPU that
/// had its due early gets less urgent.
pub(super) fn relax(latencies: &mut [Nanos], went: &[Went], limits: &Limits, others_lack: bool) {
    for (latency, went) in latencies.iter_mut().zip(went) {
        *latency = if *latency < limits.neutral {
            limits.more(*latency).min(limits.neutral)
        } else if !others_lack {
            limits.less(*latency).max(limits.neutral)
        } else if went.had_its_due_early() {
            limits.more(*latency)
        } else {
            *latency
        };
    }
}

/// Which vCPUs keep siblings from using their slices although these have the least latency; none, if no latency is the
/// least.
fn sources(before: &[Nanos], went: &[Went], limits: &Limits) -> Vec<bool> {
    if before.iter().all(|latency| *latency > limits.least) {
        return Vec::new();
    }
    let mut found = vec![false; before.len()];
    for (at, stuck) in went.iter().enumerate() {
        if stuck.consumed || before[at] > limits.least {
            continue;
        }
        for &waker in &stuck.wakers {
            found[waker] = true;
        }
        if stuck.hidden {
            for (sibling, &latency) in before.iter().enumerate() {
                found[sibling] |= sibling != at && !limits.is_low(latency);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, US};
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        least: 500 * US,
        neutral: 4 * MS,
        most: 24 * MS,
        step: 10,
    };

    fn went(doing: Doing, consumed: bool, wakers: &[usize]) -> Went {
        Went {
            doing,
            consumed,
            wakers: wakers.to_vec(),
            hidden: false,
        }
    }

    /// The table of §4.4.1: end of the period, slice consumed or not. For a VM that lacks its share; latencies of one
    /// that has it rise beyond what they began with (`latencies_of_a_vm_that_has_its_share_come_back_…`).
    #[test]
    fn latencies_follow_the_state_at_the_end_of_the_period() {
        for (doing, consumed, then) in [
            (Doing::Ready, false, 2_700 * US),
            (Doing::Running, false, 2_700 * US),
            (Doing::Waiting, true, 3_300 * US),
            (Doing::Ready, true, 3 * MS),
            (Doing::Running, true, 3 * MS),
            (Doing::Waiting, false, 3 * MS),
        ] {
            let mut latencies = [3 * MS];
            adjust(&mut latencies, &[went(doing, consumed, &[])], &LIMITS);
            assert_eq!(latencies, [then], "{doing:?} {consumed}");
        }
    }

    #[test]
    fn in_a_vm_that_lacks_its_share_no_vcpu_is_less_urgent_than_at_first() {
        let early = went(Doing::Waiting, true, &[]);
        let idle = went(Doing::Waiting, false, &[]);
        let mut latencies = [4 * MS, 3_900 * US, 24 * MS, 24 * MS];
        let all = [early.clone(), early.clone(), early, idle];
        adjust(&mut latencies, &all, &LIMITS);
        assert_eq!(latencies, [4 * MS, 4 * MS, 21_600 * US, 21_600 * US]);
        for _ in 0..25 {
            adjust(&mut latencies, &all, &LIMITS);
        }
        assert_eq!(latencies, [4 * MS; 4]);
    }

    #[test]
    fn at_the_least_latency_the_sources_of_wake_ups_are_hurried_once_each() {
        let mut latencies = [500 * US, 500 * US, 4 * MS, 4 * MS];
        let stuck = went(Doing::Ready, false, &[2]);
        let idle = went(Doing::Waiting, false, &[]);
        let all = [stuck.clone(), stuck, idle.clone(), idle];
        adjust(&mut latencies, &all, &LIMITS);
        assert_eq!(latencies, [500 * US, 500 * US, 3_600 * US, 4 * MS]);
    }

    #[test]
    fn latencies_of_a_vm_that_has_its_share_come_back_to_what_they_began_with() {
        let busy = went(Doing::Ready, false, &[]);
        let early = went(Doing::Waiting, true, &[]);
        let all = [busy.clone(), early.clone(), busy, early];
        let mut latencies = [500 * US, 3_900 * US, 4 * MS, 4 * MS];
        relax(&mut latencies, &all, &LIMITS, true);
        assert_eq!(latencies, [550 * US, 4 * MS, 4 * MS, 4_400 * US]);
        for _ in 0..25 {
            relax(&mut latencies, &all, &LIMITS, true);
        }
        assert_eq!(latencies, [4 * MS, 24 * MS, 4 * MS, 24 * MS]);
        for _ in 0..25 {
            relax(&mut latencies, &all, &LIMITS, false);
        }
        assert_eq!(latencies, [4 * MS; 4]);
    }

    #[test]
    fn hidden_sources_are_all_siblings_with_high_latencies() {
        let mut latencies = [500 * US, 2 * MS, 4 * MS];
        let hidden = Went {
            hidden: true,
            ..went(Doing::Ready, false, &[])
        };
        let idle = went(Doing::Waiting, false, &[]);
        let all = [hidden, idle.clone(), idle];
        adjust(&mut latencies, &all, &LIMITS);
        assert_eq!(latencies, [500 * US, 2 * MS, 3_600 * US]);
    }

    #[test]
    fn a_vcpu_that_no_sibling_wakes_waits_for_none() {
        let mut latencies = [500 * US, 2 * MS, 4 * MS];
        let idle = went(Doing::Waiting, false, &[]);
        let all = [went(Doing::Ready, false, &[]), idle.clone(), idle];
        adjust(&mut latencies, &all, &LIMITS);
        assert_eq!(latencies, [500 * US, 2 * MS, 4 * MS]);
    }

    prop_compose! {
        fn any_went()(doing in 0..3, consumed: bool, hidden: bool,
                      wakers in prop::collection::vec(0usize..5, 0..4)) -> Went {
            let doing = [Doing::Waiting, Doing::Ready, Doing::Running][doing as usize];
            Went { doing, consumed, wakers, hidden }
        }
    }

    proptest! {
        #[test]
        fn latencies_stay_within_bounds(
            periods in prop::collection::vec(prop::collection::vec(any_went(), 5), 1..100),
        ) {
            let mut latencies = [LIMITS.neutral; 5];
            for went in &periods {
                adjust(&mut latencies, went, &LIMITS);
                let within = |l: &Nanos| (LIMITS.least..=LIMITS.most).contains(l);
                prop_assert!(latencies.iter().all(within), "{:?}", latencies);
            }
        }
    }
}
