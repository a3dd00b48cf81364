// SPDX-License-Identifier: GPL-2.0-only
//! The table of parameters, for a terminal and for `docs/parameters.md`.

use crate::layout::{lines, right, spanning, unbroken};
use crate::markdown::cell;
use comfy_table::Cell;
use corun_model::Parameter;

/// Columns from which on there is room for a table: keys and the origins of values are long.
const WIDE: u16 = 140;

/// The parameters for a terminal of `width` columns: a table if it is wide, else one parameter below the other.
pub fn text(parameters: &[Parameter], width: u16) -> String {
    match width >= WIDE {
        true => table(parameters, width),
        false => list(parameters, usize::from(width.max(60))),
    }
}

/// Each parameter with what is known about it below.
fn list(parameters: &[Parameter], width: usize) -> String {
    let mut out = String::new();
    let below = textwrap::Options::new(width)
        .initial_indent("    ")
        .subsequent_indent("    ");
    for parameter in parameters {
        let (source, tried) = (parameter.source, parameter.tried);
        out += &format!("{}: {}\n", parameter.key, parameter.value);
        for text in [
            parameter.meaning.to_string(),
            format!("Source: {source}"),
            format!("Tried: {tried}"),
        ] {
            out += &textwrap::fill(&text, &below);
            out.push('\n');
        }
    }
    out
}

/// The same with columns, within which long texts are wrapped.
fn table(parameters: &[Parameter], width: u16) -> String {
    let mut table = spanning(width.min(160));
    table.set_header(vec![
        Cell::new("parameter"),
        right("default"),
        Cell::new("source"),
        Cell::new("tried"),
    ]);
    for parameter in parameters {
        let name = format!("{}\n{}", parameter.key, parameter.meaning);
        table.add_row(vec![
            Cell::new(name),
            right(&parameter.value),
            Cell::new(parameter.source),
            Cell::new(parameter.tried),
        ]);
    }
    // A key is never broken: it is there to be copied.
    let longest = |of: fn(&Parameter) -> usize| parameters.iter().map(of).max().unwrap_or(0);
    let key = longest(|parameter| parameter.key.chars().count());
    let value = longest(|parameter| parameter.value.to_string().chars().count()).max(7);
    for (column, chars) in [(0, key), (1, value)] {
        unbroken(&mut table, column, chars, width);
    }
    lines(table)
}

/// The page `docs/parameters.md`.
pub fn markdown(parameters: &[Parameter]) -> String {
    let mut page = String::from(HEAD);
    for parameter in parameters {
        page += &format!(
            "| `{}` | {} | {} | {} | {} |\n",
            parameter.key,
            parameter.value,
            cell(parameter.meaning),
            cell(parameter.source),
            cell(parameter.tried)
        );
    }
    page
}

const HEAD: &str = "\
<!-- SPDX-License-Identifier: GPL-2.0-only -->
<!-- Written by `corun parameters --markdown`; a test compares it with the code. -->
# Parameters

The numbers that the models stand on and that can be varied, and the constants of policies and guests: each with
the default that the code uses, where it comes from, and the range that was tried. Constants of the dispatcher's
code are beside their use in `dispatcher/*.h`, each with its reason.

Those with a scenario key can be set in a [scenario](scenario.md) or with `--set KEY=VALUE`; `*` stands for the name
of a VM. How results move with one of them is what [`corun sensitivity`](sensitivity.md) shows. The same table on the
terminal: `corun parameters`.

| key | default | meaning | source | tried |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::{Value, time::MS};

    fn sample() -> Vec<Parameter> {
        let parameter = |key, value| Parameter {
            key,
            meaning: "how long something goes on that takes more words than fit into a column",
            value,
            source: "a kernel's source | another kernel's source, and a paper, §3, as far as it says",
            tried: "1 to 24 ms",
        };
        vec![
            parameter("scheduler.some.wakeup_granularity", Value::Time(3 * MS)),
            parameter("host.x", Value::Switch(true)),
        ]
    }

    #[test]
    fn texts_wrap_and_keys_do_not() {
        for width in [60, 80, 100, 120, 140, 200] {
            let text = text(&sample(), width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(width)), "{text}");
            let whole = "scheduler.some.wakeup_granularity";
            assert!(text.contains(whole) && text.contains("3.00 ms"), "{text}");
            assert!(text.lines().count() < 20, "{text}");
        }
    }

    #[test]
    fn bars_do_not_break_the_page() {
        let page = markdown(&sample());
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        for row in rows {
            assert_eq!(row.replace("\\|", "").matches('|').count(), 6, "{row}");
        }
    }
}
