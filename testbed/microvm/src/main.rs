// SPDX-License-Identifier: GPL-2.0-only
//! A tiny KVM virtual machine monitor.
//!
//! Problem: scheduling tests need vCPUs that compute, spin on locks, halt, wake each other and
//! leave the guest, at once and dependably; a Linux guest under emulation takes seconds to boot and
//! sometimes does not.
//! How: a guest is a few instructions that count their rounds in memory which the VMM reads. So
//! nothing but the work itself happens on the vCPUs, and the process ends without asking them.

mod guest;
mod image;
mod machine;
mod memory;
mod options;
mod signals;

use anyhow::{Context, Result};
use machine::Machine;
use options::{HELP, Options, Request};
use serde::Serialize;
use signals::EndSignals;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How soon a vCPU that failed is noticed.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A line of output.
#[derive(Serialize)]
struct Report<'a> {
    event: &'static str,
    name: &'a str,
    mode: String,
    vcpus: usize,
    seconds: f64,
    iterations: Vec<u64>,
    steal_ns: Vec<u64>,
}

fn main() -> ExitCode {
    let result = match options::parse(std::env::args().skip(1)) {
        Ok(Request::Help) => {
            print!("{HELP}");
            Ok(())
        }
        Ok(Request::Run(options)) => run(&options),
        Err(error) => {
            eprintln!("corun-microvm: {error}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corun-microvm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let signals = EndSignals::block().context("cannot block signals")?;
    if let Some(priority) = options.fifo {
        // Threads that are started from here on inherit it.
        become_real_time(priority).context("cannot get a real-time priority")?;
    }
    let machine = Machine::start(options.program)?;
    let start = Instant::now();
    let mut next_progress = options.progress;
    loop {
        let now = start.elapsed();
        if options.run_for.is_some_and(|end| now >= end) {
            break;
        }
        if let (Some(due), Some(every)) = (next_progress, options.progress)
            && now >= due
        {
            print_report("progress", options, &machine, now)?;
            // A delayed report is not made up for.
            next_progress = Some((due + every).max(now));
        }
        let wake = [options.run_for, next_progress, Some(now + CHECK_EVERY)];
        let wake = wake.into_iter().flatten().min().unwrap_or(now);
        if signals.wait(wake.saturating_sub(now)) {
            break;
        }
        machine.check()?;
    }
    print_report("end", options, &machine, start.elapsed())
}

fn become_real_time(priority: i32) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` is valid for the call, which concerns the calling thread (0) only.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn print_report(
    event: &'static str,
    options: &Options,
    machine: &Machine,
    elapsed: Duration,
) -> Result<()> {
    let report = Report {
        event,
        name: &options.name,
        mode: options.program.mode.to_string(),
        vcpus: options.program.vcpus,
        seconds: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
        iterations: machine.iterations(),
        steal_ns: machine.steal(),
    };
    let line = serde_json::to_string(&report)?;
    writeln!(std::io::stdout(), "{line}").context("cannot write to standard output")
}
