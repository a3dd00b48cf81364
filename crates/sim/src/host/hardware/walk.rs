// SPDX-License-Identifier: GPL-2.0-only
//! A running owner's walk through its working set, again and again, in the L2 of its core and in its
//! last-level cache (LLC).
//!
//! Undisturbed work means work alone with warm caches. So a set that fits into a cache costs extra time there for lines
//! that are missing, until it has been walked through once more; a set that does not fit always misses, even alone, and
//! costs nothing extra, but all it touches drives others' lines out. The missing lines are assumed to be spread evenly
//! over the set: a pass has one rate of misses from beginning to end.

use super::rate::ONE;
use crate::host::Profile;
use corun_model::Nanos;

/// Misses of a pass are spread over at least this much work, ns: passes through a set of a few KiB
/// take less, and the end of each would be an event.
const SHORTEST: u64 = 50_000;

/// How a set fares in one cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// Does it fit?
    pub fits: bool,
    /// Lines that are not there.
    missing: u64,
    /// Touches until the present pass ends; meaningless if nothing is missing.
    pass: u64,
}

impl Level {
    /// Walks on by `touches`; returns the lines it brings in.
    fn walk(&mut self, touches: u64) -> u64 {
        if !self.fits {
            return touches;
        }
        if touches >= self.pass {
            return std::mem::take(&mut self.missing);
        }
        let share = u128::from(self.missing) * u128::from(touches) / u128::from(self.pass);
        let brought = share as u64;
        self.pass -= touches;
        self.missing -= brought;
        brought
    }

    /// Misses per touch beyond those of the walk alone, in units of [`ONE`].
    fn misses(&self) -> u64 {
        match self.fits && self.missing > 0 {
            true => (u128::from(ONE) * u128::from(self.missing) / u128::from(self.pass)) as u64,
            false => 0,
        }
    }
}

/// A walk under way on a pCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Lines of the set.
    set: u64,
    /// Lines touched per us of work, at least 1.
    per_us: u64,
    /// The walker's progress until which its touches are booked …
    booked: Nanos,
    /// … and by which part of a touch it was ahead then, in thousandths.
    rest: u64,
    pub l2: Level,
    pub llc: Level,
    /// Lines brought into L2 and LLC since it began.
    brought: [u64; 2],
}

impl Walk {
    /// Begins at a progress of `from`; `None` if the profile's work touches nothing.
    pub fn new(profile: &Profile, from: Nanos, sizes: [u64; 2]) -> Option<Self> {
        let set = profile.memory.bytes / super::LINE;
        let level = |size| Level {
            fits: set <= size,
            missing: 0,
            pass: 0,
        };
        let walk = Walk {
            set,
            per_us: u64::from(profile.memory.lines_per_us),
            booked: from,
            rest: 0,
            l2: level(sizes[0]),
            llc: level(sizes[1]),
            brought: [0; 2],
        };
        (walk.set > 0 && walk.per_us > 0).then_some(walk)
    }

    /// Lines it touches per us of work.
    pub fn per_us(&self) -> u64 {
        self.per_us
    }

    /// Sets how many lines are there as it begins.
    pub fn found(&mut self, l2: u64, llc: u64) {
        let (set, pass) = (self.set, self.pass());
        for (level, found) in [(&mut self.l2, l2), (&mut self.llc, llc)] {
            level.missing = set.saturating_sub(found);
            level.pass = pass;
        }
    }

    /// Touches of a whole pass.
    fn pass(&self) -> u64 {
        self.set.max(self.per_us * SHORTEST / 1000)
    }

    /// Other walks, or this one, drove lines out of a cache; does that matter? If so, a new pass
    /// begins there.
    pub fn lose(&mut self, lines: u64, level: fn(&mut Walk) -> &mut Level) -> bool {
        let (set, pass) = (self.set, self.pass());
        let level = level(self);
        level.missing = (level.missing + lines).min(set);
        level.pass = pass;
        level.fits
    }

    /// Books the touches until `progress`; returns the lines it brought into L2 and LLC.
    pub fn book(&mut self, progress: Nanos) -> [u64; 2] {
        let work = progress.saturating_sub(self.booked);
        self.booked = self.booked.max(progress);
        let touches = work * self.per_us + self.rest;
        self.rest = touches % 1000;
        let touches = touches / 1000;
        let lines = [self.l2.walk(touches), self.llc.walk(touches)];
        self.brought[0] += lines[0];
        self.brought[1] += lines[1];
        lines
    }

    /// Lines brought into L2 and LLC so far.
    pub fn brought(&self) -> [u64; 2] {
        self.brought
    }

    /// Extra time per work, in units of [`ONE`]; latencies in ns, in addition to that of the nearer
    /// cache.
    pub fn extra(&self, llc_latency: Nanos, memory_latency: Nanos) -> u64 {
        let per_touch = self.l2.misses() * llc_latency + self.llc.misses() * memory_latency;
        per_touch * self.per_us / 1000
    }

    /// The progress at which to look again: a pass ends, or it has brought so many lines into L2 or
    /// LLC that others should know (`None`: there are no others).
    pub fn next(&self, portions: [Option<u64>; 2]) -> Nanos {
        let next = |level: &Level, portion: Option<u64>| match level.fits {
            true => (level.missing > 0).then_some(level.pass),
            false => portion,
        };
        let l2 = next(&self.l2, portions[0]).unwrap_or(u64::MAX);
        let llc = next(&self.llc, portions[1]).unwrap_or(u64::MAX);
        match l2.min(llc) {
            u64::MAX => Nanos::MAX,
            touches => {
                let needed = touches * 1000 - self.rest.min(touches * 1000);
                self.booked + needed.div_ceil(self.per_us).max(1)
            }
        }
    }
}
