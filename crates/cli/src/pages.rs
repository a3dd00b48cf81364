// SPDX-License-Identifier: GPL-2.0-only
//! `corun pages`: manual pages and completions, from the command line's own description, for packages.

use crate::output;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::PathBuf;

/// Write manual pages and completions for shells into a directory
#[derive(clap::Args)]
pub struct Args {
    /// The directory; made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    clap_mangen::generate_to(crate::Cli::command(), dir)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut crate::Cli::command(), "corun", dir)?;
    }
    output::print("manual pages, and completions for bash, zsh and fish\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pages");
        run(&Args { dir: dir.clone() }).unwrap();
        for command in crate::Cli::command().get_subcommands() {
            if command.is_hide_set() {
                continue;
            }
            let page =
                fs::read_to_string(dir.join(format!("corun-{}.1", command.get_name()))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{}", command.get_name());
        }
        let whole = fs::read_to_string(dir.join("corun.1")).unwrap();
        assert!(
            whole.contains("corun\\-top(1)") || whole.contains("corun\\-top"),
            "{whole}"
        );
        for file in ["corun.bash", "_corun", "corun.fish"] {
            assert!(
                fs::read_to_string(dir.join(file))
                    .unwrap()
                    .contains("preflight"),
                "{file}"
            );
        }
    }
}
