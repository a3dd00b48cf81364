// SPDX-License-Identifier: GPL-2.0-only
//! Time is `u64` nanoseconds everywhere; people write it with a unit.

/// Nanoseconds: a duration, or a point in time since the start of a run.
pub type Nanos = u64;

/// One microsecond.
pub const US: Nanos = 1_000;
/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// One second.
pub const SEC: Nanos = 1_000_000_000;

/// The longest that anything may be said to last, unless less makes sense: a day, longer than any run, so that no sum of
/// times comes near the end of `u64`.
pub const LONGEST: Nanos = 86_400 * SEC;

/// Scheduler ticks per second of a host that says nothing else: `CONFIG_HZ` of Debian and Ubuntu.
pub const HOST_HZ: u32 = 250;

/// What [`parse`] accepts, for error messages.
pub const ACCEPTED: &str = "a number with a unit: ns, us, ms, s or min, such as \"2.5ms\"";

/// The micro sign, and the Greek mu that many keyboards and texts have in its place.
pub const MICRO: [char; 2] = ['\u{b5}', '\u{3bc}'];

/// Reads a duration such as `700us`, `2.5ms`, `10s` or `1min`.
///
/// # Errors
/// `None` if there is no number, no unit, an unknown unit, a negative value, or more than a
/// `u64` of nanoseconds (584 years).
pub fn parse(text: &str) -> Option<Nanos> {
    let (number, scale) = number_and_scale(text)?;
    scaled(number, scale)
}

/// Is this a duration, but one that a `u64` of nanoseconds cannot hold?
pub fn is_beyond(text: &str) -> bool {
    number_and_scale(text)
        .is_some_and(|(number, scale)| decimal(number).is_some() && scaled(number, scale).is_none())
}

/// A duration's number and the nanoseconds of its unit.
fn number_and_scale(text: &str) -> Option<(&str, Nanos)> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic() || MICRO.contains(&c))?;
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit.trim() {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => US,
        "ms" => MS,
        "s" => SEC,
        "min" => 60 * SEC,
        _ => return None,
    };
    Some((number.trim(), scale))
}

/// The digits before and after the point of a decimal number.
fn decimal(number: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    (!whole.is_empty() && digits(whole) && digits(fraction)).then_some((whole, fraction))
}

/// `number` (decimal digits, at most one point) times `scale`, exact, truncated below 1 ns.
fn scaled(number: &str, scale: Nanos) -> Option<Nanos> {
    let (whole, fraction) = decimal(number)?;
    let whole: u64 = whole.parse().ok()?;
    let mut total = whole.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        place /= 10;
        total = total.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(total)
}

/// Writes a duration for people: the largest unit that keeps it above one, three digits at least.
pub fn show(ns: Nanos) -> String {
    let (value, unit) = match ns {
        0..US => return format!("{ns} ns"),
        US..MS => (ns as f64 / US as f64, "µs"),
        MS..SEC => (ns as f64 / MS as f64, "ms"),
        _ => (seconds(ns), "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

/// In seconds, for reports.
pub fn seconds(ns: Nanos) -> f64 {
    ns as f64 / SEC as f64
}

/// Writes a duration exactly, as [`parse`] reads it: `20ms`, `1500us`.
pub fn exact(ns: Nanos) -> String {
    let units = [(SEC, "s"), (MS, "ms"), (US, "us")];
    let whole = |(scale, _): &(Nanos, &str)| ns > 0 && ns.is_multiple_of(*scale);
    match units.into_iter().find(whole) {
        Some((scale, unit)) => format!("{}{unit}", ns / scale),
        None => format!("{ns}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_as_people_write_them() {
        assert_eq!(parse("700us"), Some(700_000));
        assert_eq!(parse("700\u{b5}s"), Some(700_000));
        assert_eq!(parse("700 \u{3bc}s"), Some(700_000));
        assert_eq!(parse("2.5ms"), Some(2_500_000));
        assert_eq!(parse(" 10 s "), Some(10 * SEC));
        assert_eq!(parse("1min"), Some(60 * SEC));
        assert_eq!(parse("0.1ns"), Some(0));
    }

    #[test]
    fn what_is_no_duration() {
        for text in [
            "",
            "5",
            "ms",
            "-1ms",
            "1.2.3s",
            "5 lightyears",
            "1e3s",
            "99999999999999s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_a_duration_but_beyond_64_bits() {
        for text in [
            "18446744073709551616ns",
            "99999999999999s",
            "1000000000000.5 min",
        ] {
            assert!(is_beyond(text), "{text}");
        }
        for text in [
            "18446744073709551615ns",
            "1s",
            "-1s",
            "1e30s",
            "9".repeat(30).as_str(),
            "",
        ] {
            assert!(!is_beyond(text), "{text}");
        }
    }

    #[test]
    fn shown_with_a_fitting_unit() {
        assert_eq!(show(999), "999 ns");
        assert_eq!(show(1_500), "1.50 µs");
        assert_eq!(show(24 * MS), "24.0 ms");
        assert_eq!(show(90 * SEC), "90.0 s");
    }

    proptest! {
        #[test]
        fn what_is_written_exactly_is_read_again(ns in prop_oneof![any::<Nanos>(), (0u64..5000).prop_map(|ms| ms * MS)]) {
            prop_assert_eq!(parse(&exact(ns)), Some(ns));
        }

        #[test]
        fn never_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_milliseconds_are_exact(ms in 0u64..1_000_000_000) {
            prop_assert_eq!(parse(&format!("{ms}ms")), Some(ms * MS));
        }
    }
}
