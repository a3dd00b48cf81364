// SPDX-License-Identifier: GPL-2.0-only
//! Timelines written and read back.

use super::*;
use crate::timeline::{Slice, Timelines, read};
use proptest::prelude::*;

/// Two levels of tracks and a counter.
fn write(window: Window, write: impl FnOnce(&mut Timeline<&mut Vec<u8>>, [TrackId; 3])) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut timeline = Timeline::new(&mut bytes, window);
    let group = timeline.track(None, "group", 0, Look::Plain);
    let tracks = [
        timeline.track(Some(group), "a", 0, Look::Plain),
        timeline.track(Some(group), "b", 1, Look::Row),
        timeline.track(Some(group), "count", 2, Look::Counter("things")),
    ];
    write(&mut timeline, tracks);
    bytes
}

fn slice(begin: Nanos, end: Nanos, name: &str, depth: usize) -> Slice {
    let name = name.to_string();
    Slice {
        begin,
        end,
        name,
        depth,
    }
}

fn some_of_everything(timeline: &mut Timeline<&mut Vec<u8>>, [a, b, count]: [TrackId; 3]) {
    let [outer, inner] = ["outer", "inner"].map(|name| timeline.name(name));
    timeline.begin(10, a, outer).unwrap();
    timeline.value(10, count, 3).unwrap();
    timeline.begin(20, a, inner).unwrap();
    timeline.instant(30, b, outer).unwrap();
    timeline.value(40, count, 3).unwrap();
    timeline.end_named(50, a, outer).unwrap();
    timeline.value(55, count, 4).unwrap();
    timeline.end(60, a).unwrap();
    timeline.end(60, a).unwrap();
    timeline.begin(70, b, outer).unwrap();
    timeline.finish(80).unwrap();
}

#[test]
fn what_ends_first_cuts_what_began_inside() {
    let got = read(&write(Window::WHOLE, some_of_everything)).unwrap();
    let paths: Vec<&str> = got.tracks.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        ["group", "group > a", "group > b", "group > count"],
        "in the order of the alphabet"
    );
    let a = &got.tracks["group > a"];
    let expected = [
        slice(20, 50, "inner", 1),
        slice(10, 50, "outer", 0),
        slice(50, 60, "inner", 0),
    ];
    assert_eq!(a.slices, expected);
    let b = &got.tracks["group > b"];
    assert_eq!(b.instants, [(30, "outer".to_string())]);
    assert_eq!(b.slices, [slice(70, 80, "outer", 0)]);
    assert_eq!(got.tracks["group > count"].values, [(10, 3), (55, 4)]);
}

#[test]
fn a_window_begins_with_what_is_open_and_ends_all() {
    let window = Window {
        from: 25,
        until: 58,
    };
    let got = read(&write(window, some_of_everything)).unwrap();
    let expected = [
        slice(25, 50, "inner", 1),
        slice(25, 50, "outer", 0),
        slice(50, 58, "inner", 0),
    ];
    assert_eq!(got.tracks["group > a"].slices, expected);
    assert_eq!(got.tracks["group > count"].values, [(25, 3), (55, 4)]);
    assert!(got.tracks["group > b"].slices.is_empty());
}

#[test]
fn faults_are_found() {
    let fault = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(fault(b"no trace").contains("wire type"));
    let open = write(Window::WHOLE, |timeline, [a, ..]| {
        let name = timeline.name("x");
        timeline.begin(5, a, name).unwrap();
    });
    assert!(fault(&open).contains("open slices"));
    let back = write(Window::WHOLE, |timeline, [a, ..]| {
        let name = timeline.name("x");
        timeline.instant(5, a, name).unwrap();
        timeline.instant(4, a, name).unwrap();
    });
    assert!(fault(&back).contains("time goes back from 5 to 4"));
    let slice_of_counter = write(Window::WHOLE, |timeline, [_, _, count]| {
        let name = timeline.name("x");
        timeline.begin(5, count, name).unwrap();
    });
    assert!(fault(&slice_of_counter).contains("wrong kind of track"));
    // Without its first packet, the rest refers to a track that was not described.
    let whole = write(Window::WHOLE, some_of_everything);
    assert!(fault(&whole[2 + usize::from(whole[1])..]).contains("flags"));
}

#[test]
fn an_event_takes_some_20_bytes_and_names_are_told_once() {
    const ROUNDS: u64 = 1000;
    let bytes = write(Window::WHOLE, |timeline, [a, ..]| {
        for round in 0..ROUNDS {
            let name = timeline.name("a name of some length, told only once");
            timeline.begin(20_000_000_000 + round, a, name).unwrap();
            timeline.end(20_000_000_000 + round, a).unwrap();
        }
    });
    let each = bytes.len() as u64 / (2 * ROUNDS);
    assert!((15..=20).contains(&each), "{each} bytes per event");
}

/// All time in slices of a track that are in no other.
fn covered(got: &Timelines, track: &str) -> Nanos {
    let slices = got.tracks.get(track).into_iter().flat_map(|t| &t.slices);
    let outer = slices.filter(|slice| slice.depth == 0);
    outer.map(|slice| slice.end - slice.begin).sum()
}

proptest! {
    #[test]
    fn any_window_can_be_read_and_is_a_part_of_the_whole(
        moves in prop::collection::vec((0usize..2, 0u32..4, 0u64..50), 0..150),
        from in 0u64..2000,
        length in 1u64..2000,
    ) {
        let play = |timeline: &mut Timeline<&mut Vec<u8>>, tracks: [TrackId; 3]| {
            let names = ["x", "y"].map(|name| timeline.name(name));
            let mut now = 0;
            for &(which, what, after) in &moves {
                now += after;
                let (track, name) = (tracks[which], names[now as usize % 2]);
                match what {
                    0 => timeline.begin(now, track, name).unwrap(),
                    1 => timeline.end(now, track).unwrap(),
                    2 => timeline.end_named(now, track, name).unwrap(),
                    _ => timeline.instant(now, track, name).unwrap(),
                }
                timeline.value(now, tracks[2], i64::from(what)).unwrap();
            }
            timeline.finish(now).unwrap();
        };
        let bytes = write(Window::WHOLE, play);
        prop_assert_eq!(&bytes, &write(Window::WHOLE, play), "same run, same bytes");
        let whole = read(&bytes).unwrap();
        let until = from + length;
        let part = read(&write(Window { from, until }, play)).unwrap();
        for track in ["group > a", "group > b"] {
            let slices = whole.tracks.get(track).into_iter().flat_map(|t| &t.slices);
            let within: Nanos = slices
                .filter(|slice| slice.depth == 0)
                .map(|slice| slice.end.min(until).saturating_sub(slice.begin.max(from)))
                .sum();
            prop_assert_eq!(covered(&part, track), within);
            let instants = |got: &Timelines| got.tracks.get(track).map_or(0, |t| {
                t.instants.iter().filter(|(at, _)| (from..until).contains(at)).count()
            });
            prop_assert_eq!(instants(&part), instants(&whole));
        }
    }
}
