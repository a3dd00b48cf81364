// SPDX-License-Identifier: GPL-2.0-only
//! Programs made to show one behaviour only, and those that the AQL paper calibrates with.

use super::Preset;
use super::balance::COMPILER;
use super::shapes::Shape;

pub(super) const ABOUT: &str = "Programs that were made to be one thing only: what the AQL paper \
    (Teabe, Tchana and Hagimont, EuroSys 2016) calibrates quanta with, and meters of this \
    simulator. Working sets are those of its default host: an L2 cache of 256 KiB, a last-level \
    cache of 10 MiB for four cores.";

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "sync",
        "Short parallel phases between barriers that block, like PARSEC's streamcluster on its \
         simlarge input with 8 threads. Its pgain() goes over 16,384 points of 128 dimensions, five \
         instructions each, between nine barriers: 16,384 x 128 x 5 / 9 / 8 = 146,000 instructions or \
         56 us of each thread at 2.6 GHz and one instruction per cycle, and 65 us with its other scans \
         (assumed: a sixth more). ±20 % is assumed. However many threads: phases do not get shorter.",
        Shape::Own(|vcpus| vcpus, sync),
    ),
    Preset::new(
        "lockheavy",
        "One kernel spin lock that all threads want often: a meter for lock-holder preemption, no \
         benchmark. Held for 1 us (the balance paper's analytic model, §4.4), then 10 us ±50% \
         without it: at most a tenth of a thread's time is under the lock.",
        Shape::Alike(
            |vcpus| vcpus,
            "locker",
            "loop { compute 10us ±50%; lock shared { compute 1us }; count rounds }",
        ),
    ),
    Preset::new(
        "list-lolcf",
        "A linked list of 90 % of the L2 cache (AQL's LoLCF): 0.9 x 256 KiB. Each step waits for the \
         line before: an L2 hit of 12 cycles at 2.6 GHz, 4.6 ns or 217 lines/us.",
        Shape::Alike(
            |vcpus| vcpus,
            "list",
            "memory 230KB 217/us; mix 40/50/10; loop { compute 10ms }",
        ),
    ),
    Preset::new(
        "list-llcf",
        "A linked list of half the last-level cache (AQL's LLCF): 10 MiB / 2. Each step is a \
         last-level hit, 40 cycles at 2.6 GHz (the order of Intel's cores of the time) = 15 ns or 65 \
         lines/us. A thread unless told otherwise: two fill the cache.",
        Shape::Alike(
            |_| 1,
            "list",
            "memory 5MB 65/us; mix 20/70/10; loop { compute 10ms }",
        ),
    ),
    Preset::new(
        "list-llco",
        "A linked list larger than the last-level cache (AQL's LLCO): 2 x 10 MiB. Each step comes \
         from memory: 15 + 80 ns (`costs.memory`) or 11 lines/us.",
        Shape::Alike(
            |_| 1,
            "list",
            "memory 20MB 11/us; mix 5/90/5; loop { compute 10ms }",
        ),
    ),
    Preset::new(
        "kernbench",
        "Kernbench: make of Linux with as many jobs as vCPUs (AQL: 4 threads, concurrent spinning). \
         Its compilers are those of `compile`: locks of the guest's kernel.",
        Shape::Alike(|vcpus| vcpus, "job", COMPILER),
    ),
    Preset::new(
        "sysbench-cpu",
        "SysBench cpu: primes up to 10,000 (its default), tried out (sb_cpu.c): 117,526 divisions of 64 \
         bits, 22 cycles each (assumed: Intel's cores of the time) = 1 ms at 2.6 GHz. A thread per vCPU.",
        Shape::Alike(
            |vcpus| vcpus,
            "primes",
            "loop { compute 1ms; count events }",
        ),
    ),
];

fn sync(threads: u32) -> Vec<(String, String)> {
    let worker = |i: u32| {
        let barrier = if threads == 1 { "" } else { "; barrier phase" };
        let count = if i == 0 { "; count phases" } else { "" };
        let text = format!("loop {{ compute 65us ±20%{barrier}{count} }}");
        (format!("worker{i}"), text)
    };
    (0..threads).map(worker).collect()
}
