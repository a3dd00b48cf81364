// SPDX-License-Identifier: GPL-2.0-only
//! What is read, refused and noted.

use super::*;

#[test]
fn lax_json_is_read() {
    let text = "/* a\n comment */ {\n \"tasks\" : { // another\n \"t\" : { \"run\" : 5, },\n },\n \
        \"global\" : { \"duration\" : 6, \"gnuplot\" : True, \"calibration\" : \"CPU0\", \
        \"log_size\" : 2, \"ftrace\" : \"main,task\", },\n \"resources\" : {},\n}\n";
    let converted = converted(text);
    assert_eq!(converted.duration, Some(6 * SEC));
    assert_eq!((converted.threads.len(), converted.notes.len()), (1, 0));
    for (text, expected) in [
        (
            "",
            "line 1, column 1: found the end of the file, expected a value",
        ),
        (
            "[]",
            "line 1, column 1: found a list, expected an object { … }",
        ),
        (
            "{\n \"a\" 1}",
            "line 2, column 6: found '1', expected `:` and a value after the key",
        ),
        (
            "{\"a\": /* x",
            "line 1, column 7: this comment has no end, expected `*/`",
        ),
        (
            "{\"a\": \"x\n\"}",
            "line 1, column 7: this text has no closing `\"`",
        ),
        (
            "{\"a\": \"\\q\"}",
            "line 1, column 8: found \\q, expected one of",
        ),
        (
            "{\"a\": \"\\u12é4\"}",
            "line 1, column 8: found \\u12é4, expected \\uXXXX",
        ),
        (
            "{\"a\": nope}",
            "line 1, column 7: found nope, expected true, false, null",
        ),
        (
            "{\"a\": [1 2]}",
            "line 1, column 10: found '2', expected `,` or `]`",
        ),
        (
            "{} {}",
            "line 1, column 4: found '{', expected the end of the file",
        ),
        ("{}", "line 1, column 1: tasks: is missing"),
        (
            r#"{"tasks": {}}"#,
            "line 1, column 2: tasks: is empty, expected at least one task",
        ),
    ] {
        let fault = fault(text);
        assert!(fault.starts_with(expected), "{text}: {fault}");
    }
    let deep = "[".repeat(100);
    assert!(fault(&deep).contains("nested deeper"));
    assert!(fault(&" ".repeat(MOST_BYTES + 1)).contains("expected at most 1048576"));
}

#[test]
fn no_terminal_obeys_what_a_file_names() {
    let converted =
        converted(r#"{"tasks": {"a\u001b[2J": {"run": 1, "loop": -1, "odd\u001bkey": 2}}}"#);
    assert_eq!(converted.threads[0].name, "a\u{fffd}[2J-0");
    assert_eq!(converted.notes[0].key, "tasks.a\u{fffd}[2J.odd\u{fffd}key");
}

#[test]
fn wrong_values_are_told_with_place_and_what_is_accepted() {
    for (entries, expected) in [
        (
            r#""run": -3"#,
            "line 1, column 25: tasks.t.run: found -3, expected a whole number from 0 to 86400000000",
        ),
        (
            r#""run": 99999999999999999999"#,
            "tasks.t.run: found 99999999999999999999, expected a whole number",
        ),
        (r#""run": 1.5"#, "found 1.5, expected a whole number"),
        (r#""run": "5""#, "found \"5\", expected a whole number"),
        (
            r#""run": 1, "loop": 0"#,
            "tasks.t.loop: found 0, expected -1 (for ever) or a number of rounds",
        ),
        (
            r#""run": 1, "loop": -2"#,
            "tasks.t.loop: found -2, expected a whole number from -1",
        ),
        (
            r#""run": 1, "instance": 100000"#,
            "tasks.t.instance: found 100000, expected a whole number from 0 to 65536",
        ),
        (r#""run": 1, "delay": true"#, "tasks.t.delay: found true"),
        (
            r#""run": 1, "cpus": [4]"#,
            "tasks.t.cpus: found 4, expected vCPUs of the VM: 0 to 3",
        ),
        (
            r#""run": 1, "cpus": 0"#,
            "tasks.t.cpus: found 0, expected a list of CPUs",
        ),
        (
            r#""run": 1, "policy": "FAST""#,
            "found \"FAST\", expected one of SCHED_OTHER",
        ),
        (
            r#""run": 1, "lock": 5"#,
            "tasks.t.lock: found 5, expected a name",
        ),
        (
            r#""run": 1, "timer": 5"#,
            "tasks.t.timer: found 5, expected an object",
        ),
        (
            r#""timer": {"ref": "a", "period": -1}"#,
            "tasks.t.timer.period: found -1",
        ),
        (r#""cpus": [0]"#, "tasks.t: has no events left"),
        (
            r#""phases": []"#,
            "tasks.t.phases: found a list, expected an object",
        ),
        (r#""yield": """#, "tasks.t: its rounds take no time"),
        (
            r#""run": 1, "phases": {"p": {"loop": 5, "signal": "c"}, "q": {"run": 1}}"#,
            "tasks.t.phases.p: its rounds take no time",
        ),
        (
            r#""run": 1, "suspend": """#,
            "tasks.t.suspend: waits for ever: nothing resumes \"t\"",
        ),
        (
            r#""run": 1, "sem_wait": "s""#,
            "waits for ever: nothing posts semaphore \"s\"",
        ),
        (
            r#""run": 1, "lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m""#,
            "waits for ever: nothing signals \"c\"",
        ),
        (
            r#""run": 1, "lock": "m", "lock": "m", "unlock": "m""#,
            "\"m\" is locked already by this thread",
        ),
        (
            r#""run": 1, "lock": "t", "resume": "t", "unlock": "t""#,
            "\"t\" is locked already by this thread",
        ),
    ] {
        let fault = fault(&task(entries));
        assert!(fault.contains(expected), "{entries}: {fault}");
    }
    let threads = r#"{"tasks": {"a": {"instance": 65536, "run": 1}, "b": {"run": 1}}}"#;
    assert!(fault(threads).contains("tasks.b.instance: 65537 threads"));
}

#[test]
fn what_is_not_supported_is_listed_and_can_be_left_out() {
    let text = "{\"tasks\": {\"t\": {\n\"run\": 1,\n\"mem\": 5,\n\"memrun\": {\"type\": \"read\"},\n\
        \"iorun\": 7,\n\"fork\": \"u\"}, \"u\": {\"instance\": 0, \"run\": 1}}}";
    let all = faults(text);
    assert_eq!(all.len(), 4);
    assert!(
        all[0].starts_with("line 3, column 1: tasks.t.mem: is not supported: how long it takes"),
        "{}",
        all[0]
    );
    assert!(all[0].ends_with("rt_app_ignore = [\"mem\"] leaves all mem events out"));
    let ignore = ["mem", "memrun", "iorun", "fork"].map(String::from);
    let left = convert(text, 4, &ignore).unwrap();
    assert_eq!(
        left.threads[0].program.to_string(),
        "loop { compute 1us; count 1 loops }"
    );
    let notes: Vec<String> = left.notes.iter().map(Note::to_string).collect();
    assert_eq!(notes.len(), 5);
    assert_eq!(
        notes[0],
        "line 3: tasks.t.mem: left out, as rt_app_ignore says"
    );
    for (entries, expected) in [
        (
            r#""run": 1, "unlock": "m""#,
            "tasks.t.unlock: is not supported: \"m\" is not locked before it",
        ),
        (
            r#""run": 1, "lock": "m""#,
            "tasks.t.lock: is not supported: there is no unlock before the end",
        ),
        (
            r#""run": 1, "wait": {"ref": "c", "mutex": "m"}, "signal": "c""#,
            "tasks.t.wait: is not supported: \"m\" is not locked",
        ),
        (
            r#""run": 1, "barrier": "b", "barrier": "b""#,
            "tasks.t.barrier: is not supported: the task comes to the barrier already",
        ),
        (
            r#""instance": 2, "delay": 1, "timer": {"ref": "a", "period": 5}"#,
            "begin at different times share the timer",
        ),
        (
            r#""instance": 2, "run": 1, "lock": "m", "barrier": "b", "unlock": "m""#,
            "\"m\" is locked, and the others may need it",
        ),
    ] {
        let fault = fault(&task(entries));
        assert!(fault.contains(expected), "{entries}: {fault}");
    }
    let crossed = task(r#""run": 1, "lock": "m", "lock": "n", "unlock": "m", "unlock": "n""#);
    assert!(faults(&crossed)[1].contains("\"n\", locked after \"m\", is not unlocked before it"));
    let inner = r#""lock": "m", "lock": "n", "wait": {"ref": "c", "mutex": "m"}, "unlock": "n", "unlock": "m""#;
    let inner = task(&format!("\"run\": 1, \"signal\": \"c\", {inner}"));
    assert!(fault(&inner).contains("another mutex was locked after \"m\""));
}

#[test]
fn a_lock_without_an_end_is_all_that_is_wrong() {
    let all = faults(&task(r#""lock": "m", "run": 1000, "sleep": 1000"#));
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("there is no unlock"), "{all:?}");
}

#[test]
fn unknown_keys_of_events_are_noted() {
    let events = r#""run": 1, "timer": {"ref": "unique", "perid": 10000}, "lock": "m",
        "wait": {"ref": "c", "mutex": "m", "mutx": "n"}, "unlock": "m", "signal": "c""#;
    let notes: Vec<String> = notes(&task(events));
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].ends_with("timer.perid: is passed over: accepted here are ref, period, mode"));
    assert!(notes[1].ends_with("wait.mutx: is passed over: accepted here are ref, mutex"));
}

#[test]
fn what_is_not_modelled_of_threads_is_noted_once() {
    let text = "{\"tasks\": {\"t\": {\n\"policy\": \"SCHED_FIFO\",\n\"priority\": 10,\n\
        \"cpus\": [0, 1],\n\"taskgroup\": \"/g\",\n\"util_max\": 100,\n\"dl-runtime\": 5,\n\
        \"nodes_membind\": [0],\n\"run\": 1,\n\"resume\": \"nobody\", \"resume\": \"nobody\",\n\
        \"colour\": 1}},\n\"global\": {\"default_policy\": \"SCHED_RR\", \"frag\": 1}}";
    let notes = notes(text);
    let expected = [
        "line 1: tasks.t.cpus: sets of several CPUs",
        "line 2: tasks.t.policy: SCHED_FIFO is not modelled",
        "line 3: tasks.t.priority: 10 is not modelled",
        "line 5: tasks.t.taskgroup: is not modelled",
        "line 6: tasks.t.util_max: 100 is not modelled",
        "line 7: tasks.t.dl-runtime: 5 is not modelled",
        "line 8: tasks.t.nodes_membind: is not modelled",
        "line 10: tasks.t.resume: has no effect",
        "line 11: tasks.t.colour: is passed over",
        "line 12: global.default_policy: SCHED_RR is not modelled",
        "line 12: global.frag: is passed over",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.starts_with(expected), "{note}");
    }
    // All vCPUs are no restriction, and one for all phases is one.
    let all = converted(&task(r#""cpus": [0, 1, 2, 3], "run": 1"#));
    assert_eq!((all.threads[0].vcpu, all.notes.len()), (None, 0));
    let phases = r#""cpus": [2], "phases": {"p": {"run": 1}, "q": {"cpus": [2], "run": 1}}"#;
    assert_eq!(converted(&task(phases)).threads[0].vcpu, Some(2));
    let other = r#""cpus": [2], "phases": {"p": {"run": 1}, "q": {"cpus": [1], "run": 1}}"#;
    assert_eq!(converted(&task(other)).threads[0].vcpu, None);
    assert_eq!(converted(&task(other)).notes.len(), 1);
    let beside = r#""run": 1, "phases": {"p": {"loop": -1, "run": 2}, "q": {"run": 3}}"#;
    let beside = converted(&task(beside)).notes;
    assert!(beside[0].message.contains("events go into phases"));
    assert!(beside[1].message.contains("is never reached"));
}
