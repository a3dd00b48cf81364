// SPDX-License-Identifier: GPL-2.0-only
//! SPLASH-2 with PARSEC's inputs (SPLASH2X).

use super::shapes::{Cache, Phase, Rounds, Shape, alone, mib, shared};
use super::{Preset, ocean, radiosity};
use corun_model::time::{MS, SEC, US};

pub(super) const ABOUT: &str = "SPLASH-2 as PARSEC 3.0 has it (SPLASH2X) on its native inputs (`run.sh`), a \
    thread per vCPU. Where a text says \"counted\", the program was run, with 16 threads, built by gcc 12 -O2, on an \
    Intel Xeon of 2023, `fft` and `radix` on one core of an AMD EPYC of 2022 (Zen 4) that others used, too (again: up \
    to a fifth longer or shorter). Lengths are CPU time there, taken as they are, and shares differ as they did; for \
    page faults of these two 0.5 us is assumed (4 KiB to clear at 10 GB/s, and the exception), since there they cost \
    the host of a VM, too. \
    Locks are held for 200 ns (a few lines from other cores, 80 ns each; assumed). Lines per us are reckoned from arrays \
    gone through for `fft` and `radix` and assumed elsewhere. `ocean_cp`, `ocean_ncp` and `radiosity` \
    were counted built for one process. PARSEC builds them with \
    `parmacs.pthreads.c.m4`: BARRIER, LOCK and WAITPAUSE are mutexes and condition variables, which \
    block at once; condition variables are those of glibc up to 2.24 (Ubuntu 16.04's, which the \
    papers' guests run, is 2.23), where who is blocked is woken by the one woken before. `fft`, \
    `lu_cb`, `lu_ncb`, `ocean_cp`, `ocean_ncp`, `radix`, `splash-raytrace`, `water_nsquared` and \
    `water_spatial` wait by nothing else. The others also look at a volatile variable until another \
    thread has changed it, for as long as that takes: `spin-barrier flags`. Where in a round they do \
    so is from their sources; that all wait for all there is assumed.";

/// Rounds of phases.
const fn rounds(
    name: &'static str,
    about: &'static str,
    phases: &'static [Phase],
    cache: Cache,
    unit: &'static str,
) -> Preset {
    let rounds = Rounds {
        phases,
        cache,
        unit,
    };
    Preset::new(name, about, Shape::Rounds(rounds))
}

/// Waiting for flags that other threads set.
const FLAGS: &str = "spin-barrier flags";

/// The same just before a barrier.
const FLAGS_BARRIER: &str = "spin-barrier flags; condition-barrier phase";

pub(super) const ALL: &[Preset] = &[
    rounds(
        "barnes",
        "N bodies in an octree, native's 4,194,304, counted (above): in a time step the tree is made (1.8 s \
         of all threads), cells are summed up (0.4 s) and forces found (19 s), with a barrier after each (code.C: \
         stepsystem(), load.C: maketree()). So a barrier is met hardly ever in a run of seconds. While \
         cells are summed up (hackcofm()), who does so looks at `done` of those below until they are ready. \
         Locks of cells, one per 0.4 us while the tree is made and none elsewhere, are left out. 1 GB \
         (assumed).",
        &[
            shared(1_800 * MS, 15),
            shared(400 * MS, 20).ending(FLAGS_BARRIER),
            shared(19 * SEC, 5),
            shared(20 * US, 20),
        ],
        mib(1024, 3),
        "",
    ),
    rounds(
        "cholesky",
        "Sparse factorisation of native's tk29 from task queues, counted (above): 58 ms for one thread, which \
         reads and analyses it before there are others, then 79 ms for all together, between four barriers; the \
         program begins anew then (assumed). A thread whose queue is empty looks at it until a task is there \
         (mf.C: GetBlock()): 827 times, for who has one to give; here ten times all for all (assumed). \
         Locks, one per 2.1 us, half of them of a thread's own memory, are left out. Some 40 MB (assumed).",
        &[
            alone(58 * MS, 0),
            shared(6_600 * US, 10),
            shared(7_170 * US, 20).ending(FLAGS).times(10),
            shared(0, 0),
            shared(90 * US, 20),
            shared(0, 0),
        ],
        mib(40, 10),
        "",
    ),
    rounds(
        "fft",
        "FFT in six steps, native's 2^28 points (-m28), counted (above): between its seven barriers (fft.c) \
         roots of unity are copied (11 ms of all threads), rows are transposed, transformed and multiplied by \
         roots (8.4 s and 1 M page faults), transposed and transformed (7.4 s) and \
         transposed back (1.42 s). A transpose is as long in each, and transforming rows that lie in the L2 \
         cache 3.4 s: so 55 % of the cycles of the first two are misses, and nearly all of the third; the rest \
         is two parts work, one of waiting for units (assumed). Three arrays of 2^28 x 16 bytes = 67 M lines; four \
         times so many are gone through in the first of these phases, three in the second and two in the third. One \
         thread fills the arrays before there are others, which is left out.",
        &[
            shared(0, 0),
            shared(11 * MS, 5).on(mib(12_288, 29).mixed(30, 55, 15)),
            shared(0, 0),
            shared(8_900 * MS, 5),
            shared(7_400 * MS, 2).on(mib(12_288, 27).mixed(30, 55, 15)),
            shared(1_420 * MS, 3).on(mib(12_288, 93).mixed(5, 90, 5)),
            shared(0, 0),
        ],
        mib(12_288, 29).mixed(30, 55, 15),
        "",
    ),
    rounds(
        "fmm",
        "N bodies by multipoles: phases of a time step counted (above) with 1,048,576 bodies, times four \
         for native's 4,194,304: 1 s for each of 16 threads, so that a run of seconds sees few of its six \
         barriers (construct_grid.C, cost_zones.C, fmm.C). Threads look at `interaction_synch` of a box \
         until those below have been added up (interactions.C: UpwardPass(), VListInteraction(), \
         WListInteraction(); cost_zones.C: ComputeSubTreeCosts()) and of its parent on the way down \
         (DownwardPass()). Locks of boxes, one per 8.4 us, are left out. 1 GB (assumed).",
        &[
            shared(660 * MS, 15),
            shared(48 * MS, 35),
            shared(10_600 * MS, 3).ending(FLAGS_BARRIER),
            shared(3_200 * MS, 8).ending(FLAGS_BARRIER),
            shared(640 * MS, 20),
            shared(240 * MS, 20).ending(FLAGS_BARRIER),
        ],
        mib(1024, 3),
        "",
    ),
    rounds(
        "lu_cb",
        "Dense LU, contiguous blocks: counted (above) for n = 4096, where a step is 69 ms of all threads on \
         average, less and less, and 2 ms for blocks of its row and column, which come first; native's n = \
         8096 has 253 steps of four times that. All steps are the mean here. 8096^2 x 8 bytes; blocks stay in the L2 cache.",
        &[shared(8 * MS, 10), shared(270 * MS, 7)],
        mib(500, 2),
        "",
    ),
    rounds(
        "lu_ncb",
        "Dense LU, blocks not contiguous: as `lu_cb`, but lines are fetched anew for each block (8 \
         lines/us, assumed); counted, it takes 1.6 times as long.",
        &[shared(13 * MS, 10), shared(430 * MS, 7)],
        mib(500, 8),
        "",
    ),
    Preset::new(
        "ocean_cp",
        "Ocean currents by multigrid, contiguous partitions. Measured on its native input (-n4098 -e1e-07 \
         -r10000 -t14400, the macros expanded for one process, with as many grids as for 16; one core): \
         7106 barriers in 62 s of CPU time, in 123 ways from the grid of 4096 points a side down \
         to the one of 512 and back. On such a way the grids are relaxed 3.35, 4.4, 3.88 and 1.85 times (here 3, \
         4, 4 and 2), the red or the black points of each in 34.6, 7.0, 1.15 and 0.31 ms; going to the next \
         coarser grid takes 27.6, 6.2 and 1.36 ms, going back 30.8, 7.7 and 1.06 ms, and there is one barrier \
         outside the solver, after 113 ms. Of all barriers 41 % have less than 10 us before them (multi.C: \
         the error is looked at, and reset), and 54 % less than 1 ms. 25 grids of 8 bytes. Lines per us are \
         assumed: a core that has the memory for itself goes through two arrays at 125 lines/us; sixteen do not.",
        Shape::Own(
            |vcpus| vcpus,
            |threads| ocean::threads(threads, mib(3200, 40), true),
        ),
    ),
    Preset::new(
        "ocean_ncp",
        "Ocean currents on two-dimensional arrays: as `ocean_cp`, but for the barrier before the residual is \
         taken, as partitions have no borders of their own to copy; they share lines at their edges (45 \
         lines/us, assumed).",
        Shape::Own(
            |vcpus| vcpus,
            |threads| ocean::threads(threads, mib(3200, 45), false),
        ),
    ),
    Preset::new(
        "radiosity",
        "Light in a room: tasks from queues of each thread's own, stolen when one is empty. Measured on its \
         native input (-bf 1.5e-4 -batch -largeroom, the macros expanded for one process, one core): ten \
         iterations of 18.2, 19.6, 3.1, 1.4, 0.72, 0.45, 0.35, 0.30, 0.29 and 0.29 s with 53 M locks, one in \
         0.85 us of work, of which 24.6 M are one for all, free_interaction_lock: one in 1.83 us. It is held for \
         100 ns (assumed: the line of the interaction comes from another core; the list's head comes with the \
         lock). The others, 27 M of 43,616 elements and 1 M of queues, are hardly ever waited for (assumed) and \
         left out. A thread that finds no task looks at the queues and at how many have found none, in turns, \
         until all have (taskman.C: process_tasks()), and only then comes to a barrier. That of the others while \
         one makes the first tasks (rad_main.C: radiosity()) is left out: it has no work of theirs.",
        Shape::Own(
            |vcpus| vcpus,
            |threads| radiosity::threads(threads, mib(4, 3)),
        ),
    ),
    rounds(
        "radix",
        "Radix sort of native's 2^28 keys of 8 bytes (radix.C: long), counted (above): threads make keys (22.3 s of \
         all threads), then in three passes (31 bits, 12 at a time) count them by digit (0.36, 0.33 and 0.15 s) and move \
         them (1.66, 1.67 and 0.68 s). What is between these two, sums over the threads, takes 1 ms; in it threads \
         also wait for each other in pairs, which is left out. Each of two arrays of 2 GiB = 34 M lines is filled \
         for the first time, with 0.5 M page faults. Keys that lie in the cache take two thirds \
         less time to move, and hardly less to make and to count.",
        &[
            shared(22_600 * MS, 1).on(mib(4096, 2).mixed(60, 10, 30)),
            shared(0, 0),
            shared(360 * MS, 5).on(mib(4096, 95).mixed(60, 10, 30)),
            shared(MS, 50),
            shared(400 * US, 20),
            shared(1_920 * MS, 3).on(mib(4096, 35).mixed(20, 70, 10)),
            shared(330 * MS, 3).on(mib(4096, 100).mixed(60, 10, 30)),
            shared(240 * US, 50),
            shared(160 * US, 20),
            shared(1_670 * MS, 2).on(mib(4096, 40).mixed(20, 70, 10)),
            shared(150 * MS, 3).on(mib(4096, 220).mixed(60, 10, 30)),
            shared(260 * US, 50),
            shared(200 * US, 20),
            shared(680 * MS, 4).on(mib(4096, 100).mixed(20, 70, 10)),
            shared(0, 0),
        ],
        mib(4096, 2).mixed(60, 10, 30),
        "",
    ),
    Preset::new(
        "splash-raytrace",
        "Ray tracing (SPLASH's; PARSEC's is `raytrace`), native's car.env: tiles from queues, and one lock \
         around the number of each new ray, counted (above): one per 0.7 us of a thread; held for 100 ns \
         (assumed: a counter whose line comes from another core). No barriers. 32 MB for car.env (assumed).",
        Shape::Alike(
            |vcpus| vcpus,
            "worker",
            "memory 32MB 5/us; loop { compute 700ns ±50%; mutex rays { compute 100ns } }",
        ),
    ),
    rounds(
        "volrend",
        "Volume rendering of native's head, counted (above): a frame is 0.8 ms of one thread alone, then \
         46 ms of all together. Five barriers (main.C, adaptive.C: Ray_Trace()). Threads look at `Counter` until \
         all have shaded (Ray_Trace(); 0.5 ms of the 46, assumed); and at `Queue` until all have found their \
         own queue empty, since others' tasks may be stolen until then (Ray_Trace_Non_Adaptively()), just \
         before a barrier: so shares hardly differ. Locks of task queues, one per 3.1 us, are hardly ever \
         waited for and left out. 4 MiB of the volume is seen from one side (assumed: half of 256 x 256 x \
         126 voxels of a byte).",
        &[
            alone(800 * US, 5),
            shared(40 * US, 20),
            shared(8 * US, 20),
            shared(500 * US, 10).ending("spin-barrier counter"),
            shared(45_500 * US, 2).ending(FLAGS_BARRIER),
            shared(12 * US, 20),
        ],
        mib(4, 5),
        "frames",
    ),
    rounds(
        "water_nsquared",
        "Water molecules, all pairs: native's 32,768, counted (above): a step is 35 s of all threads, \
         so that a run of seconds hardly ever meets a barrier; other phases are 8 ms or less. Locks of \
         molecules, one per 117 us, are left out. 32,768 molecules of 672 bytes.",
        &[
            shared(8 * MS, 10),
            shared(35 * SEC, 8),
            shared(5_500 * US, 35),
            shared(0, 0),
            shared(0, 0),
        ],
        mib(21, 2),
        "",
    ),
    rounds(
        "water_spatial",
        "Water molecules in cells: counted (above) with 125,000, times eight for native's 1,000,000: a step is \
         11.3 s of all threads, of which some have twice as much as others. A run of seconds hardly \
         ever meets a barrier. 1,000,000 molecules of 680 bytes and a grid.",
        &[
            shared(380 * MS, 40),
            shared(11_300 * MS, 33),
            shared(330 * MS, 35),
            shared(0, 0),
            shared(0, 0),
        ],
        mib(680, 2),
        "",
    ),
];
