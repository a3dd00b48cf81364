// SPDX-License-Identifier: GPL-2.0-only
//! When a policy left VMs alone, because they did not do what was expected of them (jupiter).

use crate::results::Run;
use corun_model::{Nanos, time};

/// VMs and times in the table; nobody would read more.
const SHOWN: usize = 16;

/// A VM in a run in which it was left alone.
pub(super) struct Off {
    pub(super) policy: String,
    pub(super) vm: String,
    pub(super) seed: u64,
    pub(super) times: String,
    /// The number of VMs that are not listed.
    pub(super) left_out: usize,
}

/// The VMs left alone in a case; the last line says how many are not listed.
pub(super) fn off(runs: &[Vec<&Run>]) -> Vec<Off> {
    let mut all = Vec::new();
    for run in runs.iter().flatten() {
        for (vm, times) in run.vms.iter().zip(&run.detail.vms) {
            if !times.left_alone.is_empty() {
                all.push(Off {
                    policy: run.policy.clone(),
                    vm: vm.name.clone(),
                    seed: run.seed,
                    times: in_words(&times.left_alone),
                    left_out: 0,
                });
            }
        }
    }
    let left_out = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    if let Some(last) = all.last_mut() {
        last.left_out = left_out;
    }
    all
}

fn in_words(spans: &[(Nanos, Option<Nanos>)]) -> String {
    let seconds = |at: Nanos| format!("{:.1}", at as f64 / time::SEC as f64);
    let span = |&(from, until): &(Nanos, Option<Nanos>)| match until {
        Some(until) => format!("{} to {} s", seconds(from), seconds(until)),
        None => format!("{} s to the end", seconds(from)),
    };
    let mut words: Vec<String> = spans.iter().take(SHOWN).map(span).collect();
    if spans.len() > SHOWN {
        words.push(format!("… ({} times)", spans.len()));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    #[test]
    fn times_are_seconds_of_the_run() {
        let spans = [(6_500 * MS, Some(7_600 * MS)), (9_000 * MS, None)];
        assert_eq!(in_words(&spans), "6.5 to 7.6 s, 9.0 s to the end");
        let many = vec![(MS, Some(2 * MS)); 20];
        assert!(in_words(&many).ends_with(", … (20 times)"));
    }
}
