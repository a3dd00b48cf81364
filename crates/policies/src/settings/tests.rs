// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::find;
use corun_model::time::MS;

#[test]
fn what_is_set_is_in_the_plan_that_follows() {
    let mut settings = Settings::default();
    let strict = find("cosched-strict").unwrap();
    settings.set(strict, "slot", "20ms").unwrap();
    settings.set(strict, "fill", "true").unwrap();
    let slots = settings.cosched_strict.slots;
    assert_eq!((slots.length, slots.fill), (20 * MS, true));
    assert_eq!(Settings::keys(strict), ["slot", "fill"]);
    assert!(Settings::keys(find("fair").unwrap()).is_empty());
}

#[test]
fn what_is_in_force_can_be_set_again() {
    for policy in crate::all() {
        let mut settings = Settings::default();
        let values = settings.values(policy);
        let keys: Vec<&str> = values.keys().map(String::as_str).collect();
        let mut known = Settings::keys(policy);
        known.sort_unstable();
        assert_eq!(keys, known);
        for (key, value) in &values {
            settings.set(policy, key, value).unwrap();
        }
        assert_eq!(settings.values(policy), values);
    }
    let mut settings = Settings::default();
    let aql = find("aql").unwrap();
    settings.set(aql, "LLCF", "agnostic").unwrap();
    settings.set(aql, "IOInt", "1500us").unwrap();
    let values = settings.values(aql);
    assert_eq!(
        (values["LLCF"].as_str(), values["IOInt"].as_str()),
        ("agnostic", "1500us")
    );
}

#[test]
fn what_only_a_simulator_can_do_cannot_be_set_on_a_host() {
    let vsmtio = find("vsmtio").unwrap();
    let (keys, all) = (Settings::keys(vsmtio), Settings::all_keys(vsmtio));
    assert!(all.contains(&"guests") && !keys.contains(&"guests"));
    assert_eq!(all.len(), keys.len() + 1);
    // On a host this setting would switch something off, so it is refused, with the reason.
    let error = Settings::default()
        .set(vsmtio, "guests", "true")
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "guests of vsmtio is for simulations only ([policy.vsmtio] of a scenario): no host can do that"
    );
}

#[test]
fn what_is_refused_says_why() {
    let mut settings = Settings::default();
    let relaxed = find("cosched-relaxed").unwrap();
    let mut refused = |key, value| settings.set(relaxed, key, value).unwrap_err().to_string();
    assert_eq!(
        refused("stp", "1ms"),
        "cosched-relaxed has no parameter \"stp\""
    );
    let expected = "stop of cosched-relaxed: found \"2h\", expected a time from 100 µs to 1.00 s";
    assert_eq!(refused("stop", "2h"), expected);
    settings.set(relaxed, "resume", "4ms").unwrap();
    let error = settings.check(relaxed).unwrap_err().to_string();
    assert!(
        error.contains("expected at most stop, which is 3.00 ms"),
        "{error}"
    );
}

/// With them a policy would do the opposite of what it is for.
#[test]
fn slices_that_are_to_be_short_are_no_longer_than_others() {
    let checked = |name, key, value| {
        let (mut settings, policy) = (Settings::default(), find(name).unwrap());
        settings.set(policy, key, value).unwrap();
        settings.check(policy).map_err(|error| error.to_string())
    };
    for name in ["vslicer", "vturbo"] {
        assert_eq!(
            checked(name, "slice", "100ms"),
            Err(format!(
                "slice of {name}: found \"100 ms\", expected at most default, which is 30.0 ms"
            ))
        );
        assert!(checked(name, "default", "100us").is_err(), "{name}");
        // Then all have the same.
        assert_eq!(checked(name, "slice", "30ms"), Ok(()));
    }
    let error = checked("vsmtio", "slice_least", "1s").unwrap_err();
    assert!(error.contains("at most latency, which is"), "{error}");
}

#[test]
fn every_parameter_of_a_policy_can_be_set() {
    for policy in crate::known() {
        let parameters = (policy.parameters)();
        let keys = parameters
            .iter()
            .map(|it| it.key.rsplit('.').next().unwrap());
        // A calibration is a file, which this crate does not read.
        let keys: Vec<&str> = keys.filter(|key| *key != "calibration").collect();
        assert_eq!(Settings::all_keys(policy), keys, "{}", policy.name);
    }
}

#[test]
fn one_setting_is_taken_over() {
    let mut other = Settings::default();
    other.aql.calibration.slices.llcf = None;
    other.aql.calibration.slices.io_int = None;
    other.jupiter.latency = MS;
    let mut settings = Settings::default();
    let before = settings.aql;
    settings.take("aql", "LLCF", other);
    settings.take("jupiter", "latency", other);
    settings.take("aql", "none", other);
    assert_eq!(
        (
            settings.aql.calibration.slices.llcf,
            settings.jupiter.latency
        ),
        (None, MS)
    );
    assert_eq!(
        settings.aql.calibration.slices.io_int,
        before.calibration.slices.io_int
    );
}
