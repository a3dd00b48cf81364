// SPDX-License-Identifier: GPL-2.0-only
//! SPEC CPU2006, the integer programs of the AQL paper: a copy per vCPU, no synchronisation.

use super::Preset;
use super::shapes::{Cache, Shape, kib, mib};

pub(super) const ABOUT: &str = "One copy per vCPU (SPEC's rate runs); the working sets given are \
    those of a copy. Copies only compute, so what tells them apart is what they do to caches: the \
    size at which misses fall off, and lines per us = misses of a 256 KiB cache per 1000 instructions, \
    times instructions per ns. All three are assumed, orders of magnitude within the class that the \
    AQL paper's table 3 finds for each program on its host (table 2: 256 KiB of L2, 8 MiB of last-level \
    cache): the last-level cache's friends (LLCF: astar, xalancbmk, bzip2, gcc, omnetpp) work on \
    several MiB, those of lower caches (LoLCF: hmmer, gobmk, perlbench, sjeng, h264ref) on less than \
    the L2 cache, and what overflows all (LLCO: mcf, libquantum) on more than the last-level cache; \
    who waits for memory executes an instruction per ns or less, who does not two or three.";

/// Copies of a program that touches `cache` each.
const fn copies(name: &'static str, about: &'static str, cache: Cache) -> Preset {
    Preset::new(name, about, Shape::Copies(cache))
}

pub(super) const ALL: &[Preset] = &[
    copies(
        "astar",
        "Path finding. 4 MiB; 15 misses / 1000 instructions x 1.3 per ns = 20 lines/us.",
        mib(4, 20),
    ),
    copies(
        "xalancbmk",
        "XSLT. 4 MiB; 20 misses / 1000 instructions x 1.2 per ns = 24 lines/us.",
        mib(4, 24),
    ),
    copies(
        "spec-bzip2",
        "SPEC's bzip2 (the balance paper's own is `bzip2`). 2.5 MiB; 6 misses / 1000 instructions x 2 per \
         ns = 12 lines/us. Counted with cachegrind, bzip2 1.0.8 at the levels 5, 7 and 9 of SPEC's runs, there and back: \
         5 (binaries) and 8 (text) misses of 256 KiB per 1000 instructions, of which of a last-level cache of 1, 2, 3, 4 and 8 MB \
         44, 20, 10, 5 and 1 % are misses, too. Evenly used, 2.5 MiB have a fifth at 2 MB, the part of four on 8 MB.",
        kib(2560, 12),
    ),
    copies(
        "gcc",
        "The compiler. 4 MiB; 10 misses / 1000 instructions x 1.5 per ns = 15 lines/us.",
        mib(4, 15),
    ),
    copies(
        "omnetpp",
        "Network simulation on a heap of events. 8 MiB; 20 misses / 1000 instructions x 1 per ns = \
         20 lines/us.",
        mib(8, 20),
    ),
    copies(
        "hmmer",
        "Protein search. 64 KiB tables; 2 misses / 1000 instructions x 3 per ns = 6 lines/us.",
        kib(64, 6),
    ),
    copies(
        "gobmk",
        "Go. 128 KiB; 2 misses / 1000 instructions x 1.8 per ns = 4 lines/us.",
        kib(128, 4),
    ),
    copies(
        "perlbench",
        "Perl. 128 KiB; 2 misses / 1000 instructions x 2.5 per ns = 5 lines/us.",
        kib(128, 5),
    ),
    copies(
        "sjeng",
        "Chess: 128 KiB besides a hash table that is looked into rarely; 1 miss / 1000 instructions \
         x 2 per ns = 2 lines/us.",
        kib(128, 2),
    ),
    copies(
        "h264ref",
        "Video encoding. 128 KiB around the macroblock; 1 miss / 1000 instructions x 3 per ns = 3 \
         lines/us.",
        kib(128, 3),
    ),
    copies(
        "mcf",
        "Network simplex on pointers: hundreds of MB (860 MB, assumed); 60 misses / \
         1000 instructions x 0.5 per ns = 30 lines/us.",
        mib(860, 30),
    ),
    copies(
        "libquantum",
        "Quantum simulation: streams through one array of 32 MiB; 25 misses / 1000 instructions x \
         1.6 per ns = 40 lines/us.",
        mib(32, 40),
    ),
];
