// SPDX-License-Identifier: GPL-2.0-only
//! SPLASH-2's Radiosity: iterations that become shorter as the solution converges, and one lock that all
//! threads take for each interaction that they make or give back (`elemman.C`: get_interaction(),
//! free_interaction()).

use super::shapes::{Cache, compute};
use corun_model::Nanos;
use corun_model::time::MS;

/// Work of all threads in each iteration of a run.
const ITERATIONS: [Nanos; 10] = [
    18_200 * MS,
    19_600 * MS,
    3100 * MS,
    1400 * MS,
    720 * MS,
    450 * MS,
    350 * MS,
    300 * MS,
    290 * MS,
    290 * MS,
];
/// Work of a thread from one interaction to the next.
const EVERY: Nanos = 1830;
/// By how much that differs, percent (assumed).
const VARY: u32 = 10;
/// How long the lock is held.
const HELD: Nanos = 100;

/// All threads on this working set.
pub(super) fn threads(threads: u32, cache: Cache) -> Vec<(String, String)> {
    let iterations: Vec<String> = ITERATIONS
        .iter()
        .map(|work| iteration(*work, threads))
        .collect();
    let text = format!(
        "{}loop {{ {} }}",
        cache.text(threads),
        iterations.join("; ")
    );
    (0..threads)
        .map(|i| (format!("worker{i}"), text.clone()))
        .collect()
}

/// One thread's share of an iteration; at its end all look for tasks until none is left.
fn iteration(work: Nanos, threads: u32) -> String {
    let interactions = work / u64::from(threads) / EVERY;
    let (between, held) = (compute(EVERY, VARY), compute(HELD, 0));
    // A single thread has no other to wait for.
    let meet = if threads == 1 {
        ""
    } else {
        "; spin-barrier flags"
    };
    format!("loop {interactions} {{ {between}; mutex interactions {{ {held} }} }}{meet}")
}

#[cfg(test)]
mod tests {
    use super::super::shapes::mib;
    use super::*;

    #[test]
    fn an_iteration_is_shared_out_and_ends_when_nobody_has_tasks() {
        let text = iteration(18_200 * MS, 16);
        assert_eq!(
            text,
            "loop 621584 { compute 1830ns ±10%; mutex interactions { compute 100ns } }; spin-barrier flags"
        );
    }

    #[test]
    fn one_thread_waits_for_nobody() {
        assert!(!threads(1, mib(4, 3))[0].1.contains("barrier"));
    }
}
