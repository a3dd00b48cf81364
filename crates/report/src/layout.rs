// SPDX-License-Identifier: GPL-2.0-only
//! How tables are laid out on a terminal: what stands side by side, and where lines break.
//!
//! Lines break between words, and a number is one word with its unit: [`figure`] binds them by no-break spaces, which
//! [`lines`] turns into plain ones. The longest words are broken only where they do not fit.

use comfy_table::{
    Cell, CellAlignment, Column, ColumnConstraint, ContentArrangement, LineStyle, Table,
    TableStyle, Width,
};

/// Policies side by side where lines must be broken to fit them.
const POLICIES_ACROSS: usize = 3;
/// The same on narrow terminals, where they would be broken more than once.
const POLICIES_ACROSS_NARROW: usize = 2;
/// Below that terminals are narrow.
const NARROW: u16 = 72;
/// Below that no text is readable.
const LEAST: u16 = 40;
/// What a table may take on narrower terminals for its words: there the terminal breaks its lines.
const LEAST_TABLE: u16 = 60;
/// Beyond that the eye loses the line.
const WIDE: u16 = 120;
/// A blank on either side.
const PADDING: usize = 2;
/// A blank between two columns.
const GAP: usize = 1;
/// Binds words that belong together.
pub(crate) const BOUND: char = '\u{a0}';

/// A line above, below the header and at the end: readable without colour, easy to copy.
const RULED: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// An empty table for a terminal of `width` columns, no wider than lines of text are.
pub(crate) fn ruled(width: u16) -> Table {
    spanning(width.min(WIDE))
}

/// An empty table that may take all `width` columns of a terminal.
pub(crate) fn spanning(width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(RULED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.max(LEAST));
    table
}

/// Columns of text on a terminal of `width` columns.
pub(crate) fn text_width(width: u16) -> usize {
    usize::from(width.clamp(LEAST, WIDE))
}

/// A number, or a name above numbers.
pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A value with its unit and its spread as text that breaks before the spread only.
pub(crate) fn figure(value: &str) -> String {
    let bound = value.replace(' ', &BOUND.to_string());
    bound.replace(&format!("{BOUND}±"), " ±")
}

/// Units that stay with their numbers in sentences.
pub(crate) const UNITS: [&str; 5] = ["%", "ns", "µs", "ms", "s"];

/// A sentence as lines for a terminal of `width` columns, all but the first a little to the right; numbers stay with
/// their units.
pub(crate) fn sentence(text: &str, width: u16) -> String {
    let mut bound = String::new();
    for word in text.split(' ') {
        let unit = UNITS.contains(&word.trim_end_matches(|c: char| !c.is_alphabetic() && c != '%'));
        match (
            bound.is_empty(),
            unit && bound.ends_with(|c: char| c.is_ascii_digit()),
        ) {
            (true, _) => (),
            (false, true) => bound.push(BOUND),
            (false, false) => bound.push(' '),
        }
        bound += word;
    }
    // Names with hyphens stay whole, so that they can be copied.
    let options = textwrap::Options::new(text_width(width))
        .subsequent_indent("  ")
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(&bound, options).replace(BOUND, " ") + "\n"
}

/// Lines of text for a terminal of `width` columns; what begins with blanks stays that far to the right.
pub fn paragraphs(text: &str, width: u16) -> String {
    let paragraph = |line: &str| {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        let room = width.saturating_sub(u16::try_from(indent.len()).unwrap_or(0));
        let told = sentence(words, room);
        let lines = told.lines().map(|line| format!("{indent}{line}\n"));
        lines.collect::<String>()
    };
    text.lines().map(paragraph).collect()
}

/// A table for a terminal of `width` columns: the columns in `texts` are texts, the others numbers.
pub fn grid(heads: &[&str], rows: &[Vec<String>], texts: &[usize], width: u16) -> String {
    let cell = |(at, text): (usize, &str)| match texts.contains(&at) {
        true => Cell::new(text),
        false => right(text),
    };
    let mut table = spanning(width);
    table.set_header(heads.iter().copied().enumerate().map(cell));
    for row in rows {
        table.add_row(row.iter().map(String::as_str).enumerate().map(cell));
    }
    lines(table)
}

/// How many characters a column's texts have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    /// The longest word.
    least: usize,
    /// The longest text.
    whole: usize,
}

impl Room {
    pub(crate) fn of(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut room = Self::default();
        for text in texts {
            for line in text.as_ref().lines() {
                let words = line.split(' ').map(|word| word.chars().count());
                room.least = room.least.max(words.max().unwrap_or(0));
                room.whole = room.whole.max(line.chars().count());
            }
        }
        room
    }
}

/// Which policies go into which table: the reference is in each, and beside it as many as fit into `width` columns;
/// only a few if lines must be broken between words. `labels` are the columns to the left.
pub(crate) fn across(labels: &[Room], policies: &[Room], width: u16) -> Vec<Vec<usize>> {
    let room = usize::from(width.max(LEAST));
    let sum = |of: fn(&Room) -> usize, columns: &[usize]| -> usize {
        let columns = columns.iter().filter_map(|&at| policies.get(at));
        let all = labels.iter().chain(columns);
        all.map(|it| of(it) + PADDING + GAP).sum::<usize>() - GAP
    };
    let most = match is_narrow(width) {
        true => POLICIES_ACROSS_NARROW,
        false => POLICIES_ACROSS,
    };
    let fits = |columns: &[usize]| {
        let broken = columns.len() <= most && sum(|it| it.least, columns) <= room;
        columns.len() <= 2 || broken || sum(|it| it.whole, columns) <= room
    };
    let mut tables = vec![vec![0]];
    for next in 1..policies.len() {
        if let Some(last) = tables.last_mut() {
            last.push(next);
            if !fits(last) {
                last.pop();
                tables.push(vec![0, next]);
            }
        }
    }
    tables
}

/// Keeps texts of `chars` characters in one piece, if half of the terminal is enough for that.
pub(crate) fn unbroken(table: &mut Table, column: usize, chars: usize, width: u16) {
    let padded = u16::try_from(chars + PADDING)
        .unwrap_or(u16::MAX)
        .min(width / 2);
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(padded)));
    }
}

/// The table as text, without the blanks that end lines.
pub(crate) fn lines(mut table: Table) -> String {
    keep_words(&mut table);
    table
        .lines()
        .map(|line| format!("{}\n", line.replace(BOUND, " ").trim_end()))
        .collect()
}

/// Gives each column room for its longest word; where there is not enough for all, the longest are broken.
fn keep_words(table: &mut Table) {
    let wanted: Vec<usize> = (0..table.column_count())
        .map(|at| wanted(table, at))
        .collect();
    let padding = |column: &Column| usize::from(column.padding_width());
    let paddings: usize = table.column_iter().map(padding).sum();
    let around = paddings + GAP * wanted.len().saturating_sub(1);
    let words = u16::try_from(wanted.iter().sum::<usize>() + around).unwrap_or(u16::MAX);
    let width = table.width().unwrap_or(LEAST);
    let room = width.max(words.min(LEAST_TABLE));
    table.set_width(room);
    let room = usize::from(room);
    let fits = |most: &usize| wanted.iter().map(|it| it.min(most)).sum::<usize>() + around <= room;
    let Some(most) = (1..=room).rev().find(fits) else {
        return;
    };
    for (column, wanted) in table.column_iter_mut().zip(wanted) {
        let padded = wanted.min(most) + padding(column);
        let padded = Width::Fixed(u16::try_from(padded).unwrap_or(u16::MAX));
        column.set_constraint(ColumnConstraint::LowerBoundary(padded));
    }
}

/// Is a terminal of `width` columns so narrow that tables have fewer columns side by side?
pub(crate) fn is_narrow(width: u16) -> bool {
    width < NARROW
}

/// Characters that a column should have: those of its longest word, or what [`unbroken`] gave it.
fn wanted(table: &Table, at: usize) -> usize {
    let cells = table.column_cells_with_header_iter(at).flatten();
    let words = Room::of(cells.map(Cell::content)).least;
    let column = table.column(at);
    let given = column.and_then(|column| match column.constraint() {
        Some(ColumnConstraint::LowerBoundary(Width::Fixed(padded))) => {
            Some(usize::from(padded.saturating_sub(column.padding_width())))
        }
        _ => None,
    });
    words.max(given.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(texts: &[&str]) -> Vec<Room> {
        texts.iter().map(|text| Room::of([text])).collect()
    }

    #[test]
    fn as_many_policies_as_fit_stand_side_by_side() {
        let labels = rooms(&["host", "throughput, requests/s"]);
        let policies = rooms(&["12.7 µs ±8.07 ms  1.00×"; 7]);
        let tables = |width| across(&labels, &policies, width);
        let most = |width| tables(width).iter().map(Vec::len).max();
        assert_eq!([60, 80, 120, 160, 300].map(most), [2, 3, 3, 4, 7].map(Some));
        let all: Vec<usize> = tables(80)
            .into_iter()
            .flat_map(|it| it[1..].to_vec())
            .collect();
        assert_eq!(all, [1, 2, 3, 4, 5, 6], "each once, beside the first");
        let long = rooms(&["a-policy-of-a-long-name"; 3]);
        assert_eq!(across(&labels, &long, 60), [[0, 1], [0, 2]], "two at least");
        assert_eq!(across(&labels, &long[..1], 60), [[0]]);
    }

    #[test]
    fn names_with_hyphens_stay_whole() {
        for width in 20..60 {
            let told = sentence(
                "accepted are cosched-demand, cfs-cosched-dt, balance-load",
                width,
            );
            assert!(!told.lines().any(|line| line.ends_with('-')), "{told}");
        }
    }

    #[test]
    fn lines_break_between_words_only() {
        let mut table = spanning(60);
        table.set_header(["", "", "cfs", "credit-microsliced"]);
        let value = figure("12.7 µs ±8.07 ms");
        for name in ["db", "a-server"] {
            table.add_row([name, "throughput, requests/s", &value, &value]);
        }
        let text = lines(table);
        for word in [
            "throughput,",
            "requests/s",
            "12.7 µs",
            "±8.07 ms",
            "credit-microsliced",
        ] {
            assert!(text.contains(word), "{word} is broken:\n{text}");
        }
        assert!(!text.contains(BOUND), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
    }

    #[test]
    fn paragraphs_and_grids_fit() {
        let text = paragraphs(&format!("  why: {}\n- short", "word ".repeat(40)), 60);
        assert!(text.starts_with("  why: word") && text.ends_with("\n- short\n"));
        assert!(text.contains("\n    word"), "{text}");
        let row = || vec!["a-long-name-of-a-vm".to_string(); 4];
        let table = grid(&["VM", "of two words", "x", "y"], &[row()], &[0], 100);
        for text in [text, table] {
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }

    #[test]
    fn numbers_stay_with_their_units() {
        for text in ["12.5 %; more", "12.5 ms, too", "12.5 s"] {
            let lead = "x".repeat(60 - 5);
            let told = sentence(&format!("{lead} {text}"), 60);
            assert!(told.contains("\n  12.5 "), "{told}");
        }
        assert_eq!(
            sentence("3 steps of 5 % are s", 60),
            "3 steps of 5 % are s\n"
        );
    }

    #[test]
    fn narrow_terminals_get_the_narrowest_table_that_breaks_no_word() {
        let table = |width| {
            let mut table = spanning(width);
            table.set_header(["", "", "cfs", "balance"]);
            let value = figure("12.7 µs ±8.07 ms");
            table.add_row(["db", "throughput, requests/s", &value, &value]);
            lines(table)
        };
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        for width in [30, 40, 44] {
            let text = table(width);
            for word in ["throughput,", "requests/s", "12.7 µs", "±8.07 ms"] {
                assert!(text.contains(word), "{word} is broken:\n{text}");
            }
            assert!(widest(&text) <= Some(44), "{text}");
        }
        let told = sentence(&"word ".repeat(20), 40);
        assert!(widest(&told) <= Some(40), "{told}");
    }

    #[test]
    fn words_without_room_are_broken() {
        let mut table = ruled(60);
        table.add_row(["a".repeat(100), "short".into(), "b".repeat(100)]);
        let text = lines(table);
        assert!(text.contains("short"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 60),
            "{text}"
        );
    }
}
