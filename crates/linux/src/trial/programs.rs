// SPDX-License-Identifier: GPL-2.0-only
//! The programs: AQL_Sched's benchmarks (EuroSys 2016, Table 1) reduced to what makes their type. They do what `corun
//! calibrate` simulates.

use super::turns::Turns;
use corun_model::Nanos;
use corun_model::time::{MS, US};
use corun_system::clock;
use serde::{Deserialize, Serialize};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// Walks a linked list of this many bytes, a cache line per element (LLCF, LoLCF, LLCO).
    List(u64),
    /// Serves pages, and runs scripts when there is nothing to serve (IOInt).
    Pages,
    /// Computes some 20 µs, then 1 µs under a ticket lock that all such threads share (ConSpin).
    Spin,
}

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Elements of a line.
const STRIDE: usize = 16;
/// Hops along a list between two looks at the clock: 40 µs, if memory serves them in 150 ns.
const HOPS: u64 = 256;
/// Pages are asked for every 50 ms on average: ten visitors who think for half a second.
pub(super) const BETWEEN_PAGES: Nanos = 50 * MS;

/// A ticket lock.
#[derive(Default)]
pub(super) struct Crowd {
    next: AtomicU64,
    serving: AtomicU64,
}

/// How much was done, and the time that counts against it if that is not all the time there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    work: u64,
    waited: Option<Nanos>,
}

impl Sum {
    /// What was done since `before` and in which time; `elapsed` if time is not counted by request.
    pub(super) fn since(&self, before: &Self, elapsed: Nanos) -> (u64, Nanos) {
        let waited = self
            .waited
            .map(|waited| waited - before.waited.unwrap_or(0));
        (self.work - before.work, waited.unwrap_or(elapsed))
    }
}

/// A program at work.
pub(super) enum Work {
    List {
        next: Vec<u32>,
        at: usize,
        hops: u64,
    },
    Pages {
        chance: Chance,
        per_us: u64,
        due: Nanos,
        served: u64,
        waited: Nanos,
    },
    Spin {
        chance: Chance,
        per_us: u64,
        rounds: u64,
    },
}

impl Program {
    /// How many bytes it walks through.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::List(bytes) => *bytes,
            Self::Pages | Self::Spin => 0,
        }
    }

    /// In a word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::List(_) => "list",
            Self::Pages => "pages",
            Self::Spin => "spin",
        }
    }

    /// Gets it ready; `per_us`: iterations of [`compute`].
    pub(super) fn make(self, seed: u64, per_us: u64) -> Work {
        let mut chance = Chance::new(seed);
        match self {
            Self::List(bytes) => {
                let next = strided(&circle(lines(bytes), &mut chance));
                Work::List {
                    next,
                    at: 0,
                    hops: 0,
                }
            }
            Self::Pages => Work::Pages {
                chance,
                per_us,
                due: 0,
                served: 0,
                waited: 0,
            },
            Self::Spin => Work::Spin {
                chance,
                per_us,
                rounds: 0,
            },
        }
    }
}

impl Work {
    /// A little work: tens of microseconds, or less if it is `until` meanwhile.
    pub(super) fn step(&mut self, crowd: &Crowd, until: Nanos, turns: &mut Turns) {
        match self {
            Self::List { next, at, hops } => {
                for _ in 0..HOPS {
                    *at = next[*at] as usize;
                }
                *hops += HOPS;
                turns.look();
            }
            Self::Pages {
                chance,
                per_us,
                due,
                served,
                waited,
            } => {
                compute(20 * *per_us);
                let mut now = turns.look();
                if *due == 0 {
                    *due = now + chance.gap(BETWEEN_PAGES);
                }
                while *due <= now {
                    compute(50 * *per_us);
                    now = turns.look();
                    *served += 1;
                    *waited += now - *due;
                    *due += chance.gap(BETWEEN_PAGES);
                }
            }
            Self::Spin {
                chance,
                per_us,
                rounds,
            } => {
                compute((10 + chance.below(21)) * *per_us);
                turns.look();
                let ticket = crowd.next.fetch_add(1, Ordering::Relaxed);
                while crowd.serving.load(Ordering::Acquire) != ticket {
                    spin_loop();
                    // The one before us may have left when its time was over.
                    if turns.look() >= until {
                        return;
                    }
                }
                compute(*per_us);
                crowd.serving.store(ticket + 1, Ordering::Release);
                *rounds += 1;
                turns.look();
            }
        }
    }

    /// How much was done so far.
    pub(super) fn done(&self) -> Sum {
        match self {
            Self::List { hops, .. } => Sum {
                work: *hops,
                waited: None,
            },
            Self::Pages { served, waited, .. } => Sum {
                work: *served,
                waited: Some(*waited),
            },
            Self::Spin { rounds, .. } => Sum {
                work: *rounds,
                waited: None,
            },
        }
    }
}

/// How many lines a list of this many bytes has.
pub(super) fn lines(bytes: u64) -> usize {
    (bytes / LINE).max(2) as usize
}

/// Links all lines of a list into one circle, in random order (Sattolo's algorithm): which line is next, for
/// each.
pub(super) fn circle(lines: usize, chance: &mut Chance) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for last in (1..lines).rev() {
        order.swap(last, chance.below(last as u64) as usize);
    }
    order
}

/// The same as a list in memory: the first element of each line says where the next one begins.
fn strided(order: &[u32]) -> Vec<u32> {
    let mut next = vec![0; order.len() * STRIDE];
    for (line, after) in order.iter().enumerate() {
        next[line * STRIDE] = after * STRIDE as u32;
    }
    next
}

/// Computes without touching memory.
fn compute(iterations: u64) {
    let mut sum = 0u64;
    for n in 0..iterations {
        sum = black_box(sum.wrapping_add(n));
    }
    black_box(sum);
}

/// How many iterations of [`compute`] take a microsecond: the best of ten tries, in case others had the
/// pCPU meanwhile.
pub(super) fn iterations_per_us() -> u64 {
    const TRIED: u64 = 200_000;
    let tries = (0..10).map(|_| {
        let began = clock::now();
        compute(TRIED);
        clock::now() - began
    });
    let best = tries.min().unwrap_or(0).max(1);
    (TRIED * US / best).max(1)
}

/// A source of random numbers (Marsaglia's xorshift64*).
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// An exponentially distributed time.
    pub(super) fn gap(&mut self, mean: Nanos) -> Nanos {
        let uniform = (self.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
        (-libm::log(uniform) * mean as f64) as Nanos + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_one_circle() {
        for lines in [2, 3, 100, 4096] {
            let next = strided(&circle(lines, &mut Chance::new(7)));
            let mut at = 0;
            for hop in 1..=lines {
                at = next[at] as usize;
                assert_eq!(at == 0, hop == lines, "after {hop} of {lines}");
            }
        }
    }

    #[test]
    fn chance_is_even_and_gaps_have_their_mean() {
        let mut chance = Chance::new(1);
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[chance.below(3) as usize] += 1);
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
        let mean = (0..3000).map(|_| chance.gap(BETWEEN_PAGES)).sum::<Nanos>() / 3000;
        assert!((45 * MS..55 * MS).contains(&mean), "{mean}");
    }
}
