// SPDX-License-Identifier: GPL-2.0-only
//! Parallel regions of XGBoost's training, as they were counted in its demos.
//!
//! A region is a fork and a join: the first thread computes alone before it, then all threads of the team meet
//! (libgomp's dock, where they wait between regions), share out its work, and meet again at its end. A meeting takes as
//! long as a word that all threads change takes to go from one core to the next, [`LINE`] for each thread.

use super::Preset;
use super::shapes::{Cache, Shape, compute, mib};
use corun_model::Nanos;
use corun_model::time::US;

/// A parallel region.
#[derive(Debug)]
struct Region {
    /// Work of the first thread before it, while the others wait.
    serial: Nanos,
    /// Work of all threads together.
    work: Nanos,
    /// By how much shares differ, percent.
    vary: u32,
    /// Does it have two parts, such as a loop and then something else, with a barrier between them?
    halves: bool,
}

/// A region before which the first thread has `serial` to do, and in which all together have `work`
/// to do.
const fn region(serial: Nanos, work: Nanos) -> Region {
    Region {
        serial,
        work,
        vary: 10,
        halves: false,
    }
}

impl Region {
    /// The same, with shares that differ by so many percent.
    const fn varying(mut self, vary: u32) -> Self {
        self.vary = vary;
        self
    }

    /// The same, with a barrier inside.
    const fn halved(mut self) -> Self {
        self.halves = true;
        self
    }
}

/// Regions one after the other, so many times.
#[derive(Debug)]
struct Part {
    times: u32,
    regions: &'static [Region],
    /// Do these make up a level of a tree? Levels are counted.
    level: bool,
}

/// Regions of a round that come so many times.
const fn part(times: u32, regions: &'static [Region]) -> Part {
    Part {
        times,
        regions,
        level: false,
    }
}

/// So many levels of trees.
const fn levels(times: u32, regions: &'static [Region]) -> Part {
    Part {
        times,
        regions,
        level: true,
    }
}

/// Waiting as in libgomp, before a region and after it.
const MEET: &str = "spin-barrier region 1ms";

/// How long a cache line takes from one core to another (assumed, as for locks). Each thread that
/// comes to a barrier changes one word (`gomp_barrier_wait_start()`, libgomp/config/linux/bar.h).
const LINE: Nanos = 80;

/// What thread i of n does in a region.
fn region_text(region: &Region, i: u32, n: u32) -> String {
    // A single thread has no other to wait for.
    let ends = match (n, region.halves) {
        (1, _) => 0,
        (_, true) => 2,
        (_, false) => 1,
    };
    let mut statements = Vec::new();
    if i == 0 {
        // Meetings are the first thread's, at once.
        let meetings = u64::from(n - 1) * (1 + ends) * LINE;
        statements.push(compute(region.serial + meetings, 0));
    }
    if n > 1 {
        statements.push(MEET.to_string());
    }
    let share = (region.work / u64::from(n)).max(1);
    statements.push(compute(share, region.vary));
    statements.extend((0..ends).map(|_| MEET.to_string()));
    statements.join("; ")
}

/// What it does in a part of a round.
fn part_text(part: &Part, i: u32, n: u32) -> String {
    let regions = part.regions.iter();
    let mut texts: Vec<String> = regions.map(|region| region_text(region, i, n)).collect();
    if part.level && i == 0 {
        texts.push("count levels".to_string());
    }
    let text = texts.join("; ");
    match part.times {
        1 => text,
        times => format!("loop {times} {{ {text} }}"),
    }
}

/// Rounds of training, one after the other.
fn training(round: &[Part], cache: Cache, n: u32) -> Vec<(String, String)> {
    let of = |i: u32| {
        let parts: Vec<String> = round.iter().map(|part| part_text(part, i, n)).collect();
        let text = format!("{}loop {{ {} }}", cache.text(n), parts.join("; "));
        (format!("worker{i}"), text)
    };
    (0..n).map(of).collect()
}

/// A thread per vCPU that trains.
const fn trains(
    name: &'static str,
    about: &'static str,
    threads: fn(u32) -> Vec<(String, String)>,
) -> Preset {
    Preset::new(name, about, Shape::Own(|vcpus| vcpus, threads))
}

pub(super) const BINARY: Preset = trains(
    "xgboost-binary",
    "XGBoost's binary_classification demo (mushrooms, 6513 rows with 22 entries; mushroom.conf), counted \
     (above): a round is a tree of 3 levels in 22 regions. In a level splits are looked for in 360 us, 126 features \
     shared out one by one (by how much shares differ then is assumed: some features have most of the \
     rows), and rows go to their new nodes in three or four regions of 8 to 15 us; the other eight of a round are \
     gradients, a prediction of 72 us for each of the two data sets, and what is reported of these.",
    |threads| training(MUSHROOMS, mib(2, 5), threads),
);

pub(super) const MULTICLASS: Preset = trains(
    "xgboost-multiclass",
    "XGBoost's multiclass_classification demo (dermatology, 366 rows of 33 columns; train.py), counted (above) \
     on data made up in its shape, 480 of its 10,000 rounds: six trees and 51 regions a round, of \
     which most of the time trees have a root only: 7 levels of 23 us for six trees. Twelve predictions are 17 us each; \
     gradients and softmax have a vector for each thread and a barrier inside, 72 and 67 us of 23 threads.",
    |threads| training(DERMATOLOGY, mib(1, 5), threads),
);

pub(super) const REGRESSION: Preset = trains(
    "xgboost-regression",
    "XGBoost's regression demo (computer hardware, 209 rows of 36 columns; machine.conf), counted (above): \
     its trees may be 300 levels deep and have 28, in six regions each, of which the one that looks for splits has \
     7.3 us and the others a third to half of one; 167 regions a round.",
    |threads| training(HARDWARE, mib(1, 5), threads),
);

pub(super) const YEAR: Preset = trains(
    "xgboost-year",
    "XGBoost's yearpredMSD demo (463,715 rows of 90 columns: demo/yearpredMSD/runexp1.sh of \
     github.com/xiaoweishang/xgboost, 6282e498): the fourth program that the authors of vSMT-IO start \
     (apps/xgboost/homo.sh, \"year prediction\"), which trains like the others. Counted (above), with 23 threads \
     on data made up in its shape: a round is a tree of 5 levels, for each of which splits are looked for in 658 ms, 15.8 ns per \
     entry (gradients and nodes of rows, 5.6 MB, are read at random), 90 features shared out one by one, and rows \
     go to their new nodes in three regions or four of 0.3 to 3 ms; two predictions of 67 ms. Entries of 8 bytes: 334 MB.",
    |threads| training(MSD, mib(318, 5), threads),
);

/// updater_colmaker.cc: SetDefaultPostion(), SetNonDefaultPosition() and InitNewNode() after a level's splits.
const MUSHROOMS: &[Part] = &[
    part(1, &[region(14_870, 26_200), region(4_670, 12_030)]),
    levels(
        2,
        &[
            region(780, 360_390).varying(30),
            region(820, 7_580),
            region(820, 7_580),
            region(150, 14_600),
            region(4_670, 12_030),
        ],
    ),
    levels(
        1,
        &[
            region(780, 360_390).varying(30),
            region(820, 7_580),
            region(150, 14_600),
            region(4_670, 12_030),
        ],
    ),
    part(
        2,
        &[
            region(2_680, 72_450),
            region(8_040, 9_590),
            region(750, 9_520),
        ],
    ),
];

const DERMATOLOGY: &[Part] = &[
    part(1, &[region(5_160, 72_180).halved()]),
    part(6, &[region(600, 170), region(1_810, 600)]),
    levels(
        7,
        &[
            region(200, 23_190).varying(30),
            region(180, 360),
            region(1_810, 600),
        ],
    ),
    part(1, &[region(540, 710)]),
    part(12, &[region(620, 17_420)]),
    part(2, &[region(3_040, 66_950).halved(), region(380, 970)]),
];

const HARDWARE: &[Part] = &[
    part(1, &[region(8_290, 190), region(460, 290)]),
    levels(
        21,
        &[
            region(220, 7_270).varying(30),
            region(220, 540),
            region(220, 540),
            region(220, 540),
            region(120, 450),
            region(460, 290),
        ],
    ),
    levels(
        7,
        &[
            region(220, 7_270).varying(30),
            region(220, 540),
            region(220, 540),
            region(120, 450),
            region(460, 290),
        ],
    ),
    part(2, &[region(2_250, 1_050)]),
    part(1, &[region(3_300, 50), region(510, 160)]),
];

const MSD: &[Part] = &[
    part(
        1,
        &[region(1_644 * US, 1_201 * US), region(324 * US, 804 * US)],
    ),
    levels(
        3,
        &[
            region(45 * US, 657_557 * US).varying(3),
            region(98 * US, 3_035 * US),
            region(98 * US, 3_035 * US),
            region(5_540, 326 * US),
            region(324 * US, 804 * US),
        ],
    ),
    levels(
        2,
        &[
            region(45 * US, 657_557 * US).varying(3),
            region(98 * US, 3_035 * US),
            region(5_540, 326 * US),
            region(324 * US, 804 * US),
        ],
    ),
    part(2, &[region(351 * US, 67_431 * US)]),
    part(1, &[region(408 * US, 2_270), region(3_990, 85_000)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_have_the_regions_that_were_counted() {
        let regions = |round: &[Part]| -> u32 {
            let of = |part: &Part| part.times * part.regions.len() as u32;
            round.iter().map(of).sum()
        };
        let all = [MUSHROOMS, DERMATOLOGY, HARDWARE, MSD].map(regions);
        assert_eq!(all, [22, 51, 167, 29]);
    }

    #[test]
    fn a_region_is_a_fork_and_a_join() {
        const ROUND: &[Part] = &[
            part(1, &[region(50, 400).halved()]),
            levels(2, &[region(20, 600).varying(0)]),
        ];
        let text = |n: u32| training(ROUND, mib(1, 5), n);
        let first = "compute 290ns; MEET; compute 200ns ±10%; MEET; MEET; \
             loop 2 { compute 180ns; MEET; compute 300ns; MEET; count levels } }";
        let (_, seen) = &text(2)[0];
        assert!(seen.ends_with(&first.replace("MEET", MEET)), "{seen}");
        let second =
            "loop { MEET; compute 200ns ±10%; MEET; MEET; loop 2 { MEET; compute 300ns; MEET } }";
        let (_, seen) = &text(2)[1];
        assert!(seen.ends_with(&second.replace("MEET", MEET)), "{seen}");
        // A single thread has no other to wait for.
        assert!(!text(1)[0].1.contains("barrier"));
    }
}
