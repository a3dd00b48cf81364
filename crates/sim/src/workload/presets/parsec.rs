// SPDX-License-Identifier: GPL-2.0-only
//! PARSEC.

use super::shapes::{Cache, Meet, Rounds, Sections, Shape, Stage, Team, kib, mib, shared};
use super::{Preset, x264};
use corun_model::Nanos;
use corun_model::time::{MS, US};

pub(super) const ABOUT: &str = "PARSEC 3.0 on its native inputs, a thread per vCPU. How \
    threads divide the work and where they meet is from the programs' sources, sizes of inputs are from \
    their `native.runconf`. Where a text says \"counted\", the program was run, with 16 threads, built by \
    gcc 12 -O2, on an Intel Xeon of 2023; `blackscholes`, `dedup` and \
    `swaptions` on one core of an AMD EPYC of 2022 (Zen 4) that others used, too, `canneal` and `raytrace` with one \
    thread on such a server. Lengths are CPU time there, taken as they are, and shares differ as they did, for \
    these five as assumed. `facesim` and `ferret`, whose inputs could not be had, go by how many instructions, \
    locks and waits a run on the simlarge input has with 8 threads, summed over them, `streamcluster` by its \
    loops: there an instruction takes a cycle of 2.6 GHz. These counts are assumed, orders of magnitude, and so is \
    by how much shares of work differ. Working sets, how long locks are held (200 ns: a few lines from other \
    cores, 80 ns each) and lines per us are assumed where no text says otherwise. Presets are the parallel parts, \
    again and again. What one thread does before and after them, for seconds, is left out, and so are files: those \
    that are read are in memory after the first run, and no program waits for the disk before it closes its output \
    (docs/jupiter.md, \"Parallel parts and whole programs\").";

/// PARSEC's own barrier: spins for 0.1 ms first (parsec_barrier.cpp: SPIN_COUNTER_MAX).
const PARSEC: &str = "condition-barrier phase 100us";

const UNLOCKED: Option<Sections> = None;

/// A team that blocks at its barriers.
const fn team(
    name: &'static str,
    about: &'static str,
    work: Nanos,
    vary: u32,
    sections: Option<Sections>,
    cache: Cache,
    unit: &'static str,
) -> Preset {
    let team = Team {
        work,
        vary,
        serial: 0,
        meet: Meet::Block,
        sections,
        cache,
        unit,
    };
    Preset::new(name, about, Shape::Team(team))
}

/// Threads that do not meet before the end.
const fn apart(name: &'static str, about: &'static str, cache: Cache) -> Preset {
    let team = Team {
        work: 10 * MS,
        vary: 0,
        serial: 0,
        meet: Meet::Never,
        sections: None,
        cache,
        unit: "",
    };
    Preset::new(name, about, Shape::Team(team))
}

const fn one_lock(every: Nanos) -> Option<Sections> {
    Some(Sections { every, held: 200 })
}

const fn stage(name: &'static str, many: bool, does: &'static str, queue: u32) -> Stage {
    Stage {
        name,
        many,
        does,
        queue,
    }
}

pub(super) const ALL: &[Preset] = &[
    apart(
        "blackscholes",
        "Option prices. Each thread has its part of 10 M options and goes over it 100 times (NUM_RUNS) \
         without meeting the others. Counted (above): 31 ns for the 28 bytes of an option, as many with 10 M \
         as with 10,000, which fit into the cache: 28 / 64 / 0.031 = 14 lines/us of 10 M x 28 bytes, none of which \
         is waited for.",
        mib(267, 14).mixed(60, 10, 30),
    ),
    Preset::new(
        "bodytrack",
        "Body tracking by a particle filter, stages shared out by a pool of threads, which the main thread \
         waits for. Counted (above) with native's 4000 particles and 5 layers, on the images of one frame \
         again and again: in a frame 12 image stages of 1.05 ms of all threads together, then five times \
         new particles, 2.5 ms, and their weights, 39 ms (two stages); the main thread alone works 9.5 \
         ms between frames, 0.68 ms before each new-particles stage and 20 to 30 us after the others: 13 \
         of a frame's 245 ms. Threads meet three times in a stage (workers before and after it, and with the \
         main thread at its end) and wait for its start. Work goes in tickets, a lock for each: one in 34 \
         us (16 us in image stages, 20 for new particles, 39 for four weights: assumed from that). Built with \
         -O1. 8 MB of images.",
        Shape::Own(|vcpus| vcpus.saturating_add(1), bodytrack),
    ),
    team(
        "canneal",
        "Routing by simulated annealing, without locks; a barrier per temperature. 15,000 swaps per \
         temperature, counted (above) on a netlist of 2.5 M elements, native's number, with five inputs each \
         (assumed): 23 ms. Netlist: 256 MB for 400,000 elements, so 1.6 GB for native's; a swap is of two \
         elements with some five neighbours in and out, 20 lines in 1.5 us = 13 lines/us.",
        23 * MS,
        10,
        UNLOCKED,
        mib(1600, 13),
        "temperatures",
    ),
    Preset::new(
        "dedup",
        "Compression by deduplication: a pipeline of one thread that cuts coarsely, three stages of \
         a thread per vCPU each (refine, deduplicate, compress) and one that writes in order; chunks \
         go in groups of 20 (CHUNK_ANCHOR_PER_FETCH), 4 KiB each on average (RabinMask 0xfff) = 80 KiB. \
         Counted (above) on 141 MB of compressed files, as the packages of native's image are, of \
         which hardly anything is a duplicate and gzip saves nothing: in a group 8 us to cut, 0.19 ms to refine, \
         20 chunks of 5.8 us to look for, each of which takes a lock of the hash table, 1.2 ms of gzip, and 0.14 ms to \
         write, of which 0.12 are a copy to the page cache. gzip asks for its state anew for each chunk, and \
         gives it back: with 16 threads (-c -p -t 16, glibc 2.36), a group makes 36 calls of \
         madvise(MADV_DONTNEED), each of which takes pages away, and the TLBs of all vCPUs that run its \
         threads with them, and from 110 to 360 page faults, of 0.5 us each (assumed: 4 KiB to clear at 10 GB/s, and the \
         exception): 0.1 ms. Its 6 of mprotect make arenas larger, where no page is yet, and flush nothing \
         (mm/mprotect.c: only if entries were modified). That they keep page faults waiting (mmap_sem) is left \
         out. Queues hold 64 groups, so that all stages run together (assumed; PARSEC's \
         own hold the whole input).",
        Shape::Pipeline(&[
            stage("cut", false, "compute 8us ±20%", 64),
            stage("refine", true, "memory 2MB 10/us; compute 190us ±20%", 64),
            stage(
                "deduplicate",
                true,
                "memory 64MB 10/us; loop 20 { compute 5600ns ±20%; mutex table { compute 200ns } }",
                64,
            ),
            stage(
                "compress",
                true,
                "memory 512KB 5/us; loop 36 { compute 36us ±30%; shootdown }",
                64,
            ),
            stage("reorder", false, "compute 140us ±20%; count groups", 64),
        ]),
    ),
    team(
        "facesim",
        "A face's muscles: a task queue in phases. A frame is 29.9 G instructions = 11.5 s with 3137 \
         condition waits / 8 threads = 392 phases of 29 ms; its 14,541 locks are 2.06 M instructions \
         or 790 us apart. Mesh: 256 MB.",
        29 * MS,
        20,
        one_lock(790 * US),
        mib(256, 15),
        "phases",
    ),
    Preset::new(
        "ferret",
        "Image search: a pipeline of six stages with queues of 20, the four in the middle with a \
         thread per vCPU each. A query is 23.97 G / 256 = 94 M instructions = 36 ms, of which ranking \
         takes some 80 % and indexing 16 % (assumed; that stages differ a lot is what Navarro et al., \
         PACT 2009, start from). Database: 64 MB.",
        Shape::Pipeline(&[
            stage("load", false, "compute 200us ±20%", 20),
            stage("segment", true, "compute 1300us ±30%", 20),
            stage("extract", true, "compute 100us ±30%", 20),
            stage("index", true, "memory 64MB 10/us; compute 6ms ±30%", 20),
            stage("rank", true, "memory 64MB 10/us; compute 28ms ±30%", 20),
            stage("out", false, "compute 50us ±20%; count queries", 20),
        ]),
    ),
    Preset::new(
        "fluidanimate",
        "Fluid dynamics; ten barriers per frame (AdvanceFrameMT), PARSEC's own, which spins for up to 0.1 ms \
         (pthreads.cpp includes parsec_barrier.hpp, which takes the place of pthreads'). Counted (above) with \
         499,554 particles, made of in_15K's by 33 shifted copies (native: 500,000): 720 ms of all \
         threads in a frame, two phases of which are 85 %. Its locks, of cells, one per 0.16 us, \
         were waited for nine times and are left out. Particles: 64 MB for 300,000, so 107 MB.",
        Shape::Rounds(Rounds {
            phases: &[
                shared(0, 0).ending(PARSEC),
                shared(17 * MS, 20).ending(PARSEC),
                shared(37 * MS, 10).ending(PARSEC),
                shared(8_300 * US, 20).ending(PARSEC),
                shared(295 * MS, 7).ending(PARSEC),
                shared(8_500 * US, 20).ending(PARSEC),
                shared(308 * MS, 7).ending(PARSEC),
                shared(15 * MS, 10).ending(PARSEC),
                shared(14 * MS, 12).ending(PARSEC),
                shared(11 * MS, 14).ending(PARSEC),
            ],
            cache: mib(107, 8),
            unit: "",
        }),
    ),
    apart(
        "freqmine",
        "Frequent item sets by FP-growth: OpenMP loops of a few minutes in all, which threads take \
         item by item (schedule(dynamic,1)), so that they wait for each other only at the few ends of \
         loops, which are left out. FP-tree: 128 MB.",
        mib(128, 6),
    ),
    team(
        "raytrace",
        "Ray tracing (PARSEC's; SPLASH's is `splash-raytrace`). Threads take tiles from an atomic \
         counter and meet at the end of each frame: 1920 x 1080 rays, counted (above) on a torus of 10.0 M triangles \
         (native's statue has 10 M): 3.1 s.",
        3100 * MS,
        3,
        UNLOCKED,
        mib(500, 10),
        "",
    ),
    Preset::new(
        "streamcluster",
        "Clustering of a stream: nearly all the time goes into pgain(), which has nine barriers. Its \
         loop over 200,000 points x 128 dimensions takes five instructions each (dist(): load, load, \
         subtract, multiply, add): 128 M or 49 ms of all threads; two scans of all points of 4 \
         instructions = 0.3 ms and one to reassign them; between them the first thread adds up what \
         the others found (10 us, assumed). The same count gives 16,384 x 128 x 5 / 9 = 1.2 M \
         instructions per barrier for simlarge (as `sync` has it). The barrier is PARSEC's \
         own (`parsec_barrier.cpp`): a condition variable behind 35,000 looks at a flag, 0.1 ms by its \
         comment (SPIN_COUNTER_MAX). ±10 % is assumed. Points: 200,000 x 512 bytes.",
        Shape::Own(|vcpus| vcpus, streamcluster),
    ),
    apart(
        "swaptions",
        "Swaption prices by Monte Carlo: each thread has its swaptions and a million trials for each, counted \
         (above): 0.67 us a trial; nothing is shared. 512 KB (assumed).",
        kib(512, 2),
    ),
    Preset::new(
        "vips",
        "Image processing on demand, vips 7.22.1: threads take tiles of 64 x 64 pixels themselves \
         (threadpool.c). Counted (above) on an image as wide as native's, of 17,920 x 4,608 pixels: 0.56 \
         ms a tile, 1.1 page faults in it. A tile takes `allocate_lock`, which all share, in it and at its \
         end that of the buffer's semaphore `nwrite`; it ends with a post for the main thread, which waits for it \
         (`tick`) and has next to nothing to do (1 us, assumed). 0.43 madvise(MADV_DONTNEED) a tile, by \
         which free() trims its arena, flush the TLBs: here one in two tiles. A buffer of 530 tiles is \
         written, 6.5 MB, by a thread of its own while the next is filled: 7 ms of a copy to the page cache \
         (assumed: 1 GB/s). The 0.95 GB of a run stay below what Linux lets 16 GB of memory be dirty before it \
         writes any of it (vm.dirty_background_ratio, 10 %), and go to the disk at the end. How long locks are held \
         (300 and 100 ns) is assumed.",
        Shape::Own(|vcpus| vcpus.saturating_add(2), vips),
    ),
    Preset::new(
        "parsec-x264",
        "Video encoding with the frame threads of [x264](#x264), 1.5 per CPU, all frames alike: PARSEC's \
         x264 is older than July 2009, when B-frames became x264's default, and its arguments name none. \
         Not modelled otherwise: frames are those of the other's clip, 704x576 (eledream: 1920x1080), in \
         groups of four that refer to one, which is 4 rows ahead as for six threads. A row takes 1540 us, \
         deciding on types a tenth (assumed).",
        Shape::Own(|vcpus| vcpus.saturating_mul(3).div_ceil(2), x264::parsec),
    ),
];

/// A pool and the main thread, which does all the work alone if there are no other threads.
fn bodytrack(threads: u32) -> Vec<(String, String)> {
    let pool = threads.saturating_sub(1);
    // A worker's share of a stage of so many tickets of so many us.
    let share = |tickets: u32, us: u64| {
        let workers = u64::from(pool.max(1));
        let all = u64::from(tickets) * us * US;
        let times = u64::from(tickets).div_ceil(workers);
        let each = all / workers / times;
        format!("loop {times} {{ compute {each}ns ±20%; mutex tickets {{ compute 200ns }} }}")
    };
    let (image, new, weights) = (share(64, 16), share(125, 20), share(1000, 39));
    // One worker meets only the main thread.
    let (begin, end) = match pool {
        0 | 1 => ("", ""),
        _ => ("barrier init; ", "barrier done; "),
    };
    let main = |image: &str, new: &str, weights: &str| {
        format!(
            "loop {{ compute 9500us ±10%; \
             loop 12 {{ {image}; compute 30us ±50%; count stages }}; \
             loop 5 {{ compute 680us ±10%; {new}; compute 20us; count stages; {weights}; count stages }} }}"
        )
    };
    if pool == 0 {
        let text = format!("memory 8MB 5/us; {}", main(&image, &new, &weights));
        return vec![("main".to_string(), text)];
    }
    let stage = |work: &str| format!("barrier go; {begin}{work}; {end}barrier ready");
    let worker = format!(
        "{}loop {{ loop 12 {{ {} }}; loop 5 {{ {}; {} }} }}",
        mib(8, 5).text(pool),
        stage(&image),
        stage(&new),
        stage(&weights)
    );
    let waits = "barrier go; barrier ready";
    let workers = (0..pool).map(|i| (format!("worker{i}"), worker.clone()));
    std::iter::once(("main".to_string(), main(waits, waits, waits)))
        .chain(workers)
        .collect()
}

/// Threads for tiles, two tiles a round, one thread that counts them and one that writes.
fn vips(threads: u32) -> Vec<(String, String)> {
    // `tick` has room for a buffer and the one before it: until that is full no thread waits for
    // the main thread.
    let tiles = "memory 1MB 5/us; queue tick 1060; loop { \
         mutex allocate { compute 200ns; mutex nwrite { compute 100ns } }; compute 560us ±10%; \
         mutex nwrite { compute 100ns }; send tick; \
         mutex allocate { compute 200ns; mutex nwrite { compute 100ns } }; compute 280us ±10%; shootdown; \
         compute 280us ±10%; mutex nwrite { compute 100ns }; send tick }";
    let main = "queue go 1; loop { loop 530 { recv tick; compute 1us; count tiles }; send go }";
    let writer = "loop { recv go; compute 7ms }";
    let single = [("main", main), ("writer", writer)];
    let single = single.map(|(name, text)| (name.to_string(), text.to_string()));
    let tiles = |i| (format!("tile{i}"), tiles.to_string());
    (0..threads.saturating_sub(2).max(1))
        .map(tiles)
        .chain(single)
        .collect()
}

/// pgain(), candidate by candidate.
fn streamcluster(threads: u32) -> Vec<(String, String)> {
    const ALL: Cache = mib(98, 10);
    let share = |us: u64| format!("compute {}ns ±10%", us * US / u64::from(threads));
    let (scan, gain) = (share(300), share(49_000));
    let worker = |i: u32| {
        // A single thread has no other to wait for.
        let meet = if threads == 1 {
            ""
        } else {
            "condition-barrier gain 100us; "
        };
        let (sum, count) = match i {
            0 => ("compute 10us; ", "count candidates"),
            _ => ("", ""),
        };
        let text = format!(
            "{}loop {{ {meet}{scan}; {meet}{sum}{meet}{scan}; {meet}{sum}{meet}{gain}; \
             {meet}{sum}{meet}{scan}; {meet}{meet}{count} }}",
            ALL.text(threads)
        );
        (format!("worker{i}"), text)
    };
    (0..threads).map(worker).collect()
}
