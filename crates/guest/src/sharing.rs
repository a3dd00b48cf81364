// SPDX-License-Identifier: GPL-2.0-only
//! Are this guest's pCPUs shared with others? If not, there is nothing to gain: nothing is moved, and
//! heartbeats come seldom (vMigrater, ATC 2018, §5.3: it is not started where nothing is shared).
//!
//! If the host reports to the guest how much time it takes (steal), that is the answer. It does not need heartbeats,
//! and a guest that delays its own heartbeats does not mislead it. Otherwise, pCPUs are taken to be shared while there
//! are pauses between heartbeats.

use crate::system::tells_steal;
use corun_model::Nanos;
use corun_model::time::SEC;
use corun_system::procfs::Proc;
use std::collections::VecDeque;

/// Not descheduled for this long: nothing is shared. Assumed: long against every slice and every pause in other VMs'
/// work.
const QUIET: Nanos = 10 * SEC;
/// How long beats are fast to find out about short slices, at most once in [`QUIET`].
const PROBE: Nanos = SEC;

#[derive(Debug)]
pub(crate) struct Sharing {
    tells_steal: bool,
    /// Stolen time, clock ticks, and when it was read; once a second, for [`QUIET`].
    stolen: VecDeque<(Nanos, u64)>,
    /// When a vCPU was last found to have been descheduled.
    seen: Option<Nanos>,
    now: Nanos,
    probe: Option<Nanos>,
}

impl Sharing {
    pub(crate) fn new(proc: &Proc) -> Self {
        Self {
            tells_steal: tells_steal(proc),
            stolen: VecDeque::new(),
            seen: None,
            now: 0,
            probe: None,
        }
    }

    /// Where stolen time is known from, for people; `exact`: the kernel's own account can be read.
    pub(crate) fn source(&self, exact: bool) -> &'static str {
        match (self.tells_steal, exact) {
            (false, _) => "heartbeats alone: this host reports no stolen time",
            (true, true) => "heartbeats, with the kernel's account of stolen time (BPF)",
            (true, false) => {
                "heartbeats; /proc/stat, too coarse for slices, says whether there is any"
            }
        }
    }

    /// Once a second: `seen` is when a vCPU was last found to have been descheduled.
    pub(crate) fn update(&mut self, proc: &Proc, seen: Option<Nanos>, now: Nanos) {
        self.add(proc.stolen().map(|(all, _)| all), seen, now);
    }

    fn add(&mut self, stolen: Option<u64>, seen: Option<Nanos>, now: Nanos) {
        (self.seen, self.now) = (seen, now);
        if let Some(stolen) = stolen {
            self.stolen.push_back((now, stolen));
        }
        while self
            .stolen
            .front()
            .is_some_and(|(at, _)| now.saturating_sub(*at) > QUIET)
        {
            self.stolen.pop_front();
        }
    }

    /// Does the host report the time that it takes?
    pub(crate) fn tells_steal(&self) -> bool {
        self.tells_steal
    }

    /// Why there is nothing to gain; `None`: there is.
    pub(crate) fn reason(&self) -> Option<String> {
        let quiet = match self.tells_steal {
            true => self.nothing_stolen(),
            false => self
                .seen
                .is_none_or(|at| self.now.saturating_sub(at) > QUIET),
        };
        quiet.then(|| match self.tells_steal {
            true => "nothing is shared: the host took no time lately".to_string(),
            false => "nothing is shared: no heart stopped lately".to_string(),
        })
    }

    fn nothing_stolen(&self) -> bool {
        let first = self.stolen.front().map(|(_, time)| time);
        first == self.stolen.back().map(|(_, time)| time)
    }

    /// There is something to move if pCPUs are shared: that deserves a closer look.
    pub(crate) fn probe(&mut self, now: Nanos) {
        if self.probe.is_none_or(|at| now.saturating_sub(at) > QUIET) {
            self.probe = Some(now);
        }
    }

    /// Is a closer look under way?
    pub(crate) fn is_probed(&self, now: Nanos) -> bool {
        self.probe.is_some_and(|at| now.saturating_sub(at) < PROBE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharing(tells_steal: bool) -> Sharing {
        let mut sharing = Sharing::new(&Proc::at("/nowhere"));
        sharing.tells_steal = tells_steal;
        sharing
    }

    #[test]
    fn shared_while_vcpus_are_descheduled() {
        let mut sharing = sharing(false);
        sharing.add(Some(0), None, SEC);
        assert!(sharing.reason().is_some());
        sharing.add(Some(0), Some(SEC), 2 * SEC);
        assert_eq!(sharing.reason(), None);
        sharing.add(Some(0), Some(SEC), 12 * SEC);
        assert!(sharing.reason().unwrap().contains("no heart"));
    }

    #[test]
    fn a_guest_that_holds_up_itself_shares_nothing() {
        let mut sharing = sharing(true);
        for second in 1..10 {
            sharing.add(Some(7), Some(second * SEC), second * SEC);
        }
        assert!(sharing.reason().unwrap().contains("took no time"));
        sharing.add(Some(8), Some(10 * SEC), 10 * SEC);
        assert_eq!(sharing.reason(), None);
        sharing.add(Some(8), Some(40 * SEC), 40 * SEC);
        assert!(sharing.reason().is_some(), "long ago");
    }

    #[test]
    fn a_closer_look_is_short_and_seldom() {
        let mut sharing = sharing(false);
        sharing.probe(SEC);
        assert!(sharing.is_probed(SEC) && !sharing.is_probed(2 * SEC));
        sharing.probe(3 * SEC);
        assert!(!sharing.is_probed(3 * SEC));
        sharing.probe(12 * SEC);
        assert!(sharing.is_probed(12 * SEC));
    }
}
