// SPDX-License-Identifier: GPL-2.0-only
//! `corun top`: what each VM and vCPU gets, as it happens, in the words of esxtop and with the options of virt-top. It
//! only looks: it works on any kernel, under any scheduler; if `corun host` runs and may be asked, what only it knows
//! is shown, too.

mod csv;
mod screen;
mod table;

use crate::failure::Invalid;
use crate::numbers;
use crate::output;
use anyhow::Context;
use corun_linux::socket;
use corun_linux::watch::{Order, Row, Sample, Sampler, rows};
use corun_model::{Nanos, time};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Watch VMs and vCPUs: %RUN, %RDY, %CSTP, %MLMTD and more
///
/// Reads what the kernel counts for each VM's threads and changes nothing. It works on any kernel, with
/// or without `corun host`. %RDY is what a guest sees as steal and VMware calls CPU Ready. Shares are of
/// the time of a VM's vCPUs; with --sum or the key n they are sums over the vCPUs, as in esxtop.
/// docs/metrics.md defines all columns.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Seconds between two refreshes, 0.1 to 3600
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "2", allow_negative_numbers = true, value_parser = delay)]
    delay: Nanos,

    /// End after this many refreshes [default: never; in batch mode 1]
    #[arg(short = 'n', long, value_name = "COUNT", allow_negative_numbers = true, value_parser = numbers::within::<u64>(1..=u64::MAX))]
    count: Option<u64>,

    /// Batch mode: print tables instead of taking over the terminal
    #[arg(short = 'b', long)]
    batch: bool,

    /// Batch mode: append comma-separated values to this file, with a header if it is new; - is the
    /// standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    csv: Option<PathBuf>,

    /// Batch mode: print one JSON array per refresh, on a line of its own
    #[arg(long)]
    json: bool,

    /// A line per vCPU instead of per VM
    #[arg(long)]
    vcpus: bool,

    /// Shares of VMs as sums over their vCPUs, as in esxtop; not in CSV, which has the sums of %RUN and %RDY in
    /// columns of their own
    #[arg(long)]
    sum: bool,

    /// Order of the lines
    #[arg(short = 'o', long, value_name = "COLUMN", default_value = "ready", value_parser = order())]
    sort: String,

    /// The daemon's socket
    #[arg(short = 'c', long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  corun top
      until q; h shows the keys
  corun top -b -d 5 -n 12 --vcpus
      a minute of tables, a line per vCPU
  corun top --csv ready.csv -d 10 -n 360
      an hour for a spreadsheet

Exit codes: 0 done; 1 could not write; 2 wrong usage.";

fn delay(text: &str) -> Result<Nanos, String> {
    let seconds = text.trim_end_matches('s').parse::<f64>().ok();
    let accepted = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    let nanos = accepted.map(|seconds| (seconds * time::SEC as f64) as Nanos);
    nanos.ok_or_else(|| "expected 0.1 to 3600 seconds".to_string())
}

fn order() -> clap::builder::PossibleValuesParser {
    Order::ALL.map(|(name, ..)| name).into()
}

/// What is shown, and how.
#[derive(Clone, Copy, Debug)]
struct View {
    vcpus: bool,
    sum: bool,
    order: Order,
}

impl View {
    /// The lines to show.
    fn rows(&self, then: &Sample, now: &Sample) -> Vec<Row> {
        let mut rows = rows(then, now, self.vcpus);
        if self.sum {
            rows = rows.into_iter().map(Row::summed).collect();
        }
        self.order.sort(&mut rows);
        rows
    }
}

/// Runs the command.
///
/// # Errors
/// If it cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let order = Order::ALL.iter().find(|(name, ..)| *name == args.sort);
    let view = View {
        vcpus: args.vcpus,
        sum: args.sum,
        order: order.map_or_else(Order::default, |(_, _, order)| *order),
    };
    let sampler = Sampler::new(Some(args.socket.clone()));
    let batch = args.batch || args.csv.is_some() || args.json || !io::stdout().is_terminal();
    if !batch {
        return screen::run(&sampler, view, args.delay, args.count);
    }
    let mut out = Batch::open(args)?;
    let mut then = sampler.sample();
    for _ in 0..args.count.unwrap_or(1) {
        std::thread::sleep(Duration::from_nanos(args.delay));
        let now = sampler.sample();
        out.tell(&view, &then, &now)?;
        then = now;
    }
    Ok(())
}

/// Where results go in batch mode, and how.
enum Batch {
    Tables,
    Json,
    Csv(Box<dyn Write>, PathBuf),
}

impl Batch {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let Some(path) = &args.csv else {
            return Ok(if args.json { Self::Json } else { Self::Tables });
        };
        let (mut file, new): (Box<dyn Write>, bool) = if path.as_os_str() == "-" {
            (Box::new(output::stdout()?), true)
        } else {
            let (file, new) = open(path).with_context(|| cannot(path))?;
            if !new {
                same_columns(path)?;
            }
            (Box::new(file), new)
        };
        if new {
            file.write_all(csv::head().as_bytes())
                .with_context(|| cannot(path))?;
        }
        Ok(Self::Csv(file, path.clone()))
    }

    fn tell(&mut self, view: &View, then: &Sample, now: &Sample) -> anyhow::Result<()> {
        match self {
            Self::Tables => {
                let rows = view.rows(then, now);
                let (title, table) = (table::title(now), table::text(&rows, view.vcpus));
                output::print(&format!("{title}\n{table}\n"))
            }
            Self::Json => {
                let rows = view.rows(then, now);
                output::print(&(serde_json::to_string(&rows)? + "\n"))
            }
            Self::Csv(file, path) => {
                // There, sums are columns of their own.
                let rows = View {
                    sum: false,
                    ..*view
                }
                .rows(then, now);
                let lines = rows.iter().map(|row| csv::line(row, then, now));
                let lines: io::Result<String> = lines.collect();
                let written = lines.and_then(|lines| file.write_all(lines.as_bytes()));
                written
                    .and_then(|()| file.flush())
                    .with_context(|| cannot(path))
            }
        }
    }
}

fn cannot(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "cannot write to the standard output".to_string(),
        false => format!("cannot write {}", path.display()),
    }
}

/// Opens a file to append to it. Is it new, or empty?
fn open(path: &Path) -> io::Result<(File, bool)> {
    let file = File::options().append(true).create(true).open(path)?;
    let new = file.metadata()?.len() == 0;
    Ok((file, new))
}

/// Makes sure that what is in the file already has the same columns.
fn same_columns(path: &Path) -> anyhow::Result<()> {
    let mut head = vec![0; csv::head().len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    match read.is_ok() && head == csv::head().into_bytes() {
        true => Ok(()),
        false => Err(Invalid::error(format!(
            "--csv {}: there is something else in it: expected a new file, or one with the columns that \
             this version of corun writes",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_to_their_like_only() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("top.csv");
        for other in ["case,policy\n", "x", csv::head().trim_end()] {
            std::fs::write(&path, other).unwrap();
            assert!(same_columns(&path).unwrap_err().is::<Invalid>(), "{other}");
        }
        std::fs::write(&path, csv::head() + "1,2\n").unwrap();
        same_columns(&path).unwrap();
    }
}
