// SPDX-License-Identifier: GPL-2.0-only
//! `corun compare --events`: a simulated run, written as a recording, is read as what it was.

use super::place;
use crate::common::Place;
use corun_model::TaskId;
use corun_recording::{Recording, Role, VmThread, WakeCause};
use serde_json::Value;
use std::collections::BTreeMap;

/// Runs `command`, which writes events to `run.ftrace`, and reads these as a recording. Returns the replay.
fn replayed(place: &Place, command: &str) -> Value {
    place.prints(&command.split(' ').collect::<Vec<_>>());
    place.json(&["compare", "run.ftrace", "--policies", "cfs", "--json"])
}

/// Two pCPUs that were busy all the time, and as many switches.
#[test]
fn events_are_a_recording() {
    let place = place("events");
    let run = "compare host.toml --policies eevdf --case one --seed 7 --set run.warm_up=\"0s\" \
               --events run.ftrace --json";
    let said = place.json(&run.split_whitespace().collect::<Vec<_>>());
    let again = place.json(&["compare", "run.ftrace", "--policies", "eevdf", "--json"]);
    let vcpus = again["replay"]["vcpus"].as_array().unwrap();
    let sum = |what: &str| -> f64 {
        let recorded = |vcpu: &Value| vcpu[what]["recorded"].as_f64().unwrap();
        vcpus.iter().map(recorded).sum()
    };
    assert_eq!(vcpus.len(), 4);
    assert!((sum("run_s") - 0.4).abs() < 0.004, "{again}");
    let switches = said["runs"][0]["host"]["vcpu_switches_per_s"]
        .as_f64()
        .unwrap()
        * 0.2;
    assert!(
        (sum("switches") - switches).abs() <= 4.0,
        "{switches}: {again}"
    );
}

/// The kernel that was modelled is named, and is the one that the replay models.
#[test]
fn events_name_the_kernel_that_is_modelled() {
    let place = place("events-kernel");
    for (policy, preset, said) in [
        ("eevdf", "6.6", "Linux 6.6"),
        ("eevdf", "6.12", "Linux 6.12"),
        ("eevdf", "7.x", "Linux 7.x"),
        ("cfs", "2.6.33", "Linux 2.6.33"),
        ("cfs", "4.x", "Linux 4.x"),
        ("cfs", "5.x", "Linux 5.x"),
    ] {
        let set = format!("scheduler.{policy}.preset={preset}");
        let run = ["compare", "host.toml", "--case", "one", "--seed", "1"];
        let more = [
            "--policies",
            policy,
            "--set",
            &set,
            "--events",
            "run.ftrace",
        ];
        place.prints(&[&run[..], &more].concat());
        let again = ["compare", "run.ftrace", "--policies", policy, "--json"];
        assert_eq!(place.json(&again)["runs"][0]["kernel"], said);
    }
}

/// VMs' threads begin in turns, by chance; in the recording each nevertheless belongs to its own VM.
#[test]
fn events_tell_whose_thread_each_is() {
    let place = place("events-interleaved");
    let pair = "[host]\npcpus = 4\n[run]\nduration = \"100ms\"\nwarm_up = \"100ms\"\n\
                [vm.a]\nvcpus = 4\nworkload = \"cpu\"\n[vm.b]\nvcpus = 4\nworkload = \"cpu\"\n";
    place.write("pair.toml", pair);
    for seed in ["1", "2", "3"] {
        let run = format!("compare pair.toml --policies cfs --seed {seed} --events run.ftrace");
        let again = replayed(&place, &run);
        let vcpus = again["replay"]["vcpus"].as_array().unwrap();
        let mut found: Vec<_> = vcpus.iter().map(|it| it["name"].to_string()).collect();
        found.sort();
        let named = ["a", "b"].map(|vm| [0, 1, 2, 3].map(|n| format!("\"{vm}/{n}\"")));
        assert_eq!(found, named.concat(), "seed {seed}");
    }
}

/// Threads' names show what they are to the host: in the recording of a replay, too.
#[test]
fn replays_keep_the_names_of_threads() {
    let place = Place::new("events-again");
    let names = |recording: &Recording| {
        let mut names: Vec<_> = recording
            .tasks
            .iter()
            .map(|task| task.comm.clone())
            .collect();
        names.sort();
        names
    };
    let host = format!("{HELPER}[task.some-4]\nprogram = \"loop {{ compute 1ms; sleep 1ms }}\"\n");
    let (_, recording) = recorded(&place, "cfs", &host);
    let replay = ["compare", "run.ftrace", "--policies", "cfs", "--seed", "0"];
    place.prints(&[&replay[..], &["-q", "--events", "again.ftrace"]].concat());
    let again = corun_recording::read(&place.path("again.ftrace")).unwrap();
    let expected = names(&recording);
    assert!(
        expected.contains(&"IO emulator".to_string()),
        "{expected:?}"
    );
    assert!(expected.contains(&"some-4".to_string()), "{expected:?}");
    assert_eq!(names(&again.recording), expected);
}

/// Names are read as they were given, and tasks of the host are no vCPUs, whatever their names.
#[test]
fn names_are_read_as_they_were_written() {
    let place = Place::new("events-names");
    let host = "[host]\npcpus = 2\n[run]\nduration = \"50ms\"\nwarm_up = \"0s\"\n\
                [vm.\"web 1\"]\nvcpus = 1\nworkload = \"cpu\"\n\
                [vm.\"web 2\"]\nvcpus = 1\nworkload = \"cpu\"\n\
                [task.vcpu7]\nprogram = \"loop { compute 1ms; sleep 1ms }\"\n";
    let (_, recording) = recorded(&place, "cfs", host);
    let names: Vec<_> = recording.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web 1", "web 2"]);
}

/// Nothing switches after the beginning; the recording is nevertheless as long as the run.
#[test]
fn events_go_on_to_the_end_of_the_run() {
    let place = place("events-end");
    let quiet = "[host]\npcpus = 2\n[run]\nduration = \"100ms\"\nwarm_up = \"0s\"\n\
                 [vm.a]\nvcpus = 2\nworkload = \"cpu\"\n";
    place.write("quiet.toml", quiet);
    let run = "compare quiet.toml --policies cfs --events run.ftrace";
    let again = replayed(&place, run);
    for vcpu in again["replay"]["vcpus"].as_array().unwrap() {
        let recorded = vcpu["run_s"]["recorded"].as_f64().unwrap();
        assert!((recorded - 0.1).abs() < 0.001, "{again}");
    }
}

/// Runs a host under `policy` with its events written, which are returned with what is read from them.
fn recorded(place: &Place, policy: &str, host: &str) -> (String, Recording) {
    place.write("run.toml", host);
    let run = ["compare", "run.toml", "--policies", policy, "--seed", "1"];
    place.prints(&[&run[..], &["-q", "--events", "run.ftrace"]].concat());
    let import = corun_recording::read(&place.path("run.ftrace")).unwrap();
    let notes: Vec<String> = import.notes.iter().map(ToString::to_string).collect();
    let odd = notes.iter().find(|note| note.contains("contradict"));
    assert_eq!(odd, None);
    (place.read("run.ftrace"), import.recording)
}

/// The task of vCPU `number` of the only VM.
fn vcpu(recording: &Recording, number: usize) -> TaskId {
    recording.vms[0].vcpus[number]
}

/// One pCPU, so that the woken vCPU wakes up beside the sibling that computes there.
const TIMER_BESIDE_SIBLING: &str = r#"
[host]
pcpus = 1
housekeeping = 0
[run]
duration = "500ms"
warm_up = "0s"
stagger = "0us"
[vm.a]
vcpus = 2
[[vm.a.thread]]
program = "loop { compute 1ms }"
[[vm.a.thread]]
program = "loop { sleep 3ms; compute 100us }"
"#;

/// A timer wakes a vCPU while its sibling runs: the sibling has nothing to do with it.
#[test]
fn timers_that_wake_vcpus_are_no_siblings() {
    let place = Place::new("events-timers");
    for policy in ["cfs", "eevdf", "fair", "balance", "credit"] {
        let (_, recording) = recorded(&place, policy, TIMER_BESIDE_SIBLING);
        let woken = recording
            .task(vcpu(&recording, 1))
            .unwrap()
            .observed
            .clone();
        assert_eq!(woken.wakers.siblings, 0, "{policy}");
        assert!(woken.wakers.interrupts > 50, "{policy}: {:?}", woken.wakers);
        assert_eq!(woken.wakers.unknown, 0, "{policy}");
    }
}

/// Two pCPUs: one vCPU has something for its sibling again and again, which halts in between.
const SIBLING_WAKES: &str = r#"
[host]
pcpus = 2
housekeeping = 0
halt_poll.most = "0us"
[run]
duration = "500ms"
warm_up = "0s"
stagger = "0us"
[vm.a]
vcpus = 2
[[vm.a.thread]]
program = "queue jobs 1; loop { compute 2ms; send jobs }"
[[vm.a.thread]]
program = "loop { recv jobs; compute 200us }"
[vm.b]
vcpus = 2
workload = "cpu"
"#;

/// A sibling's IPI comes from the pCPU that the sibling has, and is its doing.
#[test]
fn siblings_that_wake_siblings_are_told() {
    let place = Place::new("events-siblings");
    for policy in ["cfs", "eevdf", "fair", "balance", "credit"] {
        let (_, recording) = recorded(&place, policy, SIBLING_WAKES);
        let (sender, receiver) = (vcpu(&recording, 0), vcpu(&recording, 1));
        let woken = recording.task(receiver).unwrap();
        let by_sender = woken
            .bursts
            .iter()
            .filter(|burst| matches!(burst.wake, WakeCause::Task { waker, .. } if waker == sender));
        let (by_sender, wakers) = (by_sender.count() as u64, woken.observed.wakers);
        assert!(wakers.siblings > 50, "{policy}: {wakers:?}");
        assert_eq!(by_sender, wakers.siblings, "{policy}");
    }
}

/// A VM with a thread of the host between it and its disk.
const HELPER: &str = r#"
[host]
pcpus = 2
halt_poll.most = "0us"
[run]
duration = "500ms"
warm_up = "0s"
[device.ssd]
kind = "ssd"
[vm.a]
vcpus = 1
[vm.a.emulator]
[[vm.a.thread]]
program = "loop { read 4KB random; compute 500us }"
[vm.b]
vcpus = 2
workload = "cpu"
"#;

/// A vCPU that is woken at the moment when it halts has left its pCPU first.
#[test]
fn who_is_woken_at_once_has_blocked_before() {
    let place = Place::new("events-at-once");
    let host = "[host]\npcpus = 4\n[run]\nduration = \"300ms\"\nwarm_up = \"0s\"\n\
                [vm.db]\nvcpus = 4\nworkload = \"bodytrack\"\n\
                [vm.batch]\ncount = 2\nvcpus = 3\nworkload = \"cpu\"\n";
    for policy in ["cosched-strict", "cosched-demand"] {
        recorded(&place, policy, host);
    }
}

/// More vCPUs than pCPUs, of which gangs are switched in together.
const GANGS: &str = "[host]\npcpus = 4\n[run]\nduration = \"1s\"\n\
                     [vm.a]\nvcpus = 4\nweight = 50\nworkload = \"cpu\"\n\
                     [vm.b]\nvcpus = 2\nweight = 100\nworkload = \"cpu\"\n";

/// A vCPU that goes from one pCPU to another is switched out there before it is switched in here, in the same
/// nanosecond, too.
#[test]
fn who_is_switched_in_was_switched_out_before() {
    let place = Place::new("events-order");
    for policy in ["cosched-relaxed-all", "jupiter", "cosched-dt", "vsmtio"] {
        recorded(&place, policy, GANGS);
    }
}

/// A VM that often sleeps and may use a fifth of a pCPU.
const QUOTA: &str = r#"
[host]
pcpus = 2
housekeeping = 0
[run]
duration = "1s"
warm_up = "0s"
stagger = "0us"
[vm.q]
vcpus = 2
cpu_max = "20ms/100ms"
[[vm.q.thread]]
count = 4
program = "loop { compute 2ms exp; sleep 4ms exp }"
[vm.h]
vcpus = 2
workload = "cpu"
"#;

/// A task that is woken while its cgroup is throttled is woken then, and not when the period ends.
#[test]
fn vcpus_of_throttled_groups_are_woken_at_once() {
    let place = Place::new("events-throttled");
    for policy in ["fair", "balance", "eevdf", "cfs"] {
        let (events, _) = recorded(&place, policy, QUOTA);
        let mut woken: BTreeMap<String, String> = BTreeMap::new();
        let mut wakeups = 0;
        for line in events.lines().filter(|line| !line.starts_with('#')) {
            let (head, event) = line.split_once(": ").unwrap();
            let time = head.split_whitespace().next_back().unwrap();
            let (event, who) = event.split_once(": ").unwrap_or((event, ""));
            let who = who.split_whitespace().find(|word| word.starts_with("pid="));
            if event == "sched_waking" {
                woken.insert(who.unwrap().to_string(), time.to_string());
            } else if event == "sched_wakeup" {
                let since = woken.remove(who.unwrap());
                assert_eq!(since.as_deref(), Some(time), "{policy}: {line}");
                wakeups += 1;
            }
        }
        assert!(woken.is_empty(), "{policy}: {woken:?}");
        assert!(wakeups > 20, "{policy}: {wakeups}");
    }
}

/// The thread between a VM and its disk is the VM's, and wakes its vCPUs.
#[test]
fn threads_of_a_vm_that_wake_its_vcpus_are_told() {
    let place = Place::new("events-helpers");
    let (_, recording) = recorded(&place, "cfs", HELPER);
    let kinds: Vec<_> = recording.vms[0]
        .threads
        .iter()
        .map(|&id| recording.task(id).unwrap().role)
        .collect();
    let kind = |role: &Role| {
        matches!(
            role,
            Role::VmThread {
                kind: VmThread::Emulator | VmThread::Iothread,
                ..
            }
        )
    };
    assert!(kinds.len() == 1 && kinds.iter().all(kind), "{kinds:?}");
    let vcpus = recording.task(vcpu(&recording, 0)).unwrap().observed.wakers;
    assert!(vcpus.vm_threads > 50 && vcpus.siblings == 0, "{vcpus:?}");
}

/// A task that wakes another one on its own behalf is the one that runs on that pCPU, according to the switches.
#[test]
fn wakers_are_where_the_switches_have_them() {
    let place = Place::new("events-places");
    for policy in ["cfs", "eevdf", "balance", "credit"] {
        let (events, _) = recorded(&place, policy, SIBLING_WAKES);
        let mut runs: BTreeMap<String, String> = BTreeMap::new();
        let mut wakes = 0;
        for line in events.lines().filter(|line| !line.starts_with('#')) {
            let (head, event) = line.split_once(": ").unwrap();
            let (who, rest) = head.trim().split_once(" [").unwrap();
            let (cpu, rest) = rest.split_once("] ").unwrap();
            let tid = who.trim().rsplit_once('-').unwrap().1.to_string();
            let flags = rest.split_whitespace().next().unwrap();
            if let Some(now) = runs.get(cpu) {
                assert_eq!(*now, tid, "{policy}: {line}");
            }
            if let Some((_, next)) = event.split_once("next_pid=") {
                let next = next.split_whitespace().next().unwrap();
                runs.insert(cpu.to_string(), next.to_string());
            }
            if event.starts_with("sched_waking") {
                wakes += 1;
                // No task wakes itself, and the idle task wakes nobody.
                let own = event.contains(&format!("pid={tid} ")) || tid == "0";
                assert!(flags == "d.h2." || !own, "{policy}: {line}");
            }
        }
        assert!(wakes > 100, "{policy}: {wakes}");
    }
}
