// SPDX-License-Identifier: GPL-2.0-only
//! Lines over a parameter as SVG: numbers where they lie (or where their logarithms do), choices side by side; bars for
//! the spread over the seeds. Scales are in the picture's own units.

use super::{Line, Point, Sensitivity, TIMES, extremes};

/// The picture and the field in it.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 270.0;
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = WIDTH - 26.0;
pub(super) const TOP: f64 = 12.0;
pub(super) const BOTTOM: f64 = HEIGHT - 30.0;
/// Styles of lines that the style sheet knows.
const STYLES: usize = 7;
/// Least distance of two labels below the field.
const LABEL: f64 = 58.0;
/// Values over a range this wide are shown by their logarithms.
const WIDE: f64 = 50.0;

/// A picture.
pub(super) struct Chart {
    pub(super) x_labels: Vec<(f64, String)>,
    pub(super) y_labels: Vec<(f64, String)>,
    pub(super) curves: Vec<Curve>,
}

/// A policy's line.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) style: usize,
    /// Its stretches without gaps, as points of an SVG polyline.
    pub(super) stretches: Vec<String>,
    pub(super) dots: Vec<Dot>,
}

/// A result.
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) says: String,
}

/// The picture of a group of lines; under relative throughput the reference is the line at one.
pub(super) fn chart(sensitivity: &Sensitivity, group: &[Line]) -> Chart {
    let multiples = group.iter().any(|line| line.unit == TIMES);
    let drawn: Vec<(usize, &Line)> = group
        .iter()
        .enumerate()
        .filter(|(_, line)| !multiples || line.unit == TIMES)
        .collect();
    let xs = positions(sensitivity);
    let axis = Axis::over(drawn.iter().map(|(_, line)| *line), multiples);
    let curve = |(at, line): &(usize, &Line)| curve(sensitivity, line, *at, &xs, &axis);
    let mut curves: Vec<Curve> = drawn.iter().map(curve).collect();
    if multiples && let Some(reference) = group.first() {
        curves.insert(0, at_one(reference, &axis));
    }
    let shown = drawn.first().map(|(_, line)| *line);
    let label = |value: f64| shown.map_or(String::new(), |line| sensitivity.show(line, value));
    let ticks = axis.ticks();
    Chart {
        x_labels: x_labels(&sensitivity.points, &xs),
        y_labels: ticks.map(|value| (axis.at(value), label(value))).collect(),
        curves,
    }
}

/// The reference of multiples, all along the field.
fn at_one(reference: &Line, axis: &Axis) -> Curve {
    let y = axis.at(1.0);
    Curve {
        name: reference.policy.clone(),
        style: 0,
        stretches: vec![format!("{LEFT:.1},{y:.1} {RIGHT:.1},{y:.1}")],
        dots: Vec::new(),
    }
}

fn curve(sensitivity: &Sensitivity, line: &Line, at: usize, xs: &[f64], axis: &Axis) -> Curve {
    let mut stretches = vec![String::new()];
    let mut dots = Vec::new();
    for ((seen, x), point) in line.results.iter().zip(xs).zip(&sensitivity.points) {
        let Some(seen) = seen else {
            stretches.push(String::new());
            continue;
        };
        let y = axis.at(seen.median);
        if let Some(stretch) = stretches.last_mut() {
            *stretch += &format!("{x:.1},{y:.1} ");
        }
        let shown = super::text::cell(sensitivity, line, Some(*seen));
        dots.push(Dot {
            x: *x,
            y,
            low: axis.at(seen.least),
            high: axis.at(seen.most),
            says: format!("{}, {}: {shown}", line.policy, point.shown),
        });
    }
    stretches.retain(|stretch| !stretch.is_empty());
    Curve {
        name: line.policy.clone(),
        style: at % STYLES,
        stretches,
        dots,
    }
}

/// Where each value is, from left to right.
fn positions(sensitivity: &Sensitivity) -> Vec<f64> {
    let points = &sensitivity.points;
    let numbers: Option<Vec<f64>> = points.iter().map(|point| point.number).collect();
    let places = match numbers {
        Some(numbers) => {
            let positive = numbers.iter().all(|number| *number > 0.0);
            let (least, most) = extremes(numbers.iter().copied());
            match positive && (sensitivity.logarithmic || most / least >= WIDE) {
                true => numbers.into_iter().map(libm::log).collect(),
                false => numbers,
            }
        }
        None => (0..points.len()).map(|at| at as f64).collect(),
    };
    let (least, most) = extremes(places.iter().copied());
    // The first and the last value keep a distance from the field's edges.
    let (left, right) = (LEFT + 18.0, RIGHT - 18.0);
    let place = |value: f64| match most > least {
        true => left + (value - least) / (most - least) * (right - left),
        false => (left + right) / 2.0,
    };
    places.into_iter().map(place).collect()
}

/// As many labels as fit, the first one always.
fn x_labels(points: &[Point], xs: &[f64]) -> Vec<(f64, String)> {
    let mut labels: Vec<(f64, String)> = Vec::new();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| xs[*a].total_cmp(&xs[*b]));
    for at in order {
        let far = |(x, _): &(f64, String)| xs[at] - x >= LABEL;
        if labels.last().is_none_or(far) {
            labels.push((xs[at], points[at].shown.clone()));
        }
    }
    labels
}

/// From results to heights.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// An axis over all results. It begins at zero, unless all lie close together far above it:
    /// then it is a window of at least a twentieth of their size, so that noise stays small.
    fn over<'a>(lines: impl Iterator<Item = &'a Line>, with_one: bool) -> Self {
        let seen = lines.flat_map(|line| line.results.iter().flatten());
        let ends = seen.flat_map(|seen| [seen.least, seen.most]);
        let (mut least, mut most) = extremes(ends.chain(with_one.then_some(1.0)));
        if !(least.is_finite() && most > 0.0) {
            (least, most) = (0.0, 1.0);
        }
        let least = match least > most / 2.0 {
            true => least.min(most * 0.95),
            false => 0.0,
        };
        let step = nice((most - least) / 4.0);
        Self {
            low: (least / step).floor() * step,
            high: (most / step).ceil() * step,
            step,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        let (low, step) = (self.low, self.step);
        (0..=count.min(12)).map(move |n| low + f64::from(n) * step)
    }
}

/// The next number above that is 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(step.max(1e-12)).floor());
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|digit| digit * power >= step * 0.999);
    digit.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (step, expected) in [(0.23, 0.5), (1.0, 1.0), (1.3, 2.0), (51.0, 100.0)] {
            assert!((nice(step) / expected - 1.0).abs() < 1e-9, "{step}");
        }
    }

    #[test]
    fn an_axis_holds_all_results_whatever_they_are() {
        for results in [
            vec![],
            vec![0.0],
            vec![3.0, 3.0],
            vec![1e-9, 2e9],
            vec![99.0, 100.0],
        ] {
            let seen = |median: &f64| super::super::Seen::of(&[*median]);
            let line = Line {
                case: String::new(),
                of: String::new(),
                policy: String::new(),
                unit: String::new(),
                results: results.iter().map(seen).collect(),
                elasticity: None,
            };
            let axis = Axis::over(std::iter::once(&line), false);
            for value in results {
                assert!((TOP..=BOTTOM).contains(&axis.at(value)));
                assert!(axis.low <= value && value <= axis.high + 1e-9, "{value}");
            }
            assert!((2..=13).contains(&axis.ticks().count()));
        }
    }
}
