// SPDX-License-Identifier: GPL-2.0-only
//! `corun sensitivity`: one scenario with several values of one key.

mod key;
mod values;

use crate::compare::input::{self, Input};
use crate::compare::network;
use crate::compare::provenance;
use crate::compare::rtapp;
use crate::compare::runs::{self, Job, RunArgs};
use crate::compare::schedulers;
use crate::failure::Invalid;
use crate::output;
use crate::outputs::{self, Outputs};
use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use corun_report::csv;
use corun_report::html;
use corun_report::sensitivity::{self, Measure, Point, Sensitivity};
use corun_scenario::{Override, Scenario, or_nearest};
use std::path::PathBuf;
use values::{Value, Values};

/// Show how results move with one parameter
///
/// Runs the scenario with several values of one of its keys, under each policy and seed. Prints one
/// table per VM, with a row per value and a column per policy, the trend and the elasticity. Trust a
/// result less if it changes much with a number that nobody knows exactly.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES,
          group = clap::ArgGroup::new("tried").args(["range", "values"]).required(true))]
pub struct Args {
    /// A scenario (TOML, see docs/scenario.md); - reads the standard input
    #[arg(value_name = "SCENARIO")]
    input: PathBuf,

    /// The key to vary: any key of the scenario, such as host.costs.switch or vm.web.count;
    /// `corun parameters` lists those of the models
    #[arg(long, value_name = "KEY")]
    param: String,

    /// Values from A to B, both durations or both numbers. Without STEPS: all whole numbers from A to B if
    /// there are at most 20, else 5 values
    #[arg(long, value_name = "A..B[:STEPS]")]
    range: Option<String>,

    /// These values: numbers, durations, or choices such as ticket,unfair,paravirtual
    #[arg(long, value_name = "V,V,…", value_delimiter = ',')]
    values: Vec<String>,

    /// Values of the range grow by equal factors instead of equal steps
    #[arg(long, requires = "range", conflicts_with = "values")]
    log: bool,

    /// The measure to show
    #[arg(long, value_name = "MEASURE", default_value = "relative-throughput",
          value_parser = measures())]
    measure: Measure,

    /// Show only this VM, or its clients
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,

    #[command(flatten)]
    runs: RunArgs,

    /// Do not refuse, however many runs it takes
    #[arg(long)]
    yes: bool,

    /// Print one JSON object instead of tables (docs/schema/sensitivity.schema.json)
    #[arg(long)]
    json: bool,

    /// Write a report: one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write every number of every run as comma-separated values, a line for each; - prints them
    /// instead of the table
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  corun sensitivity experiments/example.toml --param host.costs.switch --range 1us..20us --log
      does it matter how much a switch costs?
  corun sensitivity host.toml --param vm.web.count --range 1..8 --measure ready-wait-p99 --vm db
      how long does db wait for a pCPU as web VMs are added?
  corun sensitivity host.toml --param vm.web.count --range 1..8 --measure response-p99 --csv web.csv
      how long do clients wait, and everything else of these runs for a spreadsheet
  corun sensitivity host.toml --param vm.db.guest.lock --values ticket,unfair,paravirtual
      which kind of guest lock suffers?
  corun sensitivity host.toml --param scheduler.cfs.latency --range 6ms..48ms --seeds 1,2,3 \\
      --report latency.html
      medians over three seeds, as a page with charts

Exit codes: 0 done; 1 a run failed or a file could not be written; 2 wrong usage or invalid input;
130 interrupted: results are shown once all runs are done, so none are.";

/// More runs than this need --yes.
const MOST_RUNS: usize = 500;

/// Parses the name of a measure.
fn measures() -> impl TypedValueParser<Value = Measure> {
    let possible = Measure::ALL.map(|(measure, name, says)| {
        let value = PossibleValue::new(name).help(says);
        match measure {
            // The wait after a wake-up is the most usual of these.
            Measure::ReadyWaitP50 => value.alias("wakeup-p50"),
            Measure::ReadyWaitP99 => value.alias("wakeup-p99"),
            _ => value,
        }
    });
    PossibleValuesParser::new(possible).try_map(|name| {
        let name = name.replace("wakeup-", "ready-wait-");
        Measure::named(&name).ok_or("no such measure")
    })
}

/// Runs the command.
///
/// # Errors
/// [`Invalid`] if the scenario, the key or a value is not valid; anything else if a run or writing
/// fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let outputs = Outputs::of([
        ("--report", args.report.as_ref()),
        ("--csv", args.csv.as_ref()),
    ])?;
    outputs::csv_is_printed(args.csv.as_ref(), args.json)?;
    let (name, text) = read(args, &outputs)?;
    let values = chosen_values(args)?;
    key::check(&args.param, &name, &text)?;
    key::alone(&args.param, &args.runs)?;
    let scenarios = scenarios(args, &name, &text, &values, &outputs)?;
    check_vm(args, &scenarios)?;
    check_clients(args, &scenarios)?;
    check_policies(args, &scenarios)?;
    outputs.try_out()?;
    let mut notes = notes(&scenarios);
    notes.extend(values.fewer());
    notes.iter().for_each(|note| output::note(note));
    let points = points(args, &scenarios, &values)?;
    for note in overloaded(&args.param, &points) {
        output::note(&note);
        notes.push(note);
    }
    let first = scenarios.first().context("there is no value")?;
    let result = measured(
        args,
        Sensitivity {
            version: env!("CARGO_PKG_VERSION").to_string(),
            scenario: runs::stem(&name),
            title: first.title.clone(),
            source: first.source.clone(),
            parameter: args.param.clone(),
            unit: values.unit.to_string(),
            logarithmic: args.log,
            measure: args.measure,
            notes,
            lines: Vec::new(),
            points,
        },
    );
    let about = html::About {
        command: provenance::this(),
        next: Vec::new(),
        facts: provenance::facts(&first.cases),
        notes: result.notes.clone(),
        input: Some(text),
    };
    show(args, &result, &about)
}

/// The scenario's name and text, which no output is to overwrite.
fn read(args: &Args, outputs: &Outputs) -> anyhow::Result<(String, String)> {
    let input = input::open(&args.input)?;
    outputs.spare(input::place(&args.input))?;
    match input {
        Input::Scenario { name, text } => Ok((name, text)),
        Input::Recording(unread) => Err(Invalid::error(format!(
            "{}: this is no scenario: expected TOML (docs/scenario.md); recordings have no \
             parameters to vary but those of `corun compare --set`",
            unread.name
        ))),
    }
}

/// The same with the measure that is asked for, and a note if that shows nothing.
fn measured(args: &Args, mut result: Sensitivity) -> Sensitivity {
    result.measure(args.measure, args.vm.as_deref());
    if let Some(note) = result.unseen() {
        output::note(&note);
        result.notes.push(note);
    }
    result
}

/// What is not done as rt-app files say, and which clients never come, whatever the value; each reported once.
fn notes(scenarios: &[Scenario]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let cases = scenarios.iter().flat_map(|scenario| &scenario.cases);
    let of_case = |case| {
        let late = network::never_there(case);
        rtapp::unheeded(case).into_iter().chain(late)
    };
    for note in cases.flat_map(of_case) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Whose response times say nothing, value by value.
fn overloaded(param: &str, points: &[Point]) -> Vec<String> {
    let of = |point: &Point| {
        let notes = network::overloaded(&point.runs);
        let at = format!("{param} = {}: ", point.shown);
        notes.into_iter().map(move |note| at.clone() + &note)
    };
    points.iter().flat_map(of).collect()
}

fn chosen_values(args: &Args) -> anyhow::Result<Values> {
    match &args.range {
        Some(range) => values::range(range, args.log)
            .map_err(|message| Invalid::error(format!("--range {range}: {message}"))),
        None => values::listed(&args.values).map_err(|message| {
            Invalid::error(format!("--values {}: {message}", args.values.join(",")))
        }),
    }
}

/// The scenario, once for each value.
fn scenarios(
    args: &Args,
    name: &str,
    text: &str,
    values: &Values,
    outputs: &Outputs,
) -> anyhow::Result<Vec<Scenario>> {
    let with = |value: &Value| {
        let mut overrides = runs::overrides(&args.runs).map_err(Invalid::error)?;
        let set = format!("{}={}", args.param, value.text);
        overrides.push(Override::parse("--param", &set).map_err(Invalid::error)?);
        runs::read(&args.runs, name, text, &overrides, outputs)
    };
    values.all.iter().map(with).collect()
}

/// Is the key one that any of the policies heeds?
fn check_policies(args: &Args, scenarios: &[Scenario]) -> anyhow::Result<()> {
    let mut policies = Vec::new();
    for job in scenarios
        .iter()
        .map(|scenario| runs::plan(&args.runs, scenario))
    {
        for job in job? {
            if !policies.contains(&job.policy) {
                policies.push(job.policy);
            }
        }
    }
    match policies
        .iter()
        .any(|policy| schedulers::heeds(policy, &args.param))
    {
        true => Ok(()),
        false => Err(Invalid::error(format!(
            "--param {}: none of the policies heeds it: {}; choose with --policies",
            args.param,
            policies.join(", ")
        ))),
    }
}

/// Is there such a VM, with any of the values?
fn check_vm(args: &Args, scenarios: &[Scenario]) -> anyhow::Result<()> {
    let Some(wanted) = &args.vm else {
        return Ok(());
    };
    if args.measure.is_of_the_host() {
        return Err(Invalid::error(format!(
            "--vm {wanted:?}: this measure is of the whole host: {}",
            args.measure.says()
        )));
    }
    let cases = scenarios.iter().flat_map(|scenario| &scenario.cases);
    let mut names: Vec<&str> = cases
        .flat_map(|case| case.vms.iter().map(|vm| vm.name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.contains(&wanted.as_str()) {
        true => Ok(()),
        false => {
            let known: Vec<&str> = names.into_iter().take(20).collect();
            let hint = or_nearest(wanted, &known);
            Err(Invalid::error(format!(
                "--vm {wanted:?}: there is no such VM, {hint}"
            )))
        }
    }
}

/// Has anybody response times, if they are to be shown?
fn check_clients(args: &Args, scenarios: &[Scenario]) -> anyhow::Result<()> {
    if !args.measure.is_of_clients() {
        return Ok(());
    }
    let wanted = |name: &str| args.vm.as_ref().is_none_or(|only| only == name);
    for case in scenarios.iter().flat_map(|scenario| &scenario.cases) {
        let answering = network::who_answers(case).map_err(Invalid::error)?;
        let mut vms = answering.into_iter().filter_map(|at| case.vms.get(at));
        if vms.any(|vm| wanted(&vm.name)) {
            return Ok(());
        }
    }
    let of = match &args.vm {
        Some(vm) => format!("replies of {vm}"),
        None => "replies".to_string(),
    };
    Err(Invalid::error(format!(
        "--measure: nobody waits for {of}, so there are no response times; expected a [client.NAME] of \
         kind closed, open or ping, a [channel.NAME], or a workload with clients"
    )))
}

/// All runs, by value.
fn points(args: &Args, scenarios: &[Scenario], values: &Values) -> anyhow::Result<Vec<Point>> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut ends = Vec::new();
    for scenario in scenarios {
        jobs.extend(runs::plan(&args.runs, scenario)?);
        ends.push(jobs.len());
    }
    if jobs.len() > MOST_RUNS && !args.yes {
        return Err(Invalid::error(format!(
            "{} values make {} runs, more than {MOST_RUNS}: take fewer values, policies, seeds or \
             cases, or say --yes",
            values.all.len(),
            jobs.len()
        )));
    }
    let mut done = runs::carry_out(&args.runs, &jobs, &Default::default())?.into_iter();
    let mut begun = 0;
    let point = |(value, end): (&Value, usize)| {
        let count = end - std::mem::replace(&mut begun, end);
        Point {
            value: value.text.clone(),
            shown: value.shown.clone(),
            number: value.number,
            runs: done.by_ref().take(count).collect(),
        }
    };
    Ok(values.all.iter().zip(ends).map(point).collect())
}

fn show(args: &Args, result: &Sensitivity, about: &html::About) -> anyhow::Result<()> {
    let page = || Ok(sensitivity::page(result, about)?);
    let written = outputs::report(args.report.as_ref(), args.runs.quiet, page);
    let text = match args.json {
        true => sensitivity::json(result)?,
        false => sensitivity::text(result, output::width()),
    };
    let table = || Ok(csv::points(&result.points)?);
    let written = written.and(outputs::csv(args.csv.as_ref(), args.runs.quiet, table));
    // Results are shown whether or not the files could be written.
    match outputs::csv_is_printed(args.csv.as_ref(), args.json)? {
        true => written,
        false => written.and(output::print(&text)),
    }
}
