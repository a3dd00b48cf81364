// SPDX-License-Identifier: GPL-2.0-only
//! Advice as one page that needs nothing else: the answer, the ranking with its ranges, VM by VM, how far
//! overcommit could go, what the recording leaves open, and the replays of the policies that matter as
//! a comparison shows them.

use super::bars::{self, Bar};
use super::{About, CasePart, SCRIPT, Script, UPLOT, Uplot, bound, embedded, part};
use crate::advice::{Advice, Overcommit, PolicyAdvice, Range, Replayed, Verdict, VmRanking};
use crate::format::{amount, micros, percent};
use crate::html::plots::QUANTILES;
use crate::replay;
use crate::results::{Comparison, Run};
use askama::Template;

/// Policies shown VM by VM, the host's own scheduler among them: no more lines could be distinguished.
const SHOWN: usize = 5;
/// VMs shown; `--json` has all.
const VMS_SHOWN: usize = 32;

#[derive(Template)]
#[template(path = "advise.html")]
struct Page<'a> {
    advice: &'a Advice,
    about: &'a About,
    level: &'static str,
    replays: usize,
    ranking: Vec<Ranking>,
    policies: Vec<PolicyRow<'a>>,
    /// Would a VM lose under any of them?
    loses: bool,
    /// Which kernels are modelled.
    kernels: String,
    vms: VmTable<'a>,
    growth: Option<Growth<'a>>,
    open: Vec<OpenTable<'a>>,
    check: replay::Shown,
    case: CasePart<'a>,
    /// JSON for the script.
    drawn: String,
    /// The advice as JSON.
    results: String,
    uplot: Uplot,
    script: &'static str,
    quantiles: [&'static str; QUANTILES.len()],
}

/// Bars of one measure, policy by policy.
struct Ranking {
    title: &'static str,
    hint: &'static str,
    bars: Vec<Bar>,
}

struct PolicyRow<'a> {
    policy: &'a PolicyAdvice,
    recommended: bool,
    verdict: &'static str,
    /// Median, range and place of ready time, work and fairness.
    measures: [(String, String, u32); 3],
    beyond: String,
}

/// VM by VM: each policy's ready time, waits and work.
struct VmTable<'a> {
    policies: Vec<&'a str>,
    rows: Vec<VmRow<'a>>,
    left_out: usize,
}

struct VmRow<'a> {
    name: &'a str,
    vcpus: u32,
    cells: Vec<VmCell>,
    /// Under which policy it waits least, if that makes a difference, and under which it gets most done.
    least: &'a str,
    most: &'a str,
}

/// A VM under a policy.
struct VmCell {
    /// Its ready time, median.
    ready: String,
    /// The range, and how it compares with the host's own scheduler.
    range: String,
    /// 99th percentile of its waits, and whether they are several times as long.
    wait: String,
    /// Its work, and how that compares with the host's own scheduler; the range.
    work: String,
    work_range: String,
}

/// How many more VMs fit.
struct Growth<'a> {
    /// The VMs of which copies are added.
    copied: String,
    target: String,
    policies: Vec<&'a str>,
    rows: Vec<GrowthRow<'a>>,
}

struct GrowthRow<'a> {
    /// How many VMs were added; this one is the last.
    more: usize,
    added: &'a str,
    ratio: String,
    /// Per policy: the VM that waits most and its ready time.
    cells: Vec<String>,
}

struct OpenTable<'a> {
    question: &'a str,
    policies: Vec<&'a str>,
    rows: Vec<(&'a str, Vec<String>)>,
}

/// The page; `replays` are those that the advice is based on, policy by policy.
///
/// # Errors
/// If the template fails, which would be a defect of this crate.
pub fn page(
    advice: &Advice,
    replays: &[(String, Vec<Replayed>)],
    about: &About,
) -> askama::Result<String> {
    let shown = shown(advice);
    let comparison = comparison(advice, replays, &shown);
    let case = part(&comparison, "", &mut 0, &mut 0);
    let plots = case.plots.iter().flat_map(|of| &of.plots);
    let drawn = Script {
        plots: plots.map(|(_, plot)| plot).collect(),
        timelines: Vec::new(),
    };
    let page = Page {
        advice,
        about,
        level: advice.confidence.level.word(),
        replays: replays.first().map_or(0, |(_, runs)| runs.len()),
        ranking: ranking(advice),
        policies: advice.policies.iter().map(|it| row(advice, it)).collect(),
        loses: advice.policies.iter().any(|it| !it.costs.is_empty()),
        kernels: advice.kernels(),
        vms: vms(advice, &shown),
        growth: growth(&advice.overcommit),
        open: open(advice),
        check: replay::shown(&advice.replay, None),
        drawn: embedded(&drawn)?,
        results: embedded(advice)?,
        uplot: UPLOT,
        script: SCRIPT,
        quantiles: QUANTILES,
        case,
    };
    Ok(bound(&page.render()?))
}

/// The host's own scheduler, the policy compared with it, and the best of the others, in the ranking's order.
fn shown(advice: &Advice) -> Vec<&PolicyAdvice> {
    let first: Vec<_> = [advice.own(), advice.rival()]
        .into_iter()
        .flatten()
        .collect();
    let is_first = |policy: &&PolicyAdvice| first.iter().any(|it| it.policy == policy.policy);
    let others = advice.policies.iter().filter(|policy| !is_first(policy));
    let others: Vec<_> = others.take(SHOWN.saturating_sub(first.len())).collect();
    first.into_iter().chain(others).collect()
}

/// The replays of these policies as a comparison, which shows them in detail.
fn comparison(
    advice: &Advice,
    replays: &[(String, Vec<Replayed>)],
    shown: &[&PolicyAdvice],
) -> Comparison {
    let runs = shown.iter().flat_map(|policy| {
        let found = replays.iter().filter(|(name, _)| *name == policy.policy);
        found.flat_map(|(_, replays)| replays.iter().map(|replay| replay.run.clone()))
    });
    let runs: Vec<Run> = runs.collect();
    Comparison {
        version: advice.version.clone(),
        scenario: advice.recording.clone(),
        title: None,
        source: None,
        replay: Some(advice.replay.clone()),
        confidence: Some(advice.confidence.clone()),
        notes: advice.notes.clone(),
        runs,
    }
}

fn ranking(advice: &Advice) -> Vec<Ranking> {
    let bars = |of: fn(&PolicyAdvice) -> Range, show: fn(f64) -> String| {
        let policies = advice.policies.iter();
        let list = policies.map(|it| (it.policy.as_str(), of(it), it.verdict == Verdict::Own));
        bars::ranges(list, show)
    };
    vec![
        Ranking {
            title: "Ready time",
            hint: "of all vCPUs' time; shorter is better",
            bars: bars(|it| it.ready_share, percent),
        },
        Ranking {
            title: "Work",
            hint: "seconds of pCPU time per second; longer is better",
            bars: bars(|it| it.work, amount),
        },
        Ranking {
            title: "Fairness",
            hint: "Jain's index over the VMs, 1 is even; longer is better",
            bars: bars(|it| it.fairness, three),
        },
    ]
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

fn row<'a>(advice: &Advice, policy: &'a PolicyAdvice) -> PolicyRow<'a> {
    let measure = |range: &Range, show: fn(f64) -> String, rank: u32| {
        let number = |value| show(value).trim_end_matches(" %").to_string();
        let ends = format!("{}–{}", number(range.least), number(range.most));
        (show(range.median), ends, rank)
    };
    let ranks = policy.ranks;
    PolicyRow {
        policy,
        recommended: advice.recommended.as_ref() == Some(&policy.policy),
        verdict: advice.said(policy),
        measures: [
            measure(&policy.ready_share, percent, ranks.ready),
            measure(&policy.work, amount, ranks.work),
            measure(&policy.fairness, three, ranks.fairness),
        ],
        beyond: percent(policy.beyond_recording_share),
    }
}

fn ranged(range: &Range) -> String {
    format!("{} ({})", percent(range.median), ends(range))
}

/// From the least to the most, percent.
fn ends(range: &Range) -> String {
    format!("{:.1}–{:.1}", range.least * 100.0, range.most * 100.0)
}

fn vms<'a>(advice: &'a Advice, shown: &[&'a PolicyAdvice]) -> VmTable<'a> {
    let row = |(at, ranking): (usize, &'a VmRanking)| {
        let of = shown.iter().filter_map(|policy| policy.vms.get(at));
        let vcpus = of.clone().next().map_or(0, |vm| vm.vcpus);
        let cells = of.map(|vm| {
            let said = match vm.verdict {
                Verdict::Own => "",
                Verdict::Better => "; less",
                Verdict::Same => "; as much",
                Verdict::Worse => "; more",
            };
            VmCell {
                ready: percent(vm.ready_share.median),
                range: format!("{}{said}", ends(&vm.ready_share)),
                wait: format!(
                    "{}{}",
                    micros(vm.ready_wait_p99_us.median),
                    if vm.waits_multiply { "; longer" } else { "" }
                ),
                work: format!(
                    "{}{}",
                    amount(vm.work.median),
                    match vm.work_verdict {
                        Verdict::Own => "",
                        Verdict::Better => "; more",
                        Verdict::Same => "; as much",
                        Verdict::Worse => "; less",
                    }
                ),
                work_range: format!("{}–{}", amount(vm.work.least), amount(vm.work.most)),
            }
        });
        let first = |names: &'a [String]| names.first().map_or("–", String::as_str);
        VmRow {
            name: &ranking.name,
            vcpus,
            cells: cells.collect(),
            least: match ranking.gains {
                true => first(&ranking.by_ready),
                false => "–",
            },
            most: first(&ranking.by_work),
        }
    };
    VmTable {
        policies: shown.iter().map(|policy| policy.policy.as_str()).collect(),
        rows: advice
            .vms
            .iter()
            .enumerate()
            .take(VMS_SHOWN)
            .map(row)
            .collect(),
        left_out: advice.vms.len().saturating_sub(VMS_SHOWN),
    }
}

fn growth(all: &[Overcommit]) -> Option<Growth<'_>> {
    let first = all.first()?;
    let longest = all.iter().max_by_key(|one| one.steps.len())?;
    let cell = |one: &'_ Overcommit, at: usize| {
        let step = one.steps.get(at)?;
        let above = step.worst_ready_share.median > one.target;
        let ready = ranged(&step.worst_ready_share);
        Some(format!(
            "{}: {ready}{}",
            step.worst_vm,
            if above { ", above" } else { "" }
        ))
    };
    let rows = longest
        .steps
        .iter()
        .enumerate()
        .map(|(at, step)| GrowthRow {
            more: at,
            added: step.added.as_deref().unwrap_or("–"),
            ratio: amount(step.vcpus_per_pcpu),
            cells: all
                .iter()
                .map(|one| cell(one, at).unwrap_or_else(|| "not tried".to_string()))
                .collect(),
        });
    Some(Growth {
        copied: first
            .chosen()
            .unwrap_or_else(|| "the recorded VMs".to_string()),
        target: percent(first.target),
        policies: all.iter().map(|one| one.policy.as_str()).collect(),
        rows: rows.collect(),
    })
}

fn open(advice: &Advice) -> Vec<OpenTable<'_>> {
    let tables = advice.open.iter().map(|open| {
        let first = open.answers.first();
        let named = first.map_or(&[][..], |answer| &answer.policies[..]);
        let rows = open.answers.iter().map(|answer| {
            let cells = answer.policies.iter().map(|it| ranged(&it.ready_share));
            (answer.assumed.as_str(), cells.collect())
        });
        OpenTable {
            question: &open.question,
            policies: named.iter().map(|it| it.policy.as_str()).collect(),
            rows: rows.collect(),
        }
    });
    tables.collect()
}
