// SPDX-License-Identifier: GPL-2.0-only
//! x264's frame threads, as its encoder of 2009 starts and joins them (`x264_encoder_encode()`,
//! `x264_frame_cond_wait()`, `x264_lookahead_thread()`).
//!
//! Thread i encodes every n-th frame, in the order of encoding: a P-frame, then the B-frames that refer
//! to it. The rows that are done go through queues, one for each frame that refers to them; frames are
//! numbered up to where everything is as it was, types and threads.

use std::fmt::Write;

/// Rows of macroblocks in a frame of 576 lines.
const ROWS: u32 = 36;
/// How many rows a frame that is referred to must be ahead.
const AHEAD: u32 = 4;
/// A P-frame and the B-frames after it.
const GROUP: u32 = 4;
/// What it takes to look under a mutex how far another is (assumed: the order of a system call).
const CALL: &str = "compute 1us";

/// So many frame threads, the main thread and the lookahead's.
pub(super) fn threads(encoders: u32) -> Vec<(String, String)> {
    let encoders = encoders.max(1);
    let rounds = [1, 2, 4]
        .into_iter()
        .find(|n| (encoders * n).is_multiple_of(GROUP));
    let ring = encoders * rounds.unwrap_or(GROUP);
    let encoder = |n| (format!("encoder{n}"), encoder(n, encoders, ring));
    let mut all: Vec<_> = (0..encoders).map(encoder).collect();
    all.push(("x264".to_string(), main_thread(encoders, ring)));
    all.push(("lookahead".to_string(), lookahead()));
    all
}

/// The queue of rows of `from`, for `to`.
fn rows(from: u32, to: u32) -> String {
    format!("rows{from}for{to}")
}

/// The frames of one thread.
fn encoder(number: u32, encoders: u32, ring: u32) -> String {
    let frames = (number..ring).step_by(encoders as usize);
    let frames: Vec<_> = frames.map(|frame| encode(frame, number, ring)).collect();
    format!("memory 500KB 5/us; loop {{ {} }}", frames.join("; "))
}

/// A frame: every row waits for the one of the frame that it refers to.
fn encode(frame: u32, number: u32, ring: u32) -> String {
    let own = frame / GROUP * GROUP;
    let (refers_to, readers) = match frame == own {
        // The B-frames and the next P-frame refer to it.
        true => ((frame + ring - GROUP) % ring, GROUP),
        false => (own, 0),
    };
    let mut row = "compute 1540us ±30%".to_string();
    for n in 1..=readers {
        row += &format!("; send {}", rows(frame, (frame + n) % ring));
    }
    let needed = rows(refers_to, frame);
    let (edge, middle) = (AHEAD - 1, ROWS + 1 - AHEAD);
    format!(
        "recv start{number}; loop {edge} {{ recv {needed}; {CALL} }}; \
         loop {middle} {{ recv {needed}; {row} }}; loop {edge} {{ {row} }}; \
         send end{number}; count frames"
    )
}

/// Gives frames to the lookahead, starts them, and has the oldest one ended each time.
fn main_thread(encoders: u32, ring: u32) -> String {
    let mut text = format!("queue input {}; ", encoders + 6);
    for number in 0..encoders {
        let _ = write!(text, "queue start{number} 1; queue end{number} 1; ");
    }
    // A thread that refers to a frame takes all of its rows: those of two frames are the most there
    // are.
    for frame in (0..ring).step_by(GROUP as usize) {
        for n in 1..=GROUP {
            let rows = rows(frame, (frame + n) % ring);
            let _ = write!(text, "queue {rows} {}; ", 2 * ROWS);
        }
    }
    // The first frame refers to none.
    let first = rows(ring - GROUP, 0);
    let _ = write!(text, "loop {ROWS} {{ send {first}; {CALL} }}; ");
    let read = "compute 2ms ±10%; send input";
    let _ = write!(text, "loop {} {{ {read} }}; ", 2 * encoders + 2);
    let start = |number: u32| format!("{read}; recv types; send start{number}");
    for number in 0..encoders - 1 {
        let _ = write!(text, "{}; ", start(number));
    }
    let turn = |oldest| {
        let next = start((oldest + encoders - 1) % encoders);
        format!("{next}; recv end{oldest}")
    };
    let turns: Vec<_> = (0..encoders).map(turn).collect();
    text + &format!("loop {{ {} }}", turns.join("; "))
}

/// Decides on the types of a group of frames at once.
fn lookahead() -> String {
    format!(
        "queue types 64; loop {{ loop {GROUP} {{ recv input; {CALL} }}; compute 22ms ±30%; \
         loop {GROUP} {{ send types; {CALL} }} }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Whatever the number of threads: each queue of rows is filled by one thread and emptied by one, and
    /// a round brings as many rows as it takes.
    #[test]
    fn every_row_sent_is_received() {
        for encoders in [1, 2, 3, 4, 6, 12] {
            let all = threads(encoders);
            assert_eq!(all.len(), encoders as usize + 2);
            let mut balance: BTreeMap<String, i64> = BTreeMap::new();
            for (name, text) in all.iter().filter(|(name, _)| name.starts_with("encoder")) {
                let body = text.split_once("loop { ").unwrap().1;
                for part in body.split("loop ").skip(1) {
                    let (times, rest) = part.split_once(" { ").unwrap();
                    let times: i64 = times.parse().unwrap_or_else(|_| panic!("{name}: {part}"));
                    for statement in rest.split('}').next().unwrap().split("; ") {
                        let change = match statement.trim().split_once(' ') {
                            Some(("send", queue)) => Some((queue, times)),
                            Some(("recv", queue)) => Some((queue, -times)),
                            _ => None,
                        };
                        if let Some((queue, change)) = change {
                            *balance.entry(queue.to_string()).or_default() += change;
                        }
                    }
                }
            }
            assert!(!balance.is_empty());
            assert!(
                balance.values().all(|&left| left == 0),
                "{encoders}: {balance:?}"
            );
        }
    }
}
