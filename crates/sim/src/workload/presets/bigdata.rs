// SPDX-License-Identifier: GPL-2.0-only
//! Spark, learning and matrices: computing on data in memory.

use super::Preset;
use super::shapes::{Cache, Meet, Shape, Team, mib};
use corun_model::Nanos;
use corun_model::time::{MS, US};

pub(super) const ABOUT: &str = "Computing on data in memory, a thread per vCPU. Spark's stages end \
    when their last task does; then its driver plans the next one, 5 ms (assumed: stages of empty \
    tasks take about that long). OpenMP's threads spin 300,000 times at barriers before they block \
    (libgomp's GOMP_SPINCOUNT), about a millisecond. Spread of shares and lines per us are assumed.";

/// Stages of a Spark job.
const fn spark(name: &'static str, about: &'static str, stage: Nanos, cache: Cache) -> Preset {
    let team = Team {
        work: stage,
        vary: 20,
        serial: 5 * MS,
        meet: Meet::Block,
        sections: None,
        cache,
        unit: "",
    };
    Preset::new(name, about, Shape::Team(team))
}

/// Parallel regions of OpenMP.
const fn openmp(
    name: &'static str,
    about: &'static str,
    region: Nanos,
    serial: Nanos,
    cache: Cache,
    unit: &'static str,
) -> Preset {
    let team = Team {
        work: region,
        vary: 10,
        serial,
        meet: Meet::Spin,
        sections: None,
        cache,
        unit,
    };
    Preset::new(name, about, Shape::Team(team))
}

pub(super) const ALL: &[Preset] = &[
    spark(
        "wordcount",
        "Spark counting words: a stage splits, hashes and counts 128 MB (a block of HDFS, here in the \
         page cache) at 100 MB/s per core (assumed): 1.3 s. Tables of 100,000 words in 40 bytes (assumed).",
        1300 * MS,
        mib(4, 15),
    ),
    spark(
        "pagerank",
        "Spark's PageRank: a stage joins links and ranks: 1 M edges (assumed, the size of SNAP's \
         web graphs) at 1 us (assumed: hash joins of boxed numbers): 1 s.",
        1000 * MS,
        mib(256, 20),
    ),
    spark(
        "kmeans",
        "Spark's K-means: a stage finds the nearest of 10 centres for 1 M points (assumed) of 20 \
         dimensions (k and dimensions of HiBench's `kmeans.conf`): 200 M multiply-adds at 2 ns (assumed: JVM) = 400 ms.",
        400 * MS,
        mib(160, 8),
    ),
    openmp(
        "xgboost-binary",
        "XGBoost's binary_classification demo (mushrooms, 6513 rows with 22 entries): a level of a \
         tree adds 6513 x 22 entries to histograms at 2 ns (assumed: a dependent add in the cache) = \
         287 us; 20 us to choose splits (assumed).",
        287 * US,
        20 * US,
        mib(2, 5),
        "levels",
    ),
    openmp(
        "xgboost-multiclass",
        "XGBoost's multiclass_classification demo (dermatology, 366 rows of 34 columns): 366 x 34 x 2 \
         ns = 25 us per level and class; 10 us to choose splits (assumed).",
        25 * US,
        10 * US,
        mib(1, 5),
        "levels",
    ),
    openmp(
        "xgboost-regression",
        "XGBoost's regression demo (computer hardware, 209 rows of 36 columns): 209 x 36 x 2 ns = 15 \
         us per level; 10 us to choose splits (assumed).",
        15 * US,
        10 * US,
        mib(1, 5),
        "levels",
    ),
    openmp(
        "xgboost-prediction",
        "XGBoost predicting: 6513 rows (mushrooms) down 100 trees of 6 levels (its default depth; 100 \
         trees assumed) at 2 ns per node = 7.8 ms, in one parallel loop.",
        7800 * US,
        20 * US,
        mib(2, 5),
        "predictions",
    ),
    Preset::new(
        "matmul",
        "Matrices of 8000 x 8000 integers (vSMT-IO), rows divided among threads that do not wait for \
         each other. Three of 8000^2 x 4 = 256 MB; blocks reused in the cache leave 8 lines/us \
         (assumed).",
        Shape::Team(Team {
            work: 10 * MS,
            vary: 0,
            serial: 0,
            meet: Meet::Never,
            sections: None,
            cache: mib(732, 8),
            unit: "",
        }),
    ),
    openmp(
        "npb-is",
        "NPB's integer sort, class C: 2^27 keys. An iteration is some 10 instructions per key \
         (assumed) = 1.3 G or 516 ms, in four parallel regions (key_buff's clearing, counting, prefix \
         sums, ranks): 129 ms each. Keys and counts: 2 x 2^27 x 4 bytes, counted at random.",
        129 * MS,
        0,
        mib(1024, 40),
        "regions",
    ),
];
