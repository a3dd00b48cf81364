// SPDX-License-Identifier: GPL-2.0-only
//! Files taken apart at random.

use super::*;
use proptest::prelude::*;

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
