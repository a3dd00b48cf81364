// SPDX-License-Identifier: GPL-2.0-only
//! Comparing policies on a recorded host: its demand is replayed under each of them.
//!
//! First of all it is replayed under the scheduler that the host had, and compared with the recording: that shows what
//! a what-if is worth.

use super::beginnings::{beginning, seeds};
use super::events::Ran;
use super::input::Unread;
use super::progress::Progress;
use super::recorded_host::{
    OwnScheduler, assumed, basis, calibrated, case, facts, own_scheduler, refuse_scenario_options,
    replay, spinning_share,
};
use super::runs::policies;
use super::schedulers::{blind, sets_unheeded};
use super::spans::Part;
use super::watch::Watch;
use super::{Args, jobs, measure, provenance, reading, schedulers};
use crate::failure::Invalid;
use crate::interrupt::{self, Pending};
use crate::output;
use crate::outputs::Outputs;
use corun_model::VmId;
use corun_recording::Recording;
use corun_report::advice::{self, Confidence};
use corun_report::{Comparison, ReplayCheck, Run, html, round};
use corun_scenario::Case;
use corun_sim::replay::{Beyond, Options, Spinning, SuggestedHost, can_meet, suggested_host};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

/// A recording to be replayed.
struct Replayed<'a> {
    args: &'a Args,
    name: &'a str,
    recording: &'a Recording,
    suggested: SuggestedHost,
    case: Case,
    check: ReplayCheck,
    confidence: Confidence,
}

/// A replay.
struct Job<'a> {
    policy: &'a str,
    extreme: &'a Extreme,
    seed: u64,
    begun: &'a Recording,
    /// Is its timeline shown?
    shown: bool,
}

/// What is assumed about what the recording does not show.
struct Extreme {
    name: String,
    options: Options,
}

/// What is compared besides recordings.
const SCENARIOS: &str = "scenarios (TOML, see docs/scenario.md)";

/// Reads the recording and replays its demand under each policy.
///
/// # Errors
/// [`Invalid`] if the file is no usable recording, or options do not fit one.
pub fn compare(
    args: &Args,
    outputs: &Outputs,
    unread: Unread,
) -> anyhow::Result<(Comparison, html::About)> {
    refuse_scenario_options(&args.runs)?;
    let name = unread.name.clone();
    let import = reading::read(unread, Some(SCENARIOS), args.runs.quiet)?;
    let mut notes: Vec<String> = import.notes.iter().map(ToString::to_string).collect();
    for note in &notes {
        output::note(&format!("{name}: {note}"));
    }
    let recording = &import.recording;
    let suggested = suggested_host(recording).map_err(Invalid::error)?;
    let own = own_scheduler(recording, &args.recorded);
    let case = case(&args.runs, recording, &suggested)?;
    let asked = Asked::of(args, recording, own.name)?;
    outputs.try_out()?;
    for note in notes_on_policies(args, &own, &asked.policies, &case) {
        output::note(&note);
        notes.push(note);
    }
    let progress = Progress::new(
        2,
        recording.duration().saturating_mul(2),
        1,
        args.runs.quiet,
    );
    let assumed = assumed(recording);
    let (case, check) = calibrated(recording, case, &own, &suggested, &assumed, &progress)?;
    progress.finish();
    let extremes = extremes(args, recording, &assumed);
    let replayed = Replayed {
        args,
        name: &name,
        recording,
        suggested,
        case,
        confidence: advice::confidence(&check, &basis(&import)),
        check,
    };
    let runs = replayed.runs(&asked.policies, &extremes, &asked.seeds)?;
    let about = replayed.about(&asked.seeds, &asked.selection, notes.clone());
    Ok((replayed.comparison(runs, notes), about))
}

/// What the options ask for.
struct Asked {
    policies: Vec<String>,
    seeds: Vec<u64>,
    /// The options that choose the first replay.
    selection: String,
}

impl Asked {
    /// For a host whose own scheduler is `own`.
    ///
    /// # Errors
    /// [`Invalid`] for unknown policies, and for more than can be watched.
    fn of(args: &Args, recording: &Recording, own: &str) -> anyhow::Result<Self> {
        let policies = policies(&args.runs, Some(default_policies(own)))?;
        let seeds = seeds(args.runs.seed, &args.runs.several(), args.watch.is_one())?;
        let selection = format!("--policies {} --seed {}", policies[0], seeds[0]);
        let most_extremes = if args.extremes { MOST_EXTREMES } else { 1 };
        let replays = policies.len() * most_extremes * seeds.len();
        let of_one = match args.extremes {
            true => format!("{selection}, without --extremes"),
            false => selection.clone(),
        };
        args.watch.check(replays, &of_one)?;
        args.watch.window(recording.duration())?;
        Ok(Self {
            policies,
            seeds,
            selection,
        })
    }
}

/// What the policies replayed do not heed or see, and whether the user says otherwise than the recording.
fn notes_on_policies(
    args: &Args,
    own: &OwnScheduler,
    chosen: &[String],
    case: &Case,
) -> Vec<String> {
    // The check is under the own one, whether or not it is compared.
    let others = chosen.iter().filter(|name| *name != own.name);
    let policies: Vec<&str> = std::iter::once(own.name)
        .chain(others.map(String::as_str))
        .collect();
    let blind = policies
        .iter()
        .filter_map(|policy| Some(format!("{policy}: {}", blind(policy, case)?)));
    let unheeded = sets_unheeded(&args.runs.sets, &policies).into_iter();
    unheeded.chain(blind).chain(own.overruled.clone()).collect()
}

/// The host's own scheduler first, each once.
fn default_policies(own: &str) -> Vec<String> {
    let others = ["affinity", "balance"].into_iter();
    let others = others.filter(|&name| name != own);
    std::iter::once(own)
        .chain(others)
        .map(String::from)
        .collect()
}

/// The largest number of [`extremes`].
const MOST_EXTREMES: usize = 5;

/// What recordings leave open, at its extremes if those are wanted.
fn extremes(args: &Args, recording: &Recording, assumed: &Options) -> Vec<Extreme> {
    let extreme = |name: &str, options: Options| Extreme {
        name: name.to_string(),
        options,
    };
    if !args.extremes {
        return vec![extreme("", assumed.clone())];
    }
    let share = spinning_share(recording) * 100.0;
    let idle = Options {
        beyond: Beyond::Wait,
        ..assumed.clone()
    };
    let saved = Options {
        spinning: Spinning::Waste,
        ..assumed.clone()
    };
    let spun = format!("{share:.1} % of the work was spinning, and is saved");
    let mut extremes = vec![
        extreme("VMs go on as before", assumed.clone()),
        extreme("VMs have nothing more to do", idle),
        extreme(&spun, saved),
    ];
    let meeting = |vms: &BTreeSet<VmId>| Options {
        meeting: vms.clone(),
        ..assumed.clone()
    };
    let can_meet = can_meet(recording);
    if !can_meet.is_subset(&assumed.meeting) {
        let everywhere = meeting(&can_meet);
        extremes.push(extreme(
            "siblings meet where one wakes the other",
            everywhere,
        ));
    }
    if !assumed.meeting.is_empty() {
        let nowhere = meeting(&BTreeSet::new());
        extremes.push(extreme("who wakes a sibling goes on", nowhere));
    }
    extremes
}

impl Replayed<'_> {
    /// All replays: by extreme, policy and seed.
    fn runs(
        &self,
        policies: &[String],
        extremes: &[Extreme],
        seeds: &[u64],
    ) -> anyhow::Result<Vec<Run>> {
        let begun: Vec<Recording> = seeds
            .iter()
            .map(|&seed| beginning(self.recording, seed))
            .collect();
        let of_seeds = |(extreme, policy): (_, _)| {
            let all = seeds.iter().zip(&begun).enumerate();
            all.map(move |(at, (&seed, begun))| Job {
                policy,
                extreme,
                seed,
                begun,
                shown: at == 0,
            })
        };
        let pairs = extremes.iter().flat_map(|extreme| {
            policies
                .iter()
                .map(move |policy| (extreme, policy.as_str()))
        });
        let jobs: Vec<Job<'_>> = pairs.flat_map(of_seeds).collect();
        let runs = &self.args.runs;
        let cpus = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = runs.jobs.map_or_else(cpus, NonZeroUsize::get);
        let total = self.recording.duration().saturating_mul(jobs.len() as u64);
        let progress = Progress::new(jobs.len(), total, threads, runs.quiet);
        let shown = jobs.iter().filter(|job| job.shown).count();
        let pending = Pending::of("replay", false)?;
        pending.more(jobs.len());
        let done = jobs::run(&jobs, threads, |job| {
            let part = self.args.watch.part(0, shown).filter(|_| job.shown);
            self.one(job, part, &progress)
        });
        progress.finish();
        done
    }

    fn one(&self, job: &Job<'_>, part: Option<Part>, progress: &Progress) -> anyhow::Result<Run> {
        let pcpus = self.case.host.topology.pcpus();
        let end = self.recording.duration();
        let ran = Ran {
            pcpus,
            policy: job.policy,
            kernel: schedulers::kernel_version(job.policy, &self.case.schedulers),
            replay: true,
        };
        let watch = Watch::create(&self.args.watch, ran, end, part)?;
        let (options, observer) = (job.extreme.options.clone(), watch.observer());
        let (outcome, report) = replay(
            job.begun, &self.case, job.policy, options, observer, progress,
        )?;
        let mut run = Run {
            policy: job.policy.to_string(),
            case: job.extreme.name.clone(),
            seed: job.seed,
            kernel: schedulers::kernel(job.policy, &self.case.schedulers),
            ..measure::run(&outcome, pcpus)
        };
        run.detail.timeline = watch.close();
        for (vm, replayed) in run.vms.iter_mut().zip(&report.vms) {
            let whole = outcome.measured.max(1) as f64 * f64::from(vm.vcpus.max(1));
            vm.beyond_recording_share = Some(round(replayed.exhausted as f64 / whole));
        }
        interrupt::run_done();
        Ok(run)
    }

    fn about(&self, seeds: &[u64], selection: &str, notes: Vec<String>) -> html::About {
        let mut facts = facts(self.recording, &self.case, &self.suggested);
        let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
        facts.push((
            "seeds".to_string(),
            format!("{} (0: VMs begin as recorded)", seeds.join(", ")),
        ));
        html::About {
            command: provenance::this(),
            next: provenance::next(&self.args.input, &self.args.runs, selection),
            facts,
            notes,
            input: None,
        }
    }

    fn comparison(self, runs: Vec<Run>, notes: Vec<String>) -> Comparison {
        Comparison {
            version: env!("CARGO_PKG_VERSION").to_string(),
            scenario: stem(self.name),
            title: None,
            source: None,
            confidence: Some(self.confidence),
            replay: Some(self.check),
            notes,
            runs,
        }
    }
}

/// The file's name without `.gz` and one more extension.
fn stem(name: &str) -> String {
    let name = Path::new(name)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    Path::new(name)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
