// SPDX-License-Identifier: GPL-2.0-only
//! The `corun` command. One file per subcommand; this one only finds the right one and turns its outcome into an exit
//! code.

mod advise;
mod bench;
mod calibrate;
mod calibration;
mod compare;
mod failure;
mod guest;
mod host;
mod interrupt;
mod lockstep;
mod metrics;
mod numbers;
mod output;
mod outputs;
mod pages;
mod parameters;
mod policies;
mod policy;
mod preflight;
mod record;
mod reproduce;
mod sensitivity;
mod status;
mod top;
mod workloads;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Schedules the virtual CPUs of overcommitted Linux/KVM hosts, and predicts what a policy would do to a
/// host.
#[derive(Parser)]
#[command(name = "corun", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  a run failed, or a file could not be written
  2  wrong usage, or an input that is not valid (stderr says where and why)
  3  corun host handed the host back because a promise was broken
  4  corun host refused to take the host over, for a reason that does not pass by itself
  130  interrupted: results are shown once all runs are done, so none are";

#[derive(Subcommand)]
enum Command {
    #[command(visible_alias = "replay")]
    Compare(Box<compare::Args>),
    Advise(advise::Args),
    Record(record::Args),
    Sensitivity(Box<sensitivity::Args>),
    Reproduce(Box<reproduce::Args>),
    Host(Box<host::Args>),
    Guest(guest::Args),
    Preflight(preflight::Args),
    Status(status::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Policy(policy::Args),
    Policies(policies::Args),
    Parameters(parameters::Args),
    Workloads(workloads::Args),
    Lockstep(lockstep::Args),
    Calibrate(calibrate::Args),
    Bench(bench::Args),
    #[command(hide = true, name = calibrate::guest::COMMAND)]
    CalibrationGuest(calibrate::guest::Args),
    #[command(hide = true)]
    Pages(pages::Args),
}

fn main() -> ExitCode {
    let said = match Cli::command().try_get_matches() {
        Ok(said) => said,
        Err(told) => return output::usage(&told),
    };
    let cli = match Cli::from_arg_matches(&said) {
        Ok(cli) => cli,
        Err(told) => return output::usage(&told),
    };
    let result = match cli.command {
        Command::Compare(mut args) => compare::run(&mut args),
        Command::Advise(args) => advise::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Sensitivity(args) => sensitivity::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Host(args) => host::run(&args, said.subcommand_matches("host").unwrap_or(&said)),
        Command::Guest(args) => guest::run(&args),
        Command::Preflight(args) => preflight::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Parameters(args) => parameters::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::Lockstep(args) => lockstep::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::CalibrationGuest(args) => calibrate::guest::run(&args),
        Command::Pages(args) => pages::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(failure::exit_code(&error))
        }
    }
}
