// SPDX-License-Identifier: GPL-2.0-only
//! SPLASH-2 with PARSEC's inputs (SPLASH2X).

use super::shapes::{Cache, Flags, Meet, Sections, Shape, Team, kib, mib};
use super::{Preset, ocean, radiosity};
use corun_model::Nanos;
use corun_model::time::{MS, SEC, US};

pub(super) const ABOUT: &str = "SPLASH-2 as PARSEC 3.0 has it (SPLASH2X), a thread per vCPU. Work is \
    counted in instructions at one per cycle of 2.6 GHz. How many instructions, locks of all processors \
    and barriers of each a run of SPLASH-2's default problem has is assumed: orders of magnitude, \
    because only running them would tell; for `fft` and `lu_cb`, whose floating-point operations are \
    known (5 n log2 n and 2/3 n^3), they come to 6.6 and 5.5 instructions for each. Where PARSEC's \
    native input says by how much a problem is larger (`run.sh`), phases are scaled by it, otherwise \
    they are those of the default problem. `ocean_cp`, `ocean_ncp` and `radiosity` have those of the native \
    input, measured. Locks are held for 200 ns (a few lines from other cores, 80 \
    ns each); that, how much shares differ and lines per us are assumed. PARSEC builds them with \
    `parmacs.pthreads.c.m4`: BARRIER, LOCK and WAITPAUSE are mutexes and condition variables, which \
    block at once; condition variables are those of glibc up to 2.24 (Ubuntu 16.04's, which the \
    papers' guests run, is 2.23), where who is blocked is woken by the one woken before. `fft`, \
    `lu_cb`, `lu_ncb`, `ocean_cp`, `ocean_ncp`, `radix`, `splash-raytrace`, `water_nsquared` and \
    `water_spatial` wait by nothing else. The others also look at a volatile variable until another \
    thread has changed it, for as long as that takes: `spin-barrier flags`. Where in a round they do \
    so is from their sources; that all wait for all there, and that there is as much work between \
    any two waits, is assumed.";

/// What is known or assumed of a program.
#[derive(Clone, Copy)]
struct Facts {
    /// Work from one barrier to the next, all threads together; 0: it has none to speak of.
    phase: Nanos,
    /// By how much shares of it differ, percent.
    vary: u32,
    /// What one thread does alone after each.
    serial: Nanos,
    /// Work from one lock to the next; 0: it has none to speak of.
    lock: Nanos,
    /// How it meets.
    meet: Meet,
    cache: Cache,
    unit: &'static str,
}

const fn splash(name: &'static str, about: &'static str, facts: Facts) -> Preset {
    let sections = match facts.lock {
        0 => None,
        every => Some(Sections {
            every,
            held: 200,
            one: false,
        }),
    };
    let team = Team {
        work: facts.phase,
        vary: facts.vary,
        serial: facts.serial,
        meet: facts.meet,
        sections,
        cache: facts.cache,
        unit: facts.unit,
    };
    Preset::new(name, about, Shape::Team(team))
}

/// Phases that end at barriers and nothing else.
const fn phases(phase: Nanos, vary: u32, cache: Cache, unit: &'static str) -> Facts {
    Facts {
        phase,
        vary,
        serial: 0,
        lock: 0,
        meet: Meet::Condition,
        cache,
        unit,
    }
}

/// Of so many barriers of a round, so many are come to by flags; so many waits for flags besides.
const fn flags(barriers: u32, before_barriers: u32, within: u32) -> Meet {
    Meet::Flags(Flags {
        barriers,
        before_barriers,
        within,
    })
}

impl Facts {
    /// The same, with locks of parts of the work.
    const fn locking(mut self, every: Nanos) -> Self {
        self.lock = every;
        self
    }

    /// The same, meeting in another way.
    const fn meeting(mut self, meet: Meet) -> Self {
        self.meet = meet;
        self
    }

    /// The same, with work for one thread after each phase.
    const fn serial(mut self, time: Nanos) -> Self {
        self.serial = time;
        self
    }
}

pub(super) const ALL: &[Preset] = &[
    splash(
        "barnes",
        "N bodies in an octree. 2003 M / 8 barriers = 250 M instructions or 96 ms; 34,516 locks of \
         cells: 58,000 instructions or 22 us apart. Of a time step's four barriers (code.C: \
         stepsystem(), load.C: maketree()) one comes after hackcofm(), in which who sums up a cell looks at \
         `done` of those below until they are ready.",
        phases(96 * MS, 10, mib(4, 3), "phases")
            .locking(22 * US)
            .meeting(flags(4, 1, 0)),
    ),
    splash(
        "cholesky",
        "Sparse factorisation from task queues. 539 M / 3 barriers = 180 M instructions or 69 ms; \
         54,054 locks: 10,000 instructions or 3.8 us apart. tk29 fills some 40 MB (assumed). A thread whose \
         queue is empty looks at it until a task is there (mf.C: GetBlock()), at last the one that ends the \
         factorisation, which all are sent at once (fo.C: DiagReceived()); so nobody waits at a barrier. \
         Waits for tasks before that are left out.",
        phases(69 * MS, 20, mib(40, 10), "phases")
            .locking(3800)
            .meeting(flags(1, 1, 0)),
    ),
    splash(
        "fft",
        "FFT in six steps. 34.79 M instructions for 2^16 points: 33 for each of 16 levels; native's \
         2^28 points (-m28): 2^28 x 28 x 33 = 248 G, / 7 barriers (fft.c) = 35 G or 13.6 s. Three arrays of 2^28 x 16 \
         bytes, transposed in between.",
        phases(13_600 * MS, 5, mib(12_288, 25), ""),
    ),
    splash(
        "fmm",
        "N bodies by multipoles. 1250 M / 20 barriers = 62 M instructions or 24 ms; some 35,000 locks \
         of boxes: 36,000 instructions or 14 us apart. A time step has six barriers (construct_grid.C, \
         cost_zones.C, fmm.C). Threads look at `construct_synch` of a box until its parent has \
         its neighbours (construct_grid.C: SetColleagues()), and at `interaction_synch`: of a box until \
         those below have been added up (cost_zones.C: ComputeSubTreeCosts(), just before a barrier; \
         interactions.C: UpwardPass(), VListInteraction(), WListInteraction()), and of its parent on the way \
         down (DownwardPass()).",
        phases(24 * MS, 15, mib(8, 3), "phases")
            .locking(14 * US)
            .meeting(flags(6, 1, 3)),
    ),
    splash(
        "lu_cb",
        "Dense LU, contiguous blocks. 494 M instructions for n = 512; native's n = 8096: x 15.8^3 = \
         1.95 T or 751 s, in 8096 / 32 = 253 steps of 3 s on average; before each, one thread factors \
         the diagonal block, 32^3 x 2/3 flops x 5.5 instructions = 46 us. 8096^2 x 8 bytes; blocks \
         stay in the L2 cache.",
        phases(3 * SEC, 10, mib(500, 2), "").serial(46 * US),
    ),
    splash(
        "lu_ncb",
        "Dense LU, blocks not contiguous: as `lu_cb`, but lines are fetched anew for each block (8 \
         lines/us, assumed).",
        phases(3 * SEC, 10, mib(500, 8), "").serial(46 * US),
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
    splash(
        "radix",
        "Radix sort. 51 M instructions for 2^20 keys in two passes = 25 per key and pass; native's \
         2^28 keys in three passes (31 bits, 12 at a time): 20 G or 7.7 s, in nine phases (assumed: \
         three per pass) of 0.86 s. A key of 4 bytes is read twice and written once each 9.6 ns: 3 x 4 \
         / 64 / 0.0096 = 20 lines/us of two arrays of 1 GB.",
        phases(860 * MS, 5, mib(2048, 20), ""),
    ),
    Preset::new(
        "splash-raytrace",
        "Ray tracing (SPLASH's; PARSEC's is `raytrace`): tiles from queues, and one lock around the \
         number of each new ray. 829 M / 94,471 locks = 8,800 instructions or 3.4 us from one to the \
         next; held for 100 ns (assumed: a counter whose line comes from another core). No barriers. \
         32 MB for car.env (assumed).",
        Shape::Team(Team {
            work: 340 * US,
            vary: 50,
            serial: 0,
            meet: Meet::Never,
            sections: Some(Sections {
                every: 3400,
                held: 100,
                one: true,
            }),
            cache: mib(32, 5),
            unit: "",
        }),
    ),
    splash(
        "volrend",
        "Volume rendering. 755 M / 15 barriers = 50 M instructions or 19 ms; some 29,000 locks of \
         task queues: 26,000 instructions or 10 us apart. 4 MiB of \
         the volume is seen from one side (assumed: half of 256 x 256 x 126 voxels of a byte). A frame has \
         five barriers (main.C, adaptive.C: Ray_Trace()). Threads look at `Counter` until all have shaded \
         (Ray_Trace()); and at `Queue` until all have found their own queue empty, since others' tasks may \
         be stolen until then (Ray_Trace_Non_Adaptively()), just before a barrier.",
        phases(19 * MS, 15, mib(4, 5), "phases")
            .locking(10 * US)
            .meeting(flags(5, 1, 1)),
    ),
    splash(
        "water_nsquared",
        "Water molecules, all pairs. 460 M / 10 barriers = 46 M instructions or 18 ms; 17,728 locks \
         of molecules: 26,000 instructions or 10 us apart. 512 molecules of 672 bytes.",
        phases(18 * MS, 5, kib(336, 2), "phases").locking(10 * US),
    ),
    splash(
        "water_spatial",
        "Water molecules in cells. 435 M / 10 barriers = 44 M instructions or 17 ms; its 353 locks \
         are too few to matter and left out. 512 molecules of 680 bytes and a grid.",
        phases(17 * MS, 5, kib(400, 2), "phases"),
    ),
];
