// SPDX-License-Identifier: GPL-2.0-only
//! Errors are part of the interface: each kind of problem has an exact message.

// Test helpers, too, panic when an expectation fails.
#![allow(clippy::unwrap_used)]

use corun_scenario::{Override, read};

const GOOD: &str = "[host]\npcpus = 4\n[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";

fn problems(text: &str) -> Vec<String> {
    let problems = read("host.toml", text, &[]).unwrap_err();
    problems.to_string().lines().map(String::from).collect()
}

/// The problems of the good scenario with one more line at its end.
fn with(line: &str) -> Vec<String> {
    problems(&format!("{GOOD}{line}\n"))
}

#[track_caller]
fn says(found: Vec<String>, expected: &[&str]) {
    assert_eq!(found, expected);
}

#[test]
fn what_is_no_toml() {
    says(
        problems("[host\npcpus = 4\n"),
        &["host.toml:1: not TOML: unclosed table, expected `]`"],
    );
}

#[test]
fn what_is_there_twice() {
    says(
        problems(&format!("{GOOD}vcpus = 3\n")),
        &["host.toml:6: not TOML: duplicate key \"vcpus\": it has a value already, further up"],
    );
    says(
        problems(&format!("{GOOD}[vm.web]\ncount = 3\n")),
        &["host.toml:6: not TOML: duplicate key \"web\": it has a value already, further up"],
    );
    says(
        with("[run]\npolicies = [\"cfs\",\n  \"cfs\"]"),
        &["host.toml:8: run.policies: found \"cfs\" twice, expected each policy once"],
    );
}

#[test]
fn lists_of_nothing() {
    says(
        with("[run]\npolicies = []"),
        &[
            "host.toml:7: run.policies: found an empty list, expected a list of texts such as \
             [\"cfs\", \"balance\"]",
        ],
    );
    says(
        with("[vm.none]\nvcpus = 1\nworkload = []"),
        &[
            "host.toml:8: vm.none.workload: found an empty list, expected a list of texts such as \
             [\"mysql\", \"clamav\"]",
        ],
    );
}

#[test]
fn tables_that_are_written_otherwise() {
    says(
        problems("[host]\npcpus = 2\n[[vm]]\nname = \"a\"\nvcpus = 1\n"),
        &["host.toml:3: vm: found a list, expected tables with a name each, such as [vm.NAME]"],
    );
    says(
        with("[vm.none]\nvcpus = 1\n[vm.none.thread]\nprogram = \"compute 1ms\""),
        &[
            "host.toml:8: vm.none.thread: found a table, expected a list of tables, written [[vm.none.thread]]",
        ],
    );
}

#[test]
fn lists_and_tables_of_nothing_that_should_do_something() {
    says(
        with("[vm.none]\nvcpus = 1\nthread = []"),
        &[
            "host.toml:8: vm.none.thread: found an empty list, expected a list of tables, written [[vm.none.thread]]",
        ],
    );
    says(
        problems("host.pcpus = 4\n[vm]\n[task]\n"),
        &["host.toml:2: vm: is missing, expected at least one table such as [vm.web]"],
    );
}

#[test]
fn an_empty_file_lacks_everything() {
    says(
        problems(""),
        &[
            "host.toml: host: is missing, expected a table with topology = \"1n1l4c1t\" or pcpus = 4",
            "host.toml: vm: is missing, expected at least one table such as [vm.web]",
        ],
    );
}

#[test]
fn unknown_keys_and_what_was_meant() {
    says(
        with("weigth = 3\nfrobnicate = 1"),
        &[
            "host.toml:6: vm.web.weigth: unknown key, did you mean \"weight\"? (known here: allowed, \
             cap, cookie, count, cpu_burst, cpu_idle, cpu_max, disk, disk_size, emulator, group, guest, \
             io_quota, io_weight, realtime, rt_app, rt_app_ignore, slice, thread, threads, \
             vcpu_allowed, vcpu_max, vcpu_weight, vcpus, weight, workload)",
            "host.toml:7: vm.web.frobnicate: unknown key (known here: allowed, cap, cookie, count, cpu_burst, \
             cpu_idle, cpu_max, disk, disk_size, emulator, group, guest, io_quota, io_weight, \
             realtime, rt_app, rt_app_ignore, slice, thread, threads, vcpu_allowed, vcpu_max, vcpu_weight, vcpus, \
             weight, workload)",
        ],
    );
}

#[test]
fn ranges() {
    says(
        with("cookie = -1"),
        &["host.toml:6: vm.web.cookie: found -1, expected a whole number from 0 to 4294967295"],
    );
    says(
        with("weight = 0"),
        &["host.toml:6: vm.web.weight: found 0, expected a whole number from 1 to 10000"],
    );
    says(
        with("vcpu_weight = 1.5"),
        &["host.toml:6: vm.web.vcpu_weight: found 1.5, expected a whole number from 1 to 10000"],
    );
    says(
        with("[vm.big]\nvcpus = 513\nworkload = \"cpu\""),
        &["host.toml:7: vm.big.vcpus: found 513, expected a whole number from 1 to 512"],
    );
    says(
        with("[vm.big]\ncount = 4095\nvcpus = 2\nworkload = \"cpu\""),
        &[
            "host.toml:7: vm.big.count: 8192 vCPUs with the VMs before, expected at most 4096 in all",
        ],
    );
    says(
        with("[run]\nseed = -1"),
        &[
            "host.toml:7: run.seed: found -1, expected a whole number from 0 to 9223372036854775807, \
             or a list of such",
        ],
    );
}

#[test]
fn durations() {
    let accepted = "a number with a unit: ns, us, ms, s or min, such as \"2.5ms\"";
    for (value, shown) in [
        ("\"5\"", "\"5\""),
        ("5", "5"),
        ("\"-5s\"", "\"-5s\""),
        ("[]", "an empty list"),
        ("[1]", "a list"),
    ] {
        says(
            with(&format!("[run]\nduration = {value}")),
            &[&format!(
                "host.toml:7: run.duration: found {shown}, expected {accepted}"
            )],
        );
    }
    says(
        with("[run]\nduration = \"99999999999999s\""),
        &[
            "host.toml:7: run.duration: found \"99999999999999s\", expected a duration from 1.00 ms \
             to 86400 s",
        ],
    );
    says(
        with("[run]\nduration = \"0s\"\nwarm_up = \"2000min\""),
        &[
            "host.toml:7: run.duration: found \"0s\", expected a duration from 1.00 ms to 86400 s",
            "host.toml:8: run.warm_up: found \"2000min\", expected a duration from 0 ns to 86400 s",
        ],
    );
    says(
        with("[run]\nwarm_up = \"1s\"\nstagger = \"2s\""),
        &["host.toml:8: run.stagger: found \"2s\", expected a duration from 0 ns to 1.00 s"],
    );
}

#[test]
fn the_machine() {
    let vm = "[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";
    let host = |keys: &str| problems(&format!("[host]\n{keys}\n{vm}"));
    says(
        host("topology = \"4\""),
        &[
            "host.toml:2: host.topology: \"4\" is not a topology: expected \
             <nodes>n<llcs>l<cores>c<threads>t such as 1n2l4c2t",
        ],
    );
    says(
        host("topology = \"2n2l2c2t\"\npcpus = 4"),
        &["host.toml:3: host.pcpus: topology is given, too: expected one of them"],
    );
    says(
        host("hz = 250"),
        &[
            "host.toml:1: host.topology: is missing, expected <nodes>n<llcs>l<cores>c<threads>t \
             such as \"1n2l4c2t\", or pcpus = 4",
        ],
    );
    says(
        host("pcpus = 4\nhz = 50\ntick_skew = 1"),
        &[
            "host.toml:3: host.hz: found 50, expected a whole number from 100 to 10000",
            "host.toml:4: host.tick_skew: found 1, expected true or false",
        ],
    );
    says(
        host(
            "pcpus = 4\nidle_states = [\"80us/211us\", \"10us/20us\", \"2us\"]\ncosts.idle_wake = \"2us\"",
        ),
        &[
            "host.toml:3: host.idle_states: found \"10us/20us\" after a deeper state, expected the \
             shallowest first",
            "host.toml:3: host.idle_states: found \"2us\", expected exit latency and target residency \
             such as \"104us/345us\", up to 1s each",
            "host.toml:3: host.idle_states: costs.idle_wake is given, too: expected one of them",
        ],
    );
    says(
        host("pcpus = 4\nidle_states = \"2us/2us\""),
        &[
            "host.toml:3: host.idle_states: found \"2us/2us\", expected a list of texts such as \
             [\"2us/2us\", \"104us/345us\"]",
        ],
    );
    says(
        host("topology = \"0n1l4c2t\""),
        &["host.toml:2: host.topology: \"0n1l4c2t\": every count must be at least 1"],
    );
    says(
        host("topology = \"8n8l8c2t\""),
        &["host.toml:2: host.topology: \"8n8l8c2t\" has more than 512 pCPUs"],
    );
}

#[test]
fn what_is_shared() {
    let vm = "[vm.web]\nvcpus = 2\nworkload = \"cpu\"\n";
    let host = |keys: &str| problems(&format!("[host]\npcpus = 4\n{keys}\n{vm}"));
    let good = "l2 = \"1MB\"\nllc = \"32MB\"\n[host.smt]\nyield = 120";
    assert!(
        read(
            "host.toml",
            &format!("[host]\npcpus = 4\n{good}\n{vm}"),
            &[]
        )
        .is_ok()
    );
    says(
        host("l2 = \"256\"\nllc = 8"),
        &[
            "host.toml:3: host.l2: found \"256\", expected a size such as 1500B, 64KB, 4MB or 1GB \
             (powers of 1024), 4KB to 1GB",
            "host.toml:4: host.llc: found 8, expected a size such as 1500B, 64KB, 4MB or 1GB \
             (powers of 1024), 4KB to 1GB",
        ],
    );
    says(
        host("l2 = \"64B\"\nllc = \"4KB\""),
        &[
            "host.toml:3: host.l2: found \"64B\", expected a size such as 1500B, 64KB, 4MB or 1GB \
             (powers of 1024), 4KB to 1GB",
        ],
    );
    says(
        host("l2 = \"1MB\"\nllc = \"512KB\""),
        &["host.toml:4: host.llc: found 512KB, expected at least an L2: 1MB"],
    );
    says(
        host("[host.smt]\nswitching = 0\nyield = 300\nspining = 73"),
        &[
            "host.toml:4: host.smt.switching: found 0, expected a whole number from 1 to 100",
            "host.toml:5: host.smt.yield: found 300, expected a whole number from 50 to 200",
            "host.toml:6: host.smt.spining: unknown key, did you mean \"spinning\"? (known here: \
             halt_polling, idle_polling, spinning, switching, yield)",
        ],
    );
    says(
        host("[host.costs]\nmemory = \"1ms\""),
        &[
            "host.toml:4: host.costs.memory: found \"1ms\", expected a duration from 0 ns to 10.0 µs",
        ],
    );
}

#[test]
fn sets_of_pcpus() {
    says(
        with("allowed = \"0-4\""),
        &["host.toml:6: vm.web.allowed: found \"0-4\", but the host has pCPUs 0 to 3 only"],
    );
    says(
        with("allowed = [0]"),
        &[
            "host.toml:6: vm.web.allowed: found a list, expected text that lists pCPUs below 512, such as \
             \"0-3,8\"",
        ],
    );
    says(
        with("allowed = \"x\""),
        &[
            "host.toml:6: vm.web.allowed: found \"x\", expected a list of pCPUs below 512 such as \
             \"0-3,8\"",
        ],
    );
    says(
        with("vcpu_allowed = [\"0\", 9]"),
        &["host.toml:6: vm.web.vcpu_allowed: found \"9\", but the host has pCPUs 0 to 3 only"],
    );
    says(
        with("allowed = 0\nvcpu_allowed = [0]"),
        &[
            "host.toml:7: vm.web.vcpu_allowed: goes without allowed: it says the same of each vCPU",
            "host.toml:7: vm.web.vcpu_allowed: found 1, expected one for each of 2 vCPUs",
        ],
    );
    says(
        with("vcpu_allowed = \"0\""),
        &[
            "host.toml:6: vm.web.vcpu_allowed: found \"0\", expected a list of them, such as \
             [\"0\", \"1\", \"2-3\"]",
        ],
    );
}

#[test]
fn what_a_vm_does() {
    says(
        with("threads = 2\n[[vm.web.thread]]\nprogram = 7"),
        &["host.toml:8: vm.web.thread.program: found 7, expected text in quotes"],
    );
    says(
        with("[vm.idle]\nvcpus = 1"),
        &[
            "host.toml:6: vm.idle.workload: is missing, expected the name of a workload or \
             several, threads as [[….thread]], or a file as rt_app",
        ],
    );
    says(
        with("[vm.db]\nvcpus = 2\n[[vm.db.thread]]\nvcpu = 2"),
        &[
            "host.toml:8: vm.db.thread.program: is missing, expected what the thread does, such as \
             \"loop { compute 1ms }\"",
            "host.toml:9: vm.db.thread.vcpu: found 2, expected a whole number from 0 to 1",
        ],
    );
}

#[test]
fn names() {
    says(
        with("[vm.\"a/b\"]\nvcpus = 1\nworkload = \"cpu\""),
        &[
            "host.toml:6: vm.\"a/b\": found \"a/b\", expected a name of 1 to 40 letters, digits, \
             '-', '_', '.' and, not at its ends, spaces",
        ],
    );
    for name in ["", " ", " a", "a ", "a\\tb", "é"] {
        let found = with(&format!(
            "[client.\"{name}\"]\nvm = \"web\"\nkind = \"ping\""
        ));
        assert!(found[0].starts_with("host.toml:6: client.\""), "{found:?}");
        assert!(found[0].contains("expected a name of 1 to 40"), "{found:?}");
    }
    says(
        with("[vm.web1]\nvcpus = 1\nworkload = \"cpu\"\n[case.x]\nvm.web.count = 2"),
        &["host.toml:6: vm.web1.count: there would be two VMs of the name \"web1\""],
    );
    says(
        with("[task.a]\ncount = 2\nprogram = \"sleep 1s\"\n[task.a1]\nprogram = \"sleep 1s\""),
        &["host.toml:9: task.a1.count: there would be two host tasks of the name \"a1\""],
    );
}

#[test]
fn names_of_cases() {
    let long = "x".repeat(81);
    for name in ["", " ", " a", "a ", "a\\u001b[2J", &long] {
        let found = with(&format!("[case.\"{name}\"]"));
        assert!(found[0].starts_with("host.toml:6: case.\""), "{found:?}");
        assert!(found[0].contains("expected a name of 1 to 80"), "{found:?}");
        assert!(!found[0].contains('\u{1b}'), "a terminal would obey");
    }
    let fine = format!("{GOOD}[case.\"2 VMs, 16 vCPUs: ½\"]\n");
    assert!(read("host.toml", &fine, &[]).is_ok());
}

#[test]
fn cases_are_checked_too_and_shared_problems_told_once() {
    says(
        with("weight = 0\n[case.a]\nhost.hz = 7\n[case.b]\nrun.duratoin = \"1s\""),
        &[
            "host.toml:6: vm.web.weight: found 0, expected a whole number from 1 to 10000",
            "host.toml:8: host.hz: found 7, expected a whole number from 100 to 10000",
            "host.toml:10: run.duratoin: unknown key, did you mean \"duration\"? (known here: \
             duration, policies, seed, seeds, stagger, warm_up)",
        ],
    );
    says(
        with("[case]\na = 1"),
        &["host.toml:7: case.\"a\": found 1, expected a table"],
    );
    says(
        with("[case.a.case.b]\nhost.hz = 100"),
        &["host.toml:6: case: a case has no cases of its own"],
    );
    let misspelt = with("[cases.a]\nhost.hz = 100");
    let hint = "host.toml:6: cases: unknown key, did you mean \"case\"?";
    assert!(misspelt[0].starts_with(hint), "{misspelt:?}");
}

#[test]
fn one_pcpu_may_be_a_number() {
    says(
        with("allowed = 4"),
        &["host.toml:6: vm.web.allowed: found \"4\", but the host has pCPUs 0 to 3 only"],
    );
    says(
        with("allowed = -1"),
        &[
            "host.toml:6: vm.web.allowed: found -1, expected a list of pCPUs below 512 such as \"0-3,8\"",
        ],
    );
    let one = format!("{GOOD}allowed = 3\n");
    let scenario = read("host.toml", &one, &[]).unwrap();
    assert_eq!(
        scenario.cases[0].vms[0]
            .allowed
            .as_ref()
            .unwrap()
            .to_string(),
        "3"
    );
}

/// The same with these lines about disks.
fn with_disks(vm: &str, devices: &str) -> Vec<String> {
    problems(&format!("{GOOD}{vm}\n{devices}\n"))
}

#[test]
fn disks_and_what_does_not_go_with_them() {
    says(
        with_disks(
            "",
            "[device.a]\nkind = \"hdd\"\nparallel = 3\nslice_idle = \"8ms\"",
        ),
        &[
            "host.toml:9: device.a.parallel: goes with kind = \"ssd\", but here it is \"hdd\"",
            "host.toml:10: device.a.slice_idle: goes with scheduler = \"anticipatory\", but here it is \
             \"deadline\"",
        ],
    );
    says(
        with_disks(
            "disk = \"b\"\nio_quota = \"fast\"",
            "[device.a]\nkind = \"ssd\"",
        ),
        &[
            "host.toml:6: vm.web.disk: there is no device \"b\", accepted are a",
            "host.toml:7: vm.web.io_quota: found \"fast\", expected a rate from 1B/s to 1000000GB/s, \
             whole, such as \"50MB/s\"",
        ],
    );
    says(
        with_disks("io_weight = 200", "[device.a]\nkind = \"ssd\""),
        &[
            "host.toml:6: vm.web.io_weight: only a disk with scheduler = \"anticipatory\" heeds \
             weights",
        ],
    );
    says(
        with_disks("disk_size = \"1GB\"", ""),
        &[
            "host.toml:6: vm.web.disk_size: goes with a disk, but the VM names none and the host has \
             not just one",
        ],
    );
}

/// Scenarios are passed on, and messages list what they name.
#[test]
fn no_terminal_obeys_what_a_scenario_names() {
    let vm = "[vm.\"a\\u001b[2J\"]\nvcpus = 1\nworkload = \"cpu\"\n";
    let client = "[client.c]\nvm = \"nobody\"\nkind = \"ping\"";
    let told = with(&format!("{vm}{client}"));
    let listed = "client.c.vm: there is no VM \"nobody\", accepted are web, a\u{fffd}[2J";
    assert!(told.iter().any(|line| line.ends_with(listed)), "{told:?}");
    assert!(!told.concat().contains('\u{1b}'), "{told:?}");
}

#[test]
fn half_of_a_bandwidth_is_one_problem() {
    says(
        with("[scheduler.rr]\nruntime = \"100ms\""),
        &["host.toml:7: scheduler.rr.runtime: expected runtime and period, both or neither"],
    );
}

#[test]
fn sizes_that_guests_cannot_have() {
    says(
        with_disks(
            "disk_size = \"0B\"\n[vm.web.guest]\nread_ahead = \"5KB\"",
            "[device.a]\nkind = \"ssd\"",
        ),
        &[
            "host.toml:6: vm.web.disk_size: found \"0B\", expected at least 1MB",
            "host.toml:8: vm.web.guest.read_ahead: found \"5KB\", expected a multiple of 4KB \
             from 4KB to 1GB",
        ],
    );
}

#[test]
fn keys_of_other_kinds_of_clients() {
    says(
        with("[client.a]\nvm = \"web\"\nkind = \"ping\"\nport = \"http\"\ntimeout = \"1s\""),
        &[
            "host.toml:9: client.a.port: goes with kind = \"closed\" or \"open\" or \"sink\" or \
             \"stream\", but here it is \"ping\"",
        ],
    );
}

#[test]
fn clients() {
    says(
        with("[client.a]\nkind = \"pong\"\n[client.b]\nvm = \"wed\"\nkind = \"sink\""),
        &[
            "host.toml:6: client.a.vm: is missing, expected the name of the VM that serves it",
            "host.toml:7: client.a.kind: found \"pong\", did you mean \"ping\"? Accepted are \
             closed, open, ping, sink, stream",
            "host.toml:8: client.b.port: is missing, expected the name of a port that programs of \
             the VM use",
            "host.toml:9: client.b.vm: there is no VM \"wed\", did you mean \"web\"? Accepted are web",
        ],
    );
    let open = |line: &str| {
        with(&format!(
            "[client.a]\nvm = \"web\"\nkind = \"open\"\nport = \"http\"\n{line}"
        ))
    };
    says(
        open("gaps = \"even\""),
        &[
            "host.toml:6: client.a.rate: is missing, expected requests per second",
            "host.toml:10: client.a.gaps: found \"even\", accepted are exponential, fixed",
        ],
    );
    says(
        open("rate = 0\nthink = \"1s\""),
        &[
            "host.toml:10: client.a.rate: found 0, expected a whole number from 1 to 1000000",
            "host.toml:11: client.a.think: goes with kind = \"closed\", but here it is \"open\"",
        ],
    );
    says(
        open("rate = 9\nstart = \"2s\"\nstop = \"2s\"\non = \"1s\""),
        &[
            "host.toml:6: client.a.off: is missing, expected a time, to go with `on`",
            "host.toml:12: client.a.stop: found 2.00 s, expected later than start, 2.00 s",
        ],
    );
    says(
        open("rate = 9\non = \"0s\"\noff = \"2\""),
        &[
            "host.toml:11: client.a.on: found \"0s\", expected a duration from 1.00 µs to 86400 s",
            "host.toml:12: client.a.off: found \"2\", expected a number with a unit: ns, us, ms, s or min, \
             such as \"2.5ms\"",
        ],
    );
}

#[test]
fn sources_are_one_line() {
    says(
        problems(&format!("source = \"a\\u0007b\"\n{GOOD}")),
        &["host.toml:1: source: found a control character, expected one line"],
    );
}

/// A section that names a VM that could not be read is not wrong because of that.
#[test]
fn vms_with_faults_are_there() {
    let names = "[client.a]\nvm = \"db\"\nkind = \"ping\"\n\
                 [channel.b]\nfrom = \"web:x\"\nto = \"db:y\"\n\
                 [task.c]\nhelper_of = \"db\"\nprogram = \"loop { compute 1ms }\"\n";
    for vcpus in [0, 513] {
        let vm = format!("[vm.db]\nvcpus = {vcpus}\nworkload = \"cpu\"\n");
        let wrong = format!(
            "host.toml:7: vm.db.vcpus: found {vcpus}, expected a whole number from 1 to 512"
        );
        says(with(&format!("{vm}{names}")), &[wrong.as_str()]);
        says(
            with(&format!("{vm}{}", names.replace("db:y", "dv:y"))),
            &[
                &wrong,
                "host.toml:14: channel.b.to: there is no VM \"dv\", accepted are web, db",
            ],
        );
    }
    // `db` makes the VMs, however many there are.
    says(
        with("[vm.db]\ncount = 0\nvcpus = 1\n[client.a]\nvm = \"db2\"\nkind = \"ping\""),
        &[
            "host.toml:6: vm.db.workload: is missing, expected the name of a workload or several, threads as \
             [[….thread]], or a file as rt_app",
            "host.toml:7: vm.db.count: found 0, expected a whole number from 1 to 4096",
        ],
    );
}

/// The message names the guest's own key, not a thread's program.
#[test]
fn windows_too_short_for_a_pause_loop() {
    says(
        with("[vm.web.guest]\nple_window = \"99ns\""),
        &[
            "host.toml:7: vm.web.guest.ple_window: found 99 ns, expected 0 or a duration from 100 ns to 1.00 s",
        ],
    );
    for fine in ["0ns", "100ns"] {
        let text = format!("{GOOD}[vm.web.guest]\nple_window = \"{fine}\"");
        assert!(read("host.toml", &text, &[]).is_ok());
    }
}

/// Results go by names of clients.
#[test]
fn clients_of_one_name() {
    says(
        with(
            "[client.\"a web1\"]\nvm = \"web\"\nkind = \"ping\"\n[client.a]\nvm = \"db\"\nkind = \"ping\"\n[vm.db]\ncount = 2\nvcpus = 1\nworkload = \"cpu\"\n[client.\"a db2\"]\nvm = \"web\"\nkind = \"ping\"",
        ),
        &["host.toml:16: client.\"a db2\": there is a client \"a db2\" already"],
    );
}

/// It is the guest that sends to a sink.
#[test]
fn sinks_neither_come_nor_go() {
    says(
        with("[client.a]\nvm = \"web\"\nkind = \"sink\"\nport = \"out\"\nstop = \"1s\""),
        &[
            "host.toml:10: client.a.stop: goes with kind = \"closed\" or \"open\" or \"ping\" or \
             \"stream\", but here it is \"sink\"",
        ],
    );
}

#[test]
fn channels() {
    says(
        with("[channel.a]\nfrom = \"web\"\nto = \"db:sql\""),
        &[
            "host.toml:7: channel.a.from: found \"web\", expected a VM and a port of its programs \
             such as \"web:dbreq\"",
            "host.toml:8: channel.a.to: there is no VM \"db\", accepted are web",
        ],
    );
    // A name stands for several VMs only where a count makes them.
    says(
        with("[vm.db1]\nvcpus = 1\nworkload = \"cpu\"\n[client.a]\nvm = \"db\"\nkind = \"ping\""),
        &[
            "host.toml:10: client.a.vm: there is no VM \"db\", did you mean \"db1\"? Accepted are web, db1",
        ],
    );
    says(
        with(
            "[vm.db]\ncount = 2\nvcpus = 1\nworkload = \"cpu\"\n\
             [channel.a]\nfrom = \"web:dbreq\"\nto = \"db:sql\"",
        ),
        &["host.toml:12: channel.a.to: means several VMs, expected one of db1, db2"],
    );
    says(
        with("[network]\nbandwidth = 0\ntcp_min_rto = \"0ms\""),
        &[
            "host.toml:7: network.bandwidth: found 0, expected a whole number from 1 to 1000000",
            "host.toml:8: network.tcp_min_rto: found \"0ms\", expected a duration from 1.00 ms to 60.0 s",
        ],
    );
}

#[test]
fn what_is_wrong_with_policies_settings() {
    let found = with(
        "[policy.cosched-strict]\nslto = \"20ms\"\n[policy.cosched-relaxed]\nresume = \"5ms\"\n\
         [policy.cosched-demnd]\nlight = 99\n[policy.balance-load]\nlight = 99\n\
         [policy.vslicer]\nslice = \"100ms\"\n[policy.vturbo]\ndefault = \"500us\"\n\
         [policy.vsmtio]\nslice_least = \"1s\"",
    );
    for says in [
        "host.toml:7: policy.cosched-strict.slto: unknown key, did you mean \"slot\"?",
        "host.toml:9: policy.cosched-relaxed.resume: found resume ",
        "host.toml:10: policy.cosched-demnd: unknown key, did you mean \"cosched-demand\"?",
        "host.toml:13: policy.balance-load.light: found 99, expected a whole number from 100 to 1000",
        "host.toml:15: policy.vslicer.slice: found slice 100 ms and default 30.0 ms, expected slice to be no more",
        "host.toml:17: policy.vturbo.default: found slice 1.00 ms and default 500 µs, expected slice to be no more",
        "host.toml:19: policy.vsmtio.slice_least: found slice_least 1.00 s and latency 24.0 ms, expected slice_least to",
    ] {
        assert!(
            found.iter().any(|line| line.starts_with(says)),
            "{found:#?}"
        );
    }
}

#[test]
fn what_belongs_to_an_agent() {
    says(
        with("guest = { heartbeat_idle = \"1ms\" }"),
        &["host.toml:6: vm.web.guest.heartbeat_idle: goes with agent = \"vmigrater\" only"],
    );
    says(
        with("guest = { agent = \"vmigrater\", heartbeat_idle = \"1s\", balloon_sleep = 50 }"),
        &[
            "host.toml:6: vm.web.guest.heartbeat_idle: found \"1s\", expected a duration from 50.0 µs to \
             100 ms",
            "host.toml:6: vm.web.guest.balloon_sleep: goes with agent = \"xballoon\" only",
        ],
    );
}

#[test]
fn a_slip_in_the_name_of_a_vm_is_guessed() {
    let over = Override::parse("--set", "vm.wbe.count=3").unwrap();
    let found = read("host.toml", GOOD, &[over]).unwrap_err().to_string();
    let expected =
        "vm.wbe.vcpus: is missing, expected the number of vCPUs; or did you mean the VM \"web\"?";
    assert!(found.contains(expected), "{found}");
    let case = with("[case.more]\nvm.wbe.count = 3").join("\n");
    assert!(case.contains(expected), "{case}");
    let other = with("[vm.db]\nworkload = \"cpu\"").join("\n");
    assert!(!other.contains("did you mean"), "{other}");
}

#[test]
fn what_is_no_text_in_a_list_of_texts_is_named() {
    says(
        with("[run]\npolicies = [\"cfs\", 1]"),
        &[
            "host.toml:7: run.policies: found 1, expected a list of texts such as [\"cfs\", \"balance\"] only",
        ],
    );
}

/// Linux answers EINVAL (kernel/sched/core.c, `tg_set_cfs_bandwidth()`).
#[test]
fn bursts_are_no_longer_than_their_quota() {
    let expected =
        "expected a duration from 0 ns to 10ms, the pCPU time in cpu_max (Linux takes no more)";
    says(
        with("cpu_max = \"10ms/100ms\"\ncpu_burst = \"50ms\""),
        &[&format!(
            "host.toml:7: vm.web.cpu_burst: found \"50ms\", {expected}"
        )],
    );
    says(
        with("[group.g]\ncpu_burst = \"10001us\"\ncpu_max = \"10ms\""),
        &[&format!(
            "host.toml:7: group.g.cpu_burst: found \"10001us\", {expected}"
        )],
    );
    let text = format!("{GOOD}cpu_max = \"50ms/100ms\"\ncpu_burst = \"50ms\"\n");
    read("host.toml", &text, &[]).unwrap();
    let less = Override::parse("--set", "vm.web.cpu_max=10ms/100ms").unwrap();
    let found = read("host.toml", &text, &[less]).unwrap_err().to_string();
    assert_eq!(
        found,
        format!("host.toml:7: vm.web.cpu_burst: found \"50ms\", {expected}")
    );
    // Then only the fault in the quota is reported.
    says(
        with("cpu_max = \"10\"\ncpu_burst = \"50ms\""),
        &[
            "host.toml:6: vm.web.cpu_max: found \"10\", expected pCPU time per period such as \
             \"20ms/100ms\", at least 1 ms each, the period 1 s at most",
        ],
    );
}
