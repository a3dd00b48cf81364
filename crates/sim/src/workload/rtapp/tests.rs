// SPDX-License-Identifier: GPL-2.0-only
//! Every event as the program it becomes, and what is refused or noted.

use super::*;
use proptest::prelude::*;

/// A file of one task with these entries.
fn task(entries: &str) -> String {
    format!("{{\"tasks\": {{\"t\": {{{entries}}}}}}}")
}

fn converted(text: &str) -> Converted {
    match convert(text, 4, &[]) {
        Ok(converted) => converted,
        Err(faults) => panic!("{text}: {faults:?}"),
    }
}

/// The programs of a file, by thread.
fn programs(text: &str) -> Vec<String> {
    let threads = converted(text).threads;
    threads
        .iter()
        .map(|thread| thread.program.to_string())
        .collect()
}

fn program(entries: &str) -> String {
    programs(&task(entries)).remove(0)
}

fn notes(text: &str) -> Vec<String> {
    converted(text).notes.iter().map(Note::to_string).collect()
}

fn faults(text: &str) -> Vec<String> {
    let faults = convert(text, 4, &[]).unwrap_err();
    faults.iter().map(Fault::to_string).collect()
}

/// The only fault.
fn fault(text: &str) -> String {
    let mut all = faults(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn events_of_one_thread() {
    for (events, expected) in [
        (r#""run": 10"#, "compute 10us"),
        (r#""run0": 10, "run1": 20"#, "compute 10us; compute 20us"),
        (r#""run": 10, "run": 20"#, "compute 10us; compute 20us"),
        (r#""runtime": 3000"#, "busy 3ms"),
        (r#""runtime": 0"#, "compute 32us"),
        (r#""run": 0, "sleep": 5"#, "sleep 5us"),
        (r#""sleep": 0"#, "sleep 1ns"),
        (r#""run": 1, "yield": """#, "compute 1us; yield"),
        (r#""run": 1, "yield","#, "compute 1us; yield"),
        (
            r#""timer": {"ref": "tick", "period": 2000}"#,
            "timer tick 2ms",
        ),
        (
            r#""timer": {"ref": "unique", "period": 5, "mode": "absolute"}"#,
            "timer t-0-unique 5us absolute",
        ),
        (
            // One absolute use makes the timer absolute.
            r#""timer": {"ref": "a", "period": 5}, "timer": {"ref": "a", "period": 6, "mode": "absolute"}"#,
            "timer a 5us absolute; timer a 6us absolute",
        ),
        (
            r#""run": 1, "timer": {"ref": "unique", "period": 0}"#,
            "compute 1us",
        ),
        (
            r#""lock": "m", "run": 1, "lock": "n", "run": 2, "unlock": "n", "unlock": "m""#,
            "mutex m { compute 1us; mutex n { compute 2us } }",
        ),
        // A barrier of one and a post that nobody takes hold nobody up.
        (
            r#""run": 1, "barrier": "b", "sem_post": "s""#,
            "compute 1us",
        ),
    ] {
        let expected = format!("loop {{ {expected}; count 1 loops }}");
        assert_eq!(program(events), expected, "{events}");
    }
}

#[test]
fn loops_phases_and_delays() {
    for (entries, expected) in [
        (
            r#""loop": -1, "run": 1"#,
            "loop { compute 1us; count 1 loops }",
        ),
        (r#""loop": 1, "run": 1"#, "compute 1us; count 1 loops"),
        (
            r#""loop": 7, "run": 1"#,
            "loop 7 { compute 1us; count 1 loops }",
        ),
        (
            r#""phases": {"p": {"loop": 3, "run": 1}, "q": {"run": 2}, "q": {"run": 3}}"#,
            "loop { loop 3 { compute 1us }; compute 2us; compute 3us; count 1 loops }",
        ),
        (
            r#""loop": 2, "phases": {"p": {"run": 1}, "q": {"loop": 4, "sleep": 2}}"#,
            "loop 2 { compute 1us; loop 4 { sleep 2us }; count 1 loops }",
        ),
        (
            r#""phases": {"p": {"run": 1}, "q": {"loop": -1, "run": 2}}"#,
            "compute 1us; loop { compute 2us; count 1 loops }",
        ),
        (
            // Phases that are done once follow each other within a lock.
            r#""phases": {"p": {"lock": "m", "run": 1}, "q": {"loop": 2, "run": 2}, "r": {"unlock": "m"}}"#,
            "loop { mutex m { compute 1us; loop 2 { compute 2us } }; count 1 loops }",
        ),
        (
            r#""delay": 500, "run": 1"#,
            "sleep 500us; loop { compute 1us; count 1 loops }",
        ),
        (
            r#""delay": 500, "timer": {"ref": "a", "period": 2}"#,
            "timer a 500us absolute; loop { timer a 2us; count 1 loops }",
        ),
    ] {
        assert_eq!(program(entries), expected, "{entries}");
    }
}

#[test]
fn events_between_threads() {
    let two = |a: &str, b: &str| {
        let text = format!(r#"{{"tasks": {{"a": {{"run": 1, {a}}}, "b": {{"run": 2, {b}}}}}}}"#);
        let programs = programs(&text);
        let inner = |program: &String, work: &str| {
            let inner = program.replace(&format!("loop {{ compute {work}us; "), "");
            inner.replace("; count 1 loops }", "")
        };
        (inner(&programs[0], "1"), inner(&programs[1], "2"))
    };
    let same = |text: &str| (text.to_string(), text.to_string());
    // suspend and resume, with the text ignored and without one.
    let suspend = "mutex a { wait a }".to_string();
    let resume = "mutex a { broadcast a }".to_string();
    assert_eq!(
        two(r#""suspend": "x""#, r#""resume": "a""#),
        (suspend.clone(), resume.clone())
    );
    assert_eq!(two(r#""suspend","#, r#""resume": "a""#), (suspend, resume));
    let wait = r#""lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m""#;
    let waits = "mutex m { wait c }".to_string();
    assert_eq!(
        two(wait, r#""signal": "c""#),
        (waits.clone(), "signal c".into())
    );
    assert_eq!(two(wait, r#""broad": "c""#), (waits, "broadcast c".into()));
    // sync: with the lock around it, as rt-app's examples have it, and as its documentation says.
    let sync = r#""sync": {"ref": "c", "mutex": "m"}"#;
    let locked = format!(r#""lock": "m", {sync}, "unlock": "m""#);
    let both = same("mutex m { signal c; wait c }");
    assert_eq!(two(&locked, &locked), both);
    assert_eq!(two(sync, sync), both);
    assert_eq!(
        two(r#""barrier": "b""#, r#""barrier": "b""#),
        same("barrier b")
    );
    let semaphore = programs(
        r#"{"tasks": {"a": {"run": 1, "sem_post": "s"}, "b": {"sem_wait": "s", "run": 2}}}"#,
    );
    assert_eq!(
        semaphore,
        [
            "queue s 1000000000; loop { compute 1us; send s; count 1 loops }",
            "queue s 1000000000; loop { recv s; compute 2us; count 1 loops }"
        ]
    );
}

#[test]
fn files_from_before_suspend_ignored_its_text() {
    let text = r#"{"tasks": {
        "one": {"suspend": "group", "run": 1}, "two": {"suspend": "group", "run": 1},
        "waker": {"run": 5, "resume": "group"}}}"#;
    assert_eq!(
        programs(text)[0],
        "loop { mutex group { wait group }; compute 1us; count 1 loops }"
    );
    let notes = notes(text);
    assert_eq!(
        notes[0],
        "line 2: tasks.one.suspend: suspends on \"group\", as rt-app did before 2025: nothing \
         resumes \"one\""
    );
    assert_eq!(notes.len(), 2);
}

#[test]
fn instances_have_names_numbers_and_timers_of_their_own() {
    let text = r#"{"tasks": {
        "x": {"instance": 2, "cpus": [1], "timer": {"ref": "unique1", "period": 1}},
        "x": {"run": 1}, "none": {"instance": 0, "run": 1}}}"#;
    let threads = converted(text).threads;
    let shown: Vec<(&str, Option<u32>, String)> = threads
        .iter()
        .map(|thread| {
            (
                thread.name.as_str(),
                thread.vcpu,
                thread.program.to_string(),
            )
        })
        .collect();
    let own = |timer: &str| format!("loop {{ timer {timer} 1us; count 1 loops }}");
    assert_eq!(
        shown,
        [
            ("x-0", Some(1), own("x-0-unique1")),
            ("x-1", Some(1), own("x-1-unique1")),
            ("x1-2", None, "loop { compute 1us; count 1 loops }".into()),
        ]
    );
    assert_eq!(
        notes(text),
        ["line 3: tasks.none: has no instance: no thread does this"]
    );
}

#[test]
fn names_of_any_kind_become_names() {
    let text = task(
        r#""run": 1, "lock": "a b", "unlock": "a b", "lock": "a.b", "unlock": "a.b", "lock": "loop", "unlock": "loop", "lock": "7", "unlock": "7""#,
    );
    assert_eq!(
        programs(&text)[0],
        "loop { compute 1us; mutex a_b {  }; mutex a_b_2 {  }; mutex _loop {  }; mutex _7 {  }; \
         count 1 loops }"
    );
}

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
    ] {
        let fault = fault(text);
        assert!(fault.starts_with(expected), "{text}: {fault}");
    }
    let deep = "[".repeat(100);
    assert!(fault(&deep).contains("nested deeper"));
    assert!(fault(&" ".repeat(MOST_BYTES + 1)).contains("expected at most 1048576"));
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

/// Something of everything, to take apart.
const SAMPLE: &str = r#"{ /* all */ "tasks": {
    "a": {"instance": 2, "delay": 100, "cpus": [0], "phases": {
        "p": {"loop": 3, "run": 100, "timer": {"ref": "unique", "period": 1000, "mode": "absolute"}},
        "q": {"lock": "m", "sync": {"ref": "c", "mutex": "m"}, "unlock": "m", "barrier": "b"}}},
    "b": {"priority": -5, "suspend", "run": 10, "resume": "d", "lock": "m",
        "wait": {"ref": "c", "mutex": "m"}, "unlock": "m", "barrier": "b", "sem_post": "s"},
    "d": {"suspend": "d", "runtime": 5, "sem_wait": "s", "yield": "", "resume": "b", "sleep": 3,},
    }, "global": {"duration": 5, "default_policy": "SCHED_OTHER"}}"#;

#[test]
fn the_sample_is_accepted() {
    assert_eq!(converted(SAMPLE).threads.len(), 4);
}

proptest! {
    #[test]
    fn any_change_is_accepted_or_refused_at_a_place(
        edits in prop::collection::vec((0..SAMPLE.len(), 0..6usize, 0..SAMPLE.len()), 0..8),
        ignore in prop::sample::subsequence(event_names().collect::<Vec<_>>(), 0..4),
        vcpus in 1..5u32,
    ) {
        let mut text: Vec<char> = SAMPLE.chars().collect();
        for (at, edit, other) in edits {
            let at = at.min(text.len().saturating_sub(1));
            let other = other.min(text.len().saturating_sub(1));
            match edit {
                _ if text.is_empty() => {}
                0 => { text.remove(at); }
                1 => text.insert(at, text[other]),
                2 => text[at] = text[other],
                3 => text.insert(at, ['-', '9', '\\', '"', '{', 'é'][other % 6]),
                4 => { let (low, high) = (at.min(other), at.max(other)); text.drain(low..high.min(low + 40)); }
                _ => { let (low, high) = (at.min(other), at.max(other)); let part = text[low..high].to_vec(); text.splice(at..at, part); }
            }
        }
        let text: String = text.into_iter().collect();
        let ignore: Vec<String> = ignore.into_iter().map(String::from).collect();
        match convert(&text, vcpus, &ignore) {
            Ok(converted) => for thread in converted.threads {
                let printed = thread.program.to_string();
                let again = Program::parse(&printed);
                prop_assert_eq!(again.as_ref(), Ok(&thread.program), "{}", printed);
                prop_assert!(thread.vcpu.is_none_or(|vcpu| vcpu < vcpus));
            },
            Err(faults) => {
                prop_assert!(!faults.is_empty());
                for fault in faults {
                    prop_assert!(fault.line >= 1 && fault.column >= 1 && !fault.message.is_empty());
                }
            }
        }
    }

    #[test]
    fn numbers_of_any_size_do_no_harm(run in any::<i64>(), period in any::<i64>(), times in any::<i64>()) {
        let text = task(&format!(
            r#""loop": {times}, "delay": {period}, "run": {run}, "timer": {{"ref": "a", "period": {period}}}"#
        ));
        if let Ok(converted) = convert(&text, 1, &[]) {
            prop_assert!(Program::parse(&converted.threads[0].program.to_string()).is_ok());
        }
    }
}
