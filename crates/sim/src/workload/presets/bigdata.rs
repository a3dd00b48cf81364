// SPDX-License-Identifier: GPL-2.0-only
//! Spark, learning and matrices: computing on data in memory.

use super::shapes::{Cache, Meet, Rounds, Shape, Team, mib, shared};
use super::{Preset, xgboost};
use corun_model::Nanos;
use corun_model::time::{MS, US};

pub(super) const ABOUT: &str = "Computing on data in memory, a thread per vCPU. Spark's stages end \
    when their last task does; then its driver plans the next one, 5 ms (assumed: stages of empty \
    tasks take about that long). Where the size of its data is known, its threads also stop for \
    collections of the young generation: HotSpot's, of a heap of 1 GiB, when 256 MiB are full, of which a \
    line of text takes 1 KiB (counted in OpenJDK 8); full collections and spilling are left out. OpenMP's threads spin 300,000 times at barriers before they block \
    (libgomp's GOMP_SPINCOUNT), about a millisecond. Spread of shares and lines per us are assumed. XGBoost's training is the \
    fork that the authors of vSMT-IO publish (github.com/xiaoweishang/xgboost, 6282e498). Where a text says \"counted\", it \
    was run with the demo's own settings, built by gcc 12 -O3, on an Intel Xeon of 2023, and the CPU time of each parallel \
    region taken, all threads together, and of the first thread before it; lengths are those of one thread unless a text \
    says 23, taken as they are. A region is a fork and a join, at each of which all threads meet; that takes 80 ns for each but the first (assumed: all \
    change one word, whose cache line goes from core to core). Features that are shared \
    out one by one (schedule(dynamic, 1)) go to whoever is there; that a thread without a CPU then has less to do is left out.";

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

/// A Spark job with its collections.
const fn spark_job(name: &'static str, about: &'static str, threads: Threads) -> Preset {
    Preset::new(name, about, Shape::Own(|vcpus| vcpus, threads))
}

/// Gives the name and program of each of so many threads.
type Threads = fn(u32) -> Vec<(String, String)>;

/// Lines, or pairs, processed from one collection to the next: Eden is 256 MiB of a heap of 1 GiB
/// (spark.driver.memory; HotSpot's NewRatio of 2 and InitialSurvivorRatio of 8), and a line leaves 1 KiB of garbage
/// there. (Counted for `split("\\s+")` in OpenJDK 8: Pattern with its buffers some 450 bytes, Matcher 200, lists 140,
/// strings and their characters 200, tuples 50.)
const LINES_OF_EDEN: u64 = 256 << 10;

/// Work of a stage, from its lines and the time `line` that each takes, all threads together;
/// `copying` is likewise what a collection of Eden takes.
///
/// Each thread fills its part of Eden, and stops. (HotSpot stops all threads when Eden is full, whichever thread has
/// filled it, so that none waits for a slow one as here: docs/limits.md.) Then they collect together (HotSpot has
/// threads of its own for that, 18 on 24 CPUs), and look for what is left to do with 5000
/// `sched_yield()`, some 2.5 ms, before they sleep (`WorkStealingYieldsBeforeSleep`).
fn collected(lines: u64, line: Nanos, copying: Nanos, threads: u32) -> String {
    let n = u64::from(threads);
    let (work, copying) = (LINES_OF_EDEN * line / n, (copying / n).max(US));
    let collections = (lines / LINES_OF_EDEN).max(1);
    format!(
        "loop {collections} {{ compute {}us; barrier safepoint; compute {}us; \
         spin-barrier collected 2500us }}",
        work / US,
        copying / US
    )
}

/// The stages of a job, one after the other, for each of its threads; with the driver's part after each.
fn job(stages: &str, cache: Cache, threads: u32) -> Vec<(String, String)> {
    // A single thread has no other to wait for.
    let alone = |text: &str| {
        let text = text.replace("barrier safepoint; ", "");
        text.replace("; spin-barrier collected 2500us", "")
    };
    let of = |i: u32| {
        let driver = if i == 0 { "; compute 5ms" } else { "" };
        let (end, stages) = match threads {
            1 => (driver.to_string(), alone(stages)),
            _ => (
                format!("; barrier stage{driver}; barrier stage"),
                stages.to_string(),
            ),
        };
        let text = stages.replace("; END", &end);
        (
            format!("worker{i}"),
            format!("{}loop {{ {text} }}", cache.text(threads)),
        )
    };
    (0..threads).map(of).collect()
}

fn pagerank(threads: u32) -> Vec<(String, String)> {
    const LINES: u64 = 100_000_000;
    const PAIRS: u64 = 1001 * 1001;
    const SPLIT: Nanos = 2800;
    let n = u64::from(threads);
    let read = collected(LINES, SPLIT, 80 * MS, threads);
    // Each task's lines contain nearly all pairs.
    let found = n * PAIRS.min(LINES / n);
    let distinct = collected(found, SPLIT, 80 * MS, threads);
    let iteration = format!("compute {}us ±20%", (PAIRS / n).max(1));
    let stages = format!("{read}; END; {distinct}; END; loop 10 {{ {iteration}; END }}");
    job(&stages, mib(256, 20), threads)
}

fn kmeans(threads: u32) -> Vec<(String, String)> {
    const LINES: u64 = 270_000_000;
    let lines_of_128_mb = 10_500_000 * u64::from(threads);
    let copying = 500 * US * u64::from(threads);
    let wave = collected(LINES.min(lines_of_128_mb), 1500, copying, threads);
    job(&format!("{wave}; END"), mib(256, 8), threads)
}

/// Waiting as in libgomp.
const OPENMP: &str = "spin-barrier phase 1ms";

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
    spark_job(
        "pagerank",
        "SparkPageRank (its example) as vSMT-IO's published scripts start it (github.com/vSMT-IO/vSMT-IO, \
         a939127, apps/spark): 100 M lines of two numbers from 0 to 1000, 878 MB, 10 iterations, and \
         Spark 2.0.2 in one process with the heap of 1 GiB that is its default. A task per thread \
         reads its lines, splits them and keeps each pair once; its next stage has the pairs of all \
         tasks, of 1001 x 1001 that there can be. Counted in Spark 3.3.4 (OpenJDK 17, -XX:+UseParallelGC, the same heap, \
         one task, on an Intel Xeon of 2023, with others at work there): 2.1 M such \
         lines and the 0.88 M pairs that are left of them take 10.0 s of CPU in both stages the second time, of which \
         1.8 s are collections (as much of it as of the time on the clock): 2.8 us a line or pair = 11.7 s of each of 24, and \
         2.8 s in the next stage; then the iterations have 1 M pairs, 1 us each (assumed), 42 ms of each of 24. There were 11 \
         collections of the young generation, one for 270,000 lines and pairs, of some 80 ms each: \
         what they copy is in a task's table until that is spilled.",
        pagerank,
    ),
    spark_job(
        "kmeans",
        "SparkKMeans (its example), likewise: 270 M lines of three numbers, 3.4 GB, K of 5. These do not \
         fit into the heap, so that each iteration reads them again, in splits of 128 MB at most: 10 M \
         lines a task, at 1.5 us (assumed: three numbers parsed, five distances) 15 s. Of 26 tasks \
         on 24 threads the last two have a wave of their own, which is left out. Nothing lives on \
         but the centres: a collection takes 0.5 ms (assumed: roots).",
        kmeans,
    ),
    xgboost::BINARY,
    xgboost::MULTICLASS,
    xgboost::REGRESSION,
    xgboost::YEAR,
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
         each other. Three of 8000^2 x 4 = 256 MB. The published src/host/matmul.c (github.com/vSMT-IO/vSMT-IO, \
         a939127) is the plain triple loop, down the columns of B: a line per multiply-add, which the \
         next 15 columns find in the last-level cache (8000 lines of 64 bytes); 8 lines/us come from memory \
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
    Preset::new(
        "npb-is",
        "NPB's integer sort, class C: 2^27 keys. Counted in NPB 3.3's OpenMP version (IS/is.c, USE_BUCKETS, which it is built \
         with), 12 threads, gcc 12, on an Intel Xeon of 2023 with others at work there: an iteration is a parallel region of three \
         phases, keys counted by bucket (230 ms of all threads), sorted into buckets (540) and ranked (126, buckets shared \
         out one by one), at whose ends all meet. Keys and counts: 2 x 2^27 x 4 bytes, counted at random.",
        Shape::Rounds(Rounds {
            phases: &[
                shared(230 * MS, 5).ending(OPENMP),
                shared(540 * MS, 5).ending(OPENMP),
                shared(126 * MS, 20).ending(OPENMP),
            ],
            cache: mib(1024, 40),
            unit: "iterations",
        }),
    ),
];
