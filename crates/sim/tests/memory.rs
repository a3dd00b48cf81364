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
fn ten_times_as_long_needs_no_more_memory() {
    let mut cases = [bench::mixes(), bench::two_level(), bench::sweep()].concat();
    cases.retain(|case| {
        ![", seed 2", ", seed 3", ", seed 4"]
            .iter()
            .any(|end| case.name.ends_with(end))
    });
    for case in cases {
        let length = case.length / 20;
        let ((few, short), (many, long)) = (run(&case, length), run(&case, length * 10));
        assert!(many > few * 5, "{}: {few} and {many} events", case.name);
        // Lists grow to the longest they have been, meters with the range of times they have seen:
        // both come to an end. A byte for every second event would not.
        let slack = (many - few) as usize / 2 + 64 * 1024;
        assert!(
            long < short + slack,
            "{}: {short} and {long} bytes",
            case.name
        );
        assert!(long < 200 << 20, "{}: {long} bytes", case.name);
    }
}
