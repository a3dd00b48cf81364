// SPDX-License-Identifier: GPL-2.0-only
//! `corun bench`: how fast the simulator is on this machine.

mod control;
mod decisions;

use crate::compare::jobs;
use crate::output;
use anyhow::anyhow;
use control::Loop;
use corun_sim::bench::{self, BareQueue, Case, Measured, PENDING};
use decisions::Decisions;
use serde_json::{Value, json};
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Instant;

/// Measure how fast the simulator is on this machine
///
/// A benchmark of the simulator itself, not of a host or a policy: fixed hosts, fixed seeds, tracing
/// off, one thread except for the sweep. An event is anything that happens in virtual time; a switch
/// is a pCPU starting another task, also after idling. Each case is the fastest of several rounds.
/// The last column is the cost of an event in units of one turn of the bare event queue, timed in the
/// same rounds; it can be compared between machines.
///
/// The second table says how much of a pCPU each policy's control loop takes, on a host of 512 vCPUs and at its
/// own period. The third counts what the dispatcher looks at for a decision, and is the same on every machine: by
/// policy and number of pCPUs, with four ready vCPUs per pCPU, in VMs of four.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// Short runs, one round each: for a quick look, not precise enough for comparisons
    #[arg(long)]
    quick: bool,
}

const EXAMPLES: &str = "\
Examples:
  corun bench
      all cases, about a minute on an idle machine
  corun bench --quick --json
      a quick look, for other programs";

const ABOUT: &str = "a benchmark of corun's simulator, not of a host or a policy";

/// How much is measured.
struct Effort {
    rounds: u32,
    /// Runs are shorter by this factor.
    shorter: u64,
    /// How long the sweep takes at least on each number of threads, s: starting threads, and the last run, for which
    /// the others wait, should be a small part.
    sweep: f64,
}

/// A measured case.
struct Row {
    group: &'static str,
    case: Case,
    measured: Measured,
}

/// The sweep on this many threads.
struct Sweep {
    threads: usize,
    runs: usize,
    seconds: f64,
    speedup: f64,
}

/// All that was measured.
struct Findings {
    quick: bool,
    decisions: Vec<Decisions>,
    loops: Vec<Loop>,
    /// Turns of the bare event queue per second.
    bare: f64,
    rows: Vec<Row>,
    sweeps: Vec<Sweep>,
    /// The most memory this process has had resident, bytes; `None` where it is not known.
    peak: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// If nothing can be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let effort = match args.quick {
        true => Effort {
            rounds: 1,
            shorter: 20,
            sweep: 0.0,
        },
        false => Effort {
            rounds: 7,
            shorter: 1,
            sweep: 4.0,
        },
    };
    let findings = Findings {
        quick: args.quick,
        decisions: decisions::count(if args.quick {
            &[8, 32]
        } else {
            &[8, 32, 128, 512]
        })?,
        loops: control::measure(effort.rounds, if args.quick { 5 } else { 100 })?,
        bare: effort.bare_queue(),
        rows: effort.rows()?,
        sweeps: effort.sweeps()?,
        peak: peak_memory(),
    };
    output::print(&match args.json {
        true => serde_json::to_string_pretty(&findings.json())? + "\n",
        false => findings.text()?,
    })
}

impl Effort {
    fn on(&self, cases: &[Case]) -> Vec<Case> {
        let shorter = |case: &Case| case.lasting(case.length / self.shorter);
        cases.iter().map(shorter).collect()
    }

    fn bare_queue(&self) -> f64 {
        let turns = 1_000_000 / self.shorter;
        let mut queue = BareQueue::new(PENDING);
        let rates = (0..self.rounds).map(|_| {
            let start = Instant::now();
            std::hint::black_box(queue.turn(turns));
            turns as f64 / start.elapsed().as_secs_f64().max(1e-9)
        });
        rates.fold(0.0, f64::max)
    }

    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let groups = [
            ("run/sleep mix", bench::mixes()),
            ("scaling", bench::scaling()),
            ("two-level host", bench::two_level()),
        ];
        let mut rows = Vec::new();
        for (group, cases) in groups {
            for case in self.on(&cases) {
                let measured = bench::measure(&case, self.rounds)
                    .map_err(|fault| anyhow!("{}: {fault}", case.name))?;
                rows.push(Row {
                    group,
                    case,
                    measured,
                });
            }
        }
        Ok(rows)
    }

    /// The sweep on one thread and on all CPUs, with the threads of `corun compare`, as often as it
    /// takes to last long enough.
    fn sweeps(&self) -> anyhow::Result<Vec<Sweep>> {
        let cases = self.on(&bench::sweep());
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let once = seconds(&cases, 1)?;
        let mut sweeps: Vec<Sweep> = Vec::new();
        for threads in [1, cpus.max(2)] {
            let times = (self.sweep * threads.min(cpus) as f64 / once)
                .ceil()
                .max(1.0);
            let all = vec![cases.as_slice(); times as usize].concat();
            let mut fastest = f64::INFINITY;
            for _ in 0..self.rounds.min(2) {
                fastest = fastest.min(seconds(&all, threads)?);
            }
            let per_run = fastest / all.len() as f64;
            let alone = sweeps.first().map_or(per_run, Sweep::per_run);
            sweeps.push(Sweep {
                threads,
                runs: all.len(),
                seconds: fastest,
                speedup: alone / per_run,
            });
        }
        Ok(sweeps)
    }
}

impl Sweep {
    /// Wall-clock time by number of runs, s.
    fn per_run(&self) -> f64 {
        self.seconds / self.runs as f64
    }
}

/// How long these runs take on this many threads, never 0. Outcomes are dropped where they were made: a thousand of
/// them are nearly a gigabyte.
fn seconds(cases: &[Case], threads: usize) -> anyhow::Result<f64> {
    let start = Instant::now();
    jobs::run(cases, threads, |case| case.run().map(drop))
        .map_err(|fault| anyhow!("the sweep: {fault}"))?;
    Ok(start.elapsed().as_secs_f64().max(1e-9))
}

/// `VmHWM` of this process.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kilobytes * 1024)
}

impl Row {
    /// Virtual seconds per second.
    fn pace(&self) -> f64 {
        self.case.length as f64 / 1e9 / self.measured.seconds()
    }

    fn cells(&self) -> Vec<String> {
        let measured = &self.measured;
        vec![
            self.case.name.clone(),
            format!("{:.3}", measured.events_per_s() / 1e6),
            format!("{:.3}", measured.switches_per_s() / 1e6),
            format!("{:.3}", self.pace()),
            format!("{:.2}", measured.ratio_to_bare()),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "group": self.group,
            "name": self.case.name,
            "virtual_s": self.case.length as f64 / 1e9,
            "wall_s": self.measured.seconds(),
            "events": self.measured.events,
            "switches": self.measured.switches,
            "events_per_s": self.measured.events_per_s(),
            "switches_per_s": self.measured.switches_per_s(),
            "virtual_s_per_wall_s": self.pace(),
            "event_to_bare_queue_turn": self.measured.ratio_to_bare(),
        })
    }
}

impl Findings {
    fn json(&self) -> Value {
        let sweep = |sweep: &Sweep| {
            json!({
                "threads": sweep.threads,
                "runs": sweep.runs,
                "wall_s": sweep.seconds,
                "speedup": sweep.speedup,
            })
        };
        json!({
            "about": ABOUT,
            "version": env!("CARGO_PKG_VERSION"),
            "quick": self.quick,
            "bare_queue_turns_per_s": self.bare,
            "cases": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "decisions": self.decisions.iter().map(Decisions::json).collect::<Vec<_>>(),
            "control_loops": self.loops.iter().map(Loop::json).collect::<Vec<_>>(),
            "sweep": self.sweeps.iter().map(sweep).collect::<Vec<_>>(),
            "peak_memory_bytes": self.peak,
        })
    }

    fn text(&self) -> anyhow::Result<String> {
        let mut text = format!("This is {ABOUT}.\n");
        if self.quick {
            text += "Short runs, one round each: a look, not a measurement.\n";
        }
        let width = output::width();
        for of_group in self.rows.chunk_by(|a, b| a.group == b.group) {
            let group = of_group.first().map_or("", |row| row.group);
            let heads = [
                group,
                "M events/s",
                "M switches/s",
                "sim s/s",
                "÷ bare queue",
            ];
            let rows: Vec<Vec<String>> = of_group.iter().map(Row::cells).collect();
            text += &format!("\n{}", corun_report::grid(&heads, &rows, &[0], width));
        }
        let bare = self.bare / 1e6;
        writeln!(
            text,
            "\nbare event queue, {PENDING} pending: {bare:.2} M turns/s"
        )?;
        for sweep in &self.sweeps {
            let plural = if sweep.threads == 1 { "" } else { "s" };
            writeln!(
                text,
                "sweep of {} runs on {} thread{plural}: {:.2} s, {:.2}×",
                sweep.runs, sweep.threads, sweep.seconds, sweep.speedup
            )?;
        }
        text += &control::text(&self.loops, width);
        text += &decisions::text(&self.decisions, width);
        if let Some(peak) = self.peak {
            writeln!(
                text,
                "peak memory of all cases: {:.1} MB",
                peak as f64 / 1e6
            )?;
        }
        Ok(text)
    }
}
