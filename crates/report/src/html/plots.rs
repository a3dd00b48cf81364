// SPDX-License-Identifier: GPL-2.0-only
//! Distributions as curves and histograms: what the script draws, and the same as tables for those who do not see it or
//! have no script.

use super::bars::CHARTED;
use crate::detail::{Detail, Times, VmTimes};
use crate::format::{count, micros};
use crate::results::Run;
use serde::Serialize;

/// A plot; the script finds it by its place in the list.
#[derive(Serialize)]
pub(super) struct Plot {
    /// `cdf` or `histogram`.
    pub(super) kind: &'static str,
    pub(super) title: &'static str,
    pub(super) curves: Vec<Curve>,
}

/// A policy's curve.
#[derive(Serialize)]
pub(super) struct Curve {
    pub(super) name: String,
    /// The longest time of each step, ns, and the count of times: all seeds together.
    pub(super) steps: Vec<(u64, u64)>,
    #[serde(skip)]
    pub(super) row: Vec<String>,
}

/// The plots of a VM or a client.
pub(super) struct Plots {
    pub(super) of: String,
    /// Each with its place in the list of all plots.
    pub(super) plots: Vec<(usize, Plot)>,
}

/// Which distribution of a VM a plot shows.
type OfVm = fn(&VmTimes) -> &Times;

const OF_VM: [(&str, &str, OfVm); 5] = [
    ("cdf", "Waits for a pCPU", |vm| &vm.ready),
    ("histogram", "From wake-up to pCPU", |vm| &vm.wakeups),
    ("histogram", "Turns that were cut short", |vm| &vm.turns),
    ("cdf", "Waits for contended locks", |vm| &vm.locks),
    ("cdf", "Waits for reads and writes", |vm| &vm.io),
];

/// Heads of the table's columns.
pub(super) const QUANTILES: [&str; 6] = ["count", "p10", "p50", "p90", "p99", "longest"];

/// The plots of a case, VMs first, then clients; `next` is the first free place in the list of all.
pub(super) fn plots(policies: &[&str], runs: &[Vec<&Run>], next: &mut usize) -> Vec<Plots> {
    let first = runs.first().and_then(|runs| runs.first());
    let Some(first) = first else {
        return Vec::new();
    };
    let mut plot = |kind, title, of: &dyn Fn(&Detail) -> Option<&Times>| {
        let curve = |(policy, runs): (&&str, &Vec<&Run>)| {
            curve(policy, runs.iter().filter_map(|run| of(&run.detail)))
        };
        let curves: Vec<Curve> = policies.iter().zip(runs).map(curve).collect();
        let some = curves.iter().any(|curve| !curve.steps.is_empty());
        some.then(|| {
            *next += 1;
            let plot = Plot {
                kind,
                title,
                curves,
            };
            (*next - 1, plot)
        })
    };
    let mut all = Vec::new();
    for (index, vm) in first.vms.iter().enumerate().take(CHARTED) {
        let of_vm = OF_VM.iter().filter_map(|(kind, title, of)| {
            plot(kind, title, &|detail| detail.vms.get(index).map(of))
        });
        all.push(Plots {
            of: vm.name.clone(),
            plots: of_vm.collect(),
        });
    }
    for (index, client) in first.clients.iter().enumerate().take(CHARTED) {
        let responses = plot("cdf", "Response times", &|detail| detail.clients.get(index));
        all.push(Plots {
            of: format!("{} ({})", client.name, client.kind),
            plots: responses.into_iter().collect(),
        });
    }
    all.retain(|plots| !plots.plots.is_empty());
    all
}

fn curve<'a>(policy: &str, all: impl Iterator<Item = &'a Times>) -> Curve {
    let times = Times::pooled(all);
    let mut row = vec![count(times.count())];
    row.extend([0.1, 0.5, 0.9, 0.99, 1.0].map(|share| {
        let quantile = times.quantile(share);
        quantile.map_or_else(|| "–".to_string(), |ns| micros(ns as f64 / 1e3))
    }));
    Curve {
        name: policy.to_string(),
        steps: times.steps,
        row,
    }
}
