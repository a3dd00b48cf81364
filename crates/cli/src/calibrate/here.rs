// SPDX-License-Identifier: GPL-2.0-only
//! Calibration of the machine that this runs on: the same programs, as threads that ask the kernel for
//! slices (`corun_linux::trial`).
//!
//! Threads are no guests: they do no I/O through a hypervisor and make no pause-loop exits, so those two
//! limits stay as shipped. The other two are found where the machine counts what its caches do.

use super::meter::{Level, Levels};
use super::programs::{CONSOLIDATION, DEFAULT, SLICES};
use super::verdict::{Curve, Point};
use crate::output;
use corun_linux::machine::Layout;
use corun_linux::trial::{self, Outcome, Program, Trial};
use corun_model::time::{MS, SEC};
use corun_model::{LlcSeen, Nanos, PcpuId};
use corun_policies::aql::{Kind, Machine};

/// More pCPUs would only make calibration longer (assumed): what it is about is within one cache, and the
/// paper's machine has four.
const MOST_PCPUS: usize = 4;

/// What was found.
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// A curve for each type that could be tried.
    pub curves: Vec<Curve>,
    /// What counters showed of it.
    pub levels: Vec<Levels>,
    /// Lengths of turns by slice, ns.
    pub turns: Vec<Vec<Nanos>>,
}

/// Tries all types here; with `quick` a quarter of the time.
///
/// # Errors
/// If this host's caches are unknown, or its kernel takes no slices.
pub fn run(quick: bool) -> anyhow::Result<Found> {
    trial::possible()?;
    let layout = Layout::of_this_host()?;
    let machine = layout.machine()?;
    let pcpus: Vec<PcpuId> = layout
        .llcs
        .first()
        .into_iter()
        .flat_map(|llc| llc.iter())
        .take(MOST_PCPUS)
        .collect();
    let mut found = Found {
        machine,
        curves: Vec::new(),
        levels: Vec::new(),
        turns: vec![Vec::new(); SLICES.len()],
    };
    for kind in Kind::KNOWN {
        if kind == Kind::ConSpin && pcpus.len() < 2 {
            output::note("corun: ConSpin needs two pCPUs: its slice stays as shipped");
            continue;
        }
        output::note(&format!(
            "corun: {kind} on pCPUs {pcpus:?}",
            pcpus = numbers(&pcpus)
        ));
        found.curve(kind, &pcpus, quick)?;
    }
    if found.levels.iter().all(Levels::is_empty) {
        output::note(
            "corun: this machine does not count what its caches do: all limits stay as shipped",
        );
    } else {
        output::note(
            "corun: threads make no exits: the limits io_events and pause_exits stay as shipped",
        );
    }
    Ok(found)
}

fn numbers(pcpus: &[PcpuId]) -> Vec<u32> {
    pcpus.iter().map(|cpu| cpu.0).collect()
}

impl Found {
    /// A type at all slices and consolidations.
    fn curve(&mut self, kind: Kind, pcpus: &[PcpuId], quick: bool) -> anyhow::Result<()> {
        let mut curve = Curve::new(kind);
        let mut levels = Levels::default();
        for (slice, ms) in SLICES.into_iter().enumerate() {
            for consolidation in CONSOLIDATION {
                let outcome = trial::run(&self.trial(kind, pcpus, consolidation, ms * MS, quick))?;
                if slice == DEFAULT {
                    levels.extend(level(&outcome).into_iter().collect());
                }
                curve.points.push(Point {
                    slice,
                    case: format!("{consolidation} per pCPU"),
                    time: outcome.time_per_work,
                });
                self.turns[slice].extend(outcome.turns);
            }
        }
        self.curves.push(curve);
        self.levels.push(levels);
        Ok(())
    }

    /// As `programs::scenario` has it: the subject, and others of all types by turns.
    fn trial(
        &self,
        kind: Kind,
        pcpus: &[PcpuId],
        consolidation: u32,
        slice: Nanos,
        quick: bool,
    ) -> Trial {
        let count = if kind == Kind::ConSpin {
            pcpus.len()
        } else {
            1
        };
        let others = (consolidation as usize * pcpus.len()).saturating_sub(count);
        let kinds = [Kind::Llcf, Kind::LoLcf, Kind::Llco, Kind::IoInt];
        let others = kinds.into_iter().cycle().take(others);
        // 16 rounds of four vCPUs with the longest slice; four are a look.
        let time = if quick { 3 * SEC / 2 } else { 6 * SEC };
        Trial {
            subject: (self.program(kind), count),
            others: others.map(|kind| self.program(kind)).collect(),
            pcpus: pcpus.to_vec(),
            slice,
            warm_up: time / 10,
            time,
        }
    }

    fn program(&self, kind: Kind) -> Program {
        match kind {
            Kind::IoInt => Program::Pages,
            Kind::ConSpin => Program::Spin,
            Kind::Llcf => Program::List(self.machine.llc / 2),
            Kind::Llco => Program::List(self.machine.llc * 2),
            Kind::LoLcf | Kind::Unknown => Program::List(self.machine.l2 / 10 * 9),
        }
    }
}

/// What counters showed; exits are not known.
fn level(outcome: &Outcome) -> Option<Level> {
    let LlcSeen {
        instructions,
        references,
        misses,
    } = outcome.llc?;
    let rate = |part: u64, whole: u64| part.saturating_mul(1_000_000) / whole.max(1);
    Some([
        0,
        0,
        rate(references, instructions),
        rate(misses, references),
    ])
}

/// Turns by slice, as a table.
pub fn turns_table(turns: &[Vec<Nanos>]) -> String {
    let mut text = "\nTurns that the kernel delivered, ms\n\n".to_string();
    text += &format!(
        "{:10}{:>9}{:>9}{:>9}{:>9}\n",
        "slice", "turns", "p10", "median", "p90"
    );
    for (ms, turns) in SLICES.iter().zip(turns) {
        let cells: String = [10, 50, 90]
            .into_iter()
            .map(|percent| match percentile(turns, percent) {
                Some(length) => format!("{:9.2}", length as f64 / MS as f64),
                None => format!("{:>9}", "–"),
            })
            .collect();
        text += &format!("{:10}{:>9}{cells}\n", format!("{ms} ms"), turns.len());
    }
    text
}

/// The length that so many per cent of turns do not exceed.
pub fn percentile(turns: &[Nanos], percent: usize) -> Option<Nanos> {
    let mut sorted = turns.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied()
}

/// A width of histograms, ms.
const BIN: u64 = 2;
/// Longer turns are all in the last bin.
const BINS: usize = 60;

/// How many turns of which length, [`BIN`] ms each.
pub fn histogram(turns: &[Nanos]) -> Vec<usize> {
    let mut counts = vec![0; BINS];
    for length in turns {
        let bin = (length / (BIN * MS)) as usize;
        counts[bin.min(BINS - 1)] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_in_bins_and_percentiles() {
        let turns: Vec<Nanos> = (1..=100).map(|ms| ms * MS).collect();
        assert_eq!(percentile(&turns, 50), Some(51 * MS));
        assert_eq!(percentile(&turns, 90), Some(91 * MS));
        assert_eq!(percentile(&[], 50), None);
        let counts = histogram(&[MS, 3 * MS, 3 * MS, 900 * MS]);
        assert_eq!((counts[0], counts[1], counts[BINS - 1]), (1, 2, 1));
        let table = turns_table(&[turns, Vec::new()]);
        assert!(table.contains("51.00") && table.contains('–'), "{table}");
    }
}
