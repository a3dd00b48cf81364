// SPDX-License-Identifier: GPL-2.0-only
//! Calibration of the machine that this runs on: the same programs, in KVM guests or as threads, which ask the kernel
//! for slices (`corun_linux::trial`).
//!
//! For guests, the kernel counts what recognition looks at: requests to devices and pause-loop exits, as far as this
//! user may see KVM's tracepoints, and caches where the machine counts them. Threads make no exits, so those two limits
//! stay as shipped.

use super::meter::{self, Level, Levels};
use super::programs::{CONSOLIDATION, DEFAULT, SLICES};
use super::verdict::{Curve, Point};
use crate::output;
use anyhow::Context;
use corun_linux::machine::Layout;
use corun_linux::trial::guests::Guests;
use corun_linux::trial::{self, Outcome, Program, Trial, TrialError};
use corun_model::time::{MS, SEC};
use corun_model::{LlcSeen, Nanos, PcpuId, Signals};
use corun_policies::aql::{Kind, Machine};

/// More pCPUs would only make calibration longer (assumed): its subject is what happens within one cache, and the
/// paper's machine has four.
const MOST_PCPUS: usize = 4;

/// What programs run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum With {
    /// Guests if there can be any, threads otherwise
    Auto,
    /// Guests of KVM, a process each
    Guests,
    /// Threads of this command: no exits, so fewer limits are found
    Threads,
}

/// The same, once that is known.
enum Runner {
    Guests(Guests),
    Threads,
}

impl Runner {
    /// The one that was asked for, or that is available.
    fn of(with: With) -> anyhow::Result<Self> {
        if with == With::Threads {
            return Ok(Self::Threads);
        }
        let me = std::env::current_exe().context("the path of this command is not known")?;
        match Guests::find(me, &[super::guest::COMMAND]) {
            Ok(guests) => Ok(Self::Guests(guests)),
            Err(why) if with == With::Auto => {
                output::note(&format!("corun: no guests, threads instead: {why}"));
                Ok(Self::Threads)
            }
            Err(why) => Err(anyhow::Error::from(why).context("no guests (--with guests)")),
        }
    }

    fn run(&self, trial: &Trial) -> Result<Outcome, TrialError> {
        match self {
            Self::Guests(guests) => guests.run(trial),
            Self::Threads => trial::run(trial),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Guests(_) => "guests",
            Self::Threads => "threads",
        }
    }
}

/// What was found.
pub struct Found {
    /// What programs ran in: `guests` or `threads`.
    pub with: &'static str,
    /// The machine.
    pub machine: Machine,
    /// A curve for each type that could be tried.
    pub curves: Vec<Curve>,
    /// What counters showed for each.
    pub levels: Vec<Levels>,
    /// Lengths of turns by slice, ns.
    pub turns: Vec<Vec<Nanos>>,
    counted: Counted,
}

/// What this host counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    io: bool,
    pauses: bool,
    caches: bool,
}

impl Counted {
    fn add(&mut self, outcome: &Outcome) {
        let seen = |of: fn(&Signals) -> bool| outcome.periods.iter().flatten().any(of);
        self.io |= seen(|it| it.io_events.is_some());
        self.pauses |= seen(|it| it.pause_exits.is_some());
        self.caches |= outcome.llc.is_some() || seen(|it| it.llc.is_some());
    }

    /// Which limits stay as they are, and why; nothing if all were found.
    fn shipped(self) -> Option<String> {
        let parts = [
            (self.io, "requests to devices (io_events)"),
            (self.pauses, "pause-loop exits (pause_exits)"),
            (self.caches, "what caches do (llc_references, llc_misses)"),
        ];
        let missing: Vec<&str> = parts
            .iter()
            .filter(|(counted, _)| !counted)
            .map(|(_, what)| *what)
            .collect();
        (!missing.is_empty()).then(|| {
            let missing = missing.join(", ");
            format!("corun: not counted here, so these limits stay as shipped: {missing}")
        })
    }
}

/// Tries all types here; with `quick` a quarter of the time; `quiet` without progress.
///
/// # Errors
/// If this host's caches are unknown, or its kernel takes no slices.
pub fn run(quick: bool, with: With, quiet: bool) -> anyhow::Result<Found> {
    trial::possible()?;
    let runner = Runner::of(with)?;
    let layout = Layout::of_this_host()?;
    let machine = layout.machine()?;
    let pcpus: Vec<PcpuId> = layout
        .llcs
        .first()
        .into_iter()
        .flat_map(|llc| llc.iter())
        .take(MOST_PCPUS)
        .collect();
    let progress = |text: String| {
        if !quiet {
            output::note(&format!("corun: {text}"));
        }
    };
    progress(format!(
        "programs run in {} on pCPUs {:?}",
        runner.name(),
        numbers(&pcpus)
    ));
    let mut found = Found {
        with: runner.name(),
        counted: Counted::default(),
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
        progress(kind.to_string());
        found.curve(&runner, kind, &pcpus, quick)?;
    }
    if let Some(shipped) = found.counted.shipped() {
        output::note(&shipped);
    }
    if let Runner::Guests(guests) = &runner
        && !guests.spin_in_ring_0()
    {
        output::note(
            "corun: ring 0 is emulated here, so guests spin in ring 3, where Intel's processors do not look \
             for pause loops",
        );
    }
    Ok(found)
}

fn numbers(pcpus: &[PcpuId]) -> Vec<u32> {
    pcpus.iter().map(|cpu| cpu.0).collect()
}

impl Found {
    /// A type at all slices and consolidations.
    fn curve(
        &mut self,
        runner: &Runner,
        kind: Kind,
        pcpus: &[PcpuId],
        quick: bool,
    ) -> anyhow::Result<()> {
        let mut curve = Curve::new(kind);
        let mut levels = Levels::default();
        for (slice, ms) in SLICES.into_iter().enumerate() {
            for consolidation in CONSOLIDATION {
                let outcome =
                    runner.run(&self.trial(kind, pcpus, consolidation, ms * MS, quick))?;
                self.counted.add(&outcome);
                if slice == DEFAULT {
                    levels.extend(level(&outcome).into_iter().collect());
                    outcome
                        .periods
                        .iter()
                        .for_each(|periods| levels.extend(meter::levels(periods)));
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

    /// The case as in `programs::scenario`: the subject, and others of all types in turn.
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
        // 16 rounds of four vCPUs with the longest slice; four are a quick look.
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

/// What counters showed for threads, all the time; exits are not known.
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

/// The length that this many per cent of turns do not exceed.
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

/// How many turns have which length, [`BIN`] ms each.
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
    fn what_is_not_counted_is_named() {
        let mut counted = Counted::default();
        let all = counted.shipped().unwrap();
        assert!(
            all.contains("io_events") && all.contains("llc_misses"),
            "{all}"
        );
        counted.add(&Outcome {
            periods: vec![vec![Signals {
                io_events: Some(0),
                llc: Some(LlcSeen::default()),
                ..Signals::default()
            }]],
            ..Outcome::default()
        });
        let rest = counted.shipped().unwrap();
        assert!(
            rest.ends_with("as shipped: pause-loop exits (pause_exits)"),
            "{rest}"
        );
        counted.pauses = true;
        assert_eq!(counted.shipped(), None);
    }

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
