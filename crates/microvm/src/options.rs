// SPDX-License-Identifier: GPL-2.0-only
//! The command line.

use corun_microvm::guest::Mode;
use corun_microvm::image::{MOST_VCPUS, Program};
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// What `--help` prints.
pub const HELP: &str = "\
corun-microvm: a virtual machine whose guest is a few instructions, as load for scheduling tests

Usage: corun-microvm --name vm1 --mode lock [--vcpus 2] [--seconds 5]

  --name NAME      the VM's name; QEMU's `-name guest=NAME,…` is understood, too
  --mode MODE      spin   each vCPU counts
                   lock   the vCPUs share a spin lock
                   yield  the same; a vCPU that spins for long lets the next one go first
                   timer  each vCPU computes, then halts until a timer wakes it
                   ping   the vCPUs wake each other by IPI, one runs at a time
                   barrier  each vCPU computes and halts until all have; the last
                          one wakes the others by IPI
                   call   each vCPU computes, then calls all others by IPI and
                          spins until they have answered
                   pio    each vCPU leaves the guest by port writes
  --vcpus N        number of vCPUs, 1 to 32                               [2]
  --seconds S      how long to run; 0: until SIGTERM or SIGINT            [5]
  --work N         rounds of an empty loop per computation; in lock and yield
                   mode inside and outside the lock                            [1000]
  --sleep-us N     length of a sleep in timer mode, in microseconds       [1000]
  --fifo N         real-time priority (SCHED_FIFO) of all threads, 1 to 99;
                   0: none                                                [0]
  --progress MS    print the counts every MS milliseconds; 0: never       [0]
  --steal N        1: have KVM tell the guest its steal time              [0]

At the end, and with --progress before, one line of JSON: what each vCPU has counted,
and with --steal 1 what KVM has told it as steal, in ns.
";

/// What to run, under which name, for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The VM's name.
    pub name: String,
    /// What the guest does.
    pub program: Program,
    /// How long to run; `None`: until a signal.
    pub run_for: Option<Duration>,
    /// Real-time priority of all threads (`SCHED_FIFO`); `None`: the ordinary policy.
    pub fifo: Option<i32>,
    /// How often to print the counts.
    pub progress: Option<Duration>,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Print [`HELP`].
    Help,
    /// Run a VM.
    Run(Options),
}

/// Reads the arguments after the program's name.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Request, String> {
    let (mut name, mut mode) = (None, None);
    let (mut vcpus, mut seconds, mut work, mut sleep_us, mut progress_ms) = (2, 5, 1000, 1000, 0);
    let (mut fifo, mut steal) = (0, 0);
    let mut arguments = arguments.into_iter();
    while let Some(option) = arguments.next() {
        if option == "--help" || option == "-h" {
            return Ok(Request::Help);
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--name" | "-name" => name = Some(vm_name(&value)?),
            "--mode" => mode = Some(value.parse::<Mode>()?),
            "--vcpus" => vcpus = number(&option, &value, 1, MOST_VCPUS)?,
            "--seconds" => seconds = number(&option, &value, 0, 1_000_000)?,
            "--work" => work = number(&option, &value, 1, 1_000_000_000)?,
            "--sleep-us" => sleep_us = number(&option, &value, 1, 4_000_000)?,
            "--fifo" => fifo = number(&option, &value, 0, 99)?,
            "--progress" => progress_ms = number(&option, &value, 0, 1_000_000)?,
            "--steal" => steal = number(&option, &value, 0, 1)?,
            _ => return Err(format!("unknown option `{option}`, see --help")),
        }
    }
    let mode = mode.ok_or("--mode is missing, see --help")?;
    if matches!(mode, Mode::Ping | Mode::Barrier | Mode::Yield) && vcpus < 2 {
        return Err(format!(
            "mode {mode} needs at least 2 vCPUs, of which one wakes another or yields to it"
        ));
    }
    Ok(Request::Run(Options {
        name: name.ok_or("--name is missing, see --help")?,
        program: Program {
            mode,
            vcpus,
            work,
            sleep_ns: sleep_us * 1000,
            steal: steal == 1,
        },
        run_for: (seconds > 0).then(|| Duration::from_secs(seconds)),
        fifo: (fifo > 0).then_some(fifo),
        progress: (progress_ms > 0).then(|| Duration::from_millis(progress_ms)),
    }))
}

/// `vm1`, or, as QEMU writes it, `guest=vm1,debug-threads=on`.
fn vm_name(text: &str) -> Result<String, String> {
    let name = text.split(',').next().unwrap_or_default();
    let name = name.strip_prefix("guest=").unwrap_or(name);
    if name.is_empty() {
        return Err(format!("`{text}` names no VM"));
    }
    Ok(name.to_owned())
}

fn number<T>(option: &str, text: &str, least: T, most: T) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let value = text
        .parse()
        .ok()
        .filter(|value| (&least..=&most).contains(&value));
    value.ok_or_else(|| format!("{option} is `{text}`, expected a number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    fn options(line: &str) -> Options {
        match parse_words(line) {
            Ok(Request::Run(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_help() {
        let options = options("--name vm1 --mode lock");
        let program = Program {
            mode: Mode::Lock,
            vcpus: 2,
            work: 1000,
            sleep_ns: 1_000_000,
            steal: false,
        };
        assert_eq!(options.program, program);
        assert_eq!(
            (options.run_for, options.progress),
            (Some(Duration::from_secs(5)), None)
        );
    }

    #[test]
    fn the_name_may_be_written_as_for_qemu() {
        assert_eq!(
            options("-name guest=vm1,debug-threads=on --mode spin").name,
            "vm1"
        );
        assert_eq!(options("--name vm1 --mode spin").name, "vm1");
        assert!(parse_words("--name guest= --mode spin").is_err());
    }

    #[test]
    fn zero_seconds_means_until_a_signal() {
        assert_eq!(options("--name a --mode spin --seconds 0").run_for, None);
    }

    #[test]
    fn errors_name_the_option_the_value_and_what_is_accepted() {
        for (line, expected) in [
            (
                "--name a --mode spin --vcpus 99",
                "--vcpus is `99`, expected a number from 1 to 32",
            ),
            ("--name a --mode spin --work x", "--work is `x`"),
            ("--name a --mode spin --seconds", "--seconds needs a value"),
            (
                "--name a --mode spin --fifo 100",
                "--fifo is `100`, expected a number from 0 to 99",
            ),
            ("--name a --mode spin --speed 1", "unknown option `--speed`"),
            ("--name a --mode ping --vcpus 1", "at least 2 vCPUs"),
            ("--name a --mode barrier --vcpus 1", "at least 2 vCPUs"),
            ("--name a", "--mode is missing"),
            ("--mode spin", "--name is missing"),
        ] {
            let error = parse_words(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
