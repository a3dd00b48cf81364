// SPDX-License-Identifier: GPL-2.0-only
//! Sizes in bytes as people write them: `256KB`, `8MB`.

/// What [`parse`] accepts, for error messages.
pub const ACCEPTED: &str = "a size such as 1500B, 64KB, 4MB or 1GB (powers of 1024)";

/// Reads a size: a whole number with a unit; units are powers of 1024. `None` if it is none, or
/// too large.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (digits, unit) = (digits.trim_end(), &text[digits.len()..]);
    let scale = match unit {
        "B" => 1,
        "KB" | "KiB" => 1 << 10,
        "MB" | "MiB" => 1 << 20,
        "GB" | "GiB" => 1 << 30,
        _ => return None,
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// Writes a size with the largest unit that leaves a whole number.
pub fn show(bytes: u64) -> String {
    let units = [(30, "GB"), (20, "MB"), (10, "KB")];
    let fits = |&(bits, _): &(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= bits;
    match units.into_iter().find(fits) {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("64B", 64),
            ("256KB", 256 << 10),
            ("8MiB", 8 << 20),
            ("1GB", 1 << 30),
            (" 8 MB ", 8 << 20),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
            assert_eq!(parse(&show(bytes)), Some(bytes));
        }
        for text in [
            "",
            "8",
            "MB",
            "8mb",
            "2.5MB",
            "+1MB",
            "-1MB",
            "99999999999999GB",
            "8 M B",
            "1 2MB",
            "é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(show(0), "0B");
        assert_eq!(show(2560 << 10), "2560KB");
    }
}
