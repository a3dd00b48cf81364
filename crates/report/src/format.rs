// SPDX-License-Identifier: GPL-2.0-only
//! Numbers for people: three digits are enough.

use corun_model::time;

/// A number with three significant digits, thousands apart: `0.0123`, `1.99`, `43.1`, `9,512`.
pub(crate) fn amount(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        0.0 => return "0".to_string(),
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        s if s >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    match decimals {
        0 => thousands(&text),
        _ => text,
    }
}

/// Digits with thousands apart.
pub(crate) fn thousands(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things: whole.
pub(crate) fn count(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => amount(number as f64),
    }
}

/// A share as a percentage with one decimal; shares that are not zero do not look like zero.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_string(),
        p if p > 0.0 && p < 0.05 => "<0.1 %".to_string(),
        p => format!("{p:.1} %"),
    }
}

/// Microseconds with a fitting unit.
pub(crate) fn micros(us: f64) -> String {
    time::show((us.max(0.0) * 1e3).round() as u64)
}

/// How many times as much: `1.02×`.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        v if v >= 99.5 => format!("{}×", amount(v)),
        v if v >= 9.995 => format!("{v:.1}×"),
        v => format!("{v:.2}×"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let shown: Vec<_> = [
            0.0,
            0.01234,
            0.9999,
            1.994,
            43.06,
            999.9,
            1_234_567.0,
            -1234.0,
        ]
        .map(amount)
        .to_vec();
        let expected = [
            "0",
            "0.012",
            "1.00",
            "1.99",
            "43.1",
            "1,000",
            "1,234,567",
            "-1,234",
        ];
        assert_eq!(shown, expected);
        assert_eq!(percent(0.000_01), "<0.1 %");
        assert_eq!(percent(0.431), "43.1 %");
        assert_eq!([count(33), count(1000)], ["33", "1,000"]);
        assert_eq!(micros(1500.0), "1.50 ms");
        assert_eq!(ratio(1.018), "1.02×");
    }
}
