// SPDX-License-Identifier: GPL-2.0-only
//! `corun record`: what this host's pCPUs and vCPUs do, in a file.

mod summary;

use crate::compare::progress::target;
use crate::failure::Invalid;
use crate::output;
use crate::outputs;
use anyhow::Context;
use corun_linux::record::{self, Missing, Progress, RecordOptions, Recorded};
use corun_linux::socket;
use corun_model::{Nanos, counted, time};
use corun_recording::native::{self, Damage};
use corun_system::files::Fresh;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Record what this host's pCPUs and vCPUs do, for compare and advise
///
/// Traces every context switch, wake-up and migration of the host, how guests' halts end, and counts guest
/// exits by reason, until it is interrupted or told to end. Nothing is changed, and no scheduler is needed:
/// any kernel from Linux 5.8 on with BTF will do. Needs root. Whatever ends it, a full disk or a signal,
/// leaves a file that can be read up to there. docs/recording-format.md describes the file.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file: a new one, or an empty one
    #[arg(long, short, value_name = "FILE", default_value = "recording.corun")]
    output: PathBuf,

    /// How long [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with = "from")]
    run_for: Option<Nanos>,

    /// Leave out names of VMs and programs
    #[arg(long)]
    anonymise: bool,

    /// Do not record: copy this recording without names; needs --anonymise
    #[arg(long, value_name = "FILE", requires = "anonymise")]
    from: Option<PathBuf>,

    /// The socket of corun's daemon, which tells the policy if the host is under corun
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT, conflicts_with = "from")]
    socket: PathBuf,

    /// Print what was recorded as one JSON object (`missing` is null with --from: recordings do not have it)
    #[arg(long)]
    json: bool,

    /// Show neither progress nor what was recorded
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun record --for 30s
      half a minute of this host, into recording.corun
  corun advise recording.corun
      which policy would help it?
  sudo corun record --anonymise -o host.corun
      until Ctrl-C, without names, to be given to others
  corun record --from host.corun --anonymise -o nameless.corun
      the same for an existing recording

Exit codes: 0 recorded; 1 could not record, or could not write the file to the end (an incomplete recording
can be read; an incomplete copy is removed); 2 wrong usage, no recording, or a file that is not empty.";

fn duration(text: &str) -> Result<Nanos, String> {
    let time = time::parse(text).filter(|time| *time >= time::MS);
    time.ok_or_else(|| format!("expected 1ms or more, {}", time::ACCEPTED))
}

/// Runs the command.
///
/// # Errors
/// Why nothing, or not everything, was recorded.
pub fn run(args: &Args) -> anyhow::Result<()> {
    outputs::refuse_dash("--output", &args.output)?;
    spare(&args.output)?;
    if let Some(from) = &args.from {
        let progress = anonymise(from, &args.output)?;
        return tell(args, &progress, None);
    }
    let bar = bar(args);
    let mut progress = |progress: &Progress| {
        bar.set_message(line(progress));
        bar.tick();
    };
    let recorded = record::run(RecordOptions {
        file: args.output.clone(),
        run_for: args.run_for,
        anonymise: args.anonymise,
        daemon: args.socket.clone(),
        progress: &mut progress,
    })?;
    bar.finish_and_clear();
    if !args.quiet {
        notes(args, &recorded);
    }
    if let Some(error) = &recorded.cut {
        let file = args.output.display();
        if recorded.until == 0 {
            anyhow::bail!("{file}: {error}; nothing was recorded");
        }
        let until = time::show(recorded.until);
        anyhow::bail!("{file}: {error}; it has the first {until} and can be read");
    }
    // Without VMs it is no recording that could be replayed, which has been reported.
    if recorded.vms == 0 && !args.json {
        return Ok(());
    }
    tell(args, &recorded.progress, Some(&recorded.missing))
}

/// Makes sure that nothing is lost: recordings are not replaced, since no second one is like the first.
///
/// # Errors
/// [`Invalid`] if the file holds something.
fn spare(file: &Path) -> anyhow::Result<()> {
    let why = match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => "this is no file",
        Ok(found) if found.len() > 0 => "this file is there and holds something",
        _ => return Ok(()),
    };
    Err(Invalid::error(format!(
        "--output {}: {why}; expected a new file, or an empty one: recordings are not replaced",
        file.display()
    )))
}

fn bar(args: &Args) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(!args.quiet));
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

fn line(progress: &Progress) -> String {
    let mib = progress.bytes as f64 / f64::from(1 << 20);
    let time = time::show(progress.elapsed);
    let events = counted(progress.events, "event");
    let lost = match progress.lost {
        0 => String::new(),
        lost => format!(", {lost} lost"),
    };
    format!("{time}: {events}{lost}, {mib:.1} MiB")
}

/// What was recorded, and what was not.
fn notes(args: &Args, recorded: &Recorded) {
    let file = args.output.display();
    let done = line(&recorded.progress);
    output::note(&format!("corun: {file}: {done}"));
    for Missing { what, why } in &recorded.missing {
        output::note(&format!("corun: not recorded: {what}: {why}"));
    }
    if recorded.progress.lost > 0 {
        output::note(
            "corun: events were lost: this process got no pCPU in time, or the disk is slow",
        );
    }
    if recorded.vms == 0 {
        output::note(
            "corun: no VM was seen: threads named `CPU n/KVM`, `fc_vcpu n` or `vcpu<n>` were looked for",
        );
    }
}

/// The recording read back: whether it can be read, and what is in it. What was not available is not in the file.
fn tell(args: &Args, progress: &Progress, missing: Option<&[Missing]>) -> anyhow::Result<()> {
    if !args.json && args.quiet {
        return Ok(());
    }
    let import = match corun_recording::read(&args.output) {
        Ok(import) => Some(import.recording),
        // Without VMs it is no recording that could be replayed, which has been reported.
        Err(corun_recording::ImportError::NoVcpus { .. }) => None,
        // A copy is as good as its original.
        Err(error) => match args.from.as_deref().map(corun_recording::read) {
            Some(Err(error)) => return Err(Invalid::error(error)),
            _ => return Err(error.into()),
        },
    };
    match args.json {
        true => {
            let told = summary::json(&args.output, progress, missing, import.as_ref());
            output::print(&format!("{told:#}\n"))
        }
        false => import.map_or(Ok(()), |import| output::print(&summary::text(&import))),
    }
}

/// Copies a recording without names; returns what the copy has. A copy that is not whole, or holds nothing, is removed.
fn anonymise(from: &Path, to: &Path) -> anyhow::Result<Progress> {
    let name = from.display();
    let source = File::open(from).map_err(|error| Invalid::error(format!("{name}: {error}")))?;
    let mut out = Fresh::at(to).with_context(|| to.display().to_string())?;
    let copied = copy((from, source), (to, &mut out.file));
    if copied.is_err() {
        out.take_back();
    }
    copied
}

fn copy((from, source): (&Path, File), (to, out): (&Path, &mut File)) -> anyhow::Result<Progress> {
    let name = from.display();
    let named = || to.display().to_string();
    let expected = "expected a recording by `corun record`";
    let mut buffer = BufWriter::new(&mut *out);
    let told = native::anonymise(BufReader::new(source), &mut buffer);
    let told = told.and_then(|told| buffer.flush().map(|()| told));
    drop(buffer);
    let copied = told.with_context(named)?.map_err(|damage| {
        let why = damage_in_words(&damage);
        Invalid::error(format!("{name}: {why}: {expected}"))
    })?;
    if copied.events == 0 {
        let why = copied.damage.as_ref().map(damage_in_words);
        let why = why.map_or(String::new(), |why| format!(" before {why}"));
        return Err(Invalid::error(format!(
            "{name}: there is no event in it{why}: {expected}"
        )));
    }
    if let Some(damage) = &copied.damage {
        output::note(&format!("corun: {name}: {}", not_copied(damage)));
    }
    Ok(Progress {
        elapsed: copied.elapsed,
        events: copied.events,
        lost: copied.lost,
        bytes: out.metadata().with_context(named)?.len(),
    })
}

/// Why not everything was copied.
fn not_copied(damage: &Damage) -> String {
    let why = damage_in_words(damage);
    match damage {
        Damage::Behind(_) => format!("what comes after its end was not copied: {why}"),
        _ => format!("cut short ({why}); what came before was copied"),
    }
}

fn damage_in_words(damage: &Damage) -> String {
    match damage {
        Damage::Header(why) => why.clone(),
        Damage::Cut => "the file ends within a block".to_string(),
        Damage::Behind(bytes) => counted(*bytes, "byte"),
        Damage::Block(why) => (*why).to_string(),
        Damage::Io(error) => error.to_string(),
    }
}
