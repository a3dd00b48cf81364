// SPDX-License-Identifier: GPL-2.0-only
//! `corun-microvm`: one of the testbed's guests as a process of its own, which looks like a VM of QEMU's.

mod options;
mod signals;

use anyhow::{Context, Result};
use corun_microvm::image;
use corun_microvm::machine::Machine;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    steal_ns: Option<Vec<u64>>,
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
        // Threads that are started from here on inherit the priority.
        become_real_time(priority).context("cannot get a real-time priority")?;
    }
    let machine = Machine::start(image::setup(&options.program)?, |_| Ok(()))?;
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
            // Reports that were missed are not made up for.
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
    let number = |at: usize| machine.memory().read_u64(at);
    let of_each = |of: fn(usize) -> usize| {
        (0..options.program.vcpus)
            .map(|vcpu| number(of(vcpu)))
            .collect()
    };
    let report = Report {
        event,
        name: &options.name,
        mode: options.program.mode.to_string(),
        vcpus: options.program.vcpus,
        seconds: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
        iterations: of_each(image::block),
        steal_ns: options.program.steal.then(|| of_each(image::steal)),
    };
    let line = serde_json::to_string(&report)?;
    writeln!(std::io::stdout(), "{line}").context("cannot write to standard output")
}
