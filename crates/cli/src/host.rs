// SPDX-License-Identifier: GPL-2.0-only
//! `corun host`: the dispatcher in charge of this host.

use crate::calibration;
use crate::compare::schedulers::known_host_policy;
use crate::failure::Invalid;
use crate::numbers::{duration, percent};
use crate::output;
use crate::policy::assignment;
use clap::builder::PossibleValuesParser;
use corun_linux::host::{self, HostExit, HostOptions, Recorded};
use corun_linux::observe::{self, ObserveOptions};
use corun_linux::safety::{self, Limits};
use corun_linux::stock::{self, StockError, StockOptions};
use corun_linux::{preflight, socket};
use corun_model::{Nanos, counted, time};
use corun_policies::{PolicyInfo, SettingError, Settings};
use corun_scenario::or_nearest;
use std::path::{Path, PathBuf};

mod config;
mod said;

use said::Said;

/// The policy unless another is asked for.
const DEFAULT_POLICY: &str = "balance";

/// Schedule this host's VMs: load the dispatcher as its scheduler
///
/// Takes over all ordinary tasks of the host until it is interrupted or told to end; then, and
/// whenever anything goes wrong, the kernel's own scheduler is back at once. Needs root and a kernel
/// with sched_ext (Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT). First it checks whether the host is safe to
/// take over, as `corun preflight` does. If a promise is broken (--max-wait and the others), it hands the host
/// back at once. If the daemon hangs for 5 s, all VMs are scheduled in fair order until it answers again.
/// last-exit.json in the state directory says how a run ended.
///
/// With `--backend fair` the kernel's own scheduler stays in charge: vCPU threads are given slices
/// (Linux 6.12 and newer) and affinities, which are set back at the end, or, after a crash, by `--restore` or the
/// next start. This is enough for the policies fair, affinity, aql, vslicer, vturbo and microsliced. It can
/// neither place vCPUs when they wake nor schedule siblings together, and slices are 100 ms at most. Options
/// that need the dispatcher are refused: --record, --only, promises (--max-wait and the others), --halt-poll,
/// --force, --slice, and the sockets for `corun policy` and scxtop.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Read options from a TOML file: keys are the options' names, [set] has the parameters of the policy.
    /// The command line wins over the file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The policy; `corun policies` lists them (cfs, eevdf, credit and rr are models, for `compare` only)
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POLICY)]
    policy: String,

    /// What schedules: corun's dispatcher, or the kernel's own scheduler under its direction
    #[arg(long, value_enum, value_name = "NAME", default_value = "sched-ext")]
    backend: Backend,

    /// With --backend fair: the file that lists changed threads, to set them back after a crash
    #[arg(long, value_name = "FILE", default_value = stock::STATE)]
    state: PathBuf,

    /// Only undo what a killed run has changed: threads (--state) and KVM's halt polling (--state-dir; with
    /// --config, where that file says). Other options have no effect then
    #[arg(long)]
    restore: bool,

    /// Time between two lines of statistics; 0s: none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    interval: Nanos,

    /// Hand the host back after this time [default: when interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    run_for: Option<Nanos>,

    /// Set a parameter of the policy, see `corun policies`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,

    /// The file that `corun calibrate` wrote for this machine, for this policy or a later one: for aql, vslicer
    /// and vturbo, the slice of each type of application and how types are told apart; for vsmtio, by
    /// `corun calibrate --symbiosis`, how much the hardware threads of a core slow each other down
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,

    /// Slice of tasks for which the policy sets none, 50us to 1s
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = slice)]
    slice: Nanos,

    /// Print statistics as lines of JSON
    #[arg(long)]
    json: bool,

    /// Record every input and decision of the dispatcher, for `corun lockstep`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Take over in spite of this finding of `corun preflight`, and put that on record; may be repeated
    #[arg(long, value_name = "FINDING", value_parser = PossibleValuesParser::new(preflight::FORCIBLE))]
    force: Vec<String>,

    /// Put only this VM under the policy, all others in fair order; by name, UUID or its manager's
    /// number; may be repeated
    #[arg(long, value_name = "VM", value_parser = vm)]
    only: Vec<String>,

    /// Do not schedule: print what the policy would decide. Works on any kernel, and changes nothing; options that
    /// mean nothing then (--only, --max-wait and the other promises …) are refused
    #[arg(long)]
    observe: bool,

    /// Hand the host back if a vCPU waits for a pCPU for longer than this, up to 4.9s; 0s: never
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = longest_wait)]
    max_wait: Nanos,

    /// Hand the host back if a VM is ready (steal, CPU Ready) for more of the window than this
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = percent)]
    max_ready: Option<f64>,

    /// Hand the host back if tasks wait for a pCPU for more of the window than this (PSI, cpu some)
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, value_parser = percent)]
    max_pressure: Option<f64>,

    /// The longest that KVM polls before a vCPU halts, while corun is in charge: off, or 1us to 5ms [default:
    /// unchanged]
    #[arg(long, value_name = "TIME", value_parser = halt_poll)]
    halt_poll: Option<Nanos>,

    /// The window of --max-ready and --max-pressure, 1s to 10min
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = window)]
    window: Nanos,

    /// Directory that remembers how runs ended, for post-mortems and against crash loops
    #[arg(long, value_name = "DIR", default_value = safety::STATE_DIR)]
    state_dir: PathBuf,

    /// Unix socket on which the daemon answers `corun policy`, `status`, `top` and `metrics`; for its owner and
    /// group only
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,

    /// Unix socket on which it answers scxtop and other clients of scx_stats, for its owner and group only; off:
    /// none
    #[arg(long, value_name = "PATH", default_value = socket::scx_stats::DEFAULT, value_parser = place)]
    scx_stats: Place,
}

/// A path, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place(Option<PathBuf>);

fn place(text: &str) -> Result<Place, String> {
    match text {
        "" => Err("expected a path, or off".to_string()),
        "off" => Ok(Place(None)),
        path => Ok(Place(Some(path.into()))),
    }
}

/// What carries policies out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// corun's dispatcher, loaded as a sched_ext scheduler
    SchedExt,
    /// The kernel's own scheduler, by slices and affinities of threads
    Fair,
}

const EXAMPLES: &str = "\
Examples:
  sudo corun host
      balance scheduling until Ctrl-C
  sudo corun host --policy affinity --interval 5s
      statistics every five seconds
  sudo corun policy affinity
      from another terminal: changes it while it runs
  sudo corun host --backend fair --policy affinity
      without sched_ext
  sudo corun host --policy aql --calibration mine.toml
      with the slices that `corun calibrate --here` found best on this machine
  sudo corun host --for 10s --record decisions.lockstep
      ten seconds, with all decisions on record
  sudo corun host --policy jupiter --only web1 --only db --max-ready 20
      a canary: two VMs under the policy; ends if any VM is ready for more than a fifth of its time
  sudo corun host --policy vsmtio --halt-poll off
      all halts are left to retention; KVM's halt polling is set back at the end
  corun host --policy aql --observe
      what the policy would decide
  sudo corun host --config /etc/corun/host.toml --for 10min
      as the service does, but only for ten minutes
  sudo corun host --config /etc/corun/host.toml --restore
      undo what a killed run has left behind, as the service does

Exit codes: 0 handed back as asked; 1 could not take over, or the kernel took the host back;
2 wrong usage; 3 handed back because a promise was broken; 4 refused for a reason that does not pass by itself.";

/// No VM has an empty name: whoever gives one means something else.
fn vm(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("expected a VM's name, UUID or number".to_string()),
        false => Ok(text.to_string()),
    }
}

fn longest_wait(text: &str) -> Result<Nanos, String> {
    match duration(text)? {
        wait if wait < 4_900 * time::MS + 1 => Ok(wait),
        _ => Err("expected up to 4.9s: the kernel throws a scheduler out after 5s".to_string()),
    }
}

fn window(text: &str) -> Result<Nanos, String> {
    match duration(text)? {
        window if (time::SEC..=600 * time::SEC).contains(&window) => Ok(window),
        _ => Err("expected 1s to 10min".to_string()),
    }
}

fn halt_poll(text: &str) -> Result<Nanos, String> {
    if text == "off" {
        return Ok(0);
    }
    match duration(text) {
        Ok(time) if (time::US..=5 * time::MS).contains(&time) => Ok(time),
        _ => Err("expected off, or 1us to 5ms".to_string()),
    }
}

fn slice(text: &str) -> Result<Nanos, String> {
    let slice = duration(text)?;
    let accepted = 50 * time::US..=time::SEC;
    match accepted.contains(&slice) {
        true => Ok(slice),
        false => Err("expected 50us to 1s".to_string()),
    }
}

/// Runs the command, whose line was read as `said`.
///
/// # Errors
/// [`Invalid`] for an unknown policy or a file of options that is not valid; else why the host could not
/// be taken over or was lost.
pub fn run(args: &Args, said: &clap::ArgMatches) -> anyhow::Result<()> {
    match &args.config {
        Some(file) if args.restore => restore_as_in(file, args, said),
        None if args.restore => restore(args),
        Some(file) => {
            let (args, said) = config::read(file, said)?;
            with_all(&args, &said)
        }
        None => with_all(args, &Said::on_the_line(said)),
    }
}

fn with_all(args: &Args, said: &Said) -> anyhow::Result<()> {
    let policy = known_host_policy(&args.policy).map_err(|why| said.refuse("policy", why))?;
    let mut settings = Settings::default();
    if let Some(file) = &args.calibration {
        let found = calibration::read(file, policy.name);
        let found = found.map_err(|why| said.refuse("calibration", why))?;
        found.put_into(&mut settings);
    }
    let refused = |why| said.refuse("set", settings_refused(policy, &why));
    for (key, value) in &args.set {
        settings.set(policy, key, value).map_err(refused)?;
    }
    settings.check(policy).map_err(refused)?;
    let fair = args.backend == Backend::Fair;
    let mut wrong = excluded(args.observe, fair, |option| said.has(option));
    if fair && !stock::SERVED.contains(&policy.name) {
        let option = match said.has("policy") {
            true => "policy",
            false => "backend",
        };
        wrong.push((option, StockError::NotServed(policy.name).to_string()));
    }
    if !wrong.is_empty() {
        return Err(said.refuse_all(wrong));
    }
    if args.calibration.is_none() && OF_TYPES.contains(&policy.name) {
        output::note(&format!("corun: {}: {UNCALIBRATED}", policy.name));
    }
    if args.observe {
        return observed(args, policy, settings);
    }
    if fair {
        return stock(args, policy, settings);
    }
    let mut options = HostOptions::new(policy);
    options.settings = settings;
    options.interval = (args.interval > 0).then_some(args.interval);
    options.run_for = args.run_for;
    options.params.slice = args.slice;
    options.json = args.json;
    options.record.clone_from(&args.record);
    options.socket.clone_from(&args.socket);
    options.scx_stats.clone_from(&args.scx_stats.0);
    options.force.clone_from(&args.force);
    options.only.clone_from(&args.only);
    options.halt_poll = args.halt_poll;
    options.state_dir.clone_from(&args.state_dir);
    options.limits = Limits {
        max_wait: (args.max_wait > 0).then_some(args.max_wait),
        max_ready: args.max_ready,
        max_pressure: args.max_pressure,
        window: args.window,
    };
    options.notes = |note| output::note(&format!("corun: {note}"));
    let exit = host::run(options)?;
    output::note(&farewell(&exit));
    Ok(())
}

/// The same in the places that `file` gives. If those cannot be found out, what was left in the places that the command
/// line gives is taken back nevertheless.
fn restore_as_in(file: &Path, args: &Args, said: &clap::ArgMatches) -> anyhow::Result<()> {
    match config::read_places(file, said) {
        Ok(args) => restore(&args),
        Err(why) => restore(args).and(Err(why)),
    }
}

/// Takes back what a run that was killed has left: each part, whether or not the other one can be.
fn restore(args: &Args) -> anyhow::Result<()> {
    let threads = stock::restore(&args.state);
    let polling = host::restore(&args.state_dir);
    let told = threads.iter().flatten();
    let told: Vec<&String> = told.chain(polling.iter().flatten()).collect();
    told.iter()
        .for_each(|note| output::note(&format!("corun: {note}")));
    if told.is_empty() && threads.is_ok() && polling.is_ok() {
        output::note("corun: nothing was left");
    }
    match (threads, polling) {
        (Err(threads), Err(polling)) => Err(anyhow::anyhow!("{threads}; {polling}")),
        (threads, polling) => {
            threads?;
            polling?;
            Ok(())
        }
    }
}

/// Policies that depend on the type a vCPU is taken for.
const OF_TYPES: [&str; 3] = ["aql", "vslicer", "vturbo"];
/// What to know before one of them runs on a host.
const UNCALIBRATED: &str = "types are told apart, and slices chosen, by values that hold for another machine: `corun \
                            calibrate --here` finds those of this one (--calibration)";

/// Options that only the dispatcher in charge can keep: without it they are refused, so that nobody believes to run a
/// canary, or to have a promise, and has none.
const OF_THE_DISPATCHER: [&str; 11] = [
    "record",
    "only",
    "force",
    "halt-poll",
    "max-wait",
    "max-ready",
    "max-pressure",
    "window",
    "slice",
    "socket",
    "scx-stats",
];

/// Among the options that somebody gave (`has`): those that do not go with `observe` or with the `fair` backend, and
/// why.
fn excluded(observe: bool, fair: bool, has: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    let of_a_scheduler: &[&'static str] = match observe {
        true => &["state", "state-dir"],
        false => &[],
    };
    let why = match (observe, fair) {
        (true, _) => "does not go with --observe, which schedules nothing",
        (false, true) => "goes with the dispatcher only, not with --backend fair",
        (false, false) => return Vec::new(),
    };
    let all = OF_THE_DISPATCHER.iter().chain(of_a_scheduler);
    all.filter(|option| has(option))
        .map(|option| (*option, why.to_string()))
        .collect()
}

/// Why a parameter is refused, and what is accepted if there is none of this name.
fn settings_refused(policy: &PolicyInfo, why: &SettingError) -> String {
    let keys = Settings::keys(policy);
    match why {
        SettingError::Unknown { .. } if keys.is_empty() => format!("{why}: it has none"),
        SettingError::Unknown { key, .. } => format!("{why}, {}", or_nearest(key, &keys)),
        _ => why.to_string(),
    }
}

/// Nothing is scheduled: what the policy would do is printed.
fn observed(args: &Args, policy: &'static PolicyInfo, settings: Settings) -> anyhow::Result<()> {
    observe::run(ObserveOptions {
        policy,
        settings,
        interval: observing_every(args.interval),
        run_for: args.run_for,
        json: args.json,
        out: Box::new(output::stdout()?),
        notes: |note| output::note(&format!("corun: {note}")),
    })?;
    output::note("corun: nothing was changed");
    Ok(())
}

/// How often to report what a policy would do: not more often than people can read.
fn observing_every(said: Nanos) -> Nanos {
    match said {
        // Never.
        0 => Nanos::MAX,
        interval => interval.max(100 * time::MS),
    }
}

/// The same through the kernel's own scheduler.
fn stock(args: &Args, policy: &'static PolicyInfo, settings: Settings) -> anyhow::Result<()> {
    let options = StockOptions {
        policy,
        settings,
        interval: (args.interval > 0).then_some(args.interval),
        run_for: args.run_for,
        json: args.json,
        state: args.state.clone(),
        out: Box::new(std::io::stdout()),
        notes: |note| output::note(&format!("corun: {note}")),
    };
    let cause = stock::run(options).map_err(|error| match error {
        StockError::NotServed(_) | StockError::NoSlices(_) => Invalid::error(error),
        other => other.into(),
    })?;
    let why = cause.reason();
    output::note(&format!("corun: {why}: all threads are as they were"));
    Ok(())
}

fn farewell(exit: &HostExit) -> String {
    let why = exit.cause.reason();
    let recorded = exit
        .recorded
        .as_ref()
        .map_or_else(String::new, |recorded: &Recorded| {
            format!(
                "; {} recorded, {} lost",
                counted(recorded.records, "callback"),
                recorded.lost
            )
        });
    format!("corun: {why}: the host is back on the kernel's own scheduler{recorded}")
}
