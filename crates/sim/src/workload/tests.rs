// SPDX-License-Identifier: GPL-2.0-only
//! Reading, refusing and printing programs.

use super::*;
use crate::guest::tests::random_program;
use corun_model::time::SEC;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn refused(text: &str) -> (usize, usize, String) {
    let error = Program::parse(text).unwrap_err();
    (error.line, error.column, error.message)
}

#[test]
fn the_language_as_documented() {
    let text = "# a comment\nqueue jobs 16; queue mail 278 69;\nloop { recv jobs; compute 1ms ±10%; \
        lock inode { compute 20us } mutex cache { compute 5us; send jobs }; write-group log 3us exp 100us; write-group log 2us; barrier step; \
        spin-barrier fine; spin-barrier fine 1ms; condition-barrier all; \
        condition-barrier all 100us; sleep 2.5ms exp; loop 3 { compute 1us +-5% } count 2 requests }";
    let program = Program::parse(text).unwrap();
    let queue = |name: &str, places, writable| DeclaredQueue {
        name: name.into(),
        places,
        writable,
    };
    assert_eq!(
        program.queues(),
        [queue("jobs", 16, None), queue("mail", 278, Some(69))]
    );
    assert_eq!(
        program.to_string(),
        "queue jobs 16; queue mail 278 69; loop { recv jobs; compute 1ms ±10%; lock inode { compute 20us }; \
         mutex cache { compute 5us; send jobs }; write-group log 3us exp 100us; write-group log 2us; \
         barrier step; spin-barrier fine; spin-barrier fine 1ms; \
         condition-barrier all; condition-barrier all 100us; \
         sleep 2500us exp; loop 3 { compute 1us ±5% }; count 2 requests }"
    );
    assert_eq!(Program::parse(&program.to_string()).unwrap(), program);
}

#[test]
fn times_may_have_a_micro_sign_or_a_greek_mu() {
    for unit in ["us", "\u{b5}s", "\u{3bc}s"] {
        let program = Program::parse(&format!("compute 20{unit}")).unwrap();
        assert_eq!(program.to_string(), "compute 20us");
    }
}

#[test]
fn devices_caches_and_conditions_as_documented() {
    let text = "memory 4MB 30/us; mix 60/25/15; loop { read 64KB; write 4KB random; append wal 8KB; request web; \
        reply web 1500B; transmit bulk 1GB; mutex m { wait ready }; signal ready; broadcast ready; \
        shootdown; every 16ms; \
        timer t 16ms; timer t 16ms absolute; busy 2ms ±5%; memory 0; yield }";
    let program = Program::parse(text).unwrap();
    assert_eq!(program.to_string(), text);
    for (text, hint) in [
        ("memory 4MB; compute 1us", "cache lines touched"),
        ("memory 4MB 2000/us; compute 1us", "up to 1000/us"),
        ("memory 4MX 2/us; compute 1us", "a size such as"),
        ("memory 4MB 2/ms; compute 1us", "per microsecond"),
        ("mix 50/50/50; compute 1us", "add up to 100"),
        ("mix 300/50/50; compute 1us", "add up to 100"),
        ("read 0B", "a size such as"),
        ("read 99999999999GB", "a size such as"),
        ("reply web; compute 1us", "a size such as"),
        ("lock L { read 4KB }", "inside `lock L`"),
        ("lock L { wait c; compute 1us }", "inside `lock L`"),
        ("loop { signal c; yield }", "takes no time"),
        ("every 0ms", "above 0"),
        ("timer t", "above 0"),
        ("timer 5ms", "the name of a timer"),
        ("lock L { timer t 1ms }", "inside `lock L`"),
        ("random 4KB", "accepted: compute"),
    ] {
        let (_, _, message) = refused(text);
        assert!(message.contains(hint), "{text}: {message}");
    }
}

#[test]
fn workloads_in_one_vm_have_rooms_of_their_own() {
    let text = "queue q 4 1; loop { lock l { signal c } mutex m { compute 1us }; send q; request web; compute 1us; \
        barrier b; count 1 things }";
    let inside = Program::parse(text).unwrap().within("a1").to_string();
    assert_eq!(
        inside,
        "queue a1/q 4 1; loop { lock a1/l { signal a1/c }; mutex a1/m { compute 1us }; send a1/q; request web; \
         compute 1us; barrier a1/b; count 1 things }"
    );
}

#[test]
fn errors_name_place_sight_and_what_is_accepted() {
    let (line, column, message) = refused("loop {\n  compute 5;\n}");
    assert_eq!((line, column), (2, 11));
    assert!(
        message.contains("saw `5`; accepted: a number with a unit"),
        "{message}"
    );
    let (line, column, message) = refused("compute 1ms; run 5");
    assert_eq!((line, column), (1, 14));
    assert!(
        message.contains("saw `run`; did you mean `compute`? Accepted: compute TIME"),
        "{message}"
    );
    let (_, column, message) = refused("compute 1ms sleep 1ms");
    assert_eq!(column, 13);
    assert!(message.contains("`;` between statements"), "{message}");
}

#[test]
fn misspelt_statements_are_guessed() {
    for (text, guess) in [
        ("compte 1ms", Some("compute")),
        ("loop { while { compute 1ms } }", Some("loop")),
        ("append wal 4KB; fsync", Some("append")),
        ("spinbarrier a", Some("spin-barrier")),
        ("Sleep 1ms", Some("sleep")),
        ("banana", None),
        ("absolut", None),
    ] {
        let (.., message) = refused(text);
        let told = guess.map(|guess| format!("did you mean `{guess}`? Accepted: compute TIME"));
        assert_eq!(
            message.contains("did you mean"),
            guess.is_some(),
            "{message}"
        );
        assert!(message.contains(&told.unwrap_or_default()), "{message}");
    }
}

#[test]
fn what_could_never_work_is_refused() {
    for (text, hint) in [
        ("", "accepted: compute"),
        ("queue q 4", "accepted: compute"),
        ("loop { }", "takes no time"),
        ("loop { count; send q }", "takes no time"),
        ("loop 5 { lock L { } }", "takes no time"),
        // There is no vCPU to wait for if the others idle, or there are none.
        ("loop { shootdown }", "takes no time"),
        (
            "loop { loop 1000000000 { count } compute 1s }",
            "takes no time",
        ),
        ("compute 0ns", "above 0"),
        ("compute 2000000s", "at most a day"),
        ("compute 99999999999999999999s", "at most a day"),
        ("compute 1ms ±0%", "from 1% to 100%"),
        ("compute 1ms ±00%", "from 1% to 100%"),
        ("compute 1ms ±10", "accepted: `%`"),
        ("loop { compute 1ms }; compute 1ms", "never reached"),
        ("lock L { sleep 1ms }", "inside `lock L`"),
        ("lock L { mutex M { compute 1us } }", "inside `lock L`"),
        ("lock L { barrier B }", "inside `lock L`"),
        ("mutex M { barrier B }", "inside `mutex M`"),
        ("mutex M { condition-barrier B }", "inside `mutex M`"),
        ("lock L { condition-barrier B 1us }", "inside `lock L`"),
        ("lock L { lock L { compute 1us } }", "inside itself"),
        (
            "lock L { lock K { lock L { compute 1us } } }",
            "inside itself",
        ),
        ("lock L { loop { compute 1us } }", "never released"),
        ("lock L compute 1us", "accepted: `{`"),
        ("lock L { compute 1us", "accepted: `}`"),
        ("compute 1us }", "saw `}`"),
        ("barrier exp", "no keyword"),
        ("loop 0 { compute 1us }", "1 to 1000000000"),
        ("queue q 0; compute 1us", "capacity"),
        (
            "queue q 4 4; compute 1us",
            "saw `4`; accepted: how many items are left",
        ),
        ("queue q 4 0; compute 1us", "fewer than the capacity"),
        ("queue q 1; queue q 2; compute 1us", "declared already"),
        ("loop { queue q 1; compute 1us }", "outside of all blocks"),
        ("compute 1us; §", "saw '§'"),
    ] {
        let (_, _, message) = refused(text);
        assert!(message.contains(hint), "{text}: {message}");
    }
}

#[test]
fn size_and_depth_are_limited() {
    let deep = |n| format!("{}compute 1us{}", "loop 2 { ".repeat(n), " }".repeat(n));
    assert!(Program::parse(&deep(DEEPEST)).is_ok());
    assert!(refused(&deep(DEEPEST + 1)).2.contains("nested"));
    assert!(refused(&deep(100_000)).2.contains("at most"));
    assert!(
        refused(&"count;".repeat(MOST_STATEMENTS + 1))
            .2
            .contains("statements")
    );
    assert!(refused(&"a".repeat(1000)).2.len() < 1000);
}

#[test]
fn presets_are_programs() {
    for name in preset_names() {
        let preset = preset(name).unwrap();
        for vcpus in [1, 2, 4, 7, 64] {
            let threads = preset.threads(preset.default_threads(vcpus));
            let threads = threads.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!threads.is_empty() || name == "ping", "{name}");
            let names: BTreeSet<&String> = threads.iter().map(|thread| &thread.name).collect();
            assert_eq!(names.len(), threads.len(), "{name}");
            let asks = |thread: &PresetThread| thread.program.to_string().contains("request ");
            let served = !preset.clients().is_empty();
            assert!(!threads.iter().any(asks) || served, "{name}: nobody asks");
        }
        assert!(preset.threads(0).is_ok());
    }
    assert!(preset("no such thing").is_none());
    assert_eq!(preset("x264").unwrap().default_threads(4), 4);
    assert_eq!(preset("parsec-x264").unwrap().default_threads(4), 6);
}

/// Name and text of each thread.
fn texts(name: &str, threads: u32) -> Vec<(String, String)> {
    let threads = preset(name).unwrap().threads(threads).unwrap();
    let text = |thread: PresetThread| (thread.name, thread.program.to_string());
    threads.into_iter().map(text).collect()
}

#[test]
fn shapes_of_presets() {
    // A team: work and working set are shared; serial work is the first thread's.
    let [(_, first), (_, second)] = &texts("volrend", 2)[..] else {
        panic!("two threads");
    };
    let begins =
        |text: &str, with: &str| text.starts_with(&format!("memory 2MB 5/us; loop {{ {with}"));
    assert!(
        begins(first, "compute 800us ±5%; condition-barrier phase; "),
        "{first}"
    );
    assert!(
        begins(second, "condition-barrier phase; compute 20us ±20%; "),
        "{second}"
    );
    assert!(
        first.ends_with("; condition-barrier phase; count 1 frames }"),
        "{first}"
    );
    // A pool that the main thread waits for.
    let pool = texts("bodytrack", 3);
    let [(_, main), (_, one), (_, other)] = &pool[..] else {
        panic!("three threads");
    };
    assert!(
        main.contains("loop 12 { barrier go; barrier ready; compute 30us ±50%; count 1 stages }")
    );
    assert_eq!(one, other);
    assert!(one.starts_with(
        "memory 4MB 5/us; loop { loop 12 { barrier go; barrier init; \
         loop 32 { compute 16us ±20%; mutex tickets { compute 200ns } }; barrier done; barrier ready };"
    ), "{one}");
    // A single thread has no other to wait for.
    assert!(!texts("bodytrack", 1)[0].1.contains("barrier"));
    assert!(!texts("bodytrack", 2)[1].1.contains("barrier init"));
    assert!(!texts("volrend", 1)[0].1.contains("barrier"));
    // A program whose main thread and writer exist however few other threads there are.
    assert_eq!(texts("vips", 1).len(), 3);
    assert_eq!(preset("vips").unwrap().default_threads(16), 18);
    assert!(!texts("streamcluster", 1)[0].1.contains("barrier"));
    // A working set that overflows every cache is not divided, nor are those of several programs.
    assert!(texts("canneal", 8)[0].1.starts_with("memory 1600MB 13/us"));
    assert!(texts("astar", 8)[7].1.starts_with("memory 4MB 20/us"));
    // Stages: equally many threads in each of the wide ones.
    let names: Vec<String> = texts("pbzip2", 5)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected = ["reader0", "compress0", "compress1", "compress2", "writer0"];
    assert_eq!(names, expected);
    assert_eq!(texts("ferret", 1).len(), 6);
    assert_eq!(preset("ferret").unwrap().default_threads(4), 18);
}

#[test]
fn kernels_of_splash_have_the_barriers_of_their_sources() {
    let barriers = |name: &str, threads: u32| {
        let text = &texts(name, threads)[0].1;
        text.matches("condition-barrier phase").count()
    };
    assert_eq!(barriers("fft", 16), 7);
    // Two before the passes, four in each of three, one after them.
    assert_eq!(barriers("radix", 16), 15);
    assert_eq!(barriers("fft", 1) + barriers("radix", 1), 0);
    // Each phase states its working set, since an earlier phase's otherwise stays in force in the next round.
    let fft = &texts("fft", 16)[15].1;
    assert!(
        fft.contains("memory 12GB 93/us; mix 5/90/5; compute 88750us ±3%;"),
        "{fft}"
    );
    assert!(
        fft.contains("memory 12GB 29/us; mix 30/55/15; compute 687us ±5%;"),
        "{fft}"
    );
    // Threads that go through streams that arrive in time hardly miss.
    assert!(
        texts("blackscholes", 4)[3]
            .1
            .starts_with("memory 267MB 14/us; mix 60/10/30;")
    );
}

#[test]
fn families_have_every_preset_once() {
    let names: Vec<&str> = preset_names().collect();
    let different: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), different.len());
    assert_eq!(preset("mcf").unwrap().family(), Family::Spec);
    for family in Family::ALL {
        let member = |name: &&str| preset(name).unwrap().family() == family;
        assert!(names.iter().any(member) && !family.about().is_empty());
    }
}

proptest! {
    #[test]
    fn the_parser_never_panics(text in ".{0,200}") {
        let _ = Program::parse(&text);
    }

    #[test]
    fn nor_on_what_looks_like_a_program(words in prop::collection::vec(
        prop::sample::select(vec!["loop", "{", "}", ";", "compute", "1ms", "±", "10%", "lock", "L",
            "mutex", "barrier", "sleep", "send", "recv", "count", "queue", "5", "exp", "µ", "\n"]),
        0..60))
    {
        let _ = Program::parse(&words.join(" "));
    }

    #[test]
    fn printing_and_reading_give_the_same_program(seed in any::<u64>()) {
        let text = random_program(seed, 0);
        let program = Program::parse(&text).unwrap();
        prop_assert_eq!(Program::parse(&program.to_string()).unwrap(), program);
    }
}

#[test]
fn a_loop_of_replies_takes_no_time() {
    let (.., message) = refused("request web; loop { reply web 1KB }");
    assert!(message.contains("takes no time"), "{message}");
}

#[test]
fn lengths_and_sizes_alone() {
    let length = |mean, vary| Ok(Length { mean, vary });
    assert_eq!(Length::parse("7s exp"), length(7 * SEC, Vary::Exponential));
    assert_eq!(
        Length::parse("5ms ±10%"),
        length(5_000_000, Vary::Percent(10))
    );
    assert_eq!(parse_size("16KB"), Ok(16 << 10));
    for text in ["", "0ms", "5", "5ms exp exp", "5ms; compute 1ms"] {
        assert!(Length::parse(text).is_err(), "{text}");
    }
    for text in ["", "0B", "5", "16KB random"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}
