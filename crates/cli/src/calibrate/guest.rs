// SPDX-License-Identifier: GPL-2.0-only
//! The process of one of calibration's guests (`corun_linux::trial::guests`): `corun calibrate --here` starts it, and
//! nobody else has a use for it.

use anyhow::Context;
use corun_linux::trial::guests::{end_with_parent, serve};

/// The command's name.
pub const COMMAND: &str = "calibration-guest";

/// Be a guest of `corun calibrate --here`, which says on stdin what to do
#[derive(clap::Args)]
pub struct Args {
    /// The VM's name, for those who look for VMs
    #[arg(long, value_name = "NAME")]
    name: String,
}

/// Runs the command.
///
/// # Errors
/// If whoever started it has gone.
pub fn run(args: &Args) -> anyhow::Result<()> {
    end_with_parent().context("the kernel does not end it with its parent")?;
    serve(std::io::stdin().lock(), std::io::stdout()).context(args.name.clone())
}
