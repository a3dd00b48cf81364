// SPDX-License-Identifier: GPL-2.0-only
//! x264's frame threads, as its encoder of 2009 starts and joins them (`x264_encoder_encode()`,
//! `x264_frame_cond_wait()`, `x264_lookahead_thread()`).
//!
//! Thread i encodes every n-th frame, in the order of encoding: a P-frame, then the B-frames that refer
//! to it. The rows that are done go through queues, one for each frame that refers to them; frames are numbered up to
//! the point where types and threads repeat.

use std::fmt::Write;

/// Lines of a frame, and of a row of macroblocks.
const LINES: u32 = 576;
const ROW: u32 = 16;
/// Rows of macroblocks in a frame.
const ROWS: u32 = LINES / ROW;
/// By how many lines deblocking and interpolation lag behind (X264_THREAD_HEIGHT).
const FILTERED: u32 = 24;
/// The time to look, under a mutex, how far another thread has got (assumed: the order of a system
/// call).
const CALL: &str = "compute 1us";

/// How frames depend on each other, and how long they take.
struct Encoding {
    /// A P-frame and the B-frames after it.
    group: u32,
    /// By how many rows a frame that is referred to must be ahead.
    ahead: u32,
    /// What a row of a P-frame takes.
    p_row: &'static str,
    /// What a row of a B-frame takes.
    b_row: &'static str,
    /// What it takes to decide on the types of a group.
    decide: &'static str,
}

/// The Phoronix test's threads: so many frame threads, the main thread and the lookahead's.
pub(super) fn threads(encoders: u32) -> Vec<(String, String)> {
    let encoding = Encoding {
        group: 2,
        ahead: ahead(encoders.max(1)),
        p_row: "compute 2090us ±30%",
        b_row: "compute 995us ±30%",
        decide: "compute 14ms ±30%",
    };
    all(&encoding, encoders)
}

/// PARSEC's threads: all frames are alike.
pub(super) fn parsec(encoders: u32) -> Vec<(String, String)> {
    let encoding = Encoding {
        group: 4,
        ahead: 4,
        p_row: "compute 1540us ±30%",
        b_row: "compute 1540us ±30%",
        decide: "compute 22ms ±30%",
    };
    all(&encoding, encoders)
}

/// By how many rows a frame must be ahead with so many frame threads: the reach of motion vectors
/// that x264_validate_parameters() allows each of them, and the lag of the filters.
fn ahead(encoders: u32) -> u32 {
    let half = ((LINES + FILTERED) / encoders).saturating_sub(FILTERED) / 2;
    // At least i_me_range, and at most what level 3 allows.
    let reach = half.clamp(16, 256);
    // A multiple of a row, including the lag of the filters.
    let filtered = FILTERED.next_multiple_of(ROW) - FILTERED;
    let whole = reach / ROW * ROW + filtered;
    let reach = if whole < reach { whole + ROW } else { whole };
    (reach + FILTERED) / ROW
}

fn all(encoding: &Encoding, encoders: u32) -> Vec<(String, String)> {
    let encoders = encoders.max(1);
    let rounds = (1..=encoding.group).find(|n| (encoders * n).is_multiple_of(encoding.group));
    let ring = encoders * rounds.unwrap_or(encoding.group);
    let encoder = |n| {
        let text = encoder(encoding, n, encoders, ring);
        (format!("encoder{n}"), text)
    };
    let mut all: Vec<_> = (0..encoders).map(encoder).collect();
    let main = main_thread(encoding, encoders, ring);
    all.push(("x264".to_string(), main));
    all.push(("lookahead".to_string(), lookahead(encoding)));
    all
}

/// The queue of rows of `from`, for `to`.
fn rows(from: u32, to: u32) -> String {
    format!("rows{from}for{to}")
}

/// The frames of one thread.
fn encoder(encoding: &Encoding, number: u32, encoders: u32, ring: u32) -> String {
    let frames = (number..ring).step_by(encoders as usize);
    let encode = |frame| encode(encoding, frame, number, ring);
    let frames: Vec<_> = frames.map(encode).collect();
    format!("memory 500KB 5/us; loop {{ {} }}", frames.join("; "))
}

/// A frame: every row waits for the row of the frame that it refers to.
fn encode(encoding: &Encoding, frame: u32, number: u32, ring: u32) -> String {
    let group = encoding.group;
    let own = frame / group * group;
    let (refers_to, readers, row) = match frame == own {
        // The B-frames and the next P-frame refer to it.
        true => ((frame + ring - group) % ring, group, encoding.p_row),
        false => (own, 0, encoding.b_row),
    };
    let mut row = row.to_string();
    for n in 1..=readers {
        row += &format!("; send {}", rows(frame, (frame + n) % ring));
    }
    let needed = rows(refers_to, frame);
    let (edge, middle) = (encoding.ahead - 1, ROWS + 1 - encoding.ahead);
    format!(
        "recv start{number}; loop {edge} {{ recv {needed}; {CALL} }}; \
         loop {middle} {{ recv {needed}; {row} }}; loop {edge} {{ {row} }}; \
         send end{number}; count frames"
    )
}

/// Gives frames to the lookahead, starts them, and each time waits for the oldest one to end.
fn main_thread(encoding: &Encoding, encoders: u32, ring: u32) -> String {
    let mut text = format!("queue input {}; ", encoders + 6);
    for number in 0..encoders {
        let _ = write!(text, "queue start{number} 1; queue end{number} 1; ");
    }
    // A thread that refers to a frame takes all of its rows: a queue holds those of at most two
    // frames.
    for frame in (0..ring).step_by(encoding.group as usize) {
        for n in 1..=encoding.group {
            let rows = rows(frame, (frame + n) % ring);
            let _ = write!(text, "queue {rows} {}; ", 2 * ROWS);
        }
    }
    // The first frame refers to none.
    let first = rows(ring - encoding.group, 0);
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
fn lookahead(encoding: &Encoding) -> String {
    let (group, decide) = (encoding.group, encoding.decide);
    format!(
        "queue types 64; loop {{ loop {group} {{ recv input; {CALL} }}; {decide}; \
         loop {group} {{ send types; {CALL} }} }}"
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
        let numbers = [1, 2, 3, 4, 6, 12];
        for (encoders, all) in numbers
            .map(|n| (n, threads(n)))
            .into_iter()
            .chain(numbers.map(|n| (n, parsec(n))))
        {
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

    /// By x264_validate_parameters() with 576 lines: mv_range_thread is 264, 152, 88, 72 and 40 lines, and
    /// 24 at least; a row begins when so much and 24 lines more are done.
    #[test]
    fn more_threads_reach_less_far() {
        let numbers = [1, 2, 3, 4, 6, 8, 12, 24];
        assert_eq!(numbers.map(ahead), [18, 11, 7, 6, 4, 4, 3, 3]);
    }

    /// A P-frame takes twice a B-frame's time, so the frame threads of a group are not busy all the time.
    #[test]
    fn rows_of_frames_differ() {
        let all = threads(4);
        assert!(all[0].1.contains("compute 2090us") && !all[0].1.contains("compute 995us"));
        assert!(all[1].1.contains("compute 995us") && !all[1].1.contains("compute 2090us"));
        // Six rows ahead: after row 31 no row of the first frame is waited for.
        assert!(all[1].1.contains("loop 5 { recv") && all[1].1.contains("loop 31 { recv"));
    }
}
