// SPDX-License-Identifier: GPL-2.0-only
//! The curves as a picture, as in AQL_Sched's Figure 2: a field for each type, time per work
//! relative to 30 ms by slice, a line for each consolidation.

use super::programs::SLICES;
use super::verdict::{self, Curve};
use std::fmt::Write;

/// A field with its margins, and the field itself.
const FIELD: f64 = 210.0;
const LEFT: f64 = 44.0;
const INNER: f64 = 150.0;
const TOP: f64 = 46.0;
const HEIGHT: f64 = 150.0;
/// Height of the whole picture.
const TALL: f64 = 262.0;
/// More is not drawn to scale, but written: one wild value would flatten all other lines.
const MOST: f64 = 4.0;
/// Two, three, four vCPUs per pCPU.
const COLOURS: [&str; 3] = ["#56b4e9", "#0072b2", "#d55e00"];

/// Writes the picture; `machine` goes into its title.
pub fn svg(curves: &[Curve], machine: &str) -> String {
    let width = FIELD * curves.len().max(2) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {TALL}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- SPDX-License-Identifier: GPL-2.0-only -->\n\
         <!-- Written by corun calibrate. -->\n\
         <rect width=\"{width}\" height=\"{TALL}\" fill=\"#fff\"/>\n"
    );
    let title = format!("Time per work relative to 30 ms, by slice ({machine})");
    text(&mut svg, (LEFT, 16.0), "start", &title);
    for (at, curve) in (0u32..).zip(curves) {
        field(&mut svg, FIELD * f64::from(at), curve);
    }
    let cases = curves.first().map(Curve::by_case).unwrap_or_default();
    for (at, ((case, _), colour)) in (0u32..).zip(cases.iter().zip(COLOURS)) {
        let (x, y) = (LEFT + 120.0 * f64::from(at), TALL - 16.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{:.0}\" width=\"16\" height=\"4\" fill=\"{colour}\"/>",
            y - 6.0
        );
        text(&mut svg, (x + 22.0, y), "start", case);
    }
    svg + "</svg>\n"
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, said: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{said}</text>"
    );
}

/// Even steps: slices are spread over two orders of magnitude.
fn x(left: f64, at: usize) -> f64 {
    left + LEFT + INNER * (at as f64 + 0.5) / SLICES.len() as f64
}

fn field(svg: &mut String, left: f64, curve: &Curve) {
    let cases = curve.by_case();
    let values = cases
        .iter()
        .flat_map(|(_, relative)| relative.iter().copied());
    // Up to the next half, and never so far that nothing looks like much.
    let finite = values.filter(|value| value.is_finite());
    let most = ((finite.fold(1.5, f64::max) * 2.0).ceil() / 2.0).min(MOST);
    let y = |value: f64| TOP + HEIGHT * (1.0 - value.min(most) / most);
    let best = match verdict::best(&curve.means()) {
        Some(at) => format!("best: {} ms", SLICES[at]),
        None => "agnostic".to_string(),
    };
    let title = format!("{}, {best}", curve.kind.name());
    text(svg, (left + LEFT, TOP - 10.0), "start", &title);
    for mark in [0.0, 1.0, most] {
        let (from, to, at) = (left + LEFT, left + LEFT + INNER, y(mark));
        let stroke = if mark == 1.0 { "#888" } else { "#ddd" };
        let _ = writeln!(
            svg,
            "<line x1=\"{from}\" x2=\"{to}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{stroke}\"/>"
        );
        text(svg, (from - 6.0, at + 4.0), "end", &format!("{mark}"));
    }
    for (at, ms) in SLICES.iter().enumerate() {
        let unit = if at + 1 == SLICES.len() { " ms" } else { "" };
        text(
            svg,
            (x(left, at), y(0.0) + 16.0),
            "middle",
            &format!("{ms}{unit}"),
        );
    }
    for ((_, relative), colour) in cases.iter().zip(COLOURS) {
        line(svg, left, relative, colour, y);
        for (at, value) in relative
            .iter()
            .enumerate()
            .filter(|(_, value)| **value > most)
        {
            let place = (x(left, at), TOP + 12.0);
            text(svg, place, "middle", &format!("{value:.0}"));
        }
    }
}

fn line(svg: &mut String, left: f64, relative: &[f64], colour: &str, y: impl Fn(f64) -> f64) {
    let finite = relative
        .iter()
        .enumerate()
        .filter(|(_, value)| value.is_finite());
    let points = finite.map(|(at, value)| format!("{:.1},{:.1}", x(left, at), y(*value)));
    let points = points.collect::<Vec<_>>().join(" ");
    let _ = writeln!(
        svg,
        "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" points=\"{points}\"/>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::verdict::Point;
    use corun_policies::aql::Kind;

    #[test]
    fn a_field_per_type_and_a_line_per_consolidation() {
        let mut curve = Curve::new(Kind::IoInt);
        for case in ["2 per pCPU", "4 per pCPU"] {
            curve
                .points
                .extend([10.0, 20.0, 40.0, 50.0, 480.0].into_iter().enumerate().map(
                    |(slice, time)| Point {
                        slice,
                        case: case.to_string(),
                        time,
                    },
                ));
        }
        let drawn = svg(&[curve], "a machine");
        // XML has no comments with two dashes in them.
        let comments = drawn.split("<!--").skip(1);
        assert!(
            comments
                .filter_map(|it| it.split("-->").next())
                .all(|it| !it.contains("--"))
        );
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert!(
            drawn.contains("IOInt, best: 1 ms") && drawn.contains("4 per pCPU"),
            "{drawn}"
        );
        // 480 / 40 is beyond the upper edge, so it is written there.
        assert!(
            drawn.contains(&format!("{:.1},{TOP:.1}", x(0.0, 4))) && drawn.contains(">12<"),
            "{drawn}"
        );
    }
}
