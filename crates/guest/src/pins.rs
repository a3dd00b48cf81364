// SPDX-License-Identifier: GPL-2.0-only
//! Where this daemon has pinned threads lately, and so what threads that they created meanwhile have inherited.
//!
//! A thread that is created by a moved one inherits its mask, a single vCPU. A thread that its user binds to a vCPU has
//! such a mask as well, but on purpose. Time and place distinguish the two: an heir's vCPU is the one to which its
//! creator was pinned when the heir was created. Heirs are looked for at least once a second, so only the last seconds
//! have to be remembered, also for threads that have been given back since.

use crate::state::Before;
use corun_model::Nanos;
use corun_system::procfs::ThreadKey;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A stay on one vCPU.
#[derive(Clone, Copy, Debug)]
struct Pin {
    vcpu: u32,
    /// When it was ordered: from then on the mask may be this.
    from: Nanos,
    /// Until the next move was over, or the thread was given back; the end of time: the thread is still there.
    until: Nanos,
}

#[derive(Clone, Debug)]
struct History {
    before: Before,
    pins: VecDeque<Pin>,
    given_back: bool,
}

/// What is inherited from a thread: the vCPU that an heir is pinned to, and what it is given instead.
pub(crate) type Heirlooms = BTreeMap<u32, Before>;

/// The recent past of all threads that were moved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pins {
    threads: BTreeMap<ThreadKey, History>,
}

impl Pins {
    /// A thread may be moved from now on.
    pub(crate) fn begin(&mut self, key: ThreadKey, before: Before) {
        let fresh = || History {
            before,
            pins: VecDeque::new(),
            given_back: false,
        };
        let history = self.threads.entry(key).or_insert_with(fresh);
        (history.before, history.given_back) = (before, false);
    }

    /// It is to move to `vcpu`.
    pub(crate) fn ordered(&mut self, key: &ThreadKey, vcpu: u32, now: Nanos) {
        if let Some(history) = self.threads.get_mut(key) {
            history.pins.push_back(Pin {
                vcpu,
                from: now,
                until: Nanos::MAX,
            });
        }
    }

    /// The move that was ordered last was made.
    pub(crate) fn moved(&mut self, key: &ThreadKey, now: Nanos) {
        if let Some(history) = self.threads.get_mut(key) {
            history.pins.iter_mut().rev().skip(1).for_each(end(now));
        }
    }

    /// It has its own mask again, or somebody else's.
    pub(crate) fn given_back(&mut self, key: &ThreadKey, now: Nanos) {
        if let Some(history) = self.threads.get_mut(key) {
            history.pins.iter_mut().for_each(end(now));
            history.given_back = true;
        }
    }

    /// What was before `time` is no longer needed.
    pub(crate) fn forget_before(&mut self, time: Nanos) {
        for history in self.threads.values_mut() {
            history.pins.retain(|pin| pin.until >= time);
        }
        self.threads
            .retain(|_, history| !history.given_back || !history.pins.is_empty());
    }

    /// Is this thread one that was moved lately, or may be?
    pub(crate) fn has(&self, key: &ThreadKey) -> bool {
        self.threads.contains_key(key)
    }

    /// The thread with this number.
    pub(crate) fn numbered(&self, tid: u32) -> Option<ThreadKey> {
        self.threads.keys().find(|key| key.tid == tid).copied()
    }

    /// All of them, by process.
    pub(crate) fn families(&self) -> BTreeMap<u32, Vec<ThreadKey>> {
        let mut families: BTreeMap<u32, Vec<ThreadKey>> = BTreeMap::new();
        for key in self.threads.keys() {
            families.entry(key.tgid).or_default().push(*key);
        }
        families
    }

    /// What a thread may have inherited that one of these threads created at some time in `born`.
    pub(crate) fn heirlooms(&self, keys: &[ThreadKey], born: &Range<Nanos>) -> Heirlooms {
        let mut found = Heirlooms::new();
        for history in keys.iter().filter_map(|key| self.threads.get(key)) {
            let then = |pin: &&Pin| pin.from < born.end && pin.until >= born.start;
            let pins = history.pins.iter().filter(then);
            found.extend(pins.map(|pin| (pin.vcpu, history.before)));
        }
        found
    }
}

/// Ends a stay that has not ended.
fn end(now: Nanos) -> impl FnMut(&mut Pin) {
    move |pin| pin.until = pin.until.min(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::was_free;
    use corun_model::PcpuSet;

    const KEY: ThreadKey = ThreadKey {
        tgid: 7,
        tid: 8,
        start: 1,
    };

    fn vcpus(pins: &Pins, born: Range<Nanos>) -> Vec<u32> {
        pins.heirlooms(&[KEY], &born).into_keys().collect()
    }

    /// Ordered to vCPU 3 at 10 and there at 12; to vCPU 5 at 20, there at 25; given back at 30.
    fn moved_twice() -> Pins {
        let mut pins = Pins::default();
        pins.begin(KEY, was_free(PcpuSet::first(8)));
        for (vcpu, ordered, made) in [(3, 10, 12), (5, 20, 25)] {
            pins.ordered(&KEY, vcpu, ordered);
            pins.moved(&KEY, made);
        }
        pins.given_back(&KEY, 30);
        pins
    }

    #[test]
    fn heirs_have_the_vcpu_of_when_they_were_created() {
        let pins = moved_twice();
        assert!(vcpus(&pins, 0..10).is_empty());
        assert_eq!(vcpus(&pins, 11..12), [3], "the order may be carried out");
        assert_eq!(vcpus(&pins, 14..15), [3]);
        assert_eq!(vcpus(&pins, 22..23), [3, 5], "either");
        assert_eq!(vcpus(&pins, 26..27), [5]);
        assert!(vcpus(&pins, 31..40).is_empty());
        assert_eq!(vcpus(&pins, 0..40), [3, 5]);
    }

    #[test]
    fn the_past_is_forgotten_and_with_it_the_threads_given_back() {
        let mut pins = moved_twice();
        pins.forget_before(26);
        assert_eq!(vcpus(&pins, 0..40), [5]);
        assert_eq!(pins.numbered(8), Some(KEY));
        pins.forget_before(31);
        assert!(!pins.has(&KEY) && pins.families().is_empty());
        pins.begin(KEY, was_free(PcpuSet::first(8)));
        pins.forget_before(50);
        assert!(pins.has(&KEY), "it may be moved");
    }
}
