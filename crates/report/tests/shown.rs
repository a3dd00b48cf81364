// SPDX-License-Identifier: GPL-2.0-only
//! Tables, page and JSON of a made-up comparison.

// Test helpers, too, panic when an expectation fails.
#![allow(clippy::unwrap_used)]

use corun_report::detail::{Detail, Lane, Span, Timeline, Times, VmTimes};
use corun_report::html::{self, About};
use corun_report::{
    ClientResult, Comparison, HostResult, Recognised, ReplayCheck, Run, SiblingResult, TaskResult,
    VmResult, json, schema, sentences, table,
};

/// The page, with plain spaces for those that bind numbers to their units.
fn page(comparison: &Comparison, about: &About) -> String {
    html::page(comparison, about)
        .unwrap()
        .replace('\u{a0}', " ")
}

fn vm(name: &str, throughput: f64, run: f64, ready: f64, lock: Option<f64>) -> VmResult {
    VmResult {
        name: name.to_string(),
        vcpus: 4,
        throughput,
        throughput_unit: "rounds/s".to_string(),
        utilisation: run,
        run_share: run,
        ready_share: ready,
        wait_share: 1.0 - run - ready,
        ready_wait_p50_us: Some(1500.0),
        ready_wait_p99_us: Some(24_000.0),
        lock_waits: lock.map_or(0, |_| 77),
        lock_wait_mean_us: lock,
        lock_wait_p50_us: lock,
        lock_wait_p99_us: lock.map(|us| us * 9.0),
        ..VmResult::default()
    }
}

fn run(policy: &str, case: &str, seed: u64, stacked: f64, gain: f64) -> Run {
    Run {
        policy: policy.to_string(),
        case: case.to_string(),
        seed,
        kernel: None,
        host: HostResult {
            pcpus: 4,
            vcpus: 8,
            duration_s: 10.0,
            stacking_probability: stacked,
            vcpu_switches_per_s: 1234.5 / gain,
            switches_per_s: 2345.6 / gain,
            idle_share: 0.000_01,
            ..HostResult::default()
        },
        vms: vec![
            vm(
                "web",
                1000.0 * gain + seed as f64,
                0.45,
                0.5,
                Some(120.0 / gain),
            ),
            vm("<db>", 1.99, 0.5, 0.2, None),
        ],
        tasks: Vec::new(),
        disks: Vec::new(),
        clients: vec![
            client("users", "closed loop", Some(900.0 * gain), 0),
            client("backup", "sink", None, 12),
        ],
        detail: detail(gain),
    }
}

/// Waits that get shorter, and two tasks that take turns on a pCPU.
fn detail(gain: f64) -> Detail {
    let times = |scale: f64| Times {
        steps: (1..40u32)
            .map(|n| {
                let longest = (1000.0 * scale / gain * libm::pow(1.2, f64::from(n))) as u64;
                (longest, u64::from(n * (41 - n)))
            })
            .collect(),
    };
    let of_vm = || VmTimes {
        ready: times(2.0),
        wakeups: times(0.5),
        turns: times(20.0),
        ..VmTimes::default()
    };
    Detail {
        vms: vec![of_vm(), of_vm()],
        clients: vec![times(50.0), Times::default()],
        timeline: Some(timeline(SPANS)),
    }
}

/// Spans of a timeline here: as many as all of a report's together.
const SPANS: u64 = 1000;

/// `spans` spans of eight vCPUs, two for each of four pCPUs, which take turns.
fn timeline(spans: u64) -> Timeline {
    let turns = spans / 16;
    let lane = |vcpu: u64| {
        let spans = (0..turns).flat_map(|turn| {
            let length = 50_000 + (turn * 7919 + vcpu / 2) % 90_000;
            let from = turn * 150_000;
            let (early, pcpu) = (vcpu % 2 == turn % 2, Some((vcpu / 2) as u32));
            let (first, then) = if early { (pcpu, None) } else { (None, pcpu) };
            let span = |pcpu, from, length| Span { pcpu, from, length };
            [
                span(first, from, length),
                span(then, from + length, 150_000 - length),
            ]
        });
        Lane {
            name: format!("{}/{}", ["web", "<db>"][(vcpu % 2) as usize], vcpu / 2),
            vm: Some((vcpu % 2) as usize),
            spans: spans.collect(),
        }
    };
    Timeline {
        from: 0,
        until: turns * 150_000,
        pcpus: 4,
        lanes: (0..8).map(lane).collect(),
    }
}

fn client(name: &str, kind: &str, replies: Option<f64>, retransmissions: u64) -> ClientResult {
    ClientResult {
        name: name.to_string(),
        kind: kind.to_string(),
        vm: "web".to_string(),
        replies_per_s: replies,
        response_mean_us: replies.map(|_| 1300.0),
        response_p50_us: replies.map(|_| 840.0),
        response_p95_us: replies.map(|_| 1900.0),
        response_p99_us: replies.map(|_| 24_000.0),
        response_max_us: replies.map(|_| 231_000.0),
        timeouts: 0,
        sent_per_s: None,
        overloaded: false,
        retransmissions,
        bytes_per_s: 117_000_000.0,
    }
}

fn comparison(seeds: u64, cases: &[&str], policies: &[&str]) -> Comparison {
    let mut runs = Vec::new();
    for case in cases {
        for (at, policy) in policies.iter().enumerate() {
            let (stacked, gain) = if at == 0 {
                (0.431, 1.0)
            } else {
                (0.0, 1.0 + at as f64 / 4.0)
            };
            runs.extend((1..=seeds).map(|seed| run(policy, case, seed, stacked, gain)));
        }
    }
    Comparison {
        version: "0.1.0".to_string(),
        scenario: "made-up".to_string(),
        title: Some("Made up: <two> VMs".to_string()),
        source: Some("Nowhere, Table 0".to_string()),
        replay: None,
        confidence: None,
        notes: Vec::new(),
        runs,
    }
}

#[test]
fn a_table_fits_80_columns_whatever_is_compared() {
    let few = table::text(&comparison(1, &[""], &["cfs", "affinity", "balance"]), 80);
    assert!(few.contains("1.25×") && few.contains("1.50×"), "{few}");
    let many = comparison(3, &["1 VM", "2 VMs"], &["cfs", "a", "b", "c", "d"]);
    let many = table::text(&many, 80);
    assert!(many.contains("Median over 3 seeds"), "{many}");
    for text in [&few, &many] {
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= 80, "{text}");
        assert!(
            text.is_ascii() || !text.contains('\u{1b}'),
            "no colours: {text}"
        );
    }
}

#[test]
fn each_case_has_the_policies_that_it_was_run_under() {
    let mut compared = comparison(1, &["threads"], &["cfs"]);
    let other = comparison(2, &["2 VMs"], &["eevdf", "fair"]);
    compared.runs.splice(0..0, other.runs);
    let text = table::text(&compared, 80);
    let (first, second) = text.split_once("threads\n").unwrap();
    for (table, has, lacks) in [(first, "1.25×", "cfs"), (second, "web", "eevdf")] {
        assert!(table.contains(has) && !table.contains(lacks), "{text}");
    }
    assert!(text.contains("Median over up to 2 seeds"), "{text}");
    let said = sentences(&compared);
    assert!(said[0].starts_with("2 VMs (8 vCPUs on 4 pCPUs): under fair, throughput is 1.12×"));
    assert!(said[1].starts_with("threads (8 vCPUs on 4 pCPUs): under cfs, vCPUs are stacked"));
    let page = page(&compared, &About::default());
    let bars = page.matches("<title>running 45.0 %</title>").count();
    assert_eq!(bars, 3, "one bar for each policy of a case");
    assert!(!page.contains("running 0 % "), "no bar without runs");
}

#[test]
fn a_wide_terminal_has_more_policies_side_by_side() {
    let many = comparison(3, &[""], &["cfs", "a", "b", "c", "d", "e", "f"]);
    let tables = |width| table::text(&many, width).matches(" stacked ").count();
    assert_eq!([60, 80, 120, 200].map(tables), [6, 3, 3, 1]);
    for width in [60, 80, 120, 200] {
        let text = table::text(&many, width);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(width)), "{text}");
        for word in ["vCPU", "switches/s", "throughput,", "utilisation"] {
            assert!(text.contains(word), "{word} is broken at {width}:\n{text}");
        }
    }
}

#[test]
fn a_narrow_terminal_has_vms_above_their_rows() {
    let text = table::text(&comparison(3, &[""], &["cfs", "affinity", "balance"]), 60);
    for line in [
        " host\n",
        "  stacked ",
        " web\n",
        "  throughput,",
        "   rounds/s",
        "  ready wait, p99 ",
    ] {
        assert!(text.contains(&format!("\n{line}")), "{line}:\n{text}");
    }
    assert!(
        !text.contains("affinity   "),
        "two policies side by side:\n{text}"
    );
}

#[test]
fn rows_that_say_nothing_are_left_out() {
    let mut compared = comparison(1, &[""], &["cfs", "a", "b", "aql"]);
    let of_aql = compared.runs.last_mut().unwrap();
    of_aql.vms[0].recognised = Some(Recognised {
        llcf: 1.0,
        ..Recognised::default()
    });
    let text = table::text(&compared, 80);
    assert_eq!(text.matches("host ").count(), 2, "two tables:\n{text}");
    assert_eq!(text.matches("taken for LLCF").count(), 1, "{text}");
}

#[test]
fn charts_say_whom_they_leave_out() {
    let shown = |vms: usize| {
        let mut compared = comparison(1, &[""], &["cfs", "a"]);
        for run in &mut compared.runs {
            run.vms = (0..vms)
                .map(|at| vm(&format!("vm{at}th"), 1.0, 0.5, 0.2, None))
                .collect();
        }
        page(&compared, &About::default())
    };
    assert!(!shown(12).contains("Charts show"));
    let many = shown(100);
    assert!(many.contains("Charts show the first 12 of 100 VMs."));
    assert!(many.contains("… and 84 more VMs: see --json."));
}

#[test]
fn many_vms_of_a_kind_are_shown_together() {
    let mut compared = comparison(1, &[""], &["cfs", "a"]);
    let names = (1..=120).map(|at| (format!("web{at}"), f64::from(at)));
    let names = names.chain((1..=40).map(|at| (format!("db{at}"), 3.0)));
    let vms: Vec<VmResult> = names
        .map(|(name, throughput)| vm(&name, throughput, 0.5, 0.2, None))
        .collect();
    for run in &mut compared.runs {
        run.vms.clone_from(&vms);
    }
    let text = table::text(&compared, 100);
    for said in [
        "web1 … 120",
        "60.5",
        "db1 … 40",
        "VMs whose names differ in their number only",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    assert!(!text.contains("more VM"), "{text}");
    let drawn = page(&compared, &About::default());
    for said in [
        "<h4>db1 … 40 (40 VMs), rounds/s</h4>",
        "are shown together",
        "\"name\":\"web77\"",
    ] {
        assert!(drawn.contains(said), "{said}");
    }
    assert!(!drawn.contains("Charts show") && !drawn.contains("more VM"));
}

#[test]
fn siblings_are_told_of_beside_whatever_co_schedules() {
    for (policy, shown) in [
        ("cosched-dt", true),
        ("cfs-cosched-demand", true),
        ("jupiter", false),
    ] {
        let mut compared = comparison(1, &[""], &["cfs", policy]);
        compared.runs[1].vms[0].siblings = Some(SiblingResult {
            co_run_share: Some(0.75),
            ..SiblingResult::default()
        });
        let text = table::text(&compared, 80);
        assert_eq!(text.contains("co-run"), shown, "{policy}:\n{text}");
    }
}

#[test]
fn shares_of_pcpus_that_do_nothing_are_shown_where_there_are_any() {
    let mut compared = comparison(1, &[""], &["cfs", "vsmtio"]);
    let shown = |compared: &Comparison, row: &str| table::text(compared, 80).contains(row);
    for row in ["polled", "retained", "on second threads", "lent"] {
        assert!(!shown(&compared, row), "{row}");
    }
    let vm = &mut compared.runs[1].vms[0];
    (vm.polled_share, vm.retained_share) = (0.25, 0.0003);
    (vm.second_share, vm.lent_share) = (0.5, 0.125);
    for row in ["polled", "on second threads", "lent"] {
        assert!(shown(&compared, row), "{row}");
    }
    assert!(
        !shown(&compared, "retained"),
        "this is less than can be seen"
    );
    let mut several = comparison(2, &[""], &["cfs", "balance"]);
    several.runs[3].vms[0].polled_share = 0.0004;
    assert!(!shown(&several, "polled"), "with several seeds, too");
    several.runs[3].vms[0].polled_share = 0.1;
    assert!(shown(&several, "polled"), "with one of the seeds");
    compared.runs[1].policy = "jupiter".to_string();
    assert!(shown(&compared, "polled") && !shown(&compared, "lent"));
}

#[test]
fn clients_show_what_they_have() {
    let text = table::text(&comparison(1, &[""], &["cfs", "balance"]), 80);
    let row = |of: &str, measure: &str| {
        let mut lines = text.lines().skip_while(|line| !line.contains(of));
        lines
            .find(|line| line.contains(measure))
            .map(str::to_string)
    };
    assert!(
        row("users (closed loop)", "replies/s")
            .unwrap()
            .contains("1.25×")
    );
    assert!(
        row("users (closed loop)", "response, p99")
            .unwrap()
            .contains("24.0 ms")
    );
    assert!(row("backup (sink)", "MB/s").unwrap().contains("117"));
    assert!(
        row("backup (sink)", "retransmissions")
            .unwrap()
            .contains("12")
    );
    // No request was given up, and a sink has no replies.
    assert_eq!(row("users", "given up"), None);
    assert_eq!(row("backup (sink)", "replies/s"), None);
}

#[test]
fn host_tasks_of_scenarios_are_shown() {
    let mut compared = comparison(1, &[""], &["cfs", "balance"]);
    for run in &mut compared.runs {
        let task = |at: u32| TaskResult {
            name: format!("qemu-{at}"),
            run_share: 0.25,
            ready_share: 0.125,
            wait_share: 0.625,
        };
        run.tasks = (0..18).map(task).collect();
    }
    let text = table::text(&compared, 80);
    for said in [
        "qemu-0 (task)",
        "12.5 %",
        "62.5 %",
        "… and 2 more tasks: see --json",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    let drawn = page(&compared, &About::default());
    assert!(drawn.contains("qemu-15 (task)") && drawn.contains("2 more tasks"));
    // A recording has every thread of the host.
    compared.replay = Some(ReplayCheck::default());
    assert!(!table::text(&compared, 80).contains("(task)"));
}

#[test]
fn the_comparison_in_words() {
    let said = sentences(&comparison(1, &["2 VMs"], &["cfs", "balance"]));
    let expected = "2 VMs (8 vCPUs on 4 pCPUs): under balance, throughput is 1.12× that of cfs \
        (geometric mean over VMs; best web 1.25×, worst <db> 1.00×), vCPU stacking goes from 43.1 % to 0 % and the worst VM's 99th \
        percentile of lock waits goes from 1.08 ms to 864 µs.";
    assert_eq!(said, [expected]);
}

#[test]
fn the_page_needs_nothing_else_and_escapes_names() {
    let about = About {
        command: "corun compare made-up.toml --policies cfs,balance".to_string(),
        next: vec![("More".to_string(), "corun compare --help".to_string())],
        facts: vec![("Topology".to_string(), "1n1l4c1t".to_string())],
        notes: vec!["A note.".to_string()],
        input: Some("[host]\npcpus = 4 # <small>".to_string()),
    };
    let page = page(
        &comparison(3, &["1 VM", "2 VMs"], &["cfs", "affinity", "balance"]),
        &about,
    );
    for foreign in ["src=", "href=\"h", "http:", "@import", "url(", "fetch("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(
        page.contains("Copyright (c) 2022 Leon Sorokin"),
        "uPlot's licence"
    );
    assert!(!page.contains("<db>") && !page.contains("<two>") && !page.contains("<small>\n"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    if let Some(file) = std::env::var_os("CORUN_REPORT_SAMPLE") {
        std::fs::write(file, &page).unwrap();
    }
}

#[test]
fn the_page_says_when_a_policy_left_vms_alone() {
    let mut compared = comparison(1, &[""], &["balance", "jupiter"]);
    let heading = "When policies left VMs alone";
    let never = page(&compared, &About::default());
    assert!(!never.contains(heading));
    let run = compared.runs.last_mut().unwrap();
    run.detail.vms[0].left_alone = vec![(6_500_000_000, Some(7_600_000_000))];
    let once = page(&compared, &About::default());
    assert!(once.contains(heading));
    assert!(once.contains("<td>jupiter</td><th scope=\"row\">web</th>"));
    assert!(once.contains("<td>6.5 to 7.6 s</td>"));
}

#[test]
fn an_empty_comparison_is_shown_as_such() {
    let empty = comparison(1, &[], &[]);
    assert_eq!(table::text(&empty, 80), "");
    assert!(html::page(&empty, &About::default()).is_ok());
    assert!(json(&empty).unwrap().contains("\"runs\": []"));
}

/// Does the committed schema of this name match the types?
#[track_caller]
fn is_committed(name: &str, schema: serde_json::Result<String>) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
    let file = format!("{folder}/{name}.schema.json");
    let schema = schema.unwrap();
    if std::env::var_os("CORUN_UPDATE").is_some() {
        std::fs::write(&file, &schema).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(committed, schema, "CORUN_UPDATE=1 writes it anew");
}

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    is_committed("compare", schema());
    is_committed("reproduce", corun_report::claims::schema());
    is_committed("tables", corun_report::tables::schema());
    is_committed("sensitivity", corun_report::sensitivity::schema());
    is_committed("advise", corun_report::advice::schema());
}
