// SPDX-License-Identifier: GPL-2.0-only
//! `corun calibrate --symbiosis`: how much the hardware threads of a core slow each other down, depending on how the
//! cycles of each divide (vSMT-IO, dissertation §3.4.3).
//!
//! As in cycle accounting, each program is measured alone (how its cycles divide, how fast it is) and beside each other
//! one, on the two hardware threads of a core; the coefficients of symbiosis are those that describe best how much
//! slower they are together. The model is no law: its error is reported, and a model that describes nothing is not
//! written.

mod fit;
mod here;
mod simulated;

use super::{Args, machine_case};
use crate::compare::calibration::machine;
use crate::{output, outputs};
use anyhow::Context;
use corun_policies::aql::Machine;
use corun_policies::pmu::Events;
use corun_policies::vsmtio::calibration::{self, Calibration};
use fit::{Fit, Pair, Shares};
use serde_json::{Value, json};
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::thread;

/// The machine unless another is said: the paper's (dissertation, §3.6: two sockets of 12 cores with two hardware
/// threads each). How large its caches are changes nothing here but the machine that the file is for.
const PAPER: &str = "[host]\ntopology = \"2n1l12c2t\"\n\
    [vm.none]\nvcpus = 1\n[[vm.none.thread]]\nprogram = \"sleep 60min\"\n";

/// From this error on people are warned, relative to the time alone. Assumed: candidates differ by more.
const WARNED: f64 = 0.05;
/// … and nothing is written. Assumed: as much as a hardware thread gains by sharing a core.
const REFUSED: f64 = 0.25;

/// What was measured for programs, whatever they ran in.
#[derive(Debug, Default)]
pub struct Measured {
    /// The programs.
    names: Vec<String>,
    /// How their cycles divide alone.
    alone: Vec<Shares>,
    /// What each does to each other one.
    pairs: Vec<Pair>,
    /// The events by which cycles were divided; `None`: a model did that.
    events: Option<Events>,
}

impl Measured {
    /// Notes by how much longer a program took beside another one than alone.
    fn beside(&mut self, own: usize, other: usize, slowdown: f64) {
        self.pairs.push(Pair {
            programs: [own, other],
            own: self.alone[own],
            other: self.alone[other],
            slowdown,
        });
    }
}

/// Runs the command.
///
/// # Errors
/// [`crate::failure::Invalid`] for a machine that is not valid, or on which this cannot be measured; else why a run
/// failed, the programs show nothing, or the file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (measured, machine) = match args.here {
        true => here::measure(args.quiet)?,
        false => {
            let case = machine_case(args, PAPER)?;
            let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let threads = args.jobs.map_or_else(cpus, NonZeroUsize::get);
            (simulated::measure(&case, threads)?, machine(&case))
        }
    };
    let fit = fit::fit(&measured.pairs).map_err(anyhow::Error::msg)?;
    match args.json {
        true => output::json(&in_json(&measured, &fit, &machine))?,
        false => output::print(&in_words(&measured, &fit, &machine, output::width()))?,
    }
    if let Some(warning) = judged(fit.residual).map_err(anyhow::Error::msg)? {
        output::note(&warning);
    }
    save(args, &measured, &fit, &machine)
}

/// What to say about a model with this error.
///
/// # Errors
/// If it is of no use.
fn judged(residual: f64) -> Result<Option<String>, String> {
    let percent = 100.0 * residual;
    if residual > REFUSED {
        return Err(format!(
            "the model does not describe this machine: it is off by {percent:.0} % of the time alone, {:.0} % are \
             accepted; nothing is written",
            100.0 * REFUSED
        ));
    }
    let warning = "symbiosis will often be mistaken here";
    Ok((residual > WARNED)
        .then(|| format!("corun: the model is off by {percent:.0} % of the time alone: {warning}")))
}

fn save(args: &Args, measured: &Measured, fit: &Fit, machine: &Machine) -> anyhow::Result<()> {
    let Some(path) = &args.output else {
        return Ok(());
    };
    let found = Calibration {
        coefficients: fit.coefficients,
        events: measured.events,
    };
    let by = match measured.events {
        Some(_) => "measured on the machine",
        None => "a simulated core of the machine",
    };
    let (count, residual, worst) = (
        measured.names.len(),
        100.0 * fit.residual,
        100.0 * fit.worst,
    );
    let source = format!(
        "{by}: {count} programs, alone and two by two; off by {residual:.1} % of the time alone, {worst:.1} % at most"
    );
    let text = calibration::write(&found, machine, &source);
    outputs::write(path, &text).context("--output")?;
    if !args.quiet {
        output::note(&format!("calibration: {}", path.display()));
    }
    Ok(())
}

/// Columns of a program's name …
const NAME: usize = 16;
/// … and of what it does to another one, in [`in_words`].
const CELL: usize = 15;

/// The result for a terminal of `width` columns: who is beside whom, in as many tables as that takes.
fn in_words(measured: &Measured, fit: &Fit, machine: &Machine, width: u16) -> String {
    let mut text = format!("{machine}\nCycles of the programs alone, per cent\n\n");
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:NAME$}{:>8}{:>8}{:>8}",
        "", "base", "misses", "waiting"
    );
    for (name, of) in measured.names.iter().zip(&measured.alone) {
        let [base, miss, wait] = [of.base, of.miss, of.wait].map(|share| 100.0 * share);
        let _ = writeln!(text, "{name:NAME$}{base:8.1}{miss:8.1}{wait:8.1}");
    }
    text += "\nTime per work beside another one, relative to alone; in brackets the model's\n";
    let across = usize::from(width).saturating_sub(NAME) / CELL;
    let others: Vec<usize> = (0..measured.names.len()).collect();
    for others in others.chunks(across.max(1)) {
        text += "\n";
        text += &beside(measured, fit, others);
    }
    let of = &fit.coefficients;
    let _ = write!(
        text,
        "\nCoefficients, thousandths: base {}, wait {}, wait_wait {}, miss {}, miss_miss {}\n\
         The model is off by {:.1} % of the time alone (root mean square), {:.1} % at most\n",
        of.base,
        of.wait,
        of.wait_wait,
        of.miss,
        of.miss_miss,
        100.0 * fit.residual,
        100.0 * fit.worst
    );
    text
}

/// What some of the programs do to every one, a row for each.
fn beside(measured: &Measured, fit: &Fit, others: &[usize]) -> String {
    let line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>CELL$}")).collect();
        format!("{name:NAME$}{cells}\n")
    };
    let heads = others.iter().map(|&other| measured.names[other].clone());
    let mut text = line("", heads.collect());
    for (own, name) in measured.names.iter().enumerate() {
        let cell = |&other: &usize| {
            let mut pairs = measured.pairs.iter();
            let found = pairs.find(|pair| pair.programs == [own, other]);
            found.map_or_else(String::new, |pair| {
                let modelled = pair.modelled(&fit.coefficients);
                format!("{:.2} ({modelled:.2})", pair.slowdown)
            })
        };
        text += &line(name, others.iter().map(cell).collect());
    }
    text
}

fn in_json(measured: &Measured, fit: &Fit, machine: &Machine) -> Value {
    let of = &fit.coefficients;
    let programs = measured.names.iter().zip(&measured.alone).map(
        |(name, of)| json!({ "name": name, "base": of.base, "miss": of.miss, "wait": of.wait }),
    );
    let pairs = measured.pairs.iter().map(|pair| {
        let [program, beside] = pair.programs.map(|at| &measured.names[at]);
        json!({
            "program": program,
            "beside": beside,
            "slowdown": pair.slowdown,
            "modelled": pair.modelled(&fit.coefficients),
        })
    });
    json!({
        "machine": machine.to_string(),
        "events": measured.events.map(|events| {
            events.named().map(|(name, event)| format!("{name}: {event}")).collect::<Vec<_>>()
        }),
        "programs": programs.collect::<Vec<_>>(),
        "pairs": pairs.collect::<Vec<_>>(),
        "coefficients": {
            "base": of.base,
            "wait": of.wait,
            "wait_wait": of.wait_wait,
            "miss": of.miss,
            "miss_miss": of.miss_miss,
        },
        "residual": fit.residual,
        "worst": fit.worst,
    })
}

#[cfg(test)]
mod tests {
    use super::judged;

    #[test]
    fn a_model_that_is_off_is_told_or_refused() {
        assert_eq!(judged(0.02), Ok(None));
        let warned = judged(0.11).unwrap().unwrap();
        assert!(warned.contains("off by 11 %"), "{warned}");
        assert!(judged(0.3).unwrap_err().contains("25 % are accepted"));
    }
}
