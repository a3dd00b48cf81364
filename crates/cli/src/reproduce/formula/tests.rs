// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use proptest::prelude::*;

/// Programs, and pairs of a program and its time.
fn lists() -> Lists {
    let item = |of: &[&str]| of.iter().map(|of| of.to_string()).collect();
    Lists::from([
        (
            "apps".to_string(),
            vec![item(&["1"]), item(&["2"]), item(&["4"])],
        ),
        (
            "solo".to_string(),
            vec![item(&["1", "10"]), item(&["2", "20"])],
        ),
    ])
}

fn known<'a>(names: &'a Names, measured: &'a dyn Fn(&str) -> f64) -> Known<'a> {
    Known {
        names,
        measured,
        overall: &|_| f64::NAN,
    }
}

fn value(text: &str) -> f64 {
    let names = Names::from([("paper.two".to_string(), 5.5), ("x".to_string(), 2.0)]);
    let measured = |text: &str| match text {
        "cfs @ 2 VMs: host.a" => 40.0,
        "balance" => 30.0,
        _ => f64::NAN,
    };
    Number::parse(text, &lists())
        .unwrap()
        .value(&known(&names, &measured))
}

fn holds(text: &str) -> bool {
    let measured = |text: &str| text.parse().unwrap_or(f64::NAN);
    Condition::parse(text, &lists())
        .unwrap()
        .holds(&known(&Names::new(), &measured))
        == Some(true)
}

#[test]
fn operators_bind_as_everywhere() {
    assert_eq!(value("1 + 2 * 3 - 4 / 8"), 6.5);
    assert_eq!(value("2 - 3 - 4"), -5.0);
    assert_eq!(value("-(1 + x) * -2"), 6.0);
    assert_eq!(value("paper.two * 2"), 11.0);
}

#[test]
fn functions_of_measured_values() {
    assert_eq!(value("reduction([cfs @ 2 VMs: host.a], [balance])"), 25.0);
    assert_eq!(
        value("gain([balance], [ cfs @ 2 VMs: host.a ])").round(),
        33.0
    );
    assert_eq!(value("max(1, min(5, 7), 2) + mean(1, 3) + abs(-1)"), 8.0);
    assert_eq!(value("or([nothing], 3) + or(1, 9)"), 4.0);
    assert!(value("max(1, [nothing]) + 1").is_nan());
    assert!(value("[nothing] * 0").is_nan());
}

/// The number that is greatest with this seed need not be the one that is greatest over all.
#[test]
fn the_greatest_is_the_one_that_is_so_over_all_seeds() {
    let names = Names::new();
    let value = |text: &str, overall: &dyn Fn(&Number) -> f64| {
        let measured = |text: &str| text.parse().unwrap_or(f64::NAN);
        Number::parse(text, &lists()).unwrap().value(&Known {
            names: &names,
            measured: &measured,
            overall,
        })
    };
    let of = |number: &Number, others: f64| match number {
        Number::Measured(text) if text == "1" => 5.0,
        _ => others,
    };
    let one = |number: &Number| of(number, 3.0);
    assert_eq!(value("greatest([1], [2]) + 1", &one), 2.0);
    assert_eq!(value("max([1], [2]) + 1", &one), 3.0);
    assert_eq!(value("greatest([{app}] for app in apps)", &one), 1.0);
    let alike = |number: &Number| of(number, 5.0);
    assert_eq!(value("greatest([2], [1])", &alike), 2.0);
    let lacking = |number: &Number| of(number, f64::NAN);
    assert!(value("greatest([1], [2])", &lacking).is_nan());
    let none = Number::parse("greatest()", &lists()).unwrap_err();
    assert!(none.starts_with("greatest(…): found 0 arguments"));
}

#[test]
fn comparisons_may_be_chained() {
    assert!(holds("1 < 2 <= 2 < 3"));
    assert!(!holds("1 < 3 < 2"));
    assert!(holds("(1 + 1) * 2 >= 4 and not (2 < 1 or 3 < 2)"));
    assert!(holds("2 < 1 or 1 < 2 and 2 < 3"));
    assert!(holds("near(95, 100, 5)") && !holds("near(94, 100, 5)"));
    assert!(!holds(
        "[nothing] < 1 or [nothing] >= 1 or near([nothing], 1, 50)"
    ));
}

#[test]
fn what_hangs_on_nothing_measured_does_not_hold() {
    for so in [
        "not [nothing] < 1",
        "not near([nothing], 1, 50)",
        "1 / 0 > 5",
        "0 - 1 / 0 < 5",
        "gain(0, 3) > 5",
        "not sqrt(0 - 1) > 1",
        "not (1 < 2 and [nothing] < 1)",
        "not (2 < 1 or [nothing] < 1)",
        "1 < 2 < [nothing]",
        "all([nothing] < 1, 1 < 2)",
    ] {
        assert!(!holds(so), "{so}");
        assert!(!holds(&format!("not ({so})")), "{so}");
    }
    // Whatever was measured, these are true.
    assert!(holds("1 < 2 or [nothing] < 1") && holds("[nothing] < 1 or 1 < 2"));
    assert!(holds("not (2 < 1 and [nothing] < 1)"));
}

#[test]
fn an_argument_is_repeated_for_each_item_of_a_list() {
    let measured = |text: &str| text.parse().unwrap_or(f64::NAN);
    let names = Names::new();
    let value = |text: &str| {
        let number = Number::parse(text, &lists()).unwrap();
        number.value(&known(&names, &measured))
    };
    assert_eq!(value("max([{app}] * 10 for app in apps)"), 40.0);
    assert_eq!(value("max(0, [{app}0] / -ms for app, ms in solo, 7)"), 7.0);
    assert_eq!(
        value("mean([{a}{b}] for a in apps for b in apps)"),
        25.0 + 2.0 / 3.0
    );
    assert!(holds("all([{app}] < 5 for app in apps)"));
    assert!(!holds("all([{app}] < 4 for app in apps)"));
    assert!(holds(
        "all(near([{app}], ms, 95) and not [{app}] > 2 for app, ms in solo)"
    ));
}

#[test]
fn mistakes_are_told_with_what_is_expected() {
    let number = |text: &str| Number::parse(text, &lists()).unwrap_err();
    let condition = |text: &str| Condition::parse(text, &lists()).unwrap_err();
    assert_eq!(
        number("1 + "),
        "at the end: expected a number, a name, a function or [a measured value]"
    );
    assert_eq!(number("1 2"), "at \"2\": expected an operator or the end");
    assert_eq!(
        number("[cfs"),
        "at \"[cfs\": expected ] at the end of a measured value"
    );
    assert_eq!(number("1 < 2"), "found a condition, expected a number");
    assert_eq!(number("1 + (2 < 3)"), "before the end: expected a number");
    let unclosed = number("gain([cfs], [balance]");
    assert_eq!(unclosed, "at the end: expected , or )");
    assert_eq!(
        number("1.2.3"),
        "found \"1.2.3\", expected a number such as 12 or 0.5"
    );
    assert!(number("gian(1, 2)").starts_with("unknown function \"gian\", did you mean \"gain\"?"));
    assert_eq!(number("gain(1)"), "gain(…): found 1 arguments, expected 2");
    assert_eq!(
        condition("near(1, 2)"),
        "near(…): found 2 arguments, expected 3"
    );
    assert!(condition("[cfs]").starts_with("found a number, expected a condition"));
    assert!(number("1 # 2").starts_with("at \"# 2\": expected a number, a name"));
    assert!(number("mean([{a}] for a in aps)").contains("no such list, did you mean \"apps\"?"));
    assert!(number("mean(a for a, b in apps)").contains("found an item of 1, expected 2"));
    assert!(number("mean(1 for 2 in apps)").contains("at \"2 in apps)\": expected a name"));
    assert!(number("mean(1 for a of apps)").contains("expected in"));
    assert!(condition("all()").starts_with("all(…): found 0 arguments"));
    assert_eq!(number(&"(".repeat(500)), "is nested deeper than 64");
    assert_eq!(number(&"1+".repeat(5000)), "is longer than 4000 bytes");
}

#[test]
fn names_and_measured_values_are_shown() {
    let mut seen = Vec::new();
    let formula =
        Condition::parse("a + [x] < gain(b, -[y]) and near([z], c, 5)", &lists()).unwrap();
    formula.visit(&mut |number| seen.push(number.clone()));
    let expected = ["a", "x", "b", "y", "z", "c"];
    let text = |number: &Number| match number {
        Number::Name(text) | Number::Measured(text) => text.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!(seen.iter().map(text).collect::<Vec<_>>(), expected);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[-+*/()<>=,.0-9a-z \\[\\]]{0,60}") {
        let number = Number::parse(&text, &lists()).is_ok();
        prop_assert!(!(number && Condition::parse(&text, &lists()).is_ok()), "both kinds at once");
    }

    #[test]
    fn sums_are_sums(numbers in prop::collection::vec(0u32..1000, 1..20)) {
        let text = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" + ");
        prop_assert_eq!(value(&text), f64::from(numbers.iter().sum::<u32>()));
    }
}
