// SPDX-License-Identifier: GPL-2.0-only
//! Text for pages in `docs/`.

/// Text within a table's cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Text as a paragraph of lines that a person would write.
pub(crate) fn paragraph(text: &str) -> String {
    textwrap::fill(text, 100)
}
