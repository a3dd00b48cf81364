// SPDX-License-Identifier: GPL-2.0-only
//! What cannot be read must say why; what can be read in part must say what is missing.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_recording::{ImportError, Note, Place, read_bytes};

fn error(bytes: &[u8]) -> ImportError {
    read_bytes("host.txt", bytes).unwrap_err()
}

fn switch(at: &str, prev: u32, next: u32, comm: &str) -> String {
    format!(
        " {comm}-{prev} [000] d..2. {at}: sched_switch: prev_comm={comm} prev_pid={prev} \
         prev_prio=120 prev_state=S ==> next_comm={comm} next_pid={next} next_prio=120\n"
    )
}

/// A short usable recording.
fn good() -> String {
    let vcpu = "CPU 0/KVM";
    (1..200u32)
        .map(|n| switch(&format!("5.{n:06}"), n % 2 + 7, (n + 1) % 2 + 7, vcpu))
        .collect()
}

#[test]
fn files_that_are_no_recording() {
    let message = |bytes: &[u8]| error(bytes).to_string();
    assert!(matches!(error(b""), ImportError::Empty { .. }));
    assert!(message(b"{\"traceEvents\": []}").contains("JSON"));
    assert!(message(b"\x7fELF\x02\x01\x01\0").contains("ELF"));
    assert!(message(b"PERFILE2h\0\0\0").contains("`perf script -i FILE > recording.txt`"));
    assert!(message(b"\x17\x08\x44tracing7\0").contains("`trace-cmd report -i FILE"));
    assert!(message(b"\0\x01\x02").contains("binary"));
    let text = message(b"# hello\nDear diary,\nnothing happened.\n");
    assert!(text.contains("line 2 begins \"Dear diary,\""), "{text}");
    assert!(
        text.starts_with("host.txt: ") && text.contains("accepted are"),
        "{text}"
    );
    let beyond = good().replace("pid=7", "pid=99999999999999999999");
    let first = beyond.lines().next().unwrap_or_default();
    let beyond = error(format!("{first}\n").as_bytes()).to_string();
    assert!(beyond.contains("thread id out of range"), "{beyond}");
    assert!(matches!(
        error(b"# tracer: nop\n#\n"),
        ImportError::NoEvents { first: None, .. }
    ));
    assert!(matches!(
        error(b"\x1f\x8bnot gzip at all"),
        ImportError::Damaged { .. }
    ));
    let cut = message(b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    assert!(cut.contains("breaks off before any event"), "{cut}");
}

#[test]
fn recordings_without_the_needed() {
    let no_switch = " a-1 [000] d..2. 5.5: kvm_entry: vcpu 0\n";
    let text = error(no_switch.as_bytes()).to_string();
    assert!(
        text.contains("only kvm_entry (1)") && text.contains("trace-cmd record"),
        "{text}"
    );
    let no_vcpu = switch("5.1", 7, 8, "bash") + &switch("5.2", 8, 7, "make");
    let text = error(no_vcpu.as_bytes()).to_string();
    assert!(
        text.contains("no vCPU thread") && text.contains("make"),
        "{text}"
    );
    let instant = switch("5.1", 7, 8, "CPU 0/KVM");
    assert!(matches!(
        error(instant.as_bytes()),
        ImportError::NoTime { .. }
    ));
    let huge = format!("# host: 4096 pCPUs\n{}", good());
    assert!(matches!(
        error(huge.as_bytes()),
        ImportError::TooManyPcpus { seen: 4096, .. }
    ));
}

#[test]
fn clocks_that_jump() {
    let two = switch("5.1", 7, 8, "CPU 0/KVM") + &good().replace(" 5.", " 99995.");
    let jump = error(two.as_bytes());
    assert!(
        matches!(
            jump,
            ImportError::TimeJumps {
                at: Place::Line(2),
                ..
            }
        ),
        "{jump}"
    );
    let stray = good() + &switch("99999999.5", 7, 8, "CPU 0/KVM");
    let notes = read_bytes("x", stray.as_bytes()).unwrap().notes;
    assert!(
        notes.contains(&Note::FarAway {
            events: 1,
            at: Place::Line(200)
        }),
        "{notes:?}"
    );
}

/// Within the hour in which events are believed to belong together, one of them makes replays of an hour.
#[test]
fn a_timestamp_that_makes_a_recording_long_is_told() {
    let stray = |at| switch(at, 7, 8, "CPU 0/KVM");
    let empty = |text: String| {
        let notes = read_bytes("x", text.as_bytes()).unwrap().notes;
        let mut found = notes
            .into_iter()
            .filter(|note| matches!(note, Note::Silence { .. }));
        (found.next(), found.next())
    };
    // Without one, events that are 1 µs apart go on for 198 µs.
    assert_eq!(empty(good()), (None, None));
    let late = Note::Silence {
        gap: 2_999_999_801_000,
        rest: 198_000,
        between: [Place::Line(199), Place::Line(200)],
    };
    assert_eq!(
        late.to_string(),
        "nothing happens for 3000 s between line 199 and line 200, and all the rest lasts 198 µs: is a \
         timestamp wrong? Replays go through all of that time; leave out what does not belong to the recording"
    );
    assert_eq!(empty(good() + &stray("3005.0")), (Some(late), None));
    let early = Note::Silence {
        gap: 4_000_001_000,
        rest: 198_000,
        between: [Place::Line(1), Place::Line(2)],
    };
    assert_eq!(empty(stray("1.0") + &good()), (Some(early), None));
    // A pause that a host may well have, and one that takes no time to replay.
    let twice = good() + &good().replace(" 5.0", " 5.5");
    assert_eq!(empty(twice), (None, None));
}

#[test]
fn recordings_in_no_order() {
    let long: String = (0..40_000u32)
        .map(|n| {
            switch(
                &format!("5.{n:06}"),
                n % 2 + 7,
                (n + 1) % 2 + 7,
                "CPU 0/KVM",
            )
        })
        .collect();
    let twice = long.clone() + &long;
    let disordered = error(twice.as_bytes());
    assert!(
        matches!(
            disordered,
            ImportError::Disordered {
                at: Place::Line(40_001),
                ..
            }
        ),
        "{disordered}"
    );
    assert!(read_bytes("x", long.as_bytes()).is_ok());
}

#[test]
fn bad_lines_are_counted_and_quoted() {
    let text = format!("{}garbage\n [000] x\n{}\n", good(), "y".repeat(99_999));
    let notes = read_bytes("x", text.as_bytes()).unwrap().notes;
    let Some(Note::Unparsed { lines, examples }) = notes.first() else {
        panic!("{notes:?}")
    };
    assert_eq!((*lines, examples.len()), (3, 3));
    assert_eq!(
        (examples[0].line, examples[0].text.as_str()),
        (200, "garbage")
    );
    let shown = notes[0].to_string();
    assert!(
        shown.contains("not understood and skipped: 3 lines") && shown.contains("line 202"),
        "{shown}"
    );
}

#[test]
fn a_byte_order_mark_hides_no_header() {
    let marked = format!("\u{feff}# host: 7 pCPUs, scheduler CFS\n{}", good());
    let import = read_bytes("x", marked.as_bytes()).unwrap();
    assert_eq!(import.recording.host.pcpus.value, 7);
    let unparsed = |note: &Note| matches!(note, Note::Unparsed { .. });
    assert!(!import.notes.iter().any(unparsed), "{:?}", import.notes);
}

#[test]
fn what_headers_say_about_losses() {
    let lossy = format!(
        "# overrun: 5\n# dropped events: 2\n# entries-in-buffer/entries-written: 3/9   #P:1\n{}",
        good()
    );
    let import = read_bytes("x", lossy.as_bytes()).unwrap();
    let lost = Note::Lost { events: 7, gaps: 0 };
    assert!(lost.gaps() == 7 && import.notes.contains(&lost));
    assert!(import.notes.contains(&Note::Overwritten {
        kept: 3,
        written: 9
    }));
    let fewer = format!("cpus=1\n{}", good().replace("[000]", "[003]"));
    let import = read_bytes("x", fewer.as_bytes()).unwrap();
    assert!(
        import
            .notes
            .contains(&Note::MorePcpus { stated: 1, seen: 4 })
    );
    assert_eq!(import.recording.host.pcpus.value, 4);
}

#[test]
fn every_note_is_a_sentence() {
    let notes = [
        Note::CutShort { line: 3 },
        Note::BrokenOff { line: 3 },
        Note::Reordered { events: 1 },
        Note::TooLate {
            events: 1,
            at: Place::Line(2),
        },
        Note::Cut {
            at: Place::Block(2),
            byte: 90,
            why: "cut",
        },
        Note::Unusable { events: 1 },
        Note::Contradictions {
            no_wakeup: 1,
            no_switch: 2,
            after_exit: 3,
        },
        Note::NoWakeups,
        Note::ContextUnknown { wakeups: 4 },
        Note::GroupingInferred { vms: 1 },
    ];
    for note in notes {
        assert!(note.to_string().len() > 30, "{note:?}");
    }
}
