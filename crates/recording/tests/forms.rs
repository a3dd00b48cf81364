// SPDX-License-Identifier: GPL-2.0-only
//! The same recording in every form that tools print it must mean the same.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_recording::{Format, Grouping, Import, Note, Recording, Role, WakeCause, read_bytes};
use flate2::read::GzDecoder;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;

const FILES: [&str; 2] = [
    "kvm-2pcpu-bursty-io-compute.ftrace.gz",
    "kvm-2pcpu-compute-sync-io.ftrace.gz",
];

fn text(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/recordings");
    let mut text = String::new();
    let file = File::open(format!("{folder}/{name}")).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// An event line of ftrace: comm, tid, pCPU, latency column, timestamp, event, fields.
fn split(line: &str) -> Option<(&str, &str, &str, &str, &str, &str, &str)> {
    let (task, rest) = line.split_once(" [0")?;
    let (comm, tid) = task.trim().rsplit_once('-')?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (flags, rest) = rest.split_once(' ')?;
    let (stamp, rest) = rest.trim().split_once(": ")?;
    let (event, fields) = rest.split_once(": ")?;
    Some((comm, tid, cpu, flags, stamp, event, fields))
}

/// Rewrites each event line; other lines are dropped.
fn rewrite(text: &str, mut line: impl FnMut(&mut String, &str)) -> String {
    let mut out = String::new();
    text.lines()
        .filter(|l| !l.starts_with('#'))
        .for_each(|l| line(&mut out, l));
    out
}

/// What must be equal: everything per thread but the causes of wake-ups.
fn times(recording: &Recording) -> Vec<(u32, u64, u64, u64, u64, u64)> {
    let mut rows: Vec<_> = recording
        .tasks
        .iter()
        .filter(|task| task.observed.switches_in > 0)
        .map(|task| {
            let o = &task.observed;
            (
                task.tid,
                o.run,
                o.ready,
                o.wait,
                o.switches_in,
                o.migrations,
            )
        })
        .collect();
    rows.sort_unstable();
    rows
}

fn vcpu_groups(recording: &Recording) -> Vec<Vec<u32>> {
    let tids = |vm: &corun_recording::Vm| {
        vm.vcpus
            .iter()
            .map(|&t| recording.task(t).unwrap().tid)
            .collect()
    };
    let mut groups: Vec<Vec<u32>> = recording.vms.iter().map(tids).collect();
    groups.sort();
    groups
}

fn read(text: &str) -> Import {
    read_bytes("test", text.as_bytes()).unwrap()
}

#[test]
fn without_statements_the_grouping_is_inferred_and_right() {
    for file in FILES {
        let full = text(file);
        let stated = read(&full).recording;
        let bare = read(&rewrite(&full, |out, line| {
            writeln!(out, "{line}").unwrap()
        }));
        assert_eq!(vcpu_groups(&bare.recording), vcpu_groups(&stated));
        assert!(
            bare.recording
                .vms
                .iter()
                .all(|vm| vm.grouping == Grouping::Inferred)
        );
        assert_eq!(bare.notes, [Note::GroupingInferred { vms: 3 }]);
        assert_eq!(times(&bare.recording), times(&stated));
        assert_eq!(bare.recording.observed.stacked, stated.observed.stacked);
        // The emulator that ran and its workers find their VM, too.
        let served = bare
            .recording
            .vms
            .iter()
            .map(|vm| vm.threads.len())
            .max()
            .unwrap();
        assert!(served >= 3, "{served}");
    }
}

#[test]
fn trace_cmd_with_plugins() {
    let full = text(FILES[1]);
    let stated = read(&full).recording;
    let report = rewrite(&full, |out, line| {
        let (comm, tid, cpu, flags, stamp, event, fields) = split(line).unwrap();
        let f = |key: &str, end: &str| {
            let rest = fields.split_once(key).unwrap().1;
            rest.split_once(end)
                .map_or(rest, |(value, _)| value)
                .to_string()
        };
        let fields = match event {
            "sched_switch" => format!(
                "{}:{} [{}] {} ==> {}:{} [{}]",
                f("prev_comm=", " prev_pid="),
                f("prev_pid=", " "),
                f("prev_prio=", " "),
                f("prev_state=", " ").trim_end_matches('+'),
                f("next_comm=", " next_pid="),
                f("next_pid=", " "),
                f("next_prio=", " "),
            ),
            "sched_wakeup" => {
                let (comm, pid) = (f("comm=", " pid="), f(" pid=", " "));
                format!(
                    "{comm}:{pid} [{}] CPU:{}",
                    f("prio=", " "),
                    f("target_cpu=", " ")
                )
            }
            _ => fields.to_string(),
        };
        let head = format!("{comm:>16}-{tid:<5} [0{cpu}] {flags} {stamp}: ");
        writeln!(out, "{head}{:<22}{fields}", format!("{event}:")).unwrap();
    });
    let import = read(&format!("cpus=2\n{report}"));
    assert_eq!(import.recording.format, Format::TraceCmd);
    assert_eq!(import.recording.host.pcpus.value, 2);
    assert_eq!(times(&import.recording), times(&stated));
    assert_eq!(vcpu_groups(&import.recording), vcpu_groups(&stated));
    let bursts = |r: &Recording, tid| {
        r.tasks
            .iter()
            .find(|t| t.tid == tid)
            .unwrap()
            .bursts
            .clone()
    };
    assert_eq!(
        bursts(&import.recording, 128).len(),
        bursts(&stated, 128).len()
    );
    assert_eq!(import.recording.observed.stacked, stated.observed.stacked);
}

/// The process of each thread, from the `# process` and `# thread` lines.
fn process_of(text: &str, tid: &str) -> Option<String> {
    let mut process = None;
    for line in text.lines().take_while(|l| l.starts_with('#')) {
        let mut words = line.split_whitespace().skip(1);
        match (words.next(), words.next()) {
            (Some("process"), pid) => process = pid,
            (Some("thread"), Some(t)) if t == tid => return process.map(str::to_string),
            _ => {}
        }
    }
    None
}

#[test]
fn perf_script_of_perf_sched_record() {
    for file in FILES {
        let full = text(file);
        let stated = read(&full).recording;
        let script = rewrite(&full, |out, line| {
            let (comm, tid, cpu, _, stamp, event, fields) = split(line).unwrap();
            // perf sched record takes sched_waking and leaves sched_wakeup out.
            if event.starts_with("sched_") && event != "sched_wakeup" {
                let comm = if tid == "0" { "swapper" } else { comm };
                let tgid = process_of(&full, tid).unwrap_or_else(|| tid.to_string());
                writeln!(
                    out,
                    "{comm:>16} {tgid:>5}/{tid:<5} [0{cpu}] {stamp}: {:>24}: {fields}",
                    format!("sched:{event}")
                )
                .unwrap();
            }
        });
        let Import { recording, notes } = read(&script);
        assert_eq!(recording.format, Format::PerfScript);
        assert_eq!(vcpu_groups(&recording), vcpu_groups(&stated));
        assert!(
            recording
                .vms
                .iter()
                .all(|vm| vm.grouping == Grouping::Stated)
        );
        assert!(
            matches!(notes[..], [Note::ContextUnknown { .. }]),
            "{notes:?}"
        );
        // The recording starts and ends with its first and last event, which may be others here.
        let late = recording.start - stated.start + (stated.end - recording.end);
        for (a, b) in times(&recording).iter().zip(times(&stated)) {
            assert_eq!((a.0, a.4, a.5), (b.0, b.4, b.5));
            assert!(
                a.1.abs_diff(b.1) <= late && a.2.abs_diff(b.2) <= late,
                "{a:?} {b:?}"
            );
        }
    }
}

#[test]
fn guessed_causes_are_mostly_right() {
    let full = text(FILES[0]);
    let stated = read(&full).recording;
    // Without the latency column, interrupts are told by plausibility alone.
    let bare = full.lines().map(|line| match split(line) {
        Some((_, _, _, flags, ..)) => line.replacen(flags, "", 1) + "\n",
        None => line.to_string() + "\n",
    });
    let guessed = read(&bare.collect::<String>()).recording;
    let (mut right, mut all) = (0, 0);
    for (a, b) in stated.tasks.iter().zip(&guessed.tasks) {
        assert_eq!((a.tid, a.bursts.len()), (b.tid, b.bursts.len()));
        for (a, b) in a.bursts.iter().zip(&b.bursts) {
            let by_task = |wake| matches!(wake, WakeCause::Task { .. });
            all += 1;
            right += usize::from(by_task(a.wake) == by_task(b.wake));
        }
    }
    println!("{right} of {all}");
    assert!(right * 100 >= all * 90, "{right} of {all}");
    assert!(
        guessed
            .tasks
            .iter()
            .any(|t| matches!(t.role, Role::Vcpu { .. }))
    );
}
