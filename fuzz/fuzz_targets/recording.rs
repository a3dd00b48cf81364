// SPDX-License-Identifier: GPL-2.0-only
//! A recording of a host, plain or gzip'ed: never a panic; what is read adds up.

#![no_main]

use corun_recording::read_bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let import = match read_bytes("f", data) {
        Ok(import) => import,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("f: ") || text.starts_with("f, "), "{text}");
            return;
        }
    };
    let recording = &import.recording;
    let duration = recording.duration();
    assert!(duration > 0);
    for pcpu in &recording.observed.pcpus {
        assert_eq!(pcpu.busy + pcpu.idle, duration);
    }
    for task in &recording.tasks {
        let seen = &task.observed;
        assert!(seen.run + seen.ready + seen.wait <= duration);
    }
    for note in &import.notes {
        assert!(!note.to_string().is_empty());
    }
});
