// SPDX-License-Identifier: GPL-2.0-only
//! When a VM or a task that comes and goes is there.

use crate::Nanos;

/// From when until when it is there, and in which turns. Times count from the beginning of the run,
/// warm-up included. The default is all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// It is not there before this.
    pub start: Nanos,
    /// It is not there from this on; `None`: this never comes. Later than `start`.
    pub stop: Option<Nanos>,
    /// From `start` on, there for the first time and away for the second, and so on, both more
    /// than 0; `None`: never away.
    pub turns: Option<(Nanos, Nanos)>,
}

impl Presence {
    /// Is it there at this time?
    pub fn at(&self, now: Nanos) -> bool {
        if now < self.start || self.stop.is_some_and(|stop| stop <= now) {
            return false;
        }
        self.turns
            .is_none_or(|(on, off)| (now - self.start) % (on + off) < on)
    }

    /// When to ask again: nothing changes before.
    pub fn next_change(&self, now: Nanos) -> Option<Nanos> {
        if now < self.start {
            return Some(self.start);
        }
        if self.stop.is_some_and(|stop| stop <= now) {
            return None;
        }
        let turn = self.turns.map(|(on, off)| {
            let into = (now - self.start) % (on + off);
            now - into + if into < on { on } else { on + off }
        });
        turn.into_iter().chain(self.stop).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All changes up to 100, and whether it is there then.
    fn changes(presence: Presence) -> Vec<(Nanos, bool)> {
        let begin = (0, presence.at(0));
        let next = |&(now, _): &(Nanos, bool)| {
            let at = presence.next_change(now)?;
            assert!(at > now, "{at} after {now}");
            (at <= 100).then(|| (at, presence.at(at)))
        };
        std::iter::successors(Some(begin), next).collect()
    }

    #[test]
    fn all_the_time_unless_said_otherwise() {
        assert_eq!(changes(Presence::default()), [(0, true)]);
    }

    #[test]
    fn from_start_until_stop() {
        let presence = Presence {
            start: 10,
            stop: Some(30),
            turns: None,
        };
        assert_eq!(changes(presence), [(0, false), (10, true), (30, false)]);
    }

    #[test]
    fn turns_begin_at_the_start_and_end_with_the_stop() {
        let presence = Presence {
            start: 10,
            stop: Some(45),
            turns: Some((10, 5)),
        };
        let expected = [
            (0, false),
            (10, true),
            (20, false),
            (25, true),
            (35, false),
            (40, true),
            (45, false),
        ];
        assert_eq!(changes(presence), expected);
    }
}
