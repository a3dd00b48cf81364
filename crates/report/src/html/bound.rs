// SPDX-License-Identifier: GPL-2.0-only
//! Numbers stay with their units where a browser breaks lines.

use crate::layout::{BOUND, UNITS};

/// Elements whose text is not for reading, or is meant to be copied as it is.
const VERBATIM: [&str; 5] = ["script", "style", "pre", "code", "textarea"];

/// A page with a no-break space between each number and its unit, where the page's text has a space.
pub(crate) fn bound(page: &str) -> String {
    let mut out = String::with_capacity(page.len() + page.len() / 64);
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        bind(text, &mut out);
        let end = end(tag);
        out += &tag[..end];
        rest = &tag[end..];
    }
    bind(rest, &mut out);
    out
}

/// Where the tag ends that `page` begins with, or the element if it is taken verbatim.
fn end(page: &str) -> usize {
    let name = &page[1..];
    let name = &name[..name.find(|c: char| !c.is_alphanumeric()).unwrap_or(0)];
    let close = match VERBATIM.contains(&name) {
        true => format!("</{name}>"),
        false => ">".to_string(),
    };
    page.find(&close).map_or(page.len(), |at| at + close.len())
}

fn bind(text: &str, out: &mut String) {
    let mut from = 0;
    for (at, _) in text.match_indices(' ') {
        let (before, after) = (&text[..at], &text[at + 1..]);
        if before.ends_with(|c: char| c.is_ascii_digit()) && begins_with_unit(after) {
            out.push_str(&text[from..at]);
            out.push(BOUND);
            from = at + 1;
        }
    }
    out.push_str(&text[from..]);
}

fn begins_with_unit(text: &str) -> bool {
    let ends = |unit: &str| {
        let rest = text.strip_prefix(unit);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    UNITS.iter().any(|unit| ends(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bound_to_units_in_text_only() {
        let page = "<p title=\"1 %\">36.6 % of 2 s, ±0.1 µs: 3 seeds, 1.76 s/s</p>\
                    <script type=\"x\">{\"a\": \"5 % < 6 %\"}</script><pre>7 % <b>8 %</b></pre><td>9 %</td> 10 ms";
        let wanted = "<p title=\"1 %\">36.6~% of 2~s, ±0.1~µs: 3 seeds, 1.76~s/s</p>\
                      <script type=\"x\">{\"a\": \"5 % < 6 %\"}</script><pre>7 % <b>8 %</b></pre><td>9~%</td> 10~ms";
        assert_eq!(bound(page), wanted.replace('~', "\u{a0}"));
        for odd in [
            "",
            "<",
            "1 <script>2 %",
            "no tag: 3",
            "<!-- 4 % -->",
            "ä 5 %<é",
        ] {
            assert_eq!(bound(odd).replace('\u{a0}', " "), odd);
        }
    }
}
