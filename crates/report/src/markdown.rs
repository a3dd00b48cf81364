// SPDX-License-Identifier: GPL-2.0-only
//! Text for pages in `docs/`.

/// Text within a table's cell.
pub(crate) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Text as a paragraph of lines that a person would write.
pub(crate) fn paragraph(text: &str) -> String {
    wrapped(text, "")
}

/// Text as an item of a list, with a line's end.
pub(crate) fn item(text: &str) -> String {
    wrapped(&format!("- {text}"), "  ") + "\n"
}

/// Lines of at most 100 columns, all but the first with `indent`. Names with hyphens stay whole: if a line ended at
/// one, a reader of the page would see a space. And no line begins as an item of a list or a heading does.
fn wrapped(text: &str, indent: &str) -> String {
    let options = textwrap::Options::new(100).word_splitter(textwrap::WordSplitter::NoHyphenation);
    let options = options.subsequent_indent(indent);
    let mut lines = textwrap::wrap(text, options).into_iter();
    let mut out = lines.next().unwrap_or_default().into_owned();
    for line in lines {
        let words = line.trim_start();
        out += "\n";
        match starts_block(words) {
            true => out += &format!("{indent}\\{words}"),
            false => out += &line,
        }
    }
    out
}

/// Would Markdown take the line for the beginning of a list item, a heading or a quotation?
fn starts_block(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    let heading = !first.is_empty() && first.chars().all(|c| c == '#');
    heading || matches!(first, "-" | "+" | "*" | ">")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item whose first line is full.
    fn second_line_of(text: &str) -> String {
        let page = item(&format!("{} {text} more", "x".repeat(98)));
        page.lines().nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_line_begins_no_list() {
        for sign in ["-", "+", "*", ">", "##"] {
            assert_eq!(second_line_of(sign), format!("  \\{sign} more"));
        }
        assert_eq!(second_line_of("-1"), "  -1 more");
    }

    #[test]
    fn names_stay_whole() {
        let text = format!("{} cfs-balance", "x".repeat(92));
        assert_eq!(paragraph(&text), format!("{}\ncfs-balance", "x".repeat(92)));
    }
}
