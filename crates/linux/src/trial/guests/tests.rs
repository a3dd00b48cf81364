// SPDX-License-Identifier: GPL-2.0-only
//! A guest's process without the process: its orders and replies. Where KVM runs no guests, the reply says so, and the
//! test passes.

use super::*;

/// The replies of a guest's process to these lines.
fn served(lines: &[String]) -> Vec<Reply> {
    let mut output = Vec::new();
    let input = lines.join("\n") + "\n";
    // It ends early where there is nothing more to read.
    let _ = serve(input.as_bytes(), &mut output);
    let text = String::from_utf8(output).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn told(what: &impl Serialize) -> String {
    serde_json::to_string(what).unwrap()
}

/// How fast guests are here, if they run at all.
fn pace() -> Option<Pace> {
    match served(&[told(&Order::Measure)]).pop().unwrap() {
        Reply::Measured(pace) => Some(pace),
        Reply::Failed(why) => {
            eprintln!("skipped, this machine runs no guests: {why}");
            None
        }
        other => panic!("{other:?}"),
    }
}

fn task(program: Program, vcpus: usize, pace: Pace) -> Task {
    let online = crate::preflight::online().unwrap();
    let first = online.iter().next().unwrap();
    Task {
        program,
        pcpus: vec![first; vcpus],
        slice: 5 * MS,
        seed: 1,
        pace,
        subject: true,
    }
}

#[test]
fn a_guest_says_when_it_is_ready_and_what_it_did() {
    let Some(pace) = pace() else { return };
    if crate::trial::possible().is_err() {
        return; // an older kernel
    }
    assert!(pace.per_us > 10 && pace.tsc_khz > 100_000, "{pace:?}");
    for (program, vcpus) in [(Program::List(64 << 10), 1), (Program::Spin, 2)] {
        let from = clock::now() + 100 * MS;
        let go = Go {
            from,
            until: from + 200 * MS,
        };
        let order = Order::Work(task(program, vcpus, pace));
        let said = served(&[told(&order), told(&go)]);
        let [Reply::Ready, Reply::Done(done)] = &said[..] else {
            panic!("{said:?}");
        };
        assert_eq!(done.len(), vcpus);
        for one in done {
            assert!(one.work > 0 && one.time > 0, "{program:?}: {one:?}");
            assert!(one.time <= 400 * MS, "{program:?}: {one:?}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let pace = Pace {
        tsc_khz: 1_000_000,
        per_us: 1000,
        ring_0: false,
    };
    for (task, expected) in [
        (
            task(Program::List(1 << 50), 1, pace),
            "is longer than guests",
        ),
        (task(Program::Pages, 99, pace), "16 vCPUs at most"),
    ] {
        let said = served(&[told(&Order::Work(task))]);
        let [Reply::Failed(why)] = &said[..] else {
            panic!("{said:?}");
        };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn a_guest_that_is_told_nothing_says_nothing() {
    assert!(served(&["nonsense".to_string()]).is_empty());
    assert!(serve(&b""[..], Vec::new()).is_err());
}

#[test]
fn a_process_that_is_none_is_named() {
    let why = Guests::find("/none/such".into(), &[])
        .unwrap_err()
        .to_string();
    assert!(why.contains("/none/such: "), "{why}");
    // It ends at once, without a reply.
    let why = Guests::find("/bin/true".into(), &[])
        .unwrap_err()
        .to_string();
    assert!(why.contains("the process of calibrate-pace ended"), "{why}");
}
