// SPDX-License-Identifier: GPL-2.0-only
//! Texts that others chose, as a terminal may show them.

/// The character, or a replacement for one that terminals and logs obey rather than show. Whoever starts a VM, names a
/// thread or sends a recording chooses what is in its names.
pub fn harmless(c: char) -> char {
    match c.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let shown: String = "a\u{1b}]0;ü\u{7}\n\u{9b}".chars().map(harmless).collect();
        assert_eq!(shown, "a\u{fffd}]0;ü\u{fffd}\u{fffd}\u{fffd}");
    }
}
