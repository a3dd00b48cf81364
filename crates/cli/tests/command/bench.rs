// SPDX-License-Identifier: GPL-2.0-only
//! `corun bench` as users meet it. No test says how fast anything is.

use crate::common::{corun, json, printed, table_is_fresh};
use serde_json::Value;

fn positive(of: &Value, keys: &[&str]) {
    for key in keys {
        let value = of[key].as_f64();
        assert!(value.is_some_and(|value| value > 0.0), "{key} in {of}");
    }
}

#[test]
fn json_has_every_number_and_all_are_positive() {
    let json = json(corun(&["bench", "--quick", "--json"]));
    assert!(json["about"].as_str().unwrap().contains("simulator"));
    assert_eq!(json["quick"], true);
    positive(&json, &["bare_queue_turns_per_s", "peak_memory_bytes"]);
    let cases = json["cases"].as_array().unwrap();
    for group in ["run/sleep mix", "scaling", "two-level host"] {
        assert!(cases.iter().any(|case| case["group"] == group), "{group}");
    }
    let counts = ["virtual_s", "wall_s", "events", "switches"];
    let rates = ["events_per_s", "switches_per_s", "virtual_s_per_wall_s"];
    for case in cases {
        positive(case, &counts);
        positive(case, &rates);
        positive(case, &["event_to_bare_queue_turn"]);
    }
    let decisions = json["decisions"].as_array().unwrap();
    assert!(decisions.iter().any(|of| of["policy"] == "balance"));
    for of in decisions {
        positive(of, &["pcpus"]);
        positive(
            &of["wake"],
            &["decisions", "exchanges_mean", "exchanges_most"],
        );
        positive(
            &of["pick"],
            &["decisions", "exchanges_mean", "exchanges_most"],
        );
    }
    let loops = json["control_loops"].as_array().unwrap();
    assert!(loops.iter().any(|of| of["policy"] == "jupiter"));
    for of in loops {
        positive(of, &["period_ms", "decision_us", "pcpu_percent"]);
    }
    let sweep = json["sweep"].as_array().unwrap();
    assert_eq!(sweep.len(), 2);
    for threads in sweep {
        positive(threads, &["threads", "runs", "wall_s", "speedup"]);
    }
}

#[test]
fn the_table_says_what_it_is() {
    let text = printed(corun(&["bench", "--quick"]));
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(text.lines().all(fits), "{text}");
    for part in [
        "a benchmark of corun's simulator",
        "a look, not a measurement",
        "48 pCPUs, 1000 tasks",
        "512 pCPUs, 4096 vCPUs",
        "M switches/s",
        "control loop, 512 vCPUs, 128 pCPUs",
        "% of a pCPU",
        "exchanges per decision",
        "balance, 32 pCPUs",
        "bare event queue",
        "runs on 1 thread:",
        "peak memory",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

/// The beginning of the table of `docs/results.md` with the means of what decisions look at.
const HEAD: &str = "\
| policy | wake, 8 pCPUs | 32 pCPUs | pick, 8 pCPUs | 32 pCPUs |
|---|---|---|---|---|
";

/// The rows of that table: each policy on both hosts.
fn rows(decisions: &[Value]) -> String {
    let mean = |of: &Value, kind: &str| of[kind]["exchanges_mean"].as_f64().unwrap().round();
    let row = |hosts: &[Value]| {
        assert_eq!(hosts.len(), 2, "hosts for each policy: {hosts:?}");
        let (small, large) = (&hosts[0], &hosts[1]);
        assert_eq!(small["policy"], large["policy"]);
        assert_eq!([&small["pcpus"], &large["pcpus"]], [8, 32]);
        let means = ["wake", "pick"].map(|kind| {
            let means = [small, large].map(|of| mean(of, kind).to_string());
            means.join(" | ")
        });
        format!(
            "| {} | {} |\n",
            small["policy"].as_str().unwrap(),
            means.join(" | ")
        )
    };
    decisions.chunks(2).map(row).collect()
}

/// These counts are the same on every machine.
#[test]
fn the_page_says_what_decisions_look_at() {
    let json = json(corun(&["bench", "--quick", "--json"]));
    let rows = rows(json["decisions"].as_array().unwrap());
    table_is_fresh("docs/results.md", HEAD, &rows, "bench");
}
