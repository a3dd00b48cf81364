// SPDX-License-Identifier: GPL-2.0-only
//! A lockstep recording, replayed through the dispatcher's C code: whatever the file says, the
//! replay ends and touches no memory that is not its own.

#![no_main]

use corun_dispatcher::lockstep::{Recording, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match Recording::read(data) {
    Ok(recording) => {
        let outcome = replay(&recording);
        assert!(outcome.callbacks + outcome.skipped <= recording.records.len() as u64);
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
