// SPDX-License-Identifier: GPL-2.0-only
//! Decisions recorded in a real kernel (Linux 7.2, KVM guests under balance, each kind of gang and vSMT-IO,
//! `make recordings`), made again by the native build.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

use corun_dispatcher::lockstep::{Record, Recording, replay};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Kinds from here on are decisions (`dispatcher/platform/tap.h`).
const FIRST_DECISION: u32 = 64;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/recordings")
}

fn recording(policy: &str) -> Recording {
    let path = directory().join(format!("{policy}.lockstep.gz"));
    Recording::read(File::open(path).unwrap()).unwrap()
}

/// The policies for which there is a recording, by the names of the files.
fn recorded() -> Vec<String> {
    let files = fs::read_dir(directory()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut policies: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(".lockstep.gz")?.to_owned()))
        .collect();
    policies.sort_unstable();
    assert!(policies.contains(&"balance".to_owned()), "{policies:?}");
    policies
}

#[test]
fn the_native_build_decides_as_the_kernel_did() {
    for policy in recorded() {
        let recording = recording(&policy);
        let outcome = replay(&recording);
        assert_eq!(outcome.divergences, [], "{policy}");
        assert_eq!(
            (outcome.diverged, outcome.skipped, recording.lost),
            (0, 0, Some(0)),
            "{policy}"
        );
        assert_eq!(recording.policies[0].1, policy);
        assert!(
            outcome.callbacks > 2000 && outcome.decisions > 8000,
            "{policy}: {outcome:?}"
        );
        assert!(
            outcome
                .by_op
                .iter()
                .all(|&(name, count)| count > 0 || ["timer", "release", "yield"].contains(&name)),
            "{policy}: {outcome:?}"
        );
    }
}

/// Changes the first decision of the records from place `at` on. Returns the place of the record that has it.
fn change_decision(records: &mut [Record], at: usize) -> Option<usize> {
    for (place, record) in records.iter_mut().enumerate().skip(at) {
        let mut entries = record.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.kind >= FIRST_DECISION) {
            entry.value ^= 1;
            return Some(place);
        }
    }
    None
}

/// The negative control: whatever decision the kernel had made otherwise would be noticed.
#[test]
fn a_single_other_decision_is_noticed() {
    for policy in recorded() {
        let original = recording(&policy);
        for at in [10, 500, 1500] {
            let mut recording = original.clone();
            let decision = change_decision(&mut recording.records, at);
            let outcome = replay(&recording);
            assert!(outcome.diverged >= 1, "{policy}: record {decision:?}");
            assert_eq!(Some(outcome.divergences[0].record), decision, "{policy}");
        }
    }
}
