// SPDX-License-Identifier: GPL-2.0-only
//! No input may cause a panic, and none may be half-read in silence.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_recording::{Import, ImportError, Note, Recording, read_bytes};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use std::io::Read;
use std::sync::LazyLock;

const PACKED: &[u8] =
    include_bytes!("../../../experiments/recordings/kvm-2pcpu-compute-sync-io.ftrace.gz");

/// The beginning of a real recording, short enough to be read often.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    GzDecoder::new(PACKED)
        .take(300_000)
        .read_to_string(&mut text)
        .unwrap();
    let end = text.rfind('\n').unwrap();
    text.truncate(end + 1);
    text
});

/// Cut input must be refused or reported; run, ready and wait must still add up.
fn check(result: Result<Import, ImportError>, cut: bool) {
    let Ok(Import { recording, notes }) = result else {
        return;
    };
    let told = |n: &Note| matches!(n, Note::CutShort { .. } | Note::BrokenOff { .. });
    assert!(!cut || notes.iter().any(told), "{notes:?}");
    check_times(&recording);
}

fn check_times(recording: &Recording) {
    let duration = recording.duration();
    assert!(duration > 0);
    for pcpu in &recording.observed.pcpus {
        assert_eq!(pcpu.busy + pcpu.idle, duration);
    }
    for task in &recording.tasks {
        let o = &task.observed;
        assert!(o.run + o.ready + o.wait <= duration, "{}", task.tid);
        let work: u64 = task.bursts.iter().map(|b| b.work).sum();
        assert_eq!(work, o.run, "{}", task.tid);
    }
    let p = recording.observed.stacking_probability();
    assert!((0.0..=1.0).contains(&p));
}

/// The recording's lines with unique timestamps, so that their order is determined.
fn distinct_lines() -> Vec<String> {
    let mut last = String::new();
    let mut lines: Vec<String> = Vec::new();
    for line in TEXT.lines().filter(|l| !l.starts_with('#')) {
        let stamp = line
            .split_whitespace()
            .find(|w| w.ends_with(':') && w.contains('.'));
        if stamp.is_some_and(|s| s != last) {
            last = stamp.unwrap_or("").to_string();
            lines.push(line.to_string());
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        check(read_bytes("x", &bytes), false);
    }

    #[test]
    fn arbitrary_text(text in r"([a-z \[\]0-9.:=>#-]{0,60}\n){0,60}") {
        check(read_bytes("x", text.as_bytes()), false);
    }

    #[test]
    fn mangled_lines(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
    ) {
        let mut bytes = TEXT.as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check(read_bytes("x", &bytes), false);
    }

    #[test]
    fn missing_lines(drop in prop::collection::vec(any::<prop::sample::Index>(), 1..300)) {
        let mut lines: Vec<_> = TEXT.lines().collect();
        for at in drop {
            lines.remove(at.index(lines.len()));
        }
        let text = lines.join("\n") + "\n";
        check(read_bytes("x", text.as_bytes()), false);
    }

    #[test]
    fn shuffled_within_the_window(seed in any::<u64>(), block in 2usize..400) {
        let mut lines = distinct_lines();
        let sorted = read_bytes("x", (lines.join("\n") + "\n").as_bytes()).unwrap();
        let mut state = seed | 1;
        for chunk in lines.chunks_mut(block) {
            for i in (1..chunk.len()).rev() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                chunk.swap(i, (state >> 33) as usize % (i + 1));
            }
        }
        let shuffled = read_bytes("x", (lines.join("\n") + "\n").as_bytes()).unwrap();
        prop_assert_eq!(shuffled.recording, sorted.recording);
        let counted = shuffled.notes.iter().any(|n| matches!(n, Note::Reordered { .. }));
        prop_assert!(counted);
    }

    #[test]
    fn cut_anywhere(at in any::<prop::sample::Index>()) {
        let at = at.index(TEXT.len());
        let part = &TEXT.as_bytes()[..at];
        let cut = !part.is_empty() && !part.ends_with(b"\n");
        check(read_bytes("x", part), cut);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn packed_and_cut_anywhere(at in any::<prop::sample::Index>()) {
        check(read_bytes("x", &PACKED[..at.index(PACKED.len())]), true);
    }

    #[test]
    fn packed_and_damaged(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut packed = PACKED.to_vec();
        let at = at.index(packed.len());
        packed[at] = byte;
        check(read_bytes("x", &packed), false);
    }
}
