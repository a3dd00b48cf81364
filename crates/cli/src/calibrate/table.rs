// SPDX-License-Identifier: GPL-2.0-only
//! What calibration found, as a table.

use super::meter::Levels;
use super::programs::SLICES;
use super::verdict::{self, Curve};
use std::fmt::Write;

/// The curves as a table, as in Figure 2 of the paper, and what follows from them.
pub fn text(curves: &[Curve], levels: &[Levels], machine: &str) -> String {
    let mut text = format!("{machine}\nTime per work, relative to 30 ms; smaller is better\n\n");
    let heads: String = SLICES
        .iter()
        .map(|ms| format!("{:>9}", format!("{ms} ms")))
        .collect();
    let _ = writeln!(text, "{:10}{heads}   best slice", "");
    for curve in curves {
        let values = curve.means();
        let cells: String = values.iter().map(|value| format!("{value:9.2}")).collect();
        let best = match verdict::best(&values) {
            Some(at) => format!("{} ms", SLICES[at]),
            None => "agnostic".to_string(),
        };
        let _ = writeln!(text, "{:10}{cells}   {best}", curve.kind.name());
    }
    if levels.iter().any(|it| !it.is_empty()) {
        text += "\nMedians at 30 ms, per 30 ms in which it ran\n\n";
        let _ = writeln!(
            text,
            "{:10}{:>12}{:>13}{:>16}{:>14}",
            "", "I/O events", "PAUSE exits", "LLC refs/M inst", "misses/M refs"
        );
        for (curve, seen) in curves.iter().zip(levels) {
            let [io, exits, references, misses] = seen.medians();
            let kind = curve.kind.name();
            let _ = writeln!(
                text,
                "{kind:10}{io:>12}{exits:>13}{references:>16}{misses:>14}"
            );
        }
    }
    text
}
