// SPDX-License-Identifier: GPL-2.0-only
//! SPLASH-2's Ocean: a multigrid solver with a few phases around it (`multi.C`: multig(), `slave2.C`).
//!
//! A solve goes from the finest grid to coarser ones and back again, and again, until the error is
//! small. Each time that a grid is relaxed there are four barriers: before the red points; after
//! them; after the black ones, when all threads have added their errors under a lock; and once more
//! before any thread resets the error. Between the last three there is nothing to do.

use super::shapes::{Cache, compute};
use corun_model::Nanos;
use corun_model::time::{MS, US};

/// How the threads meet.
const BARRIER: &str = "condition-barrier grid";
/// By how much shares of work differ, percent (assumed).
const VARY: u32 = 5;
/// How long the lock around the error is held (as for all locks of SPLASH).
const HELD: Nanos = 200;

/// Work of all threads on a grid of the multigrid, until the next barrier.
struct Grid {
    /// Work on the red points, or on the black ones.
    half: Nanos,
    /// How often it is relaxed on the way to coarser grids, and on the way back.
    times: [u32; 2],
    /// Work to compute the residual of the next coarser grid, and to add that grid's solution.
    transfer: [Nanos; 2],
}

/// From 4096 points a side to 512, where it ends.
const GRIDS: [Grid; 4] = [
    Grid {
        half: 34_600 * US,
        times: [2, 1],
        transfer: [27_600 * US, 30_800 * US],
    },
    Grid {
        half: 7 * MS,
        times: [2, 2],
        transfer: [6200 * US, 7700 * US],
    },
    Grid {
        half: 1150 * US,
        times: [2, 2],
        transfer: [1360 * US, 1060 * US],
    },
    Grid {
        half: 310 * US,
        times: [1, 1],
        transfer: [0, 0],
    },
];

/// Work between solves, until the next barrier, per way to coarser grids and back.
const OUTSIDE: Nanos = 113 * MS;

/// One of `threads` threads that share out the work.
struct Worker {
    threads: u32,
    /// Do the partitions have borders of their own, which are copied behind a barrier before the residual is taken?
    borders: bool,
}

/// All threads of a program on this working set, with partitions that have borders of their own or not.
pub(super) fn threads(threads: u32, cache: Cache, borders: bool) -> Vec<(String, String)> {
    let worker = Worker { threads, borders };
    let text = format!("{}loop {{ {} }}", cache.text(threads), worker.cycle());
    (0..threads)
        .map(|i| (format!("worker{i}"), text.clone()))
        .collect()
}

impl Worker {
    /// A way to the coarsest grid and back.
    fn cycle(&self) -> String {
        let outside = self.share(OUTSIDE);
        let mut parts = vec![self.meeting(&[&outside, BARRIER])];
        for grid in &GRIDS {
            parts.push(self.relaxed(grid, 0));
            parts.extend(self.to_coarser(grid));
        }
        for grid in GRIDS.iter().rev() {
            parts.extend(self.coming_back(grid));
            parts.push(self.relaxed(grid, 1));
        }
        parts.join("; ")
    }

    /// The relaxations of a grid on one of its two ways, each from the barrier that it begins with.
    fn relaxed(&self, grid: &Grid, way: usize) -> String {
        let half = self.share(grid.half);
        let told = format!("mutex error {{ {} }}", compute(HELD, 0));
        let statements = [BARRIER, &half, BARRIER, &half, &told, BARRIER, BARRIER];
        let relaxation = self.meeting(&statements);
        match grid.times[way] {
            1 => relaxation,
            times => format!("loop {times} {{ {relaxation} }}"),
        }
    }

    fn to_coarser(&self, grid: &Grid) -> Option<String> {
        let residual = self.share(grid.transfer[0]);
        let statements = match self.borders {
            true => vec![BARRIER, &residual],
            false => vec![residual.as_str()],
        };
        (grid.transfer[0] > 0).then(|| self.meeting(&statements))
    }

    fn coming_back(&self, grid: &Grid) -> Option<String> {
        (grid.transfer[1] > 0).then(|| self.share(grid.transfer[1]))
    }

    /// These statements without the barriers, if there is no other thread.
    fn meeting(&self, statements: &[&str]) -> String {
        let kept = |statement: &&&str| self.threads > 1 || **statement != BARRIER;
        let kept: Vec<&str> = statements.iter().filter(kept).copied().collect();
        kept.join("; ")
    }

    /// One thread's share of work.
    fn share(&self, work: Nanos) -> String {
        compute((work / u64::from(self.threads)).max(1), VARY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::mib;
    use super::*;

    /// How often a thread comes to a barrier, loops multiplied out.
    fn barriers(text: &str) -> usize {
        let (mut times, mut nested, mut count) = (1, Vec::new(), 0);
        let words: Vec<&str> = text.split([' ', ';']).collect();
        for (at, word) in words.iter().enumerate() {
            match *word {
                "{" => {
                    nested.push(times);
                    times *= words[at - 1].parse().unwrap_or(1);
                }
                "}" => times = nested.pop().unwrap(),
                "condition-barrier" => count += times,
                _ => {}
            }
        }
        count
    }

    #[test]
    fn a_cycle_has_as_many_barriers_as_the_program_on_average_but_for_rounded_relaxations() {
        let texts = threads(16, mib(3200, 40), true);
        assert_eq!(texts.len(), 16);
        // 7106 barriers in 123 cycles are 57.8; relaxations are 3.35 + 4.4 + 3.88 + 1.85, here 3 + 4 + 4 + 2.
        assert_eq!(barriers(&texts[0].1), 1 + 13 * 4 + 3);
    }

    #[test]
    fn partitions_without_borders_have_no_barrier_before_the_residual() {
        assert_eq!(
            barriers(&threads(16, mib(3200, 45), false)[0].1),
            1 + 13 * 4
        );
    }

    #[test]
    fn one_thread_meets_nobody() {
        assert!(!threads(1, mib(3200, 40), true)[0].1.contains("barrier"));
    }
}
