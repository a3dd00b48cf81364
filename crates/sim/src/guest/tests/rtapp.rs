// SPDX-License-Identifier: GPL-2.0-only
//! Whole rt-app files, compared with what can be computed by hand.

use super::*;
use crate::workload::rtapp::convert;

/// The threads of a file in a VM of so many vCPUs on as many pCPUs.
fn simulated(text: &str, vcpus: u32) -> Outcome {
    let threads = convert(text, vcpus, &[]).unwrap().threads;
    let spec = |thread: crate::workload::rtapp::Thread| ThreadSpec {
        name: thread.name,
        program: thread.program,
        vcpu: thread.vcpu,
    };
    let mut vm = vm("a", free(), &[]);
    vm.vcpus = vcpus;
    vm.threads = threads.into_iter().map(spec).collect();
    run(vcpus, 10 * MS, vec![vm])
}

/// Rounds per second, and ms of work in the measured second.
fn rounds_and_work(text: &str, vcpus: u32) -> (f64, f64) {
    let outcome = simulated(text, vcpus);
    assert_eq!(outcome.vms[0].achieved.throughput_unit, "loops/s");
    let work = outcome.vms[0].achieved.work as f64 / MS as f64;
    (throughput(&outcome, 0), work)
}

/// The measured second may begin or end in the middle of rounds of so many threads and ms.
fn near((rounds, work): (f64, f64), expected: (f64, f64), threads: f64, length: f64) {
    let fits = (rounds - expected.0).abs() <= threads && (work - expected.1).abs() <= length;
    assert!(fits, "{rounds}/s, {work} ms, not {expected:?}");
}

#[test]
fn a_periodic_task_set_keeps_its_periods() {
    let text = r#"{ "tasks" : {
        "video" : { "cpus" : [0], "run" : 2000, "timer" : { "ref" : "unique", "period" : 10000 } },
        "audio" : { "cpus" : [0], "instance" : 2, "run" : 1000,
                    "timer" : { "ref" : "unique", "period" : 5000 } }
    } }"#;
    // 20 % and twice 20 % of one vCPU; 100 and twice 200 rounds.
    near(rounds_and_work(text, 1), (500.0, 600.0), 3.0, 4.0);
}

#[test]
fn phases_share_a_unique_timer() {
    // 10 light and 10 heavy periods of 10 ms each: 200 ms, whatever phase they are in.
    let text = r#"{ "tasks" : { "t" : { "phases" : {
        "light" : { "loop" : 10, "run" : 1000, "timer" : { "ref" : "unique", "period" : 10000 } },
        "heavy" : { "loop" : 10, "run" : 7000, "timer" : { "ref" : "unique", "period" : 10000 } }
    } } } }"#;
    near(rounds_and_work(text, 1), (5.0, 400.0), 0.0, 8.0);
}

#[test]
fn a_timer_counts_from_the_end_of_the_delay() {
    // Six periods of 100 ms from 550 ms on end within the 1100.3 ms; the warm-up is over before.
    let text = r#"{ "tasks" : { "t" : {
        "delay" : 550000, "run" : 1000, "timer" : { "ref" : "unique", "period" : 100000 }
    } } }"#;
    near(rounds_and_work(text, 1), (5.0, 6.0), 0.0, 0.0);
}

/// A source every 10 ms, a stage of so many ms, and a sink.
fn pipeline(stage: u32, [wait, wake]: [&str; 2]) -> String {
    let on = |event: &str, name: &str| format!("\"{event}\" : \"{name}\"");
    let stage_waits = on(wait, "stage");
    let (sink_waits, wake_stage, wake_sink) =
        (on(wait, "sink"), on(wake, "stage"), on(wake, "sink"));
    let stage = stage * 1000;
    format!(
        r#"{{ "tasks" : {{
            "source" : {{ "cpus" : [0], "run" : 1000, {wake_stage},
                          "timer" : {{ "ref" : "unique", "period" : 10000 }} }},
            "stage" : {{ "cpus" : [1], {stage_waits}, "run" : {stage}, {wake_sink} }},
            "sink" : {{ "cpus" : [2], {sink_waits}, "run" : 500 }}
        }} }}"#
    )
}

#[test]
fn a_pipeline_of_suspend_and_resume_loses_what_comes_too_early() {
    let suspend = ["suspend", "resume"];
    // Every thread is there in time: 100 rounds each of 1, 3 and 0.5 ms.
    let text = pipeline(3, suspend);
    near(rounds_and_work(&text, 3), (300.0, 450.0), 3.0, 5.0);
    // The stage is busy for 12 ms and so misses every other resume.
    let text = pipeline(12, suspend);
    near(rounds_and_work(&text, 3), (200.0, 725.0), 3.0, 13.0);
}

#[test]
fn a_pipeline_of_semaphores_loses_nothing() {
    // The stage never waits: a round every 12 ms.
    let text = pipeline(12, ["sem_wait", "sem_post"]);
    let (stage, sink) = (1000.0 / 12.0, 500.0 / 12.0);
    near(
        rounds_and_work(&text, 3),
        (100.0 + 2.0 * stage, 100.0 + 1000.0 + sink),
        3.0,
        2.0,
    );
}

#[test]
fn a_contended_lock_is_handed_from_holder_to_holder() {
    let text = r#"{ "tasks" : { "t" : { "instance" : 2,
        "lock" : "m", "run" : 4000, "unlock" : "m", "run" : 1000
    } } }"#;
    // The lock is never free: 250 holds of 4 ms, each followed by 1 ms without it.
    near(rounds_and_work(text, 2), (250.0, 1250.0), 1.0, 1.0);
}

#[test]
fn sync_takes_turns() {
    let sync = r#""lock" : "m", "sync" : { "ref" : "c", "mutex" : "m" }, "unlock" : "m""#;
    let text = format!(
        r#"{{ "tasks" : {{
            "one" : {{ "run" : 2000, {sync} }}, "two" : {{ "delay" : 1000, "run" : 3000, {sync} }}
        }} }}"#
    );
    // Each wakes the other and waits to be woken: 2 ms and 3 ms one after the other.
    near(rounds_and_work(&text, 2), (400.0, 1000.0), 2.0, 0.0);
}

#[test]
fn a_barrier_waits_for_all_instances_of_all_tasks() {
    let text = r#"{ "tasks" : {
        "fast" : { "instance" : 2, "run" : 1000, "barrier" : "b" },
        "slow" : { "run" : 5000, "barrier" : "b" }
    } }"#;
    near(rounds_and_work(text, 3), (600.0, 1400.0), 3.0, 6.0);
}

#[test]
fn runtime_goes_by_the_clock_and_run_by_work() {
    let rounds = |event: &str| {
        let task = |name: &str| format!(r#""{name}" : {{ "cpus" : [0], "{event}" : 50000 }}"#);
        let (one, two) = (task("one"), task("two"));
        rounds_and_work(&format!(r#"{{ "tasks" : {{ {one}, {two} }} }}"#), 1).0
    };
    // Two threads share a vCPU: the clock goes on for both, the work does not.
    assert_eq!(rounds("run"), 20.0);
    assert!(rounds("runtime") >= 30.0, "{}", rounds("runtime"));
}
