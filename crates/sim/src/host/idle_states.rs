// SPDX-License-Identifier: GPL-2.0-only
//! Idle states (C-states) of the cores, and the governor that chooses them.
//!
//! Problem: a core without a task is put to sleep, and the deeper it sleeps the longer it takes to
//! wake: 2 to some 100 us on Intel's servers. A task that wakes up there waits for that, and if
//! threads are woken one after the other the waits add up. How deep a core sleeps
//! depends on how long it is expected to, so it cannot be one number.
//!
//! The governor is Linux' *menu* (drivers/cpuidle/governors/menu.c): the deepest state whose target
//! residency is not beyond the time that the core is expected to be idle. That time is the lower of
//! two predictions:
//!
//! - a running average. Menu takes the time until the next timer, times a running average (an eighth is new) of the
//!   part of that time that went by in the past. Where timers are far off and tasks wake each other, as in a VM, that
//!   is the average of past idle times; what other timers a host has is not known here, so that average is kept;
//! - the average of the last eight times, or of the six or seven shortest of them, if these are
//!   alike: with a standard deviation of at most 20 us or a sixth of the average.
//!
//! If a core idles for a tick, the governor has looked at it again by then, and it is in the
//! deepest state.
//!
//! Left out: that the hardware may choose another state than it is told to, states of whole packages, the time it takes
//! to enter a state, caches that are empty afterwards, tasks that wait for disks (menu is
//! more careful then) and wake-ups that find nothing to do.

use corun_model::time::{MS, US};
use corun_model::{IdleState, Nanos};

/// How many idle times are remembered (`INTERVALS`).
const INTERVALS: usize = 8;
/// The inverse of the part of the running average that is new (`DECAY`).
const DECAY: u64 = 8;
/// Longer times count as this long (`MAX_INTERESTING`).
const LONGEST: Nanos = 50 * MS;
/// Times whose standard deviation is below that are alike …
const ALIKE: Nanos = 20 * US;
/// … or so many times below their average.
const BELOW: u128 = 6;

/// What is known about a pCPU's idle times.
#[derive(Clone, Debug)]
pub(super) struct Governor {
    last: [Nanos; INTERVALS],
    next: usize,
    /// The running average.
    mean: Nanos,
    /// When the present idle time began.
    since: Nanos,
}

impl Default for Governor {
    /// Nothing has woken it yet.
    fn default() -> Self {
        Self {
            last: [LONGEST; INTERVALS],
            next: 0,
            mean: LONGEST,
            since: 0,
        }
    }
}

impl Governor {
    /// The pCPU has no task any more.
    pub fn idles(&mut self, now: Nanos) {
        self.since = now;
    }

    /// It gets a task; `exit` is what leaving the state that [`Self::state`] says takes.
    pub fn wakes(&mut self, now: Nanos, exit: Nanos) {
        let idle = now.saturating_sub(self.since);
        if idle == 0 {
            return; // from one task to the next
        }
        // The time it took to wake is not idle time.
        let idle = match idle > 2 * exit {
            true => idle - exit,
            false => idle / 2,
        };
        let idle = idle.min(LONGEST);
        self.last[self.next] = idle;
        self.next = (self.next + 1) % INTERVALS;
        self.mean = self.mean - self.mean / DECAY + idle / DECAY;
    }

    /// The state that it is in at `now`, if it idles, on a host with ticks every `tick`.
    pub fn state(&self, states: &[IdleState], now: Nanos, tick: Nanos) -> Option<IdleState> {
        let long = now.saturating_sub(self.since) >= tick;
        let expected = match long {
            true => Nanos::MAX,
            false => self.mean.min(self.typical()),
        };
        let fits = |state: &&IdleState| state.residency <= expected;
        states
            .iter()
            .take_while(fits)
            .last()
            .or(states.first())
            .copied()
    }

    /// The average of the last times if they are alike except for one or two long ones.
    fn typical(&self) -> Nanos {
        let mut times = self.last;
        times.sort_unstable();
        let counts = [INTERVALS, INTERVALS - 1, INTERVALS * 3 / 4];
        let typical = counts.iter().find_map(|&count| alike(&times[..count]));
        typical.unwrap_or(Nanos::MAX)
    }
}

/// The average of `times` if they are alike.
fn alike(times: &[Nanos]) -> Option<Nanos> {
    let count = times.len() as u128;
    let average = times.iter().map(|time| u128::from(*time)).sum::<u128>() / count;
    let square = |time: &Nanos| u128::from(*time).abs_diff(average).pow(2);
    let variance = times.iter().map(square).sum::<u128>() / count;
    let close = variance <= u128::from(ALIKE).pow(2);
    (close || average.pow(2) > variance * BELOW.pow(2)).then_some(average as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Nanos = 4 * MS;

    /// intel_idle's for Sandy Bridge.
    fn states() -> Vec<IdleState> {
        let both = ["2us/2us", "10us/20us", "80us/211us", "104us/345us"];
        both.map(|text| text.parse().unwrap()).to_vec()
    }

    /// What it takes to leave the state that it goes into after these idle times.
    fn after(times: &[Nanos]) -> Nanos {
        let (mut governor, mut now) = (Governor::default(), 0);
        for time in times {
            governor.idles(now);
            now += time;
            governor.wakes(now, 0);
        }
        governor.idles(now);
        governor.state(&states(), now, TICK).unwrap().exit
    }

    #[test]
    fn a_pcpu_that_was_idle_for_long_sleeps_deep() {
        assert_eq!(after(&[]), 104 * US);
        assert_eq!(after(&[MS; 8]), 104 * US);
    }

    #[test]
    fn times_that_are_alike_are_expected_again() {
        assert_eq!(after(&[US; 8]), 2 * US);
        assert_eq!(after(&[30 * US; 8]), 10 * US);
        assert_eq!(after(&[250 * US; 8]), 80 * US);
    }

    #[test]
    fn two_long_ones_among_them_do_not_matter_but_three_do() {
        let mut times = [30 * US; 8];
        (times[1], times[5]) = (10 * MS, 20 * MS);
        assert_eq!(after(&times), 10 * US);
        times[3] = 15 * MS;
        assert_eq!(after(&times), 104 * US);
    }

    #[test]
    fn where_none_is_like_another_their_average_decides() {
        let times: Vec<Nanos> = (0..100).map(|i| (i * 37 % 5 + 1) * 80 * US).collect();
        assert_eq!(after(&times), 80 * US); // 240 us
    }

    #[test]
    fn a_pcpu_that_idles_for_a_tick_is_put_deeper() {
        let mut governor = Governor::default();
        for i in 0..8 {
            governor.idles(i * MS);
            governor.wakes(i * MS + 30 * US, 0);
        }
        governor.idles(8 * MS);
        let exit = |now| governor.state(&states(), now, TICK).unwrap().exit;
        assert_eq!(exit(8 * MS + TICK - 1), 10 * US);
        assert_eq!(exit(8 * MS + TICK), 104 * US);
    }

    #[test]
    fn from_one_task_to_the_next_is_no_idle_time() {
        let mut governor = Governor::default();
        governor.idles(MS);
        governor.wakes(MS, 0);
        assert_eq!(governor.mean, LONGEST);
    }

    proptest! {
        /// Whatever the past: there is a state if there are any, and it is no deeper than the longest time that was
        /// seen (or all that began as long) asks for.
        #[test]
        fn no_deeper_than_what_was_seen(times in prop::collection::vec(1..LONGEST, 0..200)) {
            let exit = after(&times);
            prop_assert!(states().iter().any(|state| state.exit == exit));
            prop_assert_eq!(Governor::default().state(&[], 0, TICK), None);
            if times.len() > 100 {
                let most = times.iter().max().unwrap();
                let fits = |state: &&IdleState| state.residency <= most + most / 100 + US;
                let all = states();
                let deepest = all.iter().take_while(fits).last().unwrap_or(&all[0]);
                prop_assert!(exit <= deepest.exit, "{exit} after at most {most}");
            }
        }
    }
}
