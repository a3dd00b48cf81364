// SPDX-License-Identifier: GPL-2.0-only
//! From what pairs of programs do to each other to the coefficients of symbiosis (vSMT-IO, dissertation
//! §3.4.3), by least squares.
//!
//! How long a unit of work takes beside another program, relative to alone, is modelled as b·B + w·W + ww·W·W' + m·M +
//! mm·M·M': five unknowns, so the normal equations are solved here, in fewer lines than calling any library would take.
//! A coefficient below 0 would mean that cycles of that kind cost nothing beside another program: it is taken for 0,
//! and the others are fitted again.

use corun_policies::vsmtio::symbiosis::Coefficients;

/// How many coefficients there are.
const COEFFICIENTS: usize = 5;
/// Their names in calibration files.
const NAMES: [&str; COEFFICIENTS] = ["base", "wait", "wait_wait", "miss", "miss_miss"];
/// The largest coefficient that is accepted.
const MOST: f64 = 10.0;
/// What is no more than this fraction of the largest counts as nothing when equations are solved.
const NOTHING: f64 = 1e-9;

/// How the cycles of a program divide when it is alone; the shares add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// At work.
    pub base: f64,
    /// On misses.
    pub miss: f64,
    /// Waiting otherwise.
    pub wait: f64,
}

/// What was measured for a program beside another one.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Their places in the list of programs.
    pub programs: [usize; 2],
    /// The first one's cycles.
    pub own: Shares,
    /// The other one's.
    pub other: Shares,
    /// Its time per work beside the other, relative to alone.
    pub slowdown: f64,
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// The coefficients.
    pub coefficients: Coefficients,
    /// How far the model is off: the root of the mean square, of the time alone.
    pub residual: f64,
    /// … and the most.
    pub worst: f64,
}

impl Pair {
    fn terms(&self) -> [f64; COEFFICIENTS] {
        let (own, other) = (self.own, self.other);
        [
            own.base,
            own.wait,
            own.wait * other.wait,
            own.miss,
            own.miss * other.miss,
        ]
    }

    /// What the model says.
    pub fn modelled(&self, of: &Coefficients) -> f64 {
        let of = [of.base, of.wait, of.wait_wait, of.miss, of.miss_miss];
        let terms = self.terms().into_iter().zip(of);
        terms.map(|(term, of)| term * f64::from(of) / 1000.0).sum()
    }
}

/// The coefficients that describe these pairs best.
///
/// # Errors
/// Why there are none: the programs do not differ enough, or a measured value is not a number.
pub fn fit(pairs: &[Pair]) -> Result<Fit, String> {
    let finite =
        |pair: &Pair| pair.slowdown.is_finite() && pair.terms().iter().all(|it| it.is_finite());
    if !pairs.iter().all(finite) {
        return Err("a program did nothing, alone or beside another one".to_string());
    }
    let mut used = [true; COEFFICIENTS];
    let found = loop {
        let found = least_squares(pairs, used).map_err(|at| {
            let name = NAMES[at];
            format!("the programs do not differ enough on this machine: nothing tells {name} from the others")
        })?;
        let least = (0..COEFFICIENTS).min_by(|a, b| found[*a].total_cmp(&found[*b]));
        match least.filter(|at| found[*at] < 0.0) {
            Some(at) => used[at] = false,
            None => break found,
        }
    };
    if let Some(at) = found.iter().position(|found| *found > MOST) {
        let (name, value) = (NAMES[at], found[at]);
        return Err(format!("found {value:.3} for {name}, expected 0 to {MOST}"));
    }
    let [base, wait, wait_wait, miss, miss_miss] =
        found.map(|found| (found * 1000.0).round() as u32);
    let coefficients = Coefficients {
        base,
        wait,
        wait_wait,
        miss,
        miss_miss,
    };
    let off = |pair: &Pair| (pair.modelled(&coefficients) - pair.slowdown).abs();
    let squares: f64 = pairs.iter().map(|pair| off(pair) * off(pair)).sum();
    Ok(Fit {
        coefficients,
        residual: (squares / pairs.len().max(1) as f64).sqrt(),
        worst: pairs.iter().map(off).fold(0.0, f64::max),
    })
}

/// Solves the normal equations for the coefficients that are used; all others are 0.
///
/// # Errors
/// If one cannot be distinguished from the others.
fn least_squares(pairs: &[Pair], used: [bool; COEFFICIENTS]) -> Result<[f64; COEFFICIENTS], usize> {
    let mut rows = [[0.0; COEFFICIENTS + 1]; COEFFICIENTS];
    for pair in pairs {
        let terms = pair.terms();
        for (row, term) in rows.iter_mut().zip(terms) {
            for (cell, other) in row.iter_mut().zip(terms) {
                *cell += term * other;
            }
            row[COEFFICIENTS] += term * pair.slowdown;
        }
    }
    for at in (0..COEFFICIENTS).filter(|at| !used[*at]) {
        rows.iter_mut().for_each(|row| row[at] = 0.0);
        rows[at] = [0.0; COEFFICIENTS + 1];
        rows[at][at] = 1.0;
    }
    solve(rows)
}

/// Gauss–Jordan elimination with the largest pivot of each column.
fn solve(mut rows: [[f64; COEFFICIENTS + 1]; COEFFICIENTS]) -> Result<[f64; COEFFICIENTS], usize> {
    let largest = rows.iter().flatten().fold(0.0f64, |a, b| a.max(b.abs()));
    for column in 0..COEFFICIENTS {
        let by_size =
            |a: &usize, b: &usize| rows[*a][column].abs().total_cmp(&rows[*b][column].abs());
        let pivot = (column..COEFFICIENTS).max_by(by_size).unwrap_or(column);
        rows.swap(column, pivot);
        let own = rows[column];
        if own[column].abs() <= NOTHING * largest {
            return Err(column);
        }
        for (at, row) in rows.iter_mut().enumerate() {
            let times = if at == column {
                0.0
            } else {
                row[column] / own[column]
            };
            for (cell, own) in row.iter_mut().zip(own) {
                *cell -= times * own;
            }
        }
    }
    Ok(std::array::from_fn(|at| {
        rows[at][COEFFICIENTS] / rows[at][at]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXES: [[f64; 3]; 6] = [
        [0.9, 0.05, 0.05],
        [0.6, 0.3, 0.1],
        [0.2, 0.7, 0.1],
        [0.4, 0.1, 0.5],
        [0.5, 0.25, 0.25],
        [0.3, 0.4, 0.3],
    ];

    /// All pairs, with the values of `slowdown`.
    fn pairs(mixes: &[[f64; 3]], mut slowdown: impl FnMut(&Pair) -> f64) -> Vec<Pair> {
        let shares = |[base, miss, wait]: [f64; 3]| Shares { base, miss, wait };
        let mut all = Vec::new();
        for (at, own) in mixes.iter().enumerate() {
            for (beside, other) in mixes.iter().enumerate() {
                let mut pair = Pair {
                    programs: [at, beside],
                    own: shares(*own),
                    other: shares(*other),
                    slowdown: 0.0,
                };
                pair.slowdown = slowdown(&pair);
                all.push(pair);
            }
        }
        all
    }

    #[test]
    fn what_the_model_makes_is_found_again() {
        let truth = Coefficients::default();
        let found = fit(&pairs(&MIXES, |pair| pair.modelled(&truth))).unwrap();
        assert_eq!(found.coefficients, truth);
        assert!(found.residual < 1e-3 && found.worst < 1e-3, "{found:?}");
    }

    #[test]
    fn noise_is_told_and_moves_little() {
        let truth = Coefficients::default();
        let mut sign = 1.0;
        let noisy = pairs(&MIXES, |pair| {
            sign = -sign;
            pair.modelled(&truth) + 0.02 * sign
        });
        let found = fit(&noisy).unwrap();
        assert!((0.015..0.025).contains(&found.residual), "{found:?}");
        assert!(
            found.coefficients.base.abs_diff(truth.base) < 100,
            "{found:?}"
        );
    }

    #[test]
    fn none_is_below_nothing() {
        let of = |pair: &Pair| {
            1.5 * pair.own.base + 1.2 * pair.own.miss - 0.3 * pair.own.wait * pair.other.wait
        };
        let found = fit(&pairs(&MIXES, of)).unwrap();
        let Coefficients {
            wait_wait, base, ..
        } = found.coefficients;
        assert_eq!(wait_wait, 0);
        assert!((1400..1600).contains(&base), "{found:?}");
        assert!(found.residual > 0.0);
    }

    #[test]
    fn programs_that_are_alike_tell_nothing() {
        let alike = pairs(&MIXES[..1], |_| 1.4);
        assert!(fit(&alike).unwrap_err().contains("do not differ enough"));
        let mut broken = pairs(&MIXES, |_| 1.4);
        broken[3].slowdown = f64::NAN;
        assert!(fit(&broken).unwrap_err().contains("did nothing"));
        let wild = fit(&pairs(&MIXES, |_| 40.0));
        assert!(wild.unwrap_err().contains("expected 0 to 10"));
    }
}
