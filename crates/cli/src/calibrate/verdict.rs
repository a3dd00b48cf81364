// SPDX-License-Identifier: GPL-2.0-only
//! From measurements to a calibration.

use super::here;
use super::meter::Levels;
use super::programs::{DEFAULT, SLICES};
use corun_model::Nanos;
use corun_model::time::MS;
use corun_policies::aql::{Calibration, Kind, Limits, Slices};
use serde_json::{Value, json as object};
use std::collections::BTreeMap;

/// From this difference between the slowest and the fastest slice on, a type is not agnostic. Assumed: the order of the
/// difference between runs with different seeds.
const MATTERS: f64 = 0.15;

/// A run of a subject.
pub struct Point {
    /// Place in [`SLICES`].
    pub slice: usize,
    /// The consolidation.
    pub case: String,
    /// Time per work, in any unit.
    pub time: f64,
}

/// All runs of a subject.
pub struct Curve {
    /// Its type.
    pub kind: Kind,
    /// Its runs.
    pub points: Vec<Point>,
}

impl Curve {
    /// Without runs.
    pub fn new(kind: Kind) -> Self {
        let points = Vec::new();
        Self { kind, points }
    }

    /// By consolidation, and by slice: time per work relative to the default slice, the medians over
    /// seeds.
    pub fn by_case(&self) -> Vec<(&str, Vec<f64>)> {
        let mut all: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
        for point in &self.points {
            let times = all.entry(point.case.as_str()).or_default();
            times.resize_with(SLICES.len(), Vec::new);
            times[point.slice].push(point.time);
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let relative = |(case, mut times): (_, Vec<Vec<f64>>)| {
            let medians: Vec<f64> = times.iter_mut().map(median).collect();
            let relative = medians.iter().map(|time| time / medians[DEFAULT]);
            (case, relative.collect())
        };
        all.into_iter().map(relative).collect()
    }

    /// By slice: the mean of these over consolidations.
    pub fn means(&self) -> Vec<f64> {
        let cases = self.by_case();
        let mean = |slice: usize| {
            let sum: f64 = cases.iter().map(|(_, relative)| relative[slice]).sum();
            sum / cases.len().max(1) as f64
        };
        (0..SLICES.len()).map(mean).collect()
    }
}

/// The best slice; `None` if it does not matter.
pub fn best(times: &[f64]) -> Option<usize> {
    let (mut least, mut most) = (0, 0);
    for (at, time) in times.iter().enumerate() {
        if *time < times[least] {
            least = at;
        }
        if *time > times[most] {
            most = at;
        }
    }
    (times[most] > times[least] * (1.0 + MATTERS)).then_some(least)
}

/// Slices and limits.
pub fn calibration(curves: &[Curve], levels: &[Levels]) -> Calibration {
    let mut slices = Slices::default();
    for curve in curves {
        let slice = best(&curve.means()).map(|at| SLICES[at] * MS);
        slices.set(curve.kind, slice);
    }
    let median = |kind: Kind, of: usize| {
        let at = curves.iter().position(|curve| curve.kind == kind);
        at.map_or(0, |at| levels[at].medians()[of])
    };
    if levels.iter().all(Levels::is_empty) {
        let limits = Limits::default();
        return Calibration { slices, limits };
    }
    // Levels differ by orders of magnitude: half-way on a logarithmic scale.
    let between = |low: u64, high: u64| {
        let product = low.max(1).saturating_mul(high.max(1));
        product.isqrt().clamp(1, 1_000_000)
    };
    let twice = |limit: u64| (2 * limit).min(1_000_000);
    let others = |of: usize, but: Kind| {
        let others = Kind::KNOWN.into_iter().filter(|kind| *kind != but);
        others.map(|kind| median(kind, of)).max().unwrap_or(0)
    };
    // Where no I/O, or no spinning, was seen, there is no half-way.
    let exits = |of: usize, kind: Kind, shipped: u64| match median(kind, of) {
        0 => shipped,
        median => between(others(of, kind), median),
    };
    let shipped = Limits::default();
    // Not every machine that counts exits counts what caches do.
    let seen = |of: usize| Kind::KNOWN.into_iter().any(|kind| median(kind, of) > 0);
    let caches = |of: usize, found: u64, shipped: u64| if seen(of) { found } else { shipped };
    let limits = Limits {
        io_events: exits(0, Kind::IoInt, shipped.io_events),
        pause_exits: exits(1, Kind::ConSpin, shipped.pause_exits),
        // The cursors on both sides of these are equal at half the limit.
        llc_references: caches(
            2,
            twice(between(
                median(Kind::LoLcf, 2),
                median(Kind::Llcf, 2).min(median(Kind::Llco, 2)),
            )),
            shipped.llc_references,
        ),
        llc_misses: caches(
            3,
            twice(between(median(Kind::Llcf, 3), median(Kind::Llco, 3))),
            shipped.llc_misses,
        ),
    };
    Calibration { slices, limits }
}

/// The result for programs; with how it was measured and the turns that were delivered, where these were looked at.
pub fn json(curves: &[Curve], found: &Calibration, here: Option<(&str, &[Vec<Nanos>])>) -> Value {
    let slice = |kind: Kind| {
        found
            .slices
            .best(kind)
            .map(|slice| slice as f64 / MS as f64)
    };
    let types = curves.iter().map(|curve| {
        object!({
            "type": curve.kind.name(),
            "time_relative_to_30ms": curve.means(),
            "by_consolidation": curve.by_case().into_iter().collect::<BTreeMap<_, _>>(),
            "best_slice_ms": slice(curve.kind),
        })
    });
    let limits = &found.limits;
    let delivered = here.map(|(_, turns)| {
        let of = |(ms, turns): (&u64, &Vec<Nanos>)| {
            object!({ "slice_ms": ms, "turns": turns.len(), "in_2ms_bins": here::histogram(turns) })
        };
        SLICES.iter().zip(turns).map(of).collect::<Vec<_>>()
    });
    let mut said = object!({
        "slices_ms": SLICES,
        "types": types.collect::<Vec<_>>(),
        "limits": {
            "io_events": limits.io_events,
            "pause_exits": limits.pause_exits,
            "llc_references": limits.llc_references,
            "llc_misses": limits.llc_misses,
        },
    });
    if let Some(delivered) = delivered {
        said["delivered"] = Value::Array(delivered);
    }
    if let Some((with, _)) = here {
        said["with"] = Value::from(with);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(kind: Kind, times: [f64; 5]) -> Curve {
        let mut curve = Curve::new(kind);
        for (slice, time) in times.into_iter().enumerate() {
            for (case, scale) in [("2", 1.0), ("4", 3.0)] {
                let case = case.to_string();
                curve.points.push(Point {
                    slice,
                    case,
                    time: time * scale,
                });
            }
        }
        curve
    }

    #[test]
    fn the_fastest_slice_wins_if_it_matters() {
        let short = curve(Kind::IoInt, [10.0, 20.0, 40.0, 50.0, 60.0]);
        assert_eq!(short.means(), [0.25, 0.5, 1.0, 1.25, 1.5]);
        assert_eq!(best(&short.means()), Some(0));
        let long = curve(Kind::Llcf, [3.0, 1.3, 1.0, 0.95, 0.9]);
        assert_eq!(best(&long.means()), Some(4));
        let flat = curve(Kind::Llco, [1.1, 1.0, 1.0, 0.99, 1.02]);
        assert_eq!(best(&flat.means()), None);
    }

    #[test]
    fn limits_lie_half_way() {
        let kinds = Kind::KNOWN;
        let curves: Vec<Curve> = kinds.iter().map(|kind| curve(*kind, [1.0; 5])).collect();
        let level = |kind: &Kind| {
            let mut levels = Levels::default();
            let seen = match kind {
                Kind::IoInt => [9, 0, 100, 0],
                Kind::ConSpin => [0, 200, 100, 0],
                Kind::Llcf => [1, 0, 9_000, 200_000],
                Kind::Llco => [0, 0, 5_000, 1_000_000],
                _ => [0, 0, 100, 900_000],
            };
            levels.extend(vec![seen; 3]);
            levels
        };
        let levels: Vec<Levels> = kinds.iter().map(level).collect();
        let limits = calibration(&curves, &levels).limits;
        assert_eq!((limits.io_events, limits.pause_exits), (3, 14));
        assert_eq!((limits.llc_references, limits.llc_misses), (1_414, 894_426));
    }

    #[test]
    fn what_was_not_seen_stays_as_shipped() {
        let kinds = [Kind::Llcf, Kind::LoLcf, Kind::Llco];
        let curves: Vec<Curve> = kinds.iter().map(|kind| curve(*kind, [1.0; 5])).collect();
        let shipped = Limits::default();
        let none = [Levels::default(), Levels::default(), Levels::default()];
        assert_eq!(
            calibration(&curves, &none).limits,
            shipped,
            "nothing counted"
        );
        let seen = [
            [0, 0, 9_000, 200_000],
            [0, 0, 100, 900_000],
            [0, 0, 5_000, 1_000_000],
        ];
        let levels = seen.map(|seen| {
            let mut levels = Levels::default();
            levels.extend(vec![seen]);
            levels
        });
        let limits = calibration(&curves, &levels).limits;
        assert_eq!(
            (limits.io_events, limits.pause_exits),
            (shipped.io_events, shipped.pause_exits)
        );
        assert_eq!((limits.llc_references, limits.llc_misses), (1_414, 894_426));
    }

    #[test]
    fn exits_without_caches_set_their_limits_only() {
        let kinds = Kind::KNOWN;
        let curves: Vec<Curve> = kinds.iter().map(|kind| curve(*kind, [1.0; 5])).collect();
        let levels = kinds.map(|kind| {
            let mut levels = Levels::default();
            let io = if kind == Kind::IoInt { 9 } else { 0 };
            levels.extend(vec![[io, 0, 0, 0]; 3]);
            levels
        });
        let limits = calibration(&curves, &levels).limits;
        let shipped = Limits::default();
        let expected = Limits {
            io_events: 3,
            ..shipped
        };
        assert_eq!(limits, expected);
    }
}
