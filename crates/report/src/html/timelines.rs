// SPDX-License-Identifier: GPL-2.0-only
//! Timelines for the script, in compact form; and their content in words, for those who do not see them.

use crate::detail::{Lane, Span, Timeline};
use crate::format::{count, micros, percent};
use crate::kinds;
use crate::results::Run;
use serde::Serialize;

/// vCPUs in the table; the picture has all.
const VCPUS_SHOWN: usize = 32;

/// VMs with a colour and an entry in the legend each; if there are more, VMs of a kind share them.
const COLOURED: usize = 16;

/// A run's timeline as the script reads it.
#[derive(Serialize)]
pub(super) struct Drawn {
    policy: String,
    /// ns since the run began.
    from: u64,
    until: u64,
    pcpus: u32,
    /// VMs, or kinds of them.
    vms: Vec<String>,
    lanes: Vec<DrawnLane>,
}

#[derive(Serialize)]
struct DrawnLane {
    name: String,
    vm: Option<usize>,
    /// Three numbers per span: 0 if it wanted a pCPU, else the pCPU's number plus 1; ns since the last one's end; its
    /// length, ns. Differences are short, which keeps files small.
    spans: Vec<u64>,
}

/// The timelines of a case.
pub(super) struct Timelines {
    /// Its place in the list of all cases' timelines.
    pub(super) place: usize,
    pub(super) policies: Vec<String>,
    /// `run with seed 1`; a replay has no seed.
    pub(super) run: String,
    /// Per policy: what is on it, vCPU by vCPU.
    pub(super) tables: Vec<TimelineTable>,
    pub(super) drawn: Vec<Drawn>,
    /// Do VMs of a kind have one colour?
    pub(super) together: bool,
}

/// What is on a timeline.
pub(super) struct TimelineTable {
    pub(super) policy: String,
    pub(super) part: String,
    /// Name, running, ready, turns, longest wait.
    pub(super) rows: Vec<(String, [String; 4])>,
    pub(super) left_out: usize,
}

/// Those of a case, if any of its runs was watched; all cut to the length of the shortest.
pub(super) fn timelines(runs: &[Vec<&Run>], replay: bool, next: &mut usize) -> Option<Timelines> {
    let watched: Vec<(&Run, &Timeline)> = runs
        .iter()
        .flatten()
        .filter_map(|run| Some((*run, run.detail.timeline.as_ref()?)))
        .filter(|(_, timeline)| timeline.spans() > 0)
        .collect();
    let (first, _) = watched.first()?;
    // A busy policy is watched for less time: of each policy a number of spans is kept.
    let shortest = watched.iter().map(|(_, it)| it.length()).min()?;
    let watched: Vec<(&Run, Timeline)> = watched
        .iter()
        .map(|(run, it)| (*run, it.first(shortest)))
        .collect();
    *next += 1;
    Some(Timelines {
        place: *next - 1,
        policies: watched.iter().map(|(run, _)| run.policy.clone()).collect(),
        run: match replay {
            true => "replay".to_string(),
            false => format!("run with seed {}", first.seed),
        },
        tables: watched.iter().map(|(run, it)| table(run, it)).collect(),
        drawn: watched.iter().map(|(run, it)| drawn(run, it)).collect(),
        together: kinds::any(runs, [COLOURED, usize::MAX]),
    })
}

fn drawn(run: &Run, timeline: &Timeline) -> Drawn {
    let kinds = kinds::vms(run, COLOURED);
    let mut kind_of = vec![0; run.vms.len()];
    for (at, kind) in kinds.iter().enumerate() {
        kind.members.iter().for_each(|&vm| kind_of[vm] = at);
    }
    Drawn {
        policy: run.policy.clone(),
        from: timeline.from,
        until: timeline.until,
        pcpus: timeline.pcpus,
        vms: kinds.into_iter().map(|kind| kind.name).collect(),
        lanes: timeline
            .lanes
            .iter()
            .map(|lane| DrawnLane {
                name: lane.name.clone(),
                vm: lane.vm.and_then(|vm| kind_of.get(vm).copied()),
                spans: differences(timeline.from, &lane.spans),
            })
            .collect(),
    }
}

fn differences(from: u64, spans: &[Span]) -> Vec<u64> {
    let mut last = from;
    let three = |span: &Span| {
        let gap = span.from.saturating_sub(last);
        last = span.from + span.length;
        let state = span.pcpu.map_or(0, |pcpu| u64::from(pcpu) + 1);
        [state, gap, span.length]
    };
    spans.iter().flat_map(three).collect()
}

fn table(run: &Run, timeline: &Timeline) -> TimelineTable {
    let whole = timeline.until.saturating_sub(timeline.from).max(1) as f64;
    let sum = |spans: &[Span], runs: bool| {
        let some = spans.iter().filter(|span| span.pcpu.is_some() == runs);
        some.map(|span| span.length).sum::<u64>() as f64 / whole
    };
    let row = |lane: &&Lane| {
        let spans = &lane.spans;
        let turns = spans.iter().filter(|span| span.pcpu.is_some()).count();
        let waits = spans.iter().filter(|span| span.pcpu.is_none());
        let longest = waits.map(|span| span.length).max();
        let cells = [
            percent(sum(spans, true)),
            percent(sum(spans, false)),
            count(turns as u64),
            longest.map_or_else(|| "–".to_string(), |ns| micros(ns as f64 / 1e3)),
        ];
        (lane.name.clone(), cells)
    };
    let vcpus: Vec<&Lane> = timeline
        .lanes
        .iter()
        .filter(|lane| lane.vm.is_some())
        .collect();
    TimelineTable {
        policy: run.policy.clone(),
        part: format!(
            "{} from {} on, {} spans",
            micros(whole / 1e3),
            micros(timeline.from as f64 / 1e3),
            count(timeline.spans() as u64)
        ),
        rows: vcpus.iter().take(VCPUS_SHOWN).map(row).collect(),
        left_out: vcpus.len().saturating_sub(VCPUS_SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What the script adds up is where the spans were.
        #[test]
        fn differences_lead_back(from in 0u64..1 << 40, steps in prop::collection::vec(
            (0u64..1000, 1u64..1 << 30, prop::option::of(0u32..512)), 0..50)) {
            let mut at = from;
            let spans: Vec<Span> = steps.iter().map(|&(gap, length, pcpu)| {
                let from = at + gap;
                at = from + length;
                Span { pcpu, from, length }
            }).collect();
            let mut at = from;
            let back: Vec<Span> = differences(from, &spans).chunks(3).map(|three| {
                let from = at + three[1];
                at = from + three[2];
                let pcpu = three[0].checked_sub(1).map(|pcpu| pcpu as u32);
                Span { pcpu, from, length: three[2] }
            }).collect();
            prop_assert_eq!(back, spans);
        }
    }
}
