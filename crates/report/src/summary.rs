// SPDX-License-Identifier: GPL-2.0-only
//! Several seeds as one number, and what a comparison says in words.

use crate::format::{micros, percent, ratio};
use crate::results::{Comparison, Run, VmResult};
use corun_model::counted;

/// The same measure from several seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// Half of the distance between the least and the most; 0 for one seed.
    pub half_range: f64,
}

impl Spread {
    /// Of some values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (values.first()?, values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self {
            median: (low + high) / 2.0,
            half_range: (most - least) / 2.0,
        })
    }
}

/// The number of seeds that medians are over, if any case was run with several.
pub(crate) fn seeds(comparison: &Comparison) -> Option<String> {
    let cases = comparison.cases().into_iter();
    let seeds: Vec<usize> = cases.map(|case| comparison.seeds(case).len()).collect();
    let most = seeds.iter().copied().max().filter(|most| *most > 1)?;
    let differ = seeds.iter().any(|count| *count != most);
    let up_to = if differ { "up to " } else { "" };
    Some(format!("{up_to}{most} seeds"))
}

/// Which kernels the policies of `runs` model, see [`models`].
pub(crate) fn kernels<'a>(runs: impl IntoIterator<Item = &'a Run>) -> String {
    let runs = runs.into_iter();
    models(runs.map(|run| (run.policy.as_str(), run.kernel.as_deref())))
}

/// Which kernels policies model, and by which key to choose others: nobody should take a kernel of 2010 for today's.
/// Empty if they model none.
pub(crate) fn models<'a>(policies: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (policy, kernel) in policies {
        let Some(kernel) = kernel else {
            continue;
        };
        let at = all.iter().position(|(known, _)| *known == kernel);
        let at = at.unwrap_or_else(|| {
            all.push((kernel, Vec::new()));
            all.len() - 1
        });
        let policies = &mut all[at].1;
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let of =
        |(kernel, policies): &(&str, Vec<&str>)| format!("{} as in {kernel}", policies.join(", "));
    let models: Vec<String> = all.iter().map(of).collect();
    let policies = || all.iter().flat_map(|(_, policies)| policies);
    let key = match (
        policies().any(|policy| *policy == "eevdf"),
        policies().any(|policy| *policy != "eevdf"),
    ) {
        (true, true) => "scheduler.cfs.preset, scheduler.eevdf.preset",
        (true, false) => "scheduler.eevdf.preset",
        _ => "scheduler.cfs.preset",
    };
    format!("Models: {}; others: {key}.", models.join("; "))
}

/// The median over seeds of what `measure` sees in a run.
fn median(runs: &[&Run], measure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let values = runs.iter().filter_map(|run| measure(run));
    Spread::of(values).map(|spread| spread.median)
}

/// The VMs' throughput in `runs` relative to `reference`.
fn relative_throughput<'a>(runs: &[&Run], reference: &[&'a Run]) -> Vec<(&'a str, f64)> {
    let of = |runs: &[&Run], vm: usize| median(runs, |run| Some(run.vms.get(vm)?.throughput));
    let vms = reference.first().map_or(&[][..], |run| &run.vms);
    let relative = |(at, vm): (usize, &'a VmResult)| {
        let ratio = of(runs, at)? / of(reference, at)?;
        Some((vm.name.as_str(), ratio)).filter(|_| ratio.is_finite())
    };
    vms.iter().enumerate().filter_map(relative).collect()
}

/// The geometric mean, and, for several VMs, the one that gains most and the one that pays.
fn throughput(vms: &[(&str, f64)], reference: &str) -> Option<String> {
    let logs: Vec<f64> = vms
        .iter()
        .filter(|(_, ratio)| *ratio > 0.0)
        .map(|(_, ratio)| libm::log(*ratio))
        .collect();
    if logs.is_empty() {
        return None;
    }
    let mean = libm::exp(logs.iter().sum::<f64>() / logs.len() as f64);
    let mean = format!("throughput is {} that of {reference}", ratio(mean));
    let by_ratio = |a: &&(&str, f64), b: &&(&str, f64)| a.1.total_cmp(&b.1);
    let worst = vms.iter().min_by(by_ratio)?;
    let best = vms.iter().rev().max_by(by_ratio)?;
    let ends = [best, worst].map(|(name, of)| (name, ratio(*of)));
    Some(match vms.len() {
        1 => mean,
        _ if ends[0].1 == ends[1].1 => format!("{mean} (geometric mean over VMs)"),
        _ => format!(
            "{mean} (geometric mean over VMs; best {} {}, worst {} {})",
            ends[0].0, ends[0].1, ends[1].0, ends[1].1
        ),
    })
}

/// The worst VM's 99th percentile of waits for locks.
fn worst_lock_wait(run: &Run) -> Option<f64> {
    let waits = run.vms.iter().filter_map(|vm| vm.lock_wait_p99_us);
    waits.max_by(f64::total_cmp)
}

/// The comparison in words: one sentence per case and policy that is not the reference.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let mut all = Vec::new();
    for case in comparison.cases() {
        let policies = comparison.policies(case);
        let Some((reference, others)) = policies.split_first() else {
            continue;
        };
        let base = comparison.of(case, reference);
        let Some(first) = base.first() else { continue };
        let host = &first.host;
        let place = format!(
            "{} on {}",
            counted(host.vcpus, "vCPU"),
            counted(host.pcpus, "pCPU")
        );
        let place = match case.is_empty() {
            true => place,
            false => format!("{case} ({place})"),
        };
        if others.is_empty() {
            all.push(format!("{place}: under {reference}, {}.", alone(&base)));
        }
        for policy in others {
            let runs = comparison.of(case, policy);
            all.push(format!(
                "{place}: under {policy}, {}.",
                compared(reference, &base, &runs)
            ));
        }
    }
    all
}

fn alone(runs: &[&Run]) -> String {
    let stacking = median(runs, |run| Some(run.host.stacking_probability)).unwrap_or(0.0);
    let idle = median(runs, |run| Some(run.host.idle_share)).unwrap_or(0.0);
    format!(
        "vCPUs are stacked {} of the time and pCPUs idle {}",
        percent(stacking),
        percent(idle)
    )
}

fn compared(reference: &str, base: &[&Run], runs: &[&Run]) -> String {
    let mut parts = Vec::new();
    parts.extend(throughput(&relative_throughput(runs, base), reference));
    let change =
        |measure: fn(&Run) -> Option<f64>| Some((median(base, measure)?, median(runs, measure)?));
    if let Some((before, after)) = change(|run| Some(run.host.stacking_probability)) {
        parts.push(match percent(before) == percent(after) {
            true => format!("vCPU stacking stays at {}", percent(after)),
            false => format!(
                "vCPU stacking goes from {} to {}",
                percent(before),
                percent(after)
            ),
        });
    }
    if let Some((before, after)) = change(worst_lock_wait) {
        let (before, after) = (micros(before), micros(after));
        parts.push(format!(
            "the worst VM's 99th percentile of lock waits goes from {before} to {after}"
        ));
    }
    match parts.len() {
        0 => "nothing can be compared".to_string(),
        1 => parts.remove(0),
        _ => {
            let last = parts.pop().unwrap_or_default();
            format!("{} and {last}", parts.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_does_not_hide_who_pays() {
        let vms = [("db", 1.7), ("batch1", 0.87), ("batch2", 0.86)];
        let said = throughput(&vms, "eevdf").unwrap();
        assert!(said.contains("1.08× that of eevdf"), "{said}");
        assert!(said.contains("best db 1.70×, worst batch2 0.86×"), "{said}");
        // All alike: no VM is named.
        let said = throughput(&[("a", 1.0), ("b", 1.001)], "eevdf").unwrap();
        assert!(said.ends_with("(geometric mean over VMs)"), "{said}");
        assert!(
            throughput(&[("a", 1.5)], "eevdf")
                .unwrap()
                .ends_with("eevdf")
        );
        assert_eq!(throughput(&[("a", 0.0)], "eevdf"), None);
    }

    #[test]
    fn median_and_spread() {
        assert_eq!(Spread::of([]), None);
        let spread = |median, half_range| Some(Spread { median, half_range });
        assert_eq!(Spread::of([3.0]), spread(3.0, 0.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0]), spread(2.0, 1.5));
        assert_eq!(Spread::of([4.0, 1.0]), spread(2.5, 1.5));
    }
}
