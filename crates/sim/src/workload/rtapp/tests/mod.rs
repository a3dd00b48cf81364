// SPDX-License-Identifier: GPL-2.0-only
//! Every event as the program it becomes.

mod properties;
mod refused;

use super::*;

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
