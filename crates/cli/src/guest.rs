// SPDX-License-Identifier: GPL-2.0-only
//! `corun guest`: inside a VM, keeps I/O-bound threads on vCPUs that run.

use crate::failure::Invalid;
use crate::numbers::{self, duration};
use crate::output;
use crate::outputs::{self, Outputs};
use corun_guest::{Cause, GuestError, GuestOptions, Selection, Source, Status};
use corun_model::{Nanos, counted, time};
use std::path::PathBuf;

/// Inside a VM: keep I/O-bound threads on vCPUs that run (vMigrater)
///
/// On an overcommitted host each vCPU of a VM is descheduled every few milliseconds. A thread on it that does
/// I/O cannot issue requests during that time. This daemon moves such threads to vCPUs that are running, by
/// setting their affinities. It needs no help from the host, and changes nothing else. At the end all
/// affinities are set back; after a crash, `corun guest restore` or the next start does that.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(RunArgs),
    Status(StatusArgs),
    Restore(RestoreArgs),
}

/// Move I/O-bound threads until interrupted
///
/// Threads of the kernel, and those that somebody has bound to vCPUs, are never moved. All others may be moved,
/// unless --cgroup, --name or --user restrict them: a thread must match each of these options that is given;
/// an option that is given several times matches if one of its values does. Nothing is moved on a VM with one
/// vCPU, while no vCPU is descheduled, or while the kernel itself keeps work off vCPUs (steal_monitor).
#[derive(clap::Args)]
struct RunArgs {
    /// Only threads of this cgroup and those below, such as /system.slice/mysql.service
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<String>,

    /// Only threads of this name; * stands for any characters
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,

    /// Only threads of this user, by name or number
    #[arg(long, value_name = "USER", value_parser = corun_guest::user_number)]
    user: Vec<u32>,

    /// How it finds threads that do I/O
    #[arg(long, value_enum, value_name = "NAME", default_value = "auto")]
    detector: Detector,

    /// Period of the heartbeats while there is something to move, 50us to 10ms
    #[arg(long, value_name = "TIME", default_value = "300us", value_parser = heartbeat)]
    heartbeat: Nanos,

    /// The most of each vCPU that the daemon itself may use, in thousandths; its heartbeats slow down to keep to it
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true, value_parser = numbers::within::<u32>(1..=1000))]
    own_permille: u32,

    /// Write metrics for Prometheus to this file, every second. A file that holds anything other than metrics of
    /// corun guest is not overwritten
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,

    /// End after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    run_for: Option<Nanos>,

    #[command(flatten)]
    files: Files,
}

/// Show what the daemon does: how it finds I/O, what it has moved, what it leaves alone
#[derive(clap::Args)]
struct StatusArgs {
    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    files: Files,
}

/// Set back the affinities of threads that a killed daemon has moved, and remove its status and metrics files
#[derive(clap::Args)]
struct RestoreArgs {
    /// The file of metrics that it wrote, which is removed; one that holds anything else is not
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,

    #[command(flatten)]
    files: Files,
}

#[derive(clap::Args)]
struct Files {
    /// The file that lists changed threads, to set them back after a crash
    #[arg(long, value_name = "FILE", default_value = corun_guest::STATE)]
    state: PathBuf,

    /// The file in which the daemon keeps its status
    #[arg(long, value_name = "FILE", default_value = corun_guest::STATUS)]
    status: PathBuf,
}

/// Where I/O is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Detector {
    /// BPF if the kernel has it, else /proc
    Auto,
    /// The block layer's tracepoints, by BPF (Linux 5.11 and newer with type information)
    Bpf,
    /// /proc: finds candidates within a second, not within milliseconds
    Proc,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun guest run
      all threads that nobody has tied to vCPUs, until Ctrl-C
  sudo corun guest run --cgroup /system.slice/postgresql.service
      only those of one service
  corun guest status
      what it is doing, from another terminal
  sudo corun guest restore
      after it was killed

Exit codes: 0 ended as asked, everything given back; 1 could not begin or go on (status: none runs);
2 wrong usage, or a file is not one of its own.";

fn heartbeat(text: &str) -> Result<Nanos, String> {
    let period = duration(text)?;
    let accepted = 50 * time::US..=10 * time::MS;
    match accepted.contains(&period) {
        true => Ok(period),
        false => Err("expected 50us to 10ms".to_string()),
    }
}

/// Runs the command.
///
/// # Errors
/// Why it could not begin, or go on.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Run(args) => work(args),
        Command::Status(args) => status(args),
        Command::Restore(args) => restore(args),
    }
}

/// Makes sure that each file has a name of its own, and that those that are replaced, and removed at the end, are the
/// daemon's. (The daemon itself checks the content of the state file before it does anything.)
fn spare_foreign(files: &Files, metrics: Option<&PathBuf>) -> anyhow::Result<()> {
    Outputs::of([
        ("--state", Some(&files.state)),
        ("--status", Some(&files.status)),
        ("--metrics", metrics),
    ])?;
    let writer = "corun guest";
    outputs::spare_foreign(
        "--status",
        &files.status,
        writer,
        corun_guest::STATUS_BEGINS,
    )?;
    match metrics {
        Some(file) => outputs::spare_foreign("--metrics", file, writer, corun_guest::METRICS_BEGIN),
        None => Ok(()),
    }
}

fn work(args: &RunArgs) -> anyhow::Result<()> {
    spare_foreign(&args.files, args.metrics.as_ref())?;
    let options = GuestOptions {
        selection: Selection {
            cgroups: args.cgroup.clone(),
            names: args.name.clone(),
            users: args.user.clone(),
        },
        source: match args.detector {
            Detector::Auto => Source::Auto,
            Detector::Bpf => Source::Bpf,
            Detector::Proc => Source::Proc,
        },
        heartbeat: args.heartbeat,
        own_permille: args.own_permille,
        state: args.files.state.clone(),
        status: args.files.status.clone(),
        metrics: args.metrics.clone(),
        run_for: args.run_for,
        notes: |note| output::note(&format!("corun: {note}")),
    };
    let (cause, count) = corun_guest::run(options).map_err(|error| match error {
        GuestError::NoBpf(_) | GuestError::Heartbeat(_) => Invalid::error(error),
        other => other.into(),
    })?;
    let why = match cause {
        Cause::TimeOver => "the time is over",
        Cause::Asked => "asked to end",
    };
    output::note(&format!(
        "corun: {why}: all masks are as they were, {count} were given back"
    ));
    Ok(())
}

fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let files = &args.files;
    if !corun_guest::is_running(&files.state)? {
        let left = match files.state.exists() {
            true => {
                "; one that was killed has left threads pinned: set them back with `corun guest restore`"
            }
            false => "",
        };
        anyhow::bail!("no corun guest runs with {}{left}", files.state.display());
    }
    let status = Status::read(&files.status)
        .map_err(|error| anyhow::anyhow!("{}: {error}", files.status.display()))?;
    match args.json {
        true => output::print(&format!("{}\n", serde_json::to_string(&status)?)),
        false => output::print(&status.text()),
    }
}

fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let files = &args.files;
    // Masks are given back even if something is wrong with the names of other files.
    let spared = spare_foreign(files, args.metrics.as_ref());
    let mut told = Vec::new();
    if spared.is_ok() {
        told.push(files.status.as_path());
        told.extend(args.metrics.as_deref());
    }
    let count = corun_guest::restore(&files.state, &told)?;
    output::note(&format!(
        "corun: gave back the masks of {}",
        counted(count, "thread")
    ));
    spared
}
