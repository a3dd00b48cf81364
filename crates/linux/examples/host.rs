// SPDX-License-Identifier: GPL-2.0-only
//! The host daemon from the command line, for the testbed.
//!
//! Usage: host POLICY [--interval S] [--for S] [--slice MS] [--json] [--record FILE]

use corun_linux::host::{self, HostOptions};
use corun_model::time;
use std::process::ExitCode;

fn options() -> Result<HostOptions, String> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("which policy?")?;
    let policy = corun_policies::find(&name)
        .ok_or_else(|| format!("no policy {name}, there are: {}", corun_policies::names()))?;
    let mut options = HostOptions::new(policy);
    while let Some(word) = words.next() {
        if word == "--json" {
            options.json = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{word} needs a value"))?;
        let duration = || time::parse(&value).ok_or_else(|| format!("{word}: {}", time::ACCEPTED));
        match word.as_str() {
            "--interval" => options.interval = Some(duration()?),
            "--for" => options.run_for = Some(duration()?),
            "--slice" => options.knobs.slice = duration()?,
            "--record" => options.record = Some(value.into()),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let ended = options().and_then(|options| host::run(options).map_err(|e| e.to_string()));
    match ended {
        Ok(exit) => {
            println!("{exit:?}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
