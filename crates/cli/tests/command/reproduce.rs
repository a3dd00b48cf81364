// SPDX-License-Identifier: GPL-2.0-only
//! `corun reproduce`: its forms and its messages. scripts/verdicts.py checks that no verdict gets worse.

use crate::common::{self, Place, corun, fits_schema, in_tree};
use corun_report::claims::Scoreboard;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn prints(args: &[&str]) -> String {
    common::printed(corun(&[&["reproduce"], args].concat()))
}

fn json(args: &[&str]) -> Value {
    common::json(corun(&[&["reproduce"], args].concat()))
}

fn refused(args: &[&str]) -> String {
    common::refused(corun(&[&["reproduce"], args].concat()))
}

const CLAIMS: &str = r#"
[[claim]]
id = "x.stacking"
system = "x"
source = "Table 1"
kind = "quantitative"
setting = "four pCPUs"
metric = "stacking (%)"
baseline = "cfs"
value = { cfs = 50, balance = 0 }
direction = "balance < cfs"
notes = ""
[[claim]]
id = "x.trend"
system = "x"
source = "§2"
kind = "qualitative"
setting = "four pCPUs"
metric = "stacking"
baseline = "cfs"
value = "figure only"
direction = "balance < cfs"
notes = ""
[[claim]]
id = "x.lines"
system = "x"
source = "§3"
kind = "quantitative"
setting = "the code"
metric = "lines"
baseline = "-"
value = 300
direction = "few"
notes = ""
[[claim]]
id = "x.later"
system = "x"
source = "§4"
kind = "quantitative"
setting = "four pCPUs"
metric = "speed-up (%)"
baseline = "cfs"
value = 7
direction = "more"
notes = ""
"#;

const SCENARIO: &str = r#"
host.topology = "1n1l2c1t"
run = { duration = "400ms", warm_up = "0ms", seeds = [1, 2, 3, 4] }
[vm.a]
vcpus = 2
[[vm.a.thread]]
count = 2
program = "loop { compute 3ms ±50%; sleep 1ms exp; count 1 rounds }"
[vm.b]
vcpus = 2
[[vm.b.thread]]
count = 2
program = "loop { compute 3ms ±50%; sleep 1ms exp; count 1 rounds }"
"#;

const CHECKS: &str = r#"
[planned]
gang = "gangs"
[check."x.stacking"]
experiment = "x/two"
measure = "host.stacking_probability"
as = "share"
values.cfs = "100 * [cfs]"
values.balance = "100 * [balance]"
order = ["[balance] < [cfs]"]
[check."x.trend"]
experiment = "x/two"
measure = "host.stacking_probability"
holds = ["[balance] < [cfs]", "[balance] <= 0"]
[check."x.lines"]
out_of_reach = "lines of code are not simulated"
[check."x.later"]
experiment = "x/two"
measure = "vm.a.throughput"
value = "gain([cfs], [gang])"
"#;

/// A directory of experiments of its own for each test.
fn place(name: &str, checks: &str) -> String {
    let place = Place::new(&format!("reproduce-{name}"));
    place.write("claims.toml", CLAIMS);
    place.write("x/two.toml", SCENARIO);
    place.write("checks/x.toml", checks);
    place.dir().to_string()
}

#[test]
fn every_kind_of_claim_comes_to_its_verdict() {
    let dir = place("kinds", CHECKS);
    let json = json(&["--experiments", &dir, "--json", "-q"]);
    fits_schema("reproduce", &json);
    let claims = json["claims"].as_array().unwrap();
    let of = |id: &str| claims.iter().find(|claim| claim["id"] == id).unwrap();
    let stacking = of("x.stacking");
    assert_eq!(stacking["seeds"], 4);
    assert_eq!(stacking["ours"]["balance"], 0.0);
    assert_eq!(stacking["values"][1]["verdict"], "close");
    assert!(stacking["ours"]["cfs"].as_f64().unwrap() > 0.0);
    assert_eq!(of("x.trend")["verdict"], "holds");
    assert_eq!(of("x.trend")["ours"], "true in 4/4 seeds");
    let lines = of("x.lines");
    assert_eq!(lines["verdict"], "out-of-scope");
    assert_eq!(lines["note"], "lines of code are not simulated");
    assert_eq!(
        of("x.later")["note"],
        "not implemented yet: needs policy gang"
    );
    assert_eq!(of("x.later")["ours"], Value::Null);
}

#[test]
fn numbers_of_a_note_are_taken_from_the_runs() {
    let noted =
        "let.stacked = \"100 * [cfs]\"\nnote = \"CFS comes to {stacked:0.00 %}\"\norder = [";
    let dir = place("note", &CHECKS.replacen("order = [", noted, 1));
    let json = json(&["--experiments", &dir, "--json", "-q", "x.stacking"]);
    let cfs = json["claims"][0]["ours"]["cfs"].as_f64().unwrap();
    assert!(cfs > 0.0);
    assert_eq!(
        json["claims"][0]["note"],
        format!("CFS comes to {cfs:.2} %")
    );
}

/// What depends on something not measured, or on a division by zero, does not hold, and a note says so.
#[test]
fn what_was_not_measured_does_not_hold() {
    let check = |holds: &str| {
        let dir = place(
            "unmeasured",
            &format!("[check.\"x.trend\"]\nexperiment = \"x/two\"\nholds = [{holds:?}]"),
        );
        json(&["--experiments", &dir, "--json", "-q", "x.trend"])["claims"][0].clone()
    };
    for holds in [
        "not [balance: vm.a.io.wait_p50_us] < 1",
        "[cfs: vm.a.throughput] / [balance: host.stacking_probability] > 5",
        "1 / 0 > 5",
        "not sqrt(0 - 1) > 1",
    ] {
        let claim = check(holds);
        assert_eq!(claim["verdict"], "missed", "{holds}");
        let note = format!("nothing was measured for {holds}, or it divides by 0");
        assert_eq!(claim["note"], note.as_str());
    }
    assert_eq!(check("[cfs: vm.a.throughput] > 0")["verdict"], "holds");
    let dir = place(
        "unmeasured-value",
        "[check.\"x.later\"]\nexperiment = \"x/two\"\nvalue = \"[cfs: vm.a.io.wait_p50_us]\"",
    );
    let claims = &json(&["--experiments", &dir, "--json", "-q", "x.later"])["claims"];
    let note = "nothing was measured for [cfs: vm.a.io.wait_p50_us], or it divides by 0";
    assert_eq!(claims[0]["note"], note);
}

#[test]
fn values_are_those_of_compare() {
    let dir = place("compare", CHECKS);
    let json = json(&["--experiments", &dir, "--json", "-q", "x.stacking"]);
    let scenario = format!("{dir}/x/two.toml");
    let args = ["compare", &scenario, "--policies", "cfs", "--json", "-q"];
    let compared = common::json(corun(&args));
    let runs = compared["runs"].as_array().unwrap();
    let stacked = runs
        .iter()
        .map(|run| run["host"]["stacking_probability"].as_f64().unwrap());
    let mut stacked: Vec<f64> = stacked.map(|share| share * 100.0).collect();
    stacked.sort_by(f64::total_cmp);
    let ours = json["claims"][0]["ours"]["cfs"].as_f64().unwrap();
    assert!(
        (ours - (stacked[1] + stacked[2]) / 2.0).abs() < 1e-4,
        "{ours} of {stacked:?}"
    );
    let spread = json["claims"][0]["spread"]["cfs"].as_f64().unwrap();
    assert!((spread - (stacked[3] - stacked[0]) / 2.0).abs() < 1e-4);
}

#[test]
fn a_value_beside_which_nothing_is_set_is_shown_with_its_reason() {
    let unjudged = "unjudged.cfs = \"a setting\"";
    let checks = CHECKS.replace("values.cfs = \"100 * [cfs]\"", unjudged);
    let dir = place("unjudged", &checks);
    let json = json(&["--experiments", &dir, "--json", "-q", "x.stacking"]);
    fits_schema("reproduce", &json);
    let claim = &json["claims"][0];
    assert_eq!(
        (&claim["verdict"], &claim["note"]),
        (&"close".into(), &"cfs not judged: a setting".into())
    );
    let left = &claim["values"][1];
    assert_eq!(
        (&left["name"], &left["paper"]),
        (&"cfs".into(), &50.0.into())
    );
    assert_eq!(
        (&left["ours"], &left["verdict"]),
        (&Value::Null, &"out-of-scope".into())
    );
    let markdown = prints(&["--experiments", &dir, "--markdown", "-q"]);
    assert!(
        markdown.contains("| · cfs |  | 50 | – | out-of-scope |"),
        "{markdown}"
    );
}

#[test]
fn what_is_counted_besides_is_measured() {
    let dir = place(
        "counted",
        &CHECKS.replace("vm.a.throughput", "vm.a.other_throughputs.halves/s"),
    );
    let counts = SCENARIO.replace("count 1 rounds", "count 1 rounds; count 2 halves");
    fs::write(format!("{dir}/x/two.toml"), counts).unwrap();
    let checks = fs::read_to_string(format!("{dir}/checks/x.toml")).unwrap();
    let checks = checks.replace("gain([cfs], [gang])", "[cfs] / [cfs: vm.a.throughput]");
    fs::write(format!("{dir}/checks/x.toml"), checks).unwrap();
    let json = json(&["--experiments", &dir, "--json", "-q", "x.later"]);
    let ours = json["claims"][0]["ours"].as_f64().unwrap();
    assert!((ours - 2.0).abs() < 0.1, "{ours}");
}

/// "Up to": of several averages the greatest, not the average of what is greatest in each run.
#[test]
fn the_greatest_of_averages_is_one_of_them() {
    let checks = r#"
[each]
vms = ["a", "b"]
[check."x.stacking"]
experiment = "x/two"
values.cfs = "[cfs: vm.a.throughput]"
values.balance = "[cfs: vm.b.throughput]"
order = []
[check."x.later"]
experiment = "x/two"
let.greatest_of_all = "greatest([cfs: vm.{vm}.throughput] for vm in vms)"
value = "greatest_of_all"
"#;
    let of = |checks: &str| {
        let dir = place("greatest", checks);
        let json = json(&[
            "--experiments",
            &dir,
            "--json",
            "-q",
            "x.stacking",
            "x.later",
        ]);
        let claims = json["claims"].as_array().unwrap();
        let number = |claim: usize, what: &str| claims[claim][what].clone();
        let [ours, spread] = ["ours", "spread"].map(|what| {
            let single = number(1, what).as_f64().unwrap();
            let two = ["cfs", "balance"].map(|of| number(0, what)[of].as_f64().unwrap());
            (single, two)
        });
        let at = usize::from(ours.1[1] > ours.1[0]);
        assert_eq!((ours.0, spread.0), (ours.1[at], spread.1[at]), "{json}");
        ours.0
    };
    let median = of(checks);
    let checks = checks.replace("order = []", "order = []\nover = \"mean\"");
    let mean = of(&checks.replace("value =", "over = \"mean\"\nvalue ="));
    assert!(median > 0.0 && mean > 0.0);
}

#[test]
fn results_do_not_hang_on_threads_and_quick_ones_are_shorter() {
    let dir = place("threads", CHECKS);
    let of = |more: &[&str]| prints(&[&["--experiments", &dir, "--json", "-q"], more].concat());
    assert_eq!(of(&["--jobs", "1"]), of(&["--jobs", "7"]));
    let seeds = |more: &[&str]| {
        let json: Value = serde_json::from_str(&of(more)).unwrap();
        json["claims"][0]["seeds"].as_u64()
    };
    assert_eq!(seeds(&["--quick"]), Some(2));
    assert_eq!(seeds(&["--quick", "--seeds", "3"]), Some(3));
    let quick = format!("{CHECKS}\n[experiment.\"x/two\"]\nquick = [\"run.seeds=[5]\"]\n");
    let dir = place("said-quick", &quick);
    let json = json(&["--experiments", &dir, "--json", "-q", "--quick"]);
    assert_eq!(
        (&json["claims"][0]["seeds"], &json["quick"]),
        (&1.into(), &true.into())
    );
}

/// Ctrl-C: what is done is shown, claims that lack runs are not.
#[test]
fn what_is_done_is_shown_when_it_is_interrupted() {
    // The one experiment is two short runs, the other takes minutes.
    let trend = "[check.\"x.trend\"]\nexperiment = \"x/";
    let checks = CHECKS.replace(&format!("{trend}two"), &format!("{trend}one"));
    let dir = place("interrupted", &checks);
    let write = |name: &str, seeds: Vec<u32>| {
        let seeds = format!("seeds = {seeds:?}");
        let scenario = SCENARIO.replace("seeds = [1, 2, 3, 4]", &seeds);
        fs::write(format!("{dir}/x/{name}.toml"), scenario).unwrap();
    };
    write("one", vec![1]);
    write("two", (1..=10_000).collect());
    let mut command = Command::new(env!("CARGO_BIN_EXE_corun"));
    command.args(["reproduce", "--experiments", &dir, "--json", "--jobs", "1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap()).lines();
    let began = said.next().unwrap().unwrap();
    assert!(began.starts_with("20002 runs"), "{began}");
    thread::sleep(Duration::from_secs(1));
    let kill = Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let board: Scoreboard = serde_json::from_slice(&output.stdout).unwrap();
    let shown: Vec<&str> = board.claims.iter().map(|claim| claim.id.as_str()).collect();
    assert_eq!(shown, ["x.trend", "x.lines", "x.later"]);
    assert_eq!(board.left_out, 1);
    let why = said.next().unwrap().unwrap();
    assert!(why.contains("1 of 4 claims left out"), "{why}");
}

#[test]
fn tables_fit_and_pages_have_all() {
    let dir = place("shown", CHECKS);
    let report = format!("{dir}/report.html");
    let text = prints(&["--experiments", &dir, "--report", &report]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(
        text.contains("4 claims, 2 checked") && !text.contains("x.lines"),
        "{text}"
    );
    assert!(
        text.replace('\n', " ")
            .contains("1 that no simulation can check, 1 not implemented yet")
    );
    let all = prints(&["--experiments", &dir, "--all", "-q"]);
    assert!(
        all.contains("x.lines: lines of code are not simulated"),
        "{all}"
    );
    let page = fs::read_to_string(report).unwrap();
    let markdown = prints(&["--experiments", &dir, "--markdown", "-q"]);
    for id in ["x.stacking", "x.trend", "x.lines", "x.later"] {
        assert!(page.contains(id) && markdown.contains(id), "{id}");
    }
    assert!(
        !page.contains("<script") && !page.contains("http:") && !page.contains("https:"),
        "needs nothing else"
    );
    assert!(
        markdown.contains("| `x.trend` | x/two (4 seeds) |  |  | **holds** |"),
        "{markdown}"
    );
}

#[test]
fn mistakes_are_told_with_their_place() {
    let message = refused(&["balance.tabel1.2vm"]);
    assert!(
        message.contains("did you mean \"balance.table1.2vm\"?"),
        "{message}"
    );
    for group in ["balance.table1", "balance.table1."] {
        let message = refused(&[group]);
        assert!(
            message.contains("did you mean \"balance.table1.*\"?"),
            "{message}"
        );
    }
    assert!(refused(&["x*"]).contains("CLAIM \"x*\": there is no such claim"));
    let wrong = |name: &str, from: &str, to: &str| {
        let dir = place(name, &CHECKS.replacen(from, to, 1));
        refused(&["--experiments", &dir, "-q"])
    };
    let message = wrong("formula", "100 * [cfs]", "100 ** [cfs]");
    assert!(message.contains("checks/x.toml:8: check.\"x.stacking\": values.cfs: formula"));
    let message = wrong("case", "100 * [cfs]", "100 * [cfs @ one]");
    assert!(
        message.contains(
            "checks/x.toml:4: check.\"x.stacking\": [cfs @ one]: x/two has no cases: expected none, found \"one\""
        ),
        "{message}"
    );
    let message = wrong("vm", "100 * [cfs]", "100 * [cfs: vm.c.run_share]");
    assert!(
        message.contains("none of the run's vms is \"c\", accepted are a"),
        "{message}"
    );
    let message = refused(&["--experiments", "/nowhere"]);
    assert!(message.contains("/nowhere: "), "{message}");
}

#[test]
fn the_committed_page_has_every_claim() {
    let page = fs::read_to_string(in_tree("docs/claims.md")).unwrap();
    let board: Scoreboard =
        serde_json::from_str(&prints(&["aql.*", "--quick", "--json", "-q"])).unwrap();
    assert!(!board.claims.is_empty());
    for claim in &board.claims {
        assert!(
            page.contains(&format!("`{}`", claim.id)),
            "{}: make claims",
            claim.id
        );
    }
}

const TABLES: &str = r#"
[each]
policies = [["cfs", "CFS"], ["balance", "balance"]]
[table."x.stacking"]
title = "Time with siblings on one runqueue"
columns = ["the paper", "ours"]
for = "policy, name in policies"
claim = "x.stacking"
experiment = "x/two"
measure = "host.stacking_probability"
shown = ["0", "0.0 %"]
row."{name}" = ["", "100 * [{policy}]"]
row."the paper's CFS" = ["paper.cfs", ""]
"#;

#[test]
fn tables_have_a_row_for_each_item_and_numbers_as_they_are_to_be_written() {
    let dir = place("tables", TABLES);
    let of_dir = ["--tables", "--experiments", &dir];
    let json = json(&[&of_dir[..], &["--json"]].concat());
    fits_schema("tables", &json);
    let table = &json["tables"][0];
    assert_eq!(
        (&table["name"], &table["seeds"]),
        (&"x.stacking".into(), &4.into())
    );
    let rows = table["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["CFS", "balance", "the paper's CFS"]);
    let shown = |row: usize, column: usize| rows[row]["cells"][column]["shown"].as_str().unwrap();
    assert!(
        shown(0, 1).ends_with(" %") && shown(0, 1) != "0.0 %",
        "{}",
        shown(0, 1)
    );
    assert_eq!(
        [shown(0, 0), shown(1, 1), shown(2, 0), shown(2, 1)],
        ["", "0.0 %", "50", ""]
    );
    let text = prints(&of_dir);
    assert!(
        text.contains("x.stacking: Time with siblings")
            && text.contains("x/two; medians over 4 seeds"),
        "{text}"
    );
}

#[test]
fn pages_have_their_tables_written_and_nothing_else() {
    let dir = place("pages", TABLES);
    let pages = Place::new("reproduce-pages-of");
    let before = "# Page\n\n<!-- table x.stacking -->\nold\n<!-- end of table -->\n\nMore.\n";
    pages.write("page.md", before);
    pages.write("other.md", "No table.\n");
    prints(&["--tables", "--pages", pages.dir(), "--experiments", &dir]);
    let after = fs::read_to_string(format!("{}/page.md", pages.dir())).unwrap();
    assert!(
        after.starts_with("# Page\n\n<!-- table x.stacking -->\n|  | the paper | ours |\n"),
        "{after}"
    );
    assert!(
        after.ends_with("<!-- end of table -->\n\nMore.\n") && !after.contains("old"),
        "{after}"
    );
    pages.write("page.md", "<!-- table x.other -->\n");
    let told = refused(&["--tables", "--pages", pages.dir(), "--experiments", &dir]);
    assert!(
        told.contains("page.md:1: this place for a table has no <!-- end of table -->"),
        "{told}"
    );
}

#[test]
fn what_is_wrong_with_a_table_is_told_with_its_line() {
    let of = |from: &str, to: &str| {
        let dir = place("wrong-tables", &TABLES.replace(from, to));
        refused(&["--tables", "--experiments", &dir])
    };
    let expected = [
        (
            "[\"\", \"100 * [{policy}]\"]",
            "[\"1\"]",
            "checks/x.toml:12: table.\"x.stacking\": row.\"{name}\": found 1 of them, expected formulas for 2 columns",
        ),
        (
            "\"0.0 %\"",
            "\"0.1 %\"",
            "checks/x.toml:11: table.\"x.stacking\".shown: found \"0.1 %\", expected a number as it is to be written",
        ),
        (
            "in policies",
            "in polices",
            "checks/x.toml:7: table.\"x.stacking\".for: for … in polices: [each] has no such list, did you mean \"policies\"?",
        ),
        (
            "100 * [{policy}]",
            "100 * [{polcy}]",
            "unknown policy \"{polcy}\"",
        ),
        (
            "claim = \"x.stacking\"",
            "claim = \"x.staking\"",
            "there is no claim \"x.staking\", did you mean \"x.stacking\"?",
        ),
        (
            "title =",
            "titel =",
            "table.\"x.stacking\".title: is missing",
        ),
    ];
    for (from, to, told) in expected {
        let message = of(from, to);
        assert!(message.contains(told), "{told}\n{message}");
    }
    let unknown = refused(&[
        "--tables",
        "x.staking",
        "--experiments",
        &place("no-table", TABLES),
    ]);
    assert!(
        unknown.contains("there is no such table, did you mean \"x.stacking\"?"),
        "{unknown}"
    );
}

/// Each table of the documents has a place, and each place a table.
#[test]
fn the_documents_have_a_place_for_every_table() {
    let places: Vec<String> = fs::read_dir(in_tree("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix("<!-- table "));
            let names = lines.map(|line| line.trim_end_matches(" -->").to_string());
            names.collect::<Vec<_>>()
        })
        .collect();
    let written = fs::read_to_string(in_tree("experiments/checks/tables.toml")).unwrap();
    let names = written
        .lines()
        .filter_map(|line| line.strip_prefix("[table.\""));
    let names: Vec<&str> = names.map(|line| line.trim_end_matches("\"]")).collect();
    assert!(names.len() > 10);
    for name in &names {
        let count = places.iter().filter(|place| place == name).count();
        assert_eq!(count, 1, "{name} has {count} places in docs/*.md");
    }
    for place in &places {
        assert!(names.contains(&place.as_str()), "there is no table {place}");
    }
}

/// The README's summary is that of the committed scoreboard.
#[test]
fn the_readme_counts_as_the_scoreboard_does() {
    let read = |file: &str| {
        let text = fs::read_to_string(in_tree(file)).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let scoreboard = read("docs/claims.md");
    let count = |what: &str| -> u32 {
        let (before, _) = scoreboard.split_once(&format!(" {what}")).unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let counts = [
        "checked: ",
        "exact, ",
        "holds, ",
        "close, ",
        "direction, ",
        "missed. Out",
    ];
    let [checked, exact, holds, close, direction, missed] = counts.map(count);
    let near = close + direction;
    let said = format!(
        "{checked} claims that can be checked, {} are met: all {exact} exact ones, {holds} of the qualitative ones, \
         and {near} quantitative ones",
        exact + holds + near
    );
    let readme = read("README.md");
    assert!(readme.contains(&said), "{said}");
    assert!(readme.contains(&format!("those missed ({missed})")));
}
