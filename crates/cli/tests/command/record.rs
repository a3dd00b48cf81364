// SPDX-License-Identifier: GPL-2.0-only
//! `corun record` on existing recordings: to record takes a host and root, which the end-to-end test has.

use crate::common::{self, corun};
use corun_recording::native::{Encoder, Entry, HEADER, Left, Thread};

const MS: u64 = 1_000_000;

/// A vCPU that runs and sleeps in turn, in blocks of ten turns.
fn recording() -> Vec<u8> {
    recording_of("secret")
}

fn recording_of(vm: &str) -> Vec<u8> {
    let (mut bytes, mut encoder) = (HEADER.to_vec(), Encoder::default());
    let mut push = |entry: &Entry, last: bool| {
        bytes.extend(encoder.push(entry).unwrap_or_default());
        if last {
            bytes.extend(encoder.flush().unwrap_or_default());
        }
    };
    let (at, name, value) = (0, "scheduler".to_string(), "EEVDF".to_string());
    push(&Entry::Fact { name, value }, false);
    let name = vm.to_string();
    push(&Entry::Vm { tgid: 10, name }, false);
    push(&Entry::Edge { at, last: false }, false);
    let comm = "CPU 0/KVM".to_string();
    let (tid, tgid) = (11, 10);
    push(&Entry::Thread(Thread { tid, tgid, comm }), false);
    for turn in 0..100 {
        let switch = |at, prev, left, next| Entry::Switch {
            at,
            cpu: 0,
            prev,
            left,
            next,
        };
        push(&switch(turn * 4 * MS, 0, Left::Ready, 11), false);
        let sleeps = Left::Blocked(b'S');
        push(&switch((turn * 4 + 3) * MS, 11, sleeps, 0), turn % 10 == 9);
    }
    let (at, last) = (400 * MS, true);
    push(&Entry::Edge { at, last }, true);
    bytes
}

fn write(place: &tempfile::TempDir, name: &str, bytes: &[u8]) {
    std::fs::write(place.path().join(name), bytes).unwrap();
}

#[test]
fn a_copy_without_names_can_be_compared() {
    let place = tempfile::tempdir().unwrap();
    write(&place, "host.corun", &recording());
    let (from, to) = (
        place.path().join("host.corun"),
        place.path().join("nameless.corun"),
    );
    let [from, to] = [from.to_str().unwrap(), to.to_str().unwrap()];
    let args = ["record", "--from", from, "--anonymise", "-o", to, "--json"];
    let json = common::json(corun(&args));
    assert_eq!(json["vms"][0]["name"], "vm1");
    assert_eq!(json["vms"][0]["run_ns"], 300 * MS);
    let bytes = std::fs::metadata(to).unwrap().len();
    assert_eq!((&json["bytes"], &json["lost"]), (&bytes.into(), &0.into()));
    assert_eq!(json["events"], 200);
    assert_eq!(json["duration_ns"], 400 * MS);
    let compared = corun(&["compare", to, "--quiet", "--policies", "affinity", "--json"]);
    let json = common::json(compared);
    assert_eq!(json["runs"][0]["vms"][0]["name"], "vm1");
    // Recordings are not replaced.
    let again = common::refused(corun(&args));
    assert!(again.contains("is there and holds something; expected a new file, or an empty one"));
    std::fs::write(to, "").unwrap();
    common::json(corun(&args));
}

/// Recordings are compressed to be sent around, and what is sent should have no names.
#[test]
fn a_packed_recording_is_copied_without_names() {
    let place = tempfile::tempdir().unwrap();
    write(&place, "host.corun", &recording());
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_string();
    let [plain, packed] = ["host.corun", "host.corun.gz"].map(at);
    let gzip = std::process::Command::new("gzip")
        .args(["-k", &plain])
        .status();
    assert!(gzip.unwrap().success());
    let copies = [(plain, at("one.corun")), (packed, at("other.corun"))].map(|(from, to)| {
        let made = corun(&["record", "--from", &from, "--anonymise", "-o", &to]);
        assert!(made.status.success(), "{made:?}");
        std::fs::read(to).unwrap()
    });
    assert!(!copies[0].is_empty() && copies[0] == copies[1]);
}

/// Anybody may name a VM so that a terminal, or a page, does what the name says.
#[test]
fn names_obey_no_terminal_and_no_page() {
    let place = tempfile::tempdir().unwrap();
    let name = "a\x1b]0;title\x07\x1b[31m\u{9b}2J\r\n<script>alert(1)</script>";
    write(&place, "host.corun", &recording_of(name));
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_string();
    let [from, to, page] = ["host.corun", "copy.corun", "page.html"].map(at);
    let few = ["--policies", "affinity", "--quiet", "--report", &page];
    for (args, has_page) in [
        (vec!["record", "--from", &from, "-o", &to], false),
        ([&["compare", &from][..], &few].concat(), true),
        ([&["compare", &from, "--json"][..], &few].concat(), true),
        ([&["compare", &from, "--csv", "-"][..], &few].concat(), true),
        (
            [&["advise", &from, "--starts", "1", "--most", "1"][..], &few].concat(),
            true,
        ),
    ] {
        let output = corun(&args);
        assert!(output.status.success() || !has_page, "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        let mut all = vec![String::from_utf8(said).unwrap()];
        if has_page {
            all.push(std::fs::read_to_string(&page).unwrap());
        }
        for text in all {
            let control = |c: char| c.is_control() && !"\n\t".contains(c);
            let strange = text
                .find(control)
                .map(|at| text[at..].chars().take(40).collect::<String>());
            assert_eq!(strange, None, "{args:?}");
            assert!(
                !args.contains(&"--report")
                    || !text.contains("<script>alert")
                    || !text.contains("<html")
            );
        }
    }
}

/// What libbpf says about it helps nobody.
#[test]
fn who_may_not_trace_is_told_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("host.corun");
    let mut bounded = std::process::Command::new("setpriv");
    bounded.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
    bounded.arg(env!("CARGO_BIN_EXE_corun"));
    bounded.args(["record", "--for", "1s", "-o"]).arg(&file);
    let output = bounded.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if said.starts_with("setpriv:") {
        return; // a user who is not root may have rights that cannot be given up
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("takes root, or CAP_BPF and CAP_PERFMON"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!file.exists());
}

#[test]
fn a_cut_one_is_copied_as_far_as_it_goes() {
    let place = tempfile::tempdir().unwrap();
    let bytes = recording();
    write(&place, "cut.corun", &bytes[..bytes.len() / 2]);
    let (from, to) = (
        place.path().join("cut.corun"),
        place.path().join("copy.corun"),
    );
    let [from, to] = [from.to_str().unwrap(), to.to_str().unwrap()];
    let copied = corun(&["record", "--from", from, "--anonymise", "-o", to]);
    let said = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(said.contains("cut short"), "{said}");
    assert!(common::printed(copied).contains("vm1: 1 vCPU, run 7"));
}

#[test]
fn what_is_no_recording_is_refused_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    write(&place, "other.txt", b"hello");
    let (from, to) = (
        place.path().join("other.txt"),
        place.path().join("copy.corun"),
    );
    let args = ["record", "--from", from.to_str().unwrap(), "--anonymise"];
    let args = [&args[..], &["-o", to.to_str().unwrap()]].concat();
    let said = common::refused(corun(&args));
    assert!(
        said.contains("expected a recording by `corun record`"),
        "{said}"
    );
    assert!(!to.exists());
    let said = common::refused(corun(&["record", "-o", "-"]));
    assert!(said.contains("--output -: expected a file"), "{said}");
    let said = common::refused(corun(&["record", "--for", "3"]));
    assert!(said.contains("a number with a unit"), "{said}");
}

/// What cannot be copied, or written, leaves no file behind that would stand in the way of the next try.
#[test]
fn a_copy_that_failed_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let bytes = recording();
    write(&place, "host.corun", &bytes);
    write(&place, "cut.corun", &bytes[..20]);
    write(&place, "empty.corun", b"");
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_string();
    let [host, cut, empty, to] = ["host.corun", "cut.corun", "empty.corun", "to.corun"].map(at);
    let said = common::refused(corun(&["record", "--from", &cut, "--anonymise", "-o", &to]));
    let expected = "cut.corun: there is no event in it before the file ends within a block";
    assert!(said.contains(expected), "{said}");
    assert!(!std::path::Path::new(&to).exists());
    // No file may be longer than nothing.
    let full = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    for to in [&to, &empty] {
        let program = env!("CARGO_BIN_EXE_corun");
        let args = [
            "-c",
            full,
            "sh",
            program,
            "record",
            "--from",
            &host,
            "--anonymise",
            "-o",
            to,
        ];
        let output = std::process::Command::new("sh").args(args).output();
        let said = common::failed(output.unwrap(), 1);
        assert!(
            said.contains(to.as_str()) && said.contains("too large"),
            "{said}"
        );
    }
    assert!(!std::path::Path::new(&to).exists());
    assert_eq!(
        std::fs::metadata(&empty).unwrap().len(),
        0,
        "it was there before"
    );
}
