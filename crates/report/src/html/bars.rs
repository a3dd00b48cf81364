// SPDX-License-Identifier: GPL-2.0-only
//! Bars: SVG without text, so that they stretch with the page and labels keep their size. They need no script, and what
//! they say is also text beside them: they print, and are read aloud.

use crate::advice::Range;
use crate::format::{amount, micros, percent, ratio};
use crate::kinds;
use crate::results::{Run, VmResult};
use crate::summary::Spread;
use corun_model::counted;

/// VMs and clients shown in charts; the table shows more, `--json` all.
pub(super) const CHARTED: usize = 12;
/// VMs and clients that are charted by themselves.
pub(super) const ALONE: [usize; 2] = [CHARTED; 2];

/// Bars of one VM, or another subject, under every policy.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// Bars of one measure.
pub(super) struct Figure {
    pub(super) title: &'static str,
    pub(super) hint: &'static str,
    pub(super) groups: Vec<Group>,
}

/// One bar: parts of 100, each with its class and the text shown when pointed at.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: String,
    pub(super) parts: Vec<Part>,
    /// The least and the most of the seeds, of 100; one seed has no spread.
    pub(super) spread: Option<(f64, f64)>,
    /// Each seed's value, of 100.
    pub(super) seeds: Vec<f64>,
    pub(super) reference: bool,
}

/// A part of a bar.
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) from: f64,
    pub(super) width: f64,
    pub(super) says: String,
}

/// The runs of a case, policy by policy.
type Runs<'a, 'b> = &'b [Vec<&'a Run>];

/// How a measure is written.
type Show = fn(f64) -> String;

/// The VMs of a case with their index, as many as are charted.
pub(super) fn charted<'a>(runs: Runs<'a, '_>) -> impl Iterator<Item = (usize, &'a VmResult)> {
    let first = runs.first().and_then(|runs| runs.first());
    let vms = first.map_or(&[][..], |run| &run.vms[..]);
    vms.iter().enumerate().take(CHARTED)
}

/// Which VMs and clients charts leave out; empty if none.
pub(super) fn left_out(runs: &[Vec<&Run>]) -> String {
    let Some(run) = runs.first().and_then(|runs| runs.first()) else {
        return String::new();
    };
    let of = |kinds: &[kinds::Kind], all: usize, what: &str| {
        let beyond = kinds::beyond(kinds, CHARTED);
        (beyond > 0).then(|| format!("the first {} of {}", all - beyond, counted(all, what)))
    };
    let parts = [
        of(&kinds::vms(run, CHARTED), run.vms.len(), "VM"),
        of(&kinds::clients(run, CHARTED), run.clients.len(), "client"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("Charts show {}.", parts.join(" and ")),
    }
}

fn values(runs: &[&Run], of: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(|run| of(run)).collect()
}

/// Where the vCPUs' time went, VM by VM.
pub(super) fn times(policies: &[&str], runs: Runs<'_, '_>) -> Vec<Group> {
    let bar = |index: usize, at: usize| {
        let share = |of: fn(&VmResult) -> f64| {
            let values = values(&runs[at], |run| run.vms.get(index).map(of));
            Spread::of(values).map_or(0.0, |spread| spread.median)
        };
        let shares = [
            ("run", "running", share(|vm| vm.run_share)),
            ("ready", "ready", share(|vm| vm.ready_share)),
            ("wait", "waiting", share(|vm| vm.wait_share)),
        ];
        let total: f64 = shares.iter().map(|(_, _, share)| share).sum();
        let mut from = 0.0;
        let parts = shares.into_iter().map(|(class, word, share)| {
            let width = of_100(share, total);
            from += width;
            Part {
                class,
                from: from - width,
                width,
                says: format!("{word} {}", percent(share)),
            }
        });
        Bar {
            label: policies[at].to_string(),
            parts: parts.collect(),
            value: format!(
                "{} · {}",
                percent(share(|vm| vm.run_share)),
                percent(share(|vm| vm.ready_share))
            ),
            spread: None,
            seeds: Vec::new(),
            reference: at == 0,
        }
    };
    let group = |(index, vm): (usize, &VmResult)| Group {
        name: vm.name.clone(),
        bars: (0..policies.len()).map(|at| bar(index, at)).collect(),
    };
    charted(runs).map(group).collect()
}

/// Every other measure that a case has.
pub(super) fn figures(policies: &[&str], runs: Runs<'_, '_>) -> Vec<Figure> {
    let vm = |name: fn(&VmResult) -> String, show: Show, of: fn(&VmResult) -> Option<f64>| {
        let group = |(index, vm): (usize, &VmResult)| Group {
            name: name(vm),
            bars: bars(policies, runs, show, |run| of(run.vms.get(index)?)),
        };
        charted(runs).map(group).filter(is_told).collect::<Vec<_>>()
    };
    let plain = |vm: &VmResult| vm.name.clone();
    let mut figures = vec![
        Figure {
            title: "Throughput",
            hint: "longer is better",
            groups: vm(
                |vm| format!("{}, {}", vm.name, vm.throughput_unit),
                amount,
                |vm| Some(vm.throughput),
            ),
        },
        Figure {
            title: "Waits for a pCPU, 99th percentile",
            hint: "shorter is better",
            groups: vm(plain, micros, |vm| vm.ready_wait_p99_us),
        },
        Figure {
            title: "Response times, 99th percentile",
            hint: "as clients see them; shorter is better",
            groups: clients(policies, runs),
        },
        Figure {
            title: "vCPU stacking",
            hint: "time with siblings on one runqueue; shorter is better",
            groups: vec![Group {
                name: "host".to_string(),
                bars: bars(policies, runs, percent, |run| {
                    Some(run.host.stacking_probability)
                }),
            }],
        },
    ];
    figures.retain(|figure| !figure.groups.is_empty());
    figures
}

fn clients(policies: &[&str], runs: Runs<'_, '_>) -> Vec<Group> {
    let first = runs.first().and_then(|runs| runs.first());
    let clients = first.map_or(&[][..], |run| &run.clients[..]);
    let group = |(index, name): (usize, &String)| Group {
        name: name.clone(),
        bars: bars(policies, runs, micros, |run| {
            run.clients.get(index)?.response_p99_us
        }),
    };
    let names = clients.iter().map(|client| &client.name);
    names
        .enumerate()
        .take(CHARTED)
        .map(group)
        .filter(is_told)
        .collect()
}

/// Is there anything to see?
fn is_told(group: &Group) -> bool {
    group.bars.iter().any(|bar| !bar.parts.is_empty())
}

/// A measure under every policy, on one scale: the median as a bar, the seeds on it.
fn bars(
    policies: &[&str],
    runs: Runs<'_, '_>,
    show: Show,
    of: impl Fn(&Run) -> Option<f64>,
) -> Vec<Bar> {
    let all: Vec<Vec<f64>> = runs.iter().map(|runs| values(runs, &of)).collect();
    let most = all.iter().flatten().copied().fold(0.0, f64::max);
    let median = |at: usize| Spread::of(all[at].iter().copied()).map(|spread| spread.median);
    let reference = median(0);
    let bar = |at: usize| {
        let Some(value) = median(at) else {
            return nothing(policies[at], at == 0);
        };
        let of_reference = reference.filter(|reference| at > 0 && *reference > 0.0 && value > 0.0);
        let shown = match of_reference {
            Some(reference) => format!("{} ({})", show(value), ratio(value / reference)),
            None => show(value),
        };
        let least = all[at].iter().copied().fold(f64::INFINITY, f64::min);
        let largest = all[at].iter().copied().fold(0.0, f64::max);
        let several = all[at].len() > 1;
        let spread = several.then(|| (of_100(least, most), of_100(largest, most)));
        let says = match several {
            true => format!("{shown}, from {} to {}", show(least), show(largest)),
            false => shown.clone(),
        };
        Bar {
            label: policies[at].to_string(),
            parts: vec![Part {
                class: if at == 0 { "reference" } else { "other" },
                from: 0.0,
                width: of_100(value, most),
                says,
            }],
            value: shown,
            spread,
            seeds: match several {
                true => all[at].iter().map(|&seed| of_100(seed, most)).collect(),
                false => Vec::new(),
            },
            reference: at == 0,
        }
    };
    (0..policies.len()).map(bar).collect()
}

/// Bars of medians, with a line from the least to the most; the reference is grey.
pub(super) fn ranges<'a>(
    list: impl Iterator<Item = (&'a str, Range, bool)>,
    show: Show,
) -> Vec<Bar> {
    let list: Vec<_> = list.collect();
    let most = list.iter().map(|(_, range, _)| range.most);
    let most = most.fold(0.0, f64::max);
    let bar = |(label, range, reference): &(&str, Range, bool)| {
        let says = match range.least < range.most {
            true => format!(
                "{}, from {} to {}",
                show(range.median),
                show(range.least),
                show(range.most)
            ),
            false => show(range.median),
        };
        Bar {
            label: (*label).to_string(),
            value: show(range.median),
            parts: vec![Part {
                class: if *reference { "reference" } else { "other" },
                from: 0.0,
                width: of_100(range.median, most),
                says,
            }],
            spread: Some((of_100(range.least, most), of_100(range.most, most))),
            seeds: Vec::new(),
            reference: *reference,
        }
    };
    list.iter().map(bar).collect()
}

/// The bar of a policy under which there was nothing to measure.
fn nothing(policy: &str, reference: bool) -> Bar {
    Bar {
        label: policy.to_string(),
        value: "–".to_string(),
        parts: Vec::new(),
        spread: None,
        seeds: Vec::new(),
        reference,
    }
}

fn of_100(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole * 100.0
    } else {
        0.0
    }
}
