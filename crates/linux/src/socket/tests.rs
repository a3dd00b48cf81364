// SPDX-License-Identifier: GPL-2.0-only

use super::protocol::{ErrorKind, EventsSaid, InForce, Outcome, SetPolicy};
use super::*;
use crate::holds::HoldsNow;
use crate::status::{CgroupsNow, HelpersNow, HostStatus, VcpuNow, VmNow};
use proptest::prelude::*;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

struct Daemon {
    server: Server,
    heard: Vec<Command>,
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Daemon {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("corun/host.sock");
        Self {
            server: Server::bind(&path).unwrap(),
            heard: Vec::new(),
            _dir: dir,
            path,
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            let heard = &mut self.heard;
            let mut answer = |command| {
                heard.push(command);
                Reply::ok(&in_force())
            };
            self.server.turn(1_000_000, &mut answer).unwrap();
        }
    }
}

fn in_force() -> InForce {
    InForce {
        policy: "fair".into(),
        summary: "plain".into(),
        source: "baseline".into(),
        parameters: [("slot".to_string(), "5ms".to_string())].into(),
        for_s: 1.5,
        changes: 2,
        vms: Vec::new(),
        status: Vec::new(),
    }
}

fn read_line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

fn refusal(line: &str) -> protocol::Refusal {
    match serde_json::from_str::<Reply>(line).unwrap().outcome {
        Outcome::Error(refusal) => refusal,
        Outcome::Ok(answer) => panic!("{answer}"),
    }
}

#[test]
fn a_question_gets_its_answer() {
    let mut daemon = Daemon::new();
    let mode = fs::metadata(&daemon.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let path = daemon.path.clone();
    let set = Command::SetPolicy(SetPolicy {
        name: "fair".into(),
        set: [("slot".to_string(), "5ms".to_string())].into(),
        events: Some(EventsSaid {
            cycles: (0, 0),
            stalls: (4, 0x0400_04a3),
            misses: None,
        }),
    });
    let sent = set.clone();
    let asker = std::thread::spawn(move || call::<InForce>(&path, &sent));
    while !asker.is_finished() {
        daemon.turns(1);
    }
    assert_eq!(asker.join().unwrap().unwrap(), in_force());
    assert_eq!(daemon.heard, [set]);
}

#[test]
fn one_connection_many_questions_each_in_its_turn() {
    let mut daemon = Daemon::new();
    let mut stream = daemon.connect();
    let asked = [Command::Policy.line(), Command::Policy.line()].concat();
    stream.write_all(&asked).unwrap();
    daemon.turns(2);
    assert_eq!(daemon.heard.len(), 1, "one accepts, one hears");
    // What has come already needs no new byte to be heard.
    let began = Instant::now();
    let mut answer = |_| Reply::ok(&in_force());
    daemon.server.turn(60_000_000_000, &mut answer).unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    let mut reader = BufReader::new(&stream);
    for _ in 0..2 {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("\"ok\":{\"changes\":2"), "{line}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let mut daemon = Daemon::new();
    let wrong: [(&[u8], ErrorKind, &str); 8] = [
        (b"\n", ErrorKind::Request, "expected a JSON object"),
        (b"[1]\n", ErrorKind::Request, "expected a JSON object"),
        (
            b"\xff\xfe\x00\n",
            ErrorKind::Request,
            "expected a JSON object",
        ),
        (
            b"{}\n",
            ErrorKind::Version,
            "found version none, this corun speaks version 1",
        ),
        (
            b"{\"version\":2,\"command\":\"policy\"}\n",
            ErrorKind::Version,
            "found version 2",
        ),
        (
            b"{\"version\":1}\n",
            ErrorKind::UnknownCommand,
            "accepted are policy, status, set-policy",
        ),
        (
            b"{\"version\":1,\"command\":\"policy\",\"nme\":1}\n",
            ErrorKind::Request,
            "unknown field `nme`",
        ),
        (
            b"{\"version\":1,\"command\":\"set-policy\"}\n",
            ErrorKind::Request,
            "missing field `name`",
        ),
    ];
    let mut stream = daemon.connect();
    for (line, kind, words) in wrong {
        stream.write_all(line).unwrap();
        daemon.turns(3);
        let refusal = refusal(&read_line(&stream));
        assert_eq!(refusal.kind, kind, "{refusal:?}");
        assert!(refusal.message.contains(words), "{refusal:?}");
    }
    assert!(daemon.heard.is_empty());
}

#[test]
fn a_request_that_does_not_end_is_cut_off() {
    let mut daemon = Daemon::new();
    let stream = daemon.connect();
    stream.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        let _ = (&stream).write(&[b'x'; 4096]);
        daemon.turns(1);
    }
    assert!(daemon.server.clients.is_empty());
    let refusal = refusal(&read_line(&stream));
    assert_eq!(refusal.message, "a request has at most 4096 bytes");
    assert!((&stream).write(b"x").is_err(), "nobody listens any more");
}

#[test]
fn a_client_that_never_reads_is_dropped_and_others_are_served() {
    let mut daemon = Daemon::new();
    daemon.server.patience = Duration::from_millis(300);
    let deaf = daemon.connect();
    deaf.set_nonblocking(true).unwrap();
    let many = Command::Policy.line().repeat(200);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100)
        || daemon.server.clients[0].events() == libc::POLLIN
    {
        assert!(began.elapsed() < Duration::from_secs(60));
        let _ = (&deaf).write(&many);
        daemon.turns(1);
    }
    let heard = daemon.heard.len();
    let mut other = daemon.connect();
    other.write_all(&Command::Policy.line()).unwrap();
    daemon.turns(3);
    assert_eq!(
        daemon.heard.len(),
        heard + 1,
        "the deaf one is not heard either"
    );
    assert!(read_line(&other).contains("\"ok\""));
    std::thread::sleep(Duration::from_millis(300));
    daemon.turns(1);
    assert!(daemon.server.clients.is_empty());
}

#[test]
fn a_client_that_says_nothing_makes_room_in_the_end() {
    let mut daemon = Daemon::new();
    daemon.server.patience = Duration::from_millis(200);
    let silent: Vec<UnixStream> = (0..MOST_CLIENTS).map(|_| daemon.connect()).collect();
    daemon.turns(MOST_CLIENTS);
    let mut next = daemon.connect();
    next.write_all(&Command::Policy.line()).unwrap();
    daemon.turns(2);
    assert_eq!(daemon.server.clients.len(), silent.len());
    assert!(daemon.heard.is_empty());
    std::thread::sleep(Duration::from_millis(250));
    daemon.turns(4);
    assert!(read_line(&next).contains("\"ok\""));
}

#[test]
fn a_client_that_hangs_up_is_gone() {
    let mut daemon = Daemon::new();
    drop(daemon.connect());
    let mut cut = daemon.connect();
    cut.write_all(b"{\"version\":1").unwrap();
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    daemon.turns(4);
    assert!(daemon.server.clients.is_empty());
    let mut rest = String::new();
    cut.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "half a request has no answer");
}

#[test]
fn a_second_daemon_leaves_the_first_alone() {
    let daemon = Daemon::new();
    let error = Server::bind(&daemon.path).err().unwrap().to_string();
    assert!(error.contains("another corun host answers on"), "{error}");
    assert!(daemon.path.exists());
}

#[test]
fn a_socket_left_behind_is_replaced_a_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(
        path.exists(),
        "std leaves it behind, as a daemon that is killed does"
    );
    let nobody = call::<InForce>(&path, &Command::Policy)
        .unwrap_err()
        .to_string();
    assert!(nobody.starts_with("no corun host runs"), "{nobody}");
    drop(Server::bind(&path).unwrap());
    assert!(!path.exists(), "removed at the end");

    fs::write(&path, "precious").unwrap();
    let error = Server::bind(&path).err().unwrap().to_string();
    assert!(error.contains("is no socket: it is left alone"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    let deep = dir.path().join("a/b/host.sock");
    let error = Server::bind(&deep).err().unwrap().to_string();
    assert!(error.contains("cannot listen on"), "{error}");
    assert!(!dir.path().join("a").exists());
}

#[test]
fn a_name_that_became_another_s_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    let first = Server::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _second = Server::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
}

/// However it hangs: it accepts no connection any more, or answers nothing, or bit by bit.
#[test]
fn a_daemon_that_hangs_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    let patience = Duration::from_millis(200);
    let ask = || call_within::<InForce>(patience, &path, &Command::Policy).unwrap_err();
    let listener = UnixListener::bind(&path).unwrap();
    let began = Instant::now();
    let error = ask();
    assert!(matches!(error, CallError::TimeOver { .. }), "{error}");
    assert!(error.to_string().contains("within 0.2 s"), "{error}");
    // The kernel's queue for a listener of the standard library has room for some thousands at most.
    let mut waiting = Vec::new();
    while let Ok(stream) = connect::within(Duration::from_millis(20), &path) {
        waiting.push(stream);
        assert!(waiting.len() < 20_000);
    }
    let error = ask();
    assert!(matches!(error, CallError::TimeOver { .. }), "{error}");
    assert!(matches!(Server::bind(&path), Err(SocketError::Taken(_))));
    drop((waiting, listener));
    fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let drops = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let error = ask();
    assert!(matches!(error, CallError::TimeOver { .. }), "{error}");
    drops.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_program_that_answers_otherwise_is_no_corun() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = read_line(&stream);
        stream.write_all(b"hello\n").unwrap();
    });
    let error = call::<InForce>(&path, &Command::Policy).unwrap_err();
    assert!(matches!(error, CallError::Foreign { .. }), "{error}");
    other.join().unwrap();
}

/// The largest host that there can be: as many vCPUs as docs/limits.md says, in as many VMs as the dispatcher's table has
/// room for, each with the longest names and every field there is.
#[test]
fn the_status_of_the_largest_host_can_be_asked_for() {
    // Each with four bytes, which is the most.
    let name = "\u{1F427}".repeat(crate::inventory::identity::LONGEST);
    let time = 123_456.789_012_345;
    let ms = Some(1.234_567_891);
    let vcpu = |number| VcpuNow {
        number: Some(number),
        tid: 4_194_304,
        run_s: time,
        ready_s: time,
        wait_s: time,
        costop_s: time,
        throttled_s: time,
        switches: u64::MAX / 1000,
        class: Some("CPU".to_string()),
        slice_ms: ms,
        latency_ms: ms,
        home: Some(511),
        pool: Some(511),
        cycles: Some(corun_model::CyclesSeen {
            cycles: u64::MAX,
            base: u64::MAX,
            miss: u64::MAX,
        }),
    };
    let helpers = |role: &str| HelpersNow {
        role: role.to_string(),
        threads: 64,
        run_s: time,
        ready_s: time,
        pool: Some(511),
    };
    let vm = |slot| VmNow {
        name: name.clone(),
        uuid: Some("5b1f8c0e-52a1-4c3d-9d3e-0a1b2c3d4e5f".to_string()),
        manager: crate::inventory::Manager::Openstack,
        id: Some(name.clone()),
        pid: 4_194_304,
        slot,
        weight: Some(10_000),
        under_policy: true,
        placement: "balanced".to_string(),
        enforced: Some(true),
        loan_percent: Some(-100.1),
        wakers: Some(corun_model::Wakers::Siblings),
        vcpus: (0..4).map(vcpu).collect(),
        helpers: ["io", "vhost", "emulator"].map(helpers).to_vec(),
    };
    let status = HostStatus {
        version: "0.1.0".to_string(),
        policy: "vsmtio".to_string(),
        policy_for_s: time,
        for_s: time,
        max_wait_s: Some(3.0),
        max_ready_percent: Some(10.0),
        max_pressure_percent: Some(10.0),
        forced: Vec::new(),
        lapses: 0,
        cgroups: CgroupsNow::default(),
        holds: HoldsNow::default(),
        halt_poll: None,
        notes: Vec::new(),
        vms: (0..corun_dispatcher::MAX_VMS as u32).map(vm).collect(),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let line = Reply::ok(&status).line();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = read_line(&stream);
        // A client that has heard enough hangs up.
        let _ = stream.write_all(&line);
    });
    let told = call::<HostStatus>(&path, &Command::Status);
    daemon.join().unwrap();
    assert_eq!(told.map(|told| told.vms.len()).unwrap(), 1024);
}

/// What scxtop does: the library's own client, which must find a scheduler as it knows them.
#[test]
fn a_client_of_scx_stats_is_served_beside_others() {
    use ::scx_stats::prelude::{StatsClient, StatsMeta};
    let mut daemon = Daemon::new();
    let path = daemon.path.with_file_name("scx").join("root/stats");
    daemon.server.answer_scx_stats(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o660);
    assert_eq!(
        mode(path.parent().unwrap()) & 0o027,
        0,
        "for owner and group"
    );
    let asker = std::thread::spawn(move || {
        let mut client = StatsClient::new()
            .set_path(&path)
            .connect(Some(20_000))
            .unwrap();
        let meta: std::collections::BTreeMap<String, StatsMeta> =
            client.request("stats_meta", vec![]).unwrap();
        let top = meta.values().find(|meta| meta.attrs.top.is_some()).unwrap();
        assert!(top.fields.contains_key("policy"));
        let target = ("target".to_string(), "top".to_string());
        // The daemon of these tests answers everything with its policy, which is no status.
        let wrong = client.request::<serde_json::Value>("stats", vec![target]);
        assert!(
            wrong
                .unwrap_err()
                .to_string()
                .contains("Input/output error")
        );
        client
            .request::<serde_json::Value>("reset", vec![])
            .unwrap_err()
            .to_string()
    });
    let mut other = daemon.connect();
    other.write_all(&Command::Policy.line()).unwrap();
    while !asker.is_finished() {
        daemon.turns(1);
    }
    let error = asker.join().unwrap();
    assert!(error.contains("Invalid argument"), "{error}");
    assert!(read_line(&other).contains("\"ok\""));
    assert_eq!(daemon.heard, [Command::Policy, Command::Status]);
}

#[test]
fn a_client_of_scx_stats_has_the_same_limits() {
    let mut daemon = Daemon::new();
    let path = daemon.path.with_file_name("stats");
    daemon.server.answer_scx_stats(&path).unwrap();
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        let _ = (&stream).write(&[b'x'; 4096]);
        daemon.turns(1);
    }
    assert!(daemon.server.clients.is_empty());
    let line = read_line(&stream);
    assert!(
        line.contains("\"resp\":\"the request is too long"),
        "{line}"
    );
}

proptest! {
    #[test]
    fn any_line_has_an_answer(line in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(reply) = protocol::parse(&line) {
            prop_assert!(reply.line().ends_with(b"\n"));
        }
        let mut answer = |_| Reply::ok(&in_force());
        let reply = scx_stats::Session::default().answer(&line, &mut answer);
        prop_assert!(reply.ends_with(b"\n"));
    }
}
