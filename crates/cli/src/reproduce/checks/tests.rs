// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::compare::schedulers;
use crate::reproduce::claims;
use crate::reproduce::library::{File, Library};
use std::path::Path;

const CLAIMS: &str = r#"
[[claim]]
id = "a.number"
system = "a"
source = "§1"
kind = "quantitative"
setting = "s"
metric = "m"
baseline = "cfs"
value = 4.5
direction = "up"
notes = ""

[[claim]]
id = "a.several"
system = "a"
source = "§1"
kind = "quantitative"
setting = "s"
metric = "m"
baseline = "cfs"
value = { balance = 10, words = "many" }
direction = "up"
notes = ""

[[claim]]
id = "a.two"
system = "a"
source = "§1"
kind = "quantitative"
setting = "s"
metric = "m"
baseline = "cfs"
value = { a = 1, b = 2 }
direction = "up"
notes = ""

[[claim]]
id = "a.trend"
system = "a"
source = "§1"
kind = "qualitative"
setting = "s"
metric = "m"
baseline = "cfs"
value = "figure only"
direction = "up"
notes = ""
"#;

/// The outcome of reading a file of checks beside these claims and the experiment `x/one`.
fn read_text(checks: &str) -> Result<Checks, String> {
    let files = [
        ("claims.toml", CLAIMS),
        ("x/one.toml", ""),
        ("checks/a.toml", checks),
    ];
    let file = |(name, text): (&str, &str)| {
        let file = File {
            name: name.to_string(),
            text: text.to_string(),
        };
        (name.to_string(), file)
    };
    let library = Library::new(files.map(file));
    let claims = claims::read(&library).unwrap();
    read(&library, &claims).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(checks: &str, expected: &[&str]) {
    let message = read_text(checks).err().unwrap_or_default();
    assert_eq!(message.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_checks_that_are_built_in_can_be_read() {
    let library = Library::built_in();
    let claims = claims::read(&library).unwrap();
    let checks = read(&library, &claims).unwrap();
    assert!(checks.checks.contains_key("balance.table1.1vm"));
    for claim in &claims {
        let reason = checks.takes(&claim.id).is_some();
        let check = checks.checks.contains_key(&claim.id);
        assert!(
            reason || check,
            "{}: neither a check nor a reason",
            claim.id
        );
    }
    for policy in checks.planned.keys() {
        let exists = schedulers::known_policy(policy).is_ok();
        assert!(!exists, "{policy} is planned no more");
    }
}

/// A miss that nobody explains is a number without a meaning. The check's note has the explanation; the committed page
/// says which claims are missed.
#[test]
fn every_claim_that_is_missed_has_an_explanation() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/claims.md");
    let page = std::fs::read_to_string(page).unwrap();
    let library = Library::built_in();
    let claims = claims::read(&library).unwrap();
    let checks = read(&library, &claims).unwrap();
    let rows = page.lines().filter(|row| row.ends_with("| **missed** |"));
    let missed: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert!(!missed.is_empty());
    for id in missed {
        let note = &checks.checks[id].note;
        assert!(
            !note.is_empty(),
            "{id} is missed, and its check has no note"
        );
        // The claim that a note refers to explains it instead.
        if let Some(other) = note
            .begins()
            .strip_prefix("see ")
            .filter(|it| !it.contains(' '))
        {
            assert!(
                !checks.checks[other].note.begins().starts_with("see "),
                "{id}: {other} does not explain it"
            );
        }
    }
}

#[test]
fn a_check_has_all_its_parts() {
    let checks = read_text(
        r#"
        [planned]
        gang = "to come"
        [unchecked]
        "a." = "much"
        "a.tr" = "more"
        [experiment."x/one"]
        quick = ["run.duration=1s"]
        [check."a.several"]
        experiment = "x/one"
        measure = "host.idle_share"
        as = "share"
        over = "mean"
        let.change = "gain([cfs], [balance])"
        values.balance = "change + paper.balance"
        values.other = { ours = "[gang @ two]", paper = "5 * paper.balance", as = "ratio", readings."§2" = 6 }
        order = ["[cfs] < [balance] < [gang @ two]"]
        note = "so"
        "#,
    )
    .unwrap();
    assert_eq!(checks.takes("a.trend"), Some("more"));
    assert_eq!(checks.takes("a.number"), Some("much"));
    assert_eq!(checks.quick["x/one"], ["run.duration=1s"]);
    let check = &checks.checks["a.several"];
    assert_eq!((check.terms.over, check.note.begins()), (Over::Mean, "so"));
    assert_eq!(
        check.terms.references.keys().collect::<Vec<_>>(),
        ["balance", "cfs", "gang @ two"]
    );
    let What::Values { values, order, .. } = &check.what else {
        panic!("values");
    };
    assert_eq!(order.len(), 1);
    assert_eq!(
        (values[0].meaning, values[1].meaning),
        (Meaning::Share, Meaning::Ratio)
    );
    assert_eq!(values[1].readings[0].0, "§2");
}

#[test]
fn unknown_names_are_told_with_what_is_known() {
    refused(
        "[check.\"a.numbr\"]\nvalue = \"1\"",
        &[
            "checks/a.toml:1: check.\"a.numbr\": there is no claim \"a.numbr\", did you mean \
           \"a.number\"?",
        ],
    );
    refused(
        "[check.\"a.number\"]\nexperiment = \"x/on\"\nvalue = \"[cfs: host.idle_share]\"",
        &[
            "checks/a.toml:1: check.\"a.number\": [cfs: host.idle_share]: there is no experiment \
           \"x/on\", did you mean \"x/one\"?",
        ],
    );
    refused(
        "[check.\"a.number\"]\nvalue = \"cheng + 1\"\nlet.chang = \"1\"",
        &[
            "checks/a.toml:2: check.\"a.number\": value: formula \"cheng + 1\": unknown name \
           \"cheng\", did you mean \"chang\"? Accepted are paper, chang",
        ],
    );
    refused(
        "[check.\"a.several\"]\nvalues.words = \"1\"",
        &[
            "checks/a.toml:2: check.\"a.several\": values.words: there is no paper.words: the claim \
           has paper.balance; expected paper = a formula beside ours",
        ],
    );
    let policy = read_text(
        "[check.\"a.number\"]\nexperiment = \"x/one\"\nvalue = \"[csf: host.idle_share]\"",
    );
    let message = policy.err().unwrap();
    assert!(
        message.contains("unknown policy \"csf\", did you mean \"cfs\"?"),
        "{message}"
    );
}

#[test]
fn what_is_wrong_in_a_note_is_told() {
    let note =
        |text: &str| format!("[check.\"a.number\"]\nlet.gain = 1\nvalue = 1\nnote = \"{text}\"");
    let refused = |text: &str, message: &str| {
        refused(
            &note(text),
            &[&format!(
                "checks/a.toml:4: check.\"a.number\".note: {message}"
            )],
        );
    };
    assert!(read_text(&note("it gains {gain:+0.0 %}, of {paper:0}")).is_ok());
    refused(
        "it gains {gian:0.0}",
        "unknown name \"gian\", did you mean \"gain\"? Accepted are paper, gain",
    );
    refused(
        "it gains {gain}",
        "found {gain}, expected a name, ':' and an example, as in \"{gain:0.0}\"",
    );
    refused(
        "it gains {gain:0.0 at most",
        "found \"{gain:0.0 at most\", expected a name and '}', as in \"{gain:0.0}\"",
    );
    refused(
        "it gains {gain:much}",
        "{gain:much}: found \"much\", expected a number as it is to be written, such as \"0\", \"0.0\", \"+0.0 %\" or \
         \"0,000\"",
    );
}

#[test]
fn kinds_of_checks_go_with_kinds_of_claims() {
    let one = "expected exactly one of value or values, holds, out_of_reach";
    refused(
        "[check.\"a.number\"]\nnote = \"nothing\"",
        &[&format!("checks/a.toml:1: check.\"a.number\": {one}")],
    );
    refused(
        "[check.\"a.trend\"]\nholds = [\"1 < 2\"]\nout_of_reach = \"no\"",
        &[&format!("checks/a.toml:1: check.\"a.trend\": {one}")],
    );
    refused(
        "[check.\"a.number\"]\nholds = [\"1 < 2\"]",
        &[
            "checks/a.toml:2: check.\"a.number\".holds: the claim has numbers: expected value or \
           values, with order",
        ],
    );
    refused(
        "[check.\"a.trend\"]\nholds = [\"1 < 2\"]\norder = [\"1 < 2\"]",
        &["checks/a.toml:3: check.\"a.trend\".order: goes with values of quantitative claims only"],
    );
    refused(
        "[check.\"a.several\"]\nvalues.balance = 1\nvalues.other = { ours = 1, paper = 1 }",
        &[
            "checks/a.toml:1: check.\"a.several\": expected order, the claim's direction in formulas, such as \
             [\"[cfs] < [balance]\"], or [] if it says no more than the signs of its values",
        ],
    );
    refused(
        "[check.\"a.trend\"]\nvalues.x = { ours = 1, paper = 1 }",
        &[
            "checks/a.toml:1: check.\"a.trend\": the claim is qualitative: expected holds or out_of_reach",
        ],
    );
}

#[test]
fn none_of_a_claims_numbers_is_left_out_without_a_reason() {
    const HEAD: &str = "[check.\"a.two\"]\norder = []\nvalues.a = 1\n";
    refused(
        HEAD,
        &[
            "checks/a.toml:1: check.\"a.two\": nothing is compared with the claim's \"b\": expected values.b, or \
             unjudged.b = \"why not\"",
        ],
    );
    let fine = [
        "values.b = 2",
        "unjudged.b = \"a setting\"",
        "values.rest = { ours = 3, paper = \"paper.b - 1\" }",
    ];
    for rest in fine {
        assert!(read_text(&format!("{HEAD}{rest}")).is_ok(), "{rest}");
    }
    let what = read_text(&format!("{HEAD}{}", fine[1])).unwrap();
    let What::Values { unjudged, .. } = &what.checks["a.two"].what else {
        panic!("values");
    };
    assert_eq!(unjudged[..], [("b".to_string(), "a setting".to_string())]);
    refused(
        &format!("{HEAD}values.b = 2\nunjudged.b = \"no\"\nunjudged.c = \"no\""),
        &[
            "checks/a.toml:5: check.\"a.two\".unjudged: \"b\" is judged: values or a formula have it",
            "checks/a.toml:5: check.\"a.two\".unjudged: the claim has no number \"c\", accepted are a, b",
        ],
    );
}

#[test]
fn wrong_formulas_and_words_are_told_with_their_line() {
    refused(
        "[check.\"a.number\"]\nvalue = \"1 +\"\nas = \"shares\"",
        &[
            "checks/a.toml:2: check.\"a.number\": value: formula \"1 +\": at the end: expected a \
             number, a name, a function or [a measured value]",
            "checks/a.toml:3: check.\"a.number\".as: found \"shares\", did you mean \"share\"? \
             Accepted are effect, share, ratio, at-least, at-most",
        ],
    );
    refused(
        &format!("[check.\"a.number\"]\nvalue = \"{}1\"", "1+".repeat(5000)),
        &[&format!(
            "checks/a.toml:2: check.\"a.number\": value: formula \"{} …\": is longer than 4000 bytes",
            "1+".repeat(100)
        )],
    );
    refused(
        "[check.\"a.trend\"]\nholds = \"1 < 2\"",
        &[
            "checks/a.toml:2: check.\"a.trend\": holds: found \"1 < 2\", expected conditions \
           such as [\"[balance] < [cfs]\"], or a table of them",
        ],
    );
    refused(
        "[check.\"a.number\"]\nvalue = 1\nlet.not = 2\nvalu = 3",
        &[
            "checks/a.toml:3: check.\"a.number\": let: found \"not\", expected a name of letters, \
             digits and '_' other than and, or, not, paper, for, in",
            "checks/a.toml:4: check.\"a.number\".valu: unknown key, did you mean \"value\"? (known \
             here: as, case, experiment, holds, let, measure, note, order, out_of_reach, over, \
             unjudged, value, values)",
        ],
    );
    refused(
        "[check.\"a.several\"]\nlet.none = \"0 * paper.balance\"\nvalues.balance = \"1 / none\"\n\
         values.other = { ours = \"0 / none\", paper = \"[cfs in x/one: host.idle_share]\" }\norder = []",
        &[
            "checks/a.toml:3: check.\"a.several\": values.balance: its formula comes to infinity, expected a number",
            "checks/a.toml:4: check.\"a.several\": values.other: its formula comes to what is no number, \
             expected a number",
            "checks/a.toml:4: check.\"a.several\": values.other: found what is measured here, expected a formula of \
             the paper's numbers",
        ],
    );
    refused(
        "[each]\napps = \"fft\"\n[check.\"a.number\"]\nvalue = \"mean([cfs @ {app}] for app in aps)\"",
        &[
            "checks/a.toml:2: each.apps: found \"fft\", expected a list such as [\"fft\", \"lu\"] or \
             [[\"fft\", 3.5], [\"lu\", 2]]",
            "checks/a.toml:4: check.\"a.number\": value: formula \"mean([cfs @ {app}] for app in aps)\": \
             for … in aps: [each] has no such list, nothing is accepted here",
        ],
    );
    let message = read_text("[planned]\na = 1\n[checks]\n").err().unwrap();
    assert!(
        message.contains("planned.a: found 1, expected text"),
        "{message}"
    );
    assert!(message.contains("checks/a.toml:3: checks: unknown key, did you mean \"check\"?"));
}
