// SPDX-License-Identifier: GPL-2.0-only
//! Traces made here, in all the ways in which Perfetto writes the same thing.

use super::proto::*;
use crate::model::{Format, WakeCause};
use crate::note::Note;
use crate::{Import, read_bytes};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use prost::Message;
use std::io::Write;

const US: u64 = 1_000;
const START: u64 = 5_000_000_000;

/// Packets one after the other.
fn file(packets: &[TracePacket]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        bytes.push(0x0a);
        packet.encode_length_delimited(&mut bytes).unwrap();
    }
    bytes
}

/// vCPU 11 wakes 12 and both sleep: (time in us, prev, state, next).
const SWITCHES: [(u64, i32, i64, i32); 3] = [(0, 0, 0, 11), (300, 11, 1, 12), (900, 12, 1, 0)];

fn comm(tid: i32) -> Option<String> {
    let name = match tid {
        0 => "swapper/0".to_string(),
        tid => format!("CPU {}/KVM", tid - 11),
    };
    Some(name)
}

fn event(us: u64, pid: u32) -> FtraceEvent {
    FtraceEvent {
        timestamp: Some(START + us * US),
        pid: Some(pid),
        ..FtraceEvent::default()
    }
}

fn plain() -> Vec<FtraceEvent> {
    let mut events: Vec<FtraceEvent> = SWITCHES
        .iter()
        .map(|&(us, prev, state, next)| FtraceEvent {
            sched_switch: Some(SchedSwitch {
                prev_comm: comm(prev),
                prev_pid: Some(prev),
                prev_state: Some(state),
                next_comm: comm(next),
                next_pid: Some(next),
            }),
            ..event(us, prev as u32)
        })
        .collect();
    let waking = FtraceEvent {
        common_flags: Some(1),
        sched_waking: Some(Woken {
            comm: comm(12),
            pid: Some(12),
            target_cpu: Some(0),
        }),
        ..event(200, 11)
    };
    events.insert(1, waking);
    events
}

fn compact() -> CompactSched {
    let steps = |times: &[u64]| {
        let mut before = 0;
        let step = |&us: &u64| {
            let at = START + us * US;
            std::mem::replace(&mut before, at).abs_diff(at)
        };
        times.iter().map(step).collect()
    };
    CompactSched {
        switch_timestamp: steps(&SWITCHES.map(|switch| switch.0)),
        switch_prev_state: SWITCHES.map(|switch| switch.2).to_vec(),
        switch_next_pid: SWITCHES.map(|switch| switch.3).to_vec(),
        intern_table: [0, 11, 12].iter().filter_map(|&tid| comm(tid)).collect(),
        switch_next_comm_index: vec![1, 2, 0],
        waking_timestamp: steps(&[200]),
        waking_pid: vec![12],
        waking_comm_index: vec![2],
        waking_common_flags: vec![1],
    }
}

fn bundle(event: Vec<FtraceEvent>, compact_sched: Option<CompactSched>) -> TracePacket {
    TracePacket {
        ftrace_events: Some(Bundle {
            cpu: Some(0),
            event,
            lost_events: None,
            compact_sched,
        }),
        ..TracePacket::default()
    }
}

/// The threads' process, and its command line.
fn tree() -> TracePacket {
    let thread = |tid| Thread {
        tid: Some(tid),
        name: comm(tid),
        tgid: Some(10),
    };
    TracePacket {
        process_tree: Some(ProcessTree {
            processes: vec![Process {
                pid: Some(10),
                cmdline: ["/usr/bin/qemu", "-name", "web"].map(String::from).to_vec(),
            }],
            threads: vec![thread(11), thread(12)],
        }),
        system_info: Some(SystemInfo {
            utsname: Some(Utsname {
                release: Some("6.12.1".to_string()),
            }),
        }),
        ..TracePacket::default()
    }
}

/// The VM's owner chooses the words of its command line.
#[test]
fn no_terminal_obeys_what_a_process_is_called() {
    let mut tree = tree();
    for process in tree
        .process_tree
        .iter_mut()
        .flat_map(|tree| &mut tree.processes)
    {
        process.cmdline = ["q\u{1b}[2J", "-name", "web\u{1b}]0;x\u{7}"]
            .map(String::from)
            .to_vec();
    }
    let recording = read_bytes("x", &file(&[tree, bundle(plain(), None)]))
        .unwrap()
        .recording;
    assert_eq!(recording.vms[0].name, "web\u{fffd}]0;x\u{fffd}");
    let main = recording.tasks.iter().find(|task| task.tid == 10).unwrap();
    assert_eq!(main.comm, "q\u{fffd}[2J");
}

fn zipped(packets: &[TracePacket]) -> TracePacket {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(&file(packets)).unwrap();
    TracePacket {
        compressed_packets: Some(packer.finish().unwrap()),
        ..TracePacket::default()
    }
}

#[test]
fn however_it_is_written_it_says_the_same() {
    let plain = file(&[tree(), bundle(plain(), None)]);
    let arrays = file(&[tree(), bundle(Vec::new(), Some(compact()))]);
    let packed = file(&[zipped(&[tree(), bundle(Vec::new(), Some(compact()))])]);
    for bytes in [plain, arrays, packed] {
        let Import { recording, notes } = read_bytes("x", &bytes).unwrap();
        assert_eq!(notes, []);
        assert_eq!(recording.format, Format::Perfetto);
        assert_eq!(recording.duration(), 900 * US);
        assert_eq!(recording.host.kernel.unwrap().value, "6.12.1");
        let vm = &recording.vms[0];
        assert_eq!((vm.name.as_str(), vm.vcpus.len()), ("web", 2));
        let [first, second] = [0, 1].map(|n| &recording.tasks[vm.vcpus[n].index()]);
        assert_eq!(
            (first.observed.run, second.observed.run),
            (300 * US, 600 * US)
        );
        let by_sibling = WakeCause::Task {
            waker: vm.vcpus[0],
            waker_work: 200 * US,
        };
        assert_eq!(second.bursts[0].wake, by_sibling);
        assert_eq!(second.observed.ready, 100 * US);
    }
}

#[test]
fn what_is_lost_or_cut_is_told() {
    let mut lossy = bundle(plain(), None);
    if let Some(bundle) = &mut lossy.ftrace_events {
        bundle.lost_events = Some(true);
    }
    let notes = read_bytes("x", &file(&[tree(), lossy])).unwrap().notes;
    assert!(
        notes.contains(&Note::Lost { events: 1, gaps: 1 }),
        "{notes:?}"
    );
    let bytes = file(&[tree(), bundle(plain(), None), bundle(plain(), None)]);
    let notes = read_bytes("x", &bytes[..bytes.len() - 3]).unwrap().notes;
    let cut = notes
        .iter()
        .map(Note::to_string)
        .find(|note| note.contains("packet 3"));
    assert!(cut.is_some(), "{notes:?}");
}

#[test]
fn what_is_none_is_not_taken_for_one() {
    use super::looks_like;
    assert!(looks_like(&file(&[tree(), bundle(plain(), None)])));
    assert!(!looks_like(b"\n\n# tracer: nop\n"));
    assert!(!looks_like(b"\n\x05\0\0"));
    assert!(!looks_like(b""));
    let no_events = read_bytes("x", &file(&[tree()])).unwrap_err().to_string();
    assert!(no_events.contains("no"), "{no_events}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No change to a trace causes a panic, and cutting is always reported.
    #[test]
    fn changed_anywhere(at: prop::sample::Index, to: u8, end: prop::sample::Index) {
        let packets = [tree(), bundle(plain(), Some(compact())), zipped(&[bundle(plain(), None)])];
        let mut bytes = file(&packets);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = read_bytes("x", &bytes);
        bytes.truncate(end.index(bytes.len()));
        let _ = read_bytes("x", &bytes);
    }
}
