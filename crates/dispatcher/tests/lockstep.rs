// SPDX-License-Identifier: GPL-2.0-only
//! Decisions recorded in a real kernel (Linux 7.2, KVM guests under balance, `make e2e`), made again
//! by the native build.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

use corun_dispatcher::lockstep::{Recording, replay};
use std::fs::File;
use std::path::Path;

/// Kinds from here on are decisions (`dispatcher/platform/tap.h`).
const FIRST_DECISION: u32 = 64;

fn recording() -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../experiments/recordings/balance.lockstep.gz");
    Recording::read(File::open(path).unwrap()).unwrap()
}

#[test]
fn the_native_build_decides_as_the_kernel_did() {
    let recording = recording();
    let outcome = replay(&recording);
    assert_eq!(outcome.divergences, []);
    assert_eq!(
        (outcome.diverged, outcome.skipped, recording.lost),
        (0, 0, Some(0))
    );
    assert!(
        outcome.callbacks > 3000 && outcome.decisions > 10_000,
        "{outcome:?}"
    );
    assert!(
        outcome
            .by_op
            .iter()
            .all(|&(name, count)| count > 0 || ["timer", "release", "yield"].contains(&name)),
        "{outcome:?}"
    );
}

/// The negative control: whatever decision the kernel had made otherwise would be noticed.
#[test]
fn a_single_other_decision_is_noticed() {
    let original = recording();
    for at in [10, 500, 2500] {
        let mut recording = original.clone();
        let decision =
            recording.records[at..]
                .iter_mut()
                .enumerate()
                .find_map(|(later, record)| {
                    let entry = record
                        .entries
                        .iter_mut()
                        .find(|entry| entry.kind >= FIRST_DECISION)?;
                    entry.value ^= 1;
                    Some(at + later)
                });
        let outcome = replay(&recording);
        assert!(outcome.diverged >= 1, "record {decision:?}");
        assert_eq!(Some(outcome.divergences[0].record), decision);
    }
}
