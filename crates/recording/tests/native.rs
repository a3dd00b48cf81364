// SPDX-License-Identifier: GPL-2.0-only
//! Recordings of corun's own: what is written is read, cut files are read up to where they are whole, and
//! nothing that is not as it was written passes unnoticed.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests state what they expect by panicking.

use corun_recording::native::{
    Anonymiser, Blocks, Cause, Damage, Encoder, Entry, HEADER, Left, Thread, anonymise,
};
use corun_recording::{Format, Import, Note, WakeCause, read_bytes};
use proptest::prelude::*;

const SEC: u64 = 1_000_000_000;

/// A file of these entries, with a block for each `per_block`.
fn file(entries: &[Entry], per_block: usize) -> Vec<u8> {
    let (mut bytes, mut encoder) = (HEADER.to_vec(), Encoder::default());
    for part in entries.chunks(per_block) {
        for entry in part {
            bytes.extend(encoder.push(entry).unwrap_or_default());
        }
        bytes.extend(encoder.flush().unwrap_or_default());
    }
    bytes
}

/// All entries of a file, and why there are not more.
fn entries(bytes: &[u8]) -> (Vec<Entry>, Option<Damage>) {
    let mut out = Vec::new();
    let mut blocks = match Blocks::open(bytes) {
        Ok(blocks) => blocks,
        Err(damage) => return (out, Some(damage)),
    };
    loop {
        match blocks.next(&mut out) {
            Ok(true) => {}
            Ok(false) => return (out, None),
            Err(damage) => return (out, Some(damage)),
        }
    }
}

fn fact(name: &str, value: &str) -> Entry {
    let (name, value) = (name.to_string(), value.to_string());
    Entry::Fact { name, value }
}

fn thread(tid: u32, tgid: u32, comm: &str) -> Entry {
    let comm = comm.to_string();
    Entry::Thread(Thread { tid, tgid, comm })
}

fn switch(us: u64, cpu: u32, prev: u32, left: Left, next: u32) -> Entry {
    let at = SEC + us * 1000;
    Entry::Switch {
        at,
        cpu,
        prev,
        left,
        next,
    }
}

fn waking(us: u64, cpu: u32, running: u32, cause: Cause, wakee: u32) -> Entry {
    let at = SEC + us * 1000;
    Entry::Waking {
        at,
        cpu,
        running,
        cause,
        wakee,
    }
}

/// vCPU 11 wakes its sibling 12 and halts; a timer wakes it again; a program runs beside them.
fn sample() -> Vec<Entry> {
    let sleeps = Left::Blocked(b'S');
    vec![
        fact("kernel", "6.12.1-mine"),
        fact("scheduler", "EEVDF"),
        fact("pcpus", "2"),
        Entry::Vm {
            tgid: 10,
            name: "web".to_string(),
        },
        Entry::Edge {
            at: SEC,
            last: false,
        },
        thread(11, 10, "CPU 0/KVM"),
        thread(12, 10, "CPU 1/KVM"),
        thread(99, 99, "secretd"),
        switch(0, 0, 0, Left::Ready, 11),
        switch(0, 1, 0, Left::Ready, 99),
        waking(200, 0, 11, Cause::Running, 12),
        Entry::Queued {
            at: SEC + 210_000,
            cpu: 0,
            running: 11,
            thread: 12,
            on: 0,
        },
        switch(300, 0, 11, sleeps, 12),
        waking(400, 0, 12, Cause::Timer, 11),
        Entry::Migrate {
            at: SEC + 401_000,
            cpu: 0,
            running: 12,
            thread: 11,
            from: 0,
            to: 1,
        },
        switch(450, 1, 99, Left::Ready, 11),
        Entry::Halt {
            at: SEC + 500_000,
            cpu: 1,
            thread: 11,
            polled: true,
            took: 7_000,
        },
        Entry::Exits {
            thread: 11,
            vcpu: Some(0),
            reason: "HLT".to_string(),
            count: 5,
        },
        Entry::Exits {
            thread: 11,
            vcpu: None,
            reason: "ipi".to_string(),
            count: 2,
        },
        Entry::Fork {
            at: SEC + 600_000,
            cpu: 1,
            parent: 11,
            child: 13,
            tgid: 10,
            comm: "worker".to_string(),
        },
        switch(700, 1, 11, sleeps, 99),
        switch(800, 0, 12, sleeps, 0),
        Entry::Edge {
            at: SEC + 1_000_000,
            last: true,
        },
    ]
}

#[test]
fn a_small_host() {
    let Import { recording, notes } = read_bytes("x", &file(&sample(), 5)).unwrap();
    assert_eq!(notes, []);
    assert_eq!(recording.format, Format::Corun);
    assert_eq!((recording.start, recording.duration()), (SEC, 1_000_000));
    assert_eq!(recording.host.pcpus.value, 2);
    assert_eq!(recording.vms.len(), 1);
    let vm = &recording.vms[0];
    assert_eq!((vm.name.as_str(), vm.tgid), ("web", Some(10)));
    assert_eq!((vm.vcpus.len(), vm.threads.len()), (2, 1));
    let [first, second] = [0, 1].map(|vcpu| recording.task(vm.vcpus[vcpu]).unwrap());
    assert_eq!(
        (first.observed.run, second.observed.run),
        (550_000, 500_000)
    );
    assert_eq!(first.observed.wakers.timers, 1);
    assert_eq!(second.observed.wakers.siblings, 1);
    let by_sibling = WakeCause::Task {
        waker: vm.vcpus[0],
        waker_work: 200_000,
    };
    assert_eq!(second.bursts[0].wake, by_sibling);
    assert_eq!(first.bursts[1].wake, WakeCause::External { delay: 100_000 });
    assert_eq!((first.kvm.exits["HLT"], first.kvm.ipis), (5, 2));
    assert_eq!((first.kvm.polled_halts, first.kvm.polled), (1, 7_000));
    let worker = recording.task(vm.threads[0]).unwrap();
    assert_eq!((worker.comm.as_str(), worker.tgid), ("worker", Some(10)));
    let program = recording.tasks.iter().find(|task| task.tid == 99).unwrap();
    assert_eq!(program.comm, "secretd");
}

#[test]
fn the_same_as_text() {
    let text = "\
# host: 2 pCPUs, kernel 6.12.1-mine, scheduler EEVDF
# process 10 qemu -name web
# thread 11 CPU 0/KVM
# thread 12 CPU 1/KVM
 <idle>-0 [000] d..2. 1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=11 next_prio=120
 <idle>-0 [001] d..2. 1.000000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=secretd next_pid=99 next_prio=120
 CPU 0/KVM-11 [000] d..2. 1.000200: sched_waking: comm=CPU 1/KVM pid=12 prio=120 target_cpu=000
 CPU 0/KVM-11 [000] d..2. 1.000210: sched_wakeup: comm=CPU 1/KVM pid=12 prio=120 target_cpu=000
 CPU 0/KVM-11 [000] d..2. 1.000300: sched_switch: prev_comm=CPU 0/KVM prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=CPU 1/KVM next_pid=12 next_prio=120
 CPU 1/KVM-12 [000] d.h2. 1.000400: sched_waking: comm=CPU 0/KVM pid=11 prio=120 target_cpu=000
 CPU 1/KVM-12 [000] d.h2. 1.000401: sched_migrate_task: comm=CPU 0/KVM pid=11 prio=120 orig_cpu=0 dest_cpu=1
 secretd-99 [001] d..2. 1.000450: sched_switch: prev_comm=secretd prev_pid=99 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=11 next_prio=120
 CPU 0/KVM-11 [001] d..2. 1.000700: sched_switch: prev_comm=CPU 0/KVM prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=secretd next_pid=99 next_prio=120
 CPU 1/KVM-12 [000] d..2. 1.000800: sched_switch: prev_comm=CPU 1/KVM prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
 secretd-99 [001] ..... 1.001000: tlb_flush: pages:1
";
    let text = read_bytes("x", text.as_bytes()).unwrap().recording;
    let own = read_bytes("x", &file(&sample(), 100)).unwrap().recording;
    assert_eq!(own.duration(), text.duration());
    for vcpu in [0, 1] {
        let [own, text] = [&own, &text].map(|it| it.task(it.vms[0].vcpus[vcpu]).unwrap());
        assert_eq!(own.bursts, text.bursts);
        let times = |task: &corun_recording::Task| {
            let seen = &task.observed;
            (
                seen.run,
                seen.ready,
                seen.wait,
                seen.switches_in,
                seen.migrations,
            )
        };
        assert_eq!(times(own), times(text));
    }
    assert_eq!(own.observed.stacked, text.observed.stacked);
    assert_eq!(own.observed.pcpus, text.observed.pcpus);
}

#[test]
fn cut_anywhere_it_is_read_up_to_the_last_whole_block() {
    let sample = sample();
    let bytes = file(&sample, 3);
    for end in 0..bytes.len() {
        let (read, damage) = entries(&bytes[..end]);
        assert!(read.len() % 3 == 0 && sample.starts_with(&read), "at {end}");
        let boundary = damage.is_none();
        assert!(
            boundary
                || end > 0 && matches!(damage, Some(Damage::Cut | Damage::Header(_)))
                || end == 0
        );
        match read_bytes("x", &bytes[..end]) {
            Ok(import) => assert!(
                import
                    .notes
                    .iter()
                    .any(|note| matches!(note, Note::Cut { .. })),
                "at {end}: {:?}",
                import.notes
            ),
            // Without the beginning there is no VM, no switch, or nothing at all.
            Err(error) => assert!(error.to_string().starts_with("x: ")),
        }
    }
    let half = read_bytes("x", &bytes[..bytes.len() - 5]).unwrap();
    let said = half.notes[0].to_string();
    assert!(said.contains("cut short at block 8"), "{said}");
}

/// Whatever it is, the recording itself is whole.
#[test]
fn what_comes_after_the_end_is_told_as_that() {
    let whole = file(&sample(), 3);
    let recording = read_bytes("x", &whole).unwrap().recording;
    let behind = [&b"\n"[..], &[b'x'; 5000], &whole, b"BLK1"];
    for behind in behind {
        let bytes = [&whole[..], behind].concat();
        let import = read_bytes("x", &bytes).unwrap();
        let (byte, bytes) = (whole.len() as u64, behind.len() as u64);
        assert_eq!(import.notes, [Note::Behind { byte, bytes }]);
        assert_eq!(import.recording, recording);
    }
    let bytes = [&whole[..], b"\n"].concat();
    let copied = anonymise(&bytes[..], &mut Vec::new()).unwrap().unwrap();
    assert!(matches!(copied.damage, Some(Damage::Behind(1))));
}

#[test]
fn losses_are_told_with_a_copy() {
    let mut lossy = sample();
    let (at, cpu, events) = (SEC + 900_000, 1, 40);
    lossy.insert(lossy.len() - 1, Entry::Lost { at, cpu, events });
    let copied = anonymise(&file(&lossy, 4)[..], &mut Vec::new());
    let copied = copied.unwrap().unwrap();
    assert_eq!((copied.events, copied.lost), (12, 40));
}

#[test]
fn later_versions_and_other_files_are_refused() {
    let mut bytes = file(&sample(), 3);
    bytes[8] = 2;
    let said = read_bytes("x", &bytes).unwrap_err().to_string();
    assert!(
        said.contains("version 2") && said.contains("up to 1"),
        "{said}"
    );
    let said = read_bytes("x", &HEADER).unwrap_err().to_string();
    assert!(said.contains("no events"), "{said}");
    let mut wrong = HEADER.to_vec();
    wrong.extend([b'x'; 40]);
    assert!(read_bytes("x", &wrong).is_err());
}

#[test]
fn packed_with_gzip() {
    use std::io::Write;
    let bytes = file(&sample(), 3);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&bytes).unwrap();
    let packed = packer.finish().unwrap();
    assert_eq!(
        read_bytes("x", &packed).unwrap(),
        read_bytes("x", &bytes).unwrap()
    );
}

#[test]
fn names_can_be_left_out() {
    let (bytes, mut nameless) = (file(&sample(), 4), Vec::new());
    let copied = anonymise(&bytes[..], &mut nameless).unwrap().unwrap();
    assert!(copied.damage.is_none());
    assert_eq!((copied.events, copied.lost), (12, 0));
    assert_eq!(copied.elapsed, 1_000_000);
    let (with, without) = (
        read_bytes("x", &bytes).unwrap().recording,
        read_bytes("x", &nameless).unwrap().recording,
    );
    for secret in ["web", "secretd", "mine"] {
        let shown = format!("{without:?}");
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
    assert_eq!(without.vms[0].name, "vm1");
    assert_eq!(without.host.kernel.unwrap().value, "6.12.1");
    for (with, without) in with.tasks.iter().zip(&without.tasks) {
        assert_eq!((&with.bursts, with.role), (&without.bursts, without.role));
    }
    // A cut file's whole part is copied, and the cut is told.
    let mut part = Vec::new();
    let told = anonymise(&bytes[..bytes.len() - 3], &mut part).unwrap();
    assert!(matches!(told.unwrap().damage, Some(Damage::Cut)));
    assert_eq!(entries(&part).0.len(), 20);
}

#[test]
fn schedulers_keep_their_names_if_replays_know_them() {
    let mut anonymiser = Anonymiser::default();
    let mut nameless = |value: &str| {
        let (name, value) = ("scheduler".to_string(), value.to_string());
        match anonymiser.entry(Entry::Fact { name, value }) {
            Entry::Fact { value, .. } => value,
            other => panic!("{other:?}"),
        }
    };
    for known in ["EEVDF", "corun", "corun balance-load"] {
        assert_eq!(nameless(known), known);
    }
    assert_eq!(nameless("acme_sched"), "other");
}

#[test]
fn programs_called_nearly_as_the_kernels_threads_lose_their_names() {
    let mut anonymiser = Anonymiser::default();
    let mut nameless = |comm: &str| {
        let (tid, tgid, comm) = (7, 7, comm.to_string());
        match anonymiser.entry(Entry::Thread(Thread { tid, tgid, comm })) {
            Entry::Thread(thread) => thread.comm,
            other => panic!("{other:?}"),
        }
    };
    for (comm, expected) in [
        ("qemu:secretvm", "program1"),
        ("watchdog-acme", "program2"),
        ("rcustomer-db", "program3"),
        ("fc_acmecorp", "program4"),
        ("qemu:secretvm", "program1"),
        ("IO acme", "IO io5"),
        ("irq/24-acme0", "irq/24"),
        ("kworker/0:1H-acme", "kworker/0:1H"),
        ("qemu-system-x86", "qemu-system-x86"),
        ("CPU 0/KVM", "CPU 0/KVM"),
    ] {
        assert_eq!(nameless(comm), expected, "{comm}");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,20}",
        Just("CPU 3/KVM".to_string()),
        Just("kworker/1:2".to_string())
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let time = prop_oneof![0..3 * SEC, any::<u64>()];
    let left = prop_oneof![
        Just(Left::Ready),
        Just(Left::Exited),
        prop::sample::select(b"SDTtPI".to_vec()).prop_map(Left::Blocked)
    ];
    let cause = prop::sample::select(vec![
        Cause::Running,
        Cause::Interrupt,
        Cause::Timer,
        Cause::Unknown,
    ]);
    // Mostly numbers that recur, sometimes any.
    let number = || prop_oneof![4 => 0u32..6, 1 => any::<u32>()];
    let numbers = (time, number(), number(), number(), number());
    (numbers, left, cause, text(), text(), 0..14u8).prop_map(
        |((at, cpu, a, b, c), left, cause, comm, other, kind)| match kind {
            0 => Entry::Fact {
                name: comm,
                value: other,
            },
            1 => Entry::Vm {
                tgid: a,
                name: comm,
            },
            2 => Entry::Thread(Thread {
                tid: a,
                tgid: b,
                comm,
            }),
            3 => Entry::Edge {
                at,
                last: a % 2 == 0,
            },
            4 | 5 => Entry::Switch {
                at,
                cpu,
                prev: a,
                left,
                next: b,
            },
            6 | 7 => Entry::Waking {
                at,
                cpu,
                running: a,
                cause,
                wakee: b,
            },
            8 => Entry::Queued {
                at,
                cpu,
                running: a,
                thread: b,
                on: c,
            },
            9 => Entry::Migrate {
                at,
                cpu,
                running: a,
                thread: b,
                from: c,
                to: cpu,
            },
            10 => Entry::Fork {
                at,
                cpu,
                parent: a,
                child: b,
                tgid: c,
                comm,
            },
            11 => Entry::Rename {
                at,
                cpu,
                thread: a,
                comm,
            },
            12 => Entry::Exits {
                thread: a,
                vcpu: (b < 9).then_some(b),
                reason: comm,
                count: at,
            },
            _ => Entry::Halt {
                at,
                cpu,
                thread: a,
                polled: b % 2 == 0,
                took: at,
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        written in prop::collection::vec(any_entry(), 0..60),
        per_block in 1usize..20,
    ) {
        let (read, damage) = entries(&file(&written, per_block));
        prop_assert!(damage.is_none());
        prop_assert_eq!(read, written);
    }

    /// Any entries, whatever they say together, make a recording or a message.
    #[test]
    fn any_entries_are_taken_or_refused(written in prop::collection::vec(any_entry(), 0..80)) {
        let mut all = sample();
        all.extend(written);
        if let Ok(import) = read_bytes("x", &file(&all, 7)) {
            let recording = import.recording;
            for task in &recording.tasks {
                let work: u64 = task.bursts.iter().map(|burst| burst.work).sum();
                prop_assert_eq!(work, task.observed.run);
            }
            for pcpu in &recording.observed.pcpus {
                prop_assert_eq!(pcpu.busy + pcpu.idle, recording.duration());
            }
        }
    }

    /// No change of a byte passes unnoticed.
    #[test]
    fn a_changed_byte_is_noticed(at: prop::sample::Index, to: u8) {
        let mut bytes = file(&sample(), 3);
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        let (read, damage) = entries(&bytes);
        prop_assert!(damage.is_some() && sample().starts_with(&read));
        if let Ok(import) = read_bytes("x", &bytes) {
            let told = import.notes.iter().any(|note| matches!(note, Note::Cut { .. }));
            prop_assert!(told);
        }
    }

    #[test]
    fn arbitrary_bytes_after_the_header(rest in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [HEADER.to_vec(), rest].concat();
        let empty = bytes.len() == HEADER.len();
        let (read, damage) = entries(&bytes);
        prop_assert!(read.is_empty() && damage.is_some() != empty);
        prop_assert!(read_bytes("x", &bytes).is_err());
    }

    /// Equal names stay equal and different ones different.
    #[test]
    fn names_stay_apart(names in prop::collection::vec("[a-c]{1,2}", 2..10)) {
        let mut anonymiser = Anonymiser::default();
        let mut nameless = |name: &String| match anonymiser.entry(Entry::Vm {
            tgid: 1,
            name: name.clone(),
        }) {
            Entry::Vm { name, .. } => name,
            other => panic!("{other:?}"),
        };
        let new: Vec<String> = names.iter().map(&mut nameless).collect();
        for (a, x) in names.iter().zip(&new) {
            for (b, y) in names.iter().zip(&new) {
                prop_assert_eq!(a == b, x == y);
            }
        }
    }
}

#[test]
fn damage_before_the_first_event_says_where() {
    let mut bytes = HEADER.to_vec();
    bytes.extend(b"BLK1\x04\0\0\0\x04\0\0\0\0\0\0\0abcd");
    let said = read_bytes("x.corun", &bytes).unwrap_err().to_string();
    assert!(
        said.contains("block 1, byte 12 (its checksum is wrong)"),
        "{said}"
    );
}
