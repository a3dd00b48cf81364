// SPDX-License-Identifier: GPL-2.0-only
//! `corun host`: the dispatcher in charge of this host.

use crate::compare::schedulers::known_host_policy;
use crate::failure::Invalid;
use crate::output;
use corun_linux::host::{self, Cause, HostExit, HostOptions, Recorded};
use corun_linux::socket;
use corun_model::{Nanos, time};
use std::path::PathBuf;

/// Schedule this host's VMs: load the dispatcher as its scheduler
///
/// Takes over all ordinary tasks of the host until it is interrupted or told to end; then, and
/// whenever anything goes wrong, the kernel's own scheduler is back at once. Needs root and a kernel
/// with sched_ext (Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT).
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The policy; `corun policies` lists them (cfs, eevdf and credit are models, for `compare` only)
    #[arg(long, value_name = "NAME", default_value = "balance")]
    policy: String,

    /// Time between two lines of statistics; 0s: none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Nanos,

    /// Hand the host back after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    run_for: Option<Nanos>,

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

const EXAMPLES: &str = "\
Examples:
  sudo corun host
      balance scheduling until Ctrl-C
  sudo corun host --policy affinity --interval 5s
      statistics every five seconds
  sudo corun policy affinity
      from another terminal: changes it while it runs
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
    let mut options = HostOptions::new(policy);
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

fn farewell(exit: &HostExit) -> String {
    let why = match exit.cause {
        Cause::TimeOver => "the time is over",
        Cause::Asked => "asked to end",
    };
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
