// SPDX-License-Identifier: GPL-2.0-only
//! `corun host`: the dispatcher in charge of this host.

use crate::calibration;
use crate::compare::schedulers::known_host_policy;
use crate::failure::Invalid;
use crate::output;
use crate::policy::assignment;
use corun_linux::host::{self, Cause, HostExit, HostOptions, Recorded};
use corun_linux::socket;
use corun_linux::stock::{self, StockError, StockOptions};
use corun_model::{Nanos, time};
use corun_policies::{PolicyInfo, Settings};
use std::path::PathBuf;

/// Schedule this host's VMs: load the dispatcher as its scheduler
///
/// Takes over all ordinary tasks of the host until it is interrupted or told to end; then, and
/// whenever anything goes wrong, the kernel's own scheduler is back at once. Needs root and a kernel
/// with sched_ext (Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT).
///
/// With `--backend fair` the kernel's own scheduler stays in charge: vCPU threads are given slices
/// (Linux 6.12 and newer) and affinities, which are taken back at the end, and after a crash by the
/// next start. That serves the policies fair, affinity, aql, vslicer, vturbo and microsliced; it can
/// neither place vCPUs when they wake nor schedule siblings together, slices longer than 100 ms do not
/// exist there, and there is no recording and no `corun policy`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The policy; `corun policies` lists them (cfs, eevdf and credit are models, for `compare` only)
    #[arg(long, value_name = "NAME", default_value = "balance")]
    policy: String,

    /// How: as a scheduler of its own, or through the kernel's
    #[arg(long, value_enum, value_name = "NAME", default_value = "sched-ext")]
    backend: Backend,

    /// With --backend fair: where changed threads are written down, to be restored after a crash
    #[arg(long, value_name = "FILE", default_value = stock::STATE)]
    state: PathBuf,

    /// Time between two lines of statistics; 0s: none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Nanos,

    /// Hand the host back after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    run_for: Option<Nanos>,

    /// Set a parameter of the policy, see `corun policies`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,

    /// What `corun calibrate` found on this machine: slices of types and what divides them, for aql and
    /// for the policies that use its recognition (vslicer, vturbo), now or after a change
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,

    /// Slice of tasks for which the policy asks none, 50us to 1s
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = slice)]
    slice: Nanos,

    /// Print statistics as lines of JSON
    #[arg(long)]
    json: bool,

    /// Record every input and decision of the dispatcher, for `corun lockstep`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Where to answer `corun policy`: a unix socket, for its owner and group
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,
}

/// What carries policies out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// corun's dispatcher, loaded as a sched_ext scheduler
    SchedExt,
    /// The kernel's own scheduler, by slices and affinities of threads
    Fair,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun host
      balance scheduling until Ctrl-C
  sudo corun host --policy affinity --interval 5s
      statistics every five seconds
  sudo corun policy affinity
      from another terminal: changes it while it runs
  sudo corun host --backend fair --policy affinity
      without sched_ext
  sudo corun host --policy aql --calibration mine.toml
      with the slices that `corun calibrate --here` found best on this machine
  sudo corun host --for 10s --record decisions.lockstep
      ten seconds, with all decisions on record

Exit codes: 0 handed back as asked; 1 could not take over, or the kernel took the host back;
2 wrong usage.";

fn duration(text: &str) -> Result<Nanos, String> {
    time::parse(text).ok_or_else(|| format!("expected {}", time::ACCEPTED))
}

fn slice(text: &str) -> Result<Nanos, String> {
    let slice = duration(text)?;
    let accepted = 50 * time::US..=time::SEC;
    match accepted.contains(&slice) {
        true => Ok(slice),
        false => Err("expected 50us to 1s".to_string()),
    }
}

/// Runs the command.
///
/// # Errors
/// [`Invalid`] for an unknown policy; else why the host could not be taken over or was lost.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let policy = known_host_policy(&args.policy)
        .map_err(|message| Invalid::error(format!("--policy: {message}")))?;
    let mut settings = Settings::default();
    if let Some(file) = &args.calibration {
        settings.aql = calibration::read(file)?;
    }
    for (key, value) in &args.set {
        let refused = |why| Invalid::error(format!("--set: {why}"));
        settings.set(policy, key, value).map_err(refused)?;
    }
    settings
        .check(policy)
        .map_err(|why| Invalid::error(format!("--set: {why}")))?;
    if args.backend == Backend::Fair {
        return stock(args, policy, settings);
    }
    let mut options = HostOptions::new(policy);
    options.settings = settings;
    options.interval = (args.interval > 0).then_some(args.interval);
    options.run_for = args.run_for;
    options.params.slice = args.slice;
    options.json = args.json;
    options.record.clone_from(&args.record);
    options.socket.clone_from(&args.socket);
    let exit = host::run(options)?;
    output::note(&farewell(&exit));
    Ok(())
}

/// The same through the kernel's own scheduler.
fn stock(args: &Args, policy: &'static PolicyInfo, settings: Settings) -> anyhow::Result<()> {
    if args.record.is_some() {
        let message = "--record: there are no decisions of the dispatcher with --backend fair";
        return Err(Invalid::error(message));
    }
    let options = StockOptions {
        policy,
        settings,
        interval: (args.interval > 0).then_some(args.interval),
        run_for: args.run_for,
        json: args.json,
        state: args.state.clone(),
        out: Box::new(std::io::stdout()),
        notes: |note| output::note(&format!("corun: {note}")),
    };
    let cause = stock::run(options).map_err(|error| match error {
        StockError::NotServed(_) | StockError::NoSlices(_) => Invalid::error(error),
        other => other.into(),
    })?;
    let why = reason(cause);
    output::note(&format!("corun: {why}: all threads are as they were"));
    Ok(())
}

fn reason(cause: Cause) -> &'static str {
    match cause {
        Cause::TimeOver => "the time is over",
        Cause::Asked => "asked to end",
    }
}

fn farewell(exit: &HostExit) -> String {
    let why = reason(exit.cause);
    let recorded = exit
        .recorded
        .as_ref()
        .map_or_else(String::new, |recorded: &Recorded| {
            format!(
                "; {} callbacks recorded, {} lost",
                recorded.records, recorded.lost
            )
        });
    format!("corun: {why}: the host is back on the kernel's own scheduler{recorded}")
}
