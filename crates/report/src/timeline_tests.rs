// SPDX-License-Identifier: GPL-2.0-only
//! Timelines read back with the same messages.

use super::*;
use crate::perfetto::Trace;
use proptest::prelude::*;
use prost::Message;
use std::collections::BTreeMap;

const PCPUS: u32 = 3;
const TASKS: u32 = 5;

/// Plays moves as a host would: a task that gets a pCPU takes it from nobody.
fn write(moves: &[(u32, u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut timeline = Timeline::new(&mut bytes, PCPUS).unwrap();
    let mut owner = [None; PCPUS as usize];
    let mut now = 0;
    for &(task, what, after) in moves {
        now += after;
        let id = TaskId(task);
        let name = format!("web/{task}");
        let vm = (task < 3).then_some((VmId(0), "web"));
        timeline.task(id, &name, vm).unwrap();
        owner
            .iter_mut()
            .filter(|slot| **slot == Some(task))
            .for_each(|slot| *slot = None);
        let state = match what {
            0 => State::Waiting,
            1 => State::Ready,
            cpu if owner[cpu as usize - 2].is_none() => {
                owner[cpu as usize - 2] = Some(task);
                State::Running(PcpuId(cpu - 2))
            }
            _ => State::Ready,
        };
        timeline.state(now, id, &name, state).unwrap();
    }
    timeline.finish(now + 1).unwrap();
    drop(timeline);
    bytes
}

/// Checks a trace as its readers would and returns, per track, its slices (begin, end, name).
fn slices(bytes: &[u8]) -> BTreeMap<String, Vec<(u64, u64, String)>> {
    let trace = Trace::decode(bytes).unwrap();
    assert_eq!(trace.packet[0].sequence_flags, Some(CLEARED));
    let mut tracks = BTreeMap::new();
    let mut names = BTreeMap::new();
    let mut open: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    let mut slices: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut last = 0;
    for packet in trace.packet {
        if let Some(track) = packet.track_descriptor {
            let uuid = track.uuid.unwrap();
            if let Some(parent) = track.parent_uuid {
                assert!(tracks.contains_key(&parent), "parents come first");
            }
            assert!(
                tracks.insert(uuid, track.name.unwrap()).is_none(),
                "told once"
            );
            continue;
        }
        for name in packet
            .interned_data
            .into_iter()
            .flat_map(|data| data.event_names)
        {
            names.insert(name.iid.unwrap(), name.name.unwrap());
        }
        let (event, now) = (packet.track_event.unwrap(), packet.timestamp.unwrap());
        assert!(now >= last, "time goes on");
        last = now;
        let track = event.track_uuid.unwrap();
        if event.kind == Some(EventKind::SliceBegin.into()) {
            let name = names[&event.name_iid.unwrap()].clone();
            assert!(
                open.insert(track, (now, name)).is_none(),
                "slices do not overlap"
            );
        } else {
            let (begin, name) = open.remove(&track).unwrap();
            let list: &mut Vec<_> = slices.entry(tracks[&track].clone()).or_default();
            list.push((begin, now, name));
        }
    }
    assert!(open.is_empty(), "all slices are closed: {open:?}");
    slices
}

#[test]
fn a_short_run() {
    let slices = slices(&write(&[
        (0, 1, 5),
        (0, 2, 10),
        (4, 1, 0),
        (0, 0, 20),
        (4, 2, 1),
    ]));
    let slice = |begin, end, name: &str| (begin, end, name.to_string());
    assert_eq!(
        slices["pCPU 0"],
        [slice(15, 35, "web/0"), slice(36, 37, "web/4")]
    );
    let expected = [
        slice(5, 15, "ready"),
        slice(15, 35, "running on pCPU 0"),
        slice(35, 37, "waiting"),
    ];
    assert_eq!(slices["web/0"], expected);
}

proptest! {
    #[test]
    fn slices_nest_close_and_never_overlap(
        moves in prop::collection::vec((0..TASKS, 0..PCPUS + 2, 0u64..50), 0..200),
    ) {
        let bytes = write(&moves);
        prop_assert_eq!(&bytes, &write(&moves));
        let slices = slices(&bytes);
        for cpu in 0..PCPUS {
            let shown: u64 = slices
                .get(&format!("pCPU {cpu}"))
                .map_or(0, |all| all.iter().map(|(begin, end, _)| end - begin).sum());
            let name = format!("running on pCPU {cpu}");
            let run: u64 = slices.values().flatten().filter(|slice| slice.2 == name)
                .map(|(begin, end, _)| end - begin).sum();
            prop_assert_eq!(shown, run, "both kinds of tracks tell the same");
        }
    }
}
