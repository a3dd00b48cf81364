// SPDX-License-Identifier: GPL-2.0-only
//! A cache: how many lines of each owner it holds.
//!
//! Problem: what a descheduled vCPU finds when it runs again depends on how much others brought in
//! meanwhile, and on what they drove out for that. Single lines are not tracked, only how many each
//! owner has and how long ago they were touched. New lines take free places first, then those of
//! others and of their own owner in proportion to lines × time since touched: an owner that runs
//! and comes back to its lines soon keeps most of them, one that stopped long ago loses most. That
//! lies between replacement by age and random replacement, as real last-level caches do (7-cpu.com
//! finds pseudo-LRU in Sandy Bridge and seemingly random replacement in Ivy Bridge).
//!
//! An *adaptive* cache does not let streams in (Qureshi et al., "Adaptive Insertion Policies for
//! High Performance Caching", ISCA 2007; Intel's last-level caches resemble it since Ivy Bridge: H.
//! Wong, "Intel Ivy Bridge Cache Replacement Policy", blog.stuffedcow.net, 2013). Lines of an owner
//! that will not come back to them are put where the next victim is taken from, one place of each
//! set, and only one in 32 comes in like all others. As they come in so much more slowly than their
//! owner touches lines, they are that much older, too. Lines that an owner comes back to move up
//! because of that; left out are that this takes a pass through them, and that sets compete to find
//! out which insertion policy is better: this one suits streams.
//!
//! An insertion costs time in proportion to the owners with lines in this cache.
//!
//! Not modelled: associativity, sharing of lines between owners, dirty lines, prefetching beyond what
//! a program's rate of touched lines says.

use corun_model::PcpuId;

/// Lines of an owner that runs.
#[derive(Clone, Copy, Debug)]
struct Active {
    cpu: PcpuId,
    owner: u32,
    lines: u64,
    /// Lines it touches per us, at least 1.
    per_us: u64,
    /// Will it come back to its lines while they are there?
    returns: bool,
    /// One in so many lines that it touches comes in, or is there already.
    stays: u64,
}

impl Active {
    /// Time since a line was touched, us: on average half of what it takes to touch all it has, or
    /// to bring them in if it touches none again.
    fn age(&self) -> u64 {
        self.lines * self.stays / self.per_us / 2 + 1
    }
}

/// Lines of an owner that does not run, or of one that runs but will not come back to them.
#[derive(Clone, Copy, Debug)]
struct Left {
    owner: u32,
    lines: u64,
    /// When they were touched last, us.
    touched: u64,
}

/// A cache in the run. At most one owner per pCPU is active in it.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    lines: u64,
    /// At most one entry per owner.
    left: Vec<Left>,
    active: Vec<Active>,
    /// Places without a line, or with one that is the next victim of its set.
    free: u64,
    /// Are streams kept out?
    adaptive: bool,
}

impl Cache {
    pub fn new(lines: u64) -> Self {
        Self {
            lines,
            left: Vec::new(),
            active: Vec::new(),
            free: lines,
            adaptive: false,
        }
    }

    /// The same, but it keeps streams out.
    pub fn adaptive(lines: u64) -> Self {
        Self {
            adaptive: true,
            ..Self::new(lines)
        }
    }

    /// Its size.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// `owner` runs on `cpu` from now on. Returns how many of its lines are still there; for an
    /// owner that will have lost them before it touches them again (`returns` is false) none is of
    /// use.
    pub fn enter(&mut self, cpu: PcpuId, owner: u32, per_us: u64, returns: bool) -> u64 {
        let place = self.left.iter().position(|left| left.owner == owner);
        let found = place.filter(|_| returns);
        let lines = found.map_or(0, |place| self.left.remove(place).lines);
        self.active.push(Active {
            cpu,
            owner,
            lines,
            per_us: per_us.max(1),
            returns,
            stays: if self.adaptive && !returns { LET_IN } else { 1 },
        });
        lines
    }

    /// The owner on `cpu` does not run any more; its lines age from `now` (us) on.
    pub fn leave(&mut self, cpu: PcpuId, now: u64) {
        let Some(place) = self.active.iter().position(|active| active.cpu == cpu) else {
            return;
        };
        let active = self.active.remove(place);
        let Active { owner, lines, .. } = active;
        if lines == 0 {
            return;
        }
        let touched = now.saturating_sub(active.age());
        match self.left.iter_mut().find(|left| left.owner == owner) {
            Some(left) => {
                let sum = u128::from(left.lines) * u128::from(left.touched)
                    + u128::from(lines) * u128::from(touched);
                left.lines += lines;
                left.touched = (sum / u128::from(left.lines)) as u64;
            }
            None => self.left.push(Left {
                owner,
                lines,
                touched,
            }),
        }
    }

    /// The owner on `cpu` keeps so many lines at most (the others left a larger cache that includes
    /// this one).
    pub fn trim(&mut self, cpu: PcpuId, most: u64) {
        for active in self.active.iter_mut().filter(|active| active.cpu == cpu) {
            let gone = active.lines.saturating_sub(most);
            active.lines -= gone;
            self.free += gone;
        }
    }

    /// The owner on `cpu` brings in `lines` lines at `now` (us). `lost` is told which running owner
    /// (by its pCPU) loses how many for that.
    pub fn insert(&mut self, cpu: PcpuId, lines: u64, now: u64, mut lost: impl FnMut(PcpuId, u64)) {
        let stream = self.active.iter().any(|a| a.cpu == cpu && !a.returns);
        let lines = match self.adaptive && stream {
            true => self.pass_through(lines, now, &mut lost),
            false => lines,
        };
        // In portions, because each changes how many lines each owner has; beyond a few times the
        // cache's size nothing changes.
        let portion = (self.lines / PORTIONS).max(1);
        let mut coming = lines.min(MOST_TIMES * self.lines);
        while coming > 0 {
            let some = coming.min(portion);
            coming -= some;
            let free = some.min(self.free);
            self.free -= free;
            if some > free {
                self.drive_out(some - free, now, &mut lost);
            }
            for active in self.active.iter_mut().filter(|active| active.cpu == cpu) {
                active.lines += some;
            }
        }
    }

    /// A stream's lines come, each the next victim of its set: returns how many stay.
    fn pass_through(&mut self, lines: u64, now: u64, lost: &mut impl FnMut(PcpuId, u64)) -> u64 {
        let places = lines.min(self.lines / WAYS);
        let missing = places.saturating_sub(self.free);
        if missing > 0 {
            self.drive_out(missing, now, lost);
            self.free += missing;
        }
        lines / LET_IN
    }

    fn drive_out(&mut self, needed: u64, now: u64, lost: &mut impl FnMut(PcpuId, u64)) {
        let weight = |lines: u64, age: u64| u128::from(lines) * u128::from(age);
        let age = |left: &Left| now.saturating_sub(left.touched) + 1;
        let left = self.left.iter().map(|left| weight(left.lines, age(left)));
        let active = self.active.iter();
        let active = active.map(|active| weight(active.lines, active.age()));
        let all = left.chain(active).sum::<u128>().max(1);
        let share = |weight: u128| (u128::from(needed) * weight / all) as u64;
        let mut rest = needed;
        for left in &mut self.left {
            let some = share(weight(left.lines, age(left))).min(left.lines);
            left.lines -= some;
            rest -= some;
        }
        for active in &mut self.active {
            let some = share(weight(active.lines, active.age())).min(active.lines);
            active.lines -= some;
            rest -= some;
            if some > 0 {
                lost(active.cpu, some);
            }
        }
        if rest > 0 {
            self.drive_out_rest(rest, lost);
        }
        self.left.retain(|left| left.lines > 0);
    }

    /// Drives out what rounding, and owners with fewer lines than their share, left over.
    fn drive_out_rest(&mut self, mut rest: u64, lost: &mut impl FnMut(PcpuId, u64)) {
        for left in &mut self.left {
            let some = rest.min(left.lines);
            left.lines -= some;
            rest -= some;
        }
        for active in &mut self.active {
            let some = rest.min(active.lines);
            active.lines -= some;
            rest -= some;
            if some > 0 {
                lost(active.cpu, some);
            }
        }
    }
}

/// Lines of a set: 16, as Intel's last-level caches of 2 MB per core have (i7-3770: leaf 4 of CPUID).
const WAYS: u64 = 16;
/// One in so many lines of a stream is let in (ISCA 2007, §4.2: 1/32).
const LET_IN: u64 = 32;
/// New lines come in portions of this part of the cache.
const PORTIONS: u64 = 8;
/// After new lines of so many times a cache's size, next to nothing else is left in it.
const MOST_TIMES: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: PcpuId = PcpuId(0);
    const B: PcpuId = PcpuId(1);

    /// A run of `owner` until `now` that brings `lines` in; returns how many lines it found.
    fn runs(cache: &mut Cache, owner: u32, lines: u64, now: u64, returns: bool) -> u64 {
        let found = cache.enter(A, owner, 100, returns);
        cache.insert(A, lines, now, |_, _| {});
        cache.leave(A, now);
        found
    }

    #[test]
    fn what_fits_stays() {
        let mut cache = Cache::new(1000);
        runs(&mut cache, 1, 500, 1000, true);
        runs(&mut cache, 2, 500, 2000, true);
        assert_eq!(runs(&mut cache, 1, 0, 3000, true), 500);
        assert_eq!(runs(&mut cache, 2, 0, 4000, true), 500);
    }

    #[test]
    fn the_owner_that_stopped_longest_ago_loses_most() {
        let mut cache = Cache::new(1000);
        runs(&mut cache, 1, 400, 1000, true);
        runs(&mut cache, 2, 400, 11_000, true);
        runs(&mut cache, 3, 500, 12_000, true);
        let found = [1, 2, 3].map(|owner| runs(&mut cache, owner, 0, 12_000, true));
        assert_eq!(found.iter().sum::<u64>(), 1000);
        assert!(found[0] < found[1] / 2 && found[1] < found[2], "{found:?}");
    }

    #[test]
    fn a_stream_drives_out_all_that_is_older() {
        let mut cache = Cache::new(1000);
        runs(&mut cache, 1, 500, 1000, true);
        runs(&mut cache, 2, 4000, 31_000, false);
        assert!(runs(&mut cache, 1, 0, 31_000, true) < 5);
    }

    #[test]
    fn an_adaptive_cache_does_not_let_streams_in() {
        let mut cache = Cache::adaptive(1600);
        runs(&mut cache, 1, 1600, 1000, true);
        // One place in 16 is the stream's, and one of its lines in 32 comes in: in all 100 + 100.
        runs(&mut cache, 2, 3200, 31_000, false);
        let found = runs(&mut cache, 1, 0, 31_000, true);
        assert!((1400..=1500).contains(&found), "{found}");
        // An owner that comes back to its lines finds the room that the stream leaves.
        let mut cache = Cache::adaptive(1600);
        runs(&mut cache, 2, 3200, 1000, false);
        runs(&mut cache, 1, 1500, 2000, true);
        assert_eq!(runs(&mut cache, 1, 0, 2000, true), 1500);
    }

    #[test]
    fn an_owner_that_comes_back_sooner_keeps_more() {
        let mut lost = [0; 2];
        let mut cache = Cache::new(80_000);
        cache.enter(A, 1, 100, true);
        cache.enter(B, 2, 10, false);
        cache.insert(A, 40_000, 0, |_, _| {});
        cache.insert(B, 40_000, 0, |_, _| {});
        cache.insert(B, 1100, 0, |cpu, lines| lost[cpu.index()] += lines);
        assert_eq!(lost[0] + lost[1], 1100);
        assert!((100..=105).contains(&lost[0]), "{lost:?}");
    }

    #[test]
    fn what_is_let_in_of_a_stream_ages_until_as_much_more_has_come() {
        // Both have half of the cache, and touch equally many lines; but the owner touches its
        // lines every 400 us, and the stream's are on average from 6400 us ago.
        let mut lost = [0; 2];
        let mut cache = Cache::adaptive(80_000);
        cache.enter(A, 1, 100, true);
        cache.enter(B, 2, 100, false);
        cache.insert(A, 40_000, 0, |_, _| {});
        cache.insert(B, 40_000 * LET_IN, 0, |_, _| {});
        cache.insert(B, 3200, 0, |cpu, lines| lost[cpu.index()] += lines);
        assert_eq!(lost[0] + lost[1], 3200);
        assert!((95..=100).contains(&lost[0]), "{lost:?}");
        // The stream's lines are as old after it has left.
        cache.leave(B, 10_000);
        assert_eq!(cache.left[0].touched / 1000, 10 - 6);
    }

    proptest! {
        /// Whatever comes and goes, each place holds a line or is free, and owners that lost lines are reported.
        #[test]
        fn places_are_conserved(
            size in 1u64..5000,
            adaptive in any::<bool>(),
            ops in prop::collection::vec((0u32..4, 0u32..6, 0u64..9000, 1u64..5000), 1..100),
        ) {
            let mut cache = if adaptive { Cache::adaptive(size) } else { Cache::new(size) };
            for (now, (cpu, owner, lines, rate)) in ops.into_iter().enumerate() {
                let (cpu, now) = (PcpuId(cpu), now as u64 * 100);
                let busy = cache.active.iter().any(|a| a.cpu == cpu);
                let runs = cache.active.iter().any(|a| a.owner == owner);
                match lines % 3 {
                    0 => cache.leave(cpu, now),
                    1 if !busy && !runs => {
                        cache.enter(cpu, owner, rate, rate.is_multiple_of(2));
                    }
                    _ if busy => {
                        let before: u64 = cache.active.iter().map(|a| a.lines).sum();
                        let mut lost = 0;
                        cache.insert(cpu, lines, now, |_, lines| lost += lines);
                        let after: u64 = cache.active.iter().map(|a| a.lines).sum();
                        let stream = cache.active.iter().any(|a| a.cpu == cpu && !a.returns);
                        let come = if adaptive && stream { lines / LET_IN } else { lines };
                        prop_assert_eq!(after + lost, before + come.min(MOST_TIMES * size));
                    }
                    _ => {}
                }
                let left: u64 = cache.left.iter().map(|left| left.lines).sum();
                let active: u64 = cache.active.iter().map(|a| a.lines).sum();
                prop_assert_eq!(left + active + cache.free, size);
                prop_assert!(cache.left.len() <= 6);
            }
        }
    }
}
