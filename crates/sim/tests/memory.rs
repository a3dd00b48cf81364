// SPDX-License-Identifier: GPL-2.0-only
//! Memory does not grow with simulated time: whatever a run keeps is of a size that its host and
//! guests set. Counted at the allocator, because resident memory also tells of the machine.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

use corun_sim::bench::{self, Case};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which also counts the bytes in use and their peak.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: as this function's caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as this function's caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Events of a run and the most bytes it used.
fn run(case: &Case, length: u64) -> (u64, usize) {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let events = case.lasting(length).run().unwrap().events;
    (events, PEAK.load(Ordering::Relaxed) - before)
}

/// One test: others beside it would be counted, too.
#[test]
fn memory_does_not_grow_with_simulated_time() {
    let mix = &bench::mixes()[0];
    for policy in ["cfs", "eevdf", "fair", "affinity", "balance"] {
        host_tasks(&mix.under(policy), policy);
    }
    let guests = bench::two_level().into_iter();
    // Ten times as many events as the others, and of the same kinds as in "one of each".
    for case in guests.filter(|case| !case.name.contains(": hackbench")) {
        vms(&case);
    }
}

/// Nobody meters the waits of host tasks: lists reach their length early.
fn host_tasks(case: &Case, policy: &str) {
    let (few, short) = run(case, case.length * 5);
    let (many, long) = run(case, case.length * 50);
    assert!(many > few * 7, "{policy}: {few} and {many} events");
    assert!(long < short + 64 * 1024, "{policy}: {short}, {long} bytes");
}

/// Meters of waits grow with the number of different times they have seen, up to a bound of their own
/// (`waits.rs`): each tenfold time adds some twice to three times as much as the one before, and in the end
/// nothing. What is kept per event would add ten times as much. The shortest run is longer than most waits,
/// or it would hardly have any.
fn vms(case: &Case) {
    let length = case.length / 5;
    let (_, short) = run(case, length);
    let (few, long) = run(case, length * 10);
    let (many, longest) = run(case, length * 100);
    let (name, bytes) = (&case.name, [short, long, longest]);
    assert!(many > few * 7, "{name}: {few} and {many} events");
    let as_before = 4 * long.saturating_sub(short) + 128 * 1024;
    assert!(longest < long + as_before, "{name}: {bytes:?} bytes");
    assert!(longest < 200 << 20, "{name}: {bytes:?} bytes");
}
