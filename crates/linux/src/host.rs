// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: puts the dispatcher in charge, carries out a policy, prints statistics, and leaves
//! the host on the kernel's own scheduler, however it ends.

use crate::control::Control;
use crate::knobs;
use crate::loader::{Dispatcher, ExitInfo, LoadError};
use crate::preflight::{self, Finding};
use crate::recorder::Recorder;
use crate::stats::{Mark, Stats};
use crate::{clock, priority, sched_ext};
use corun_model::DispatcherParams;
use corun_model::time::MS;
use corun_model::{Nanos, PcpuSet, Topology, TopologyError};
use corun_policies::{PolicyInfo, Settings};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use crate::recorder::Recorded;

/// How long the daemon sleeps at most: how soon it sees a signal or an ejection.
const NAP: Nanos = 50 * MS;

/// What to do.
pub struct HostOptions {
    /// The policy.
    pub policy: &'static PolicyInfo,
    /// The dispatcher's parameters.
    pub params: DispatcherParams,
    /// How often statistics are printed; `None`: never.
    pub interval: Option<Nanos>,
    /// How long to stay in charge; `None`: until SIGINT or SIGTERM.
    pub run_for: Option<Nanos>,
    /// Statistics as lines of JSON instead of text.
    pub json: bool,
    /// Where to record every input and decision of the dispatcher, for `corun lockstep`.
    pub record: Option<PathBuf>,
    /// Where statistics go.
    pub out: Box<dyn Write>,
}

impl HostOptions {
    /// This policy with everything else as by default: statistics every second, as text.
    pub fn new(policy: &'static PolicyInfo) -> Self {
        Self {
            policy,
            params: DispatcherParams::default(),
            interval: Some(1000 * MS),
            run_for: None,
            json: false,
            record: None,
            out: Box::new(io::stdout()),
        }
    }
}

/// Why the daemon ended, if nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The time it was given is over.
    TimeOver,
    /// SIGINT or SIGTERM.
    Asked,
}

/// An ordinary end: the host is back on the kernel's own scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostExit {
    /// Why.
    pub cause: Cause,
    /// What the kernel says about it.
    pub info: Option<ExitInfo>,
    /// What was recorded, if it was asked for.
    pub recorded: Option<Recorded>,
}

/// What went wrong. The host is on the kernel's own scheduler all the same.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Something is in the way.
    #[error("corun cannot take over this host:\n{}", list(.0))]
    Preflight(Vec<Finding>),
    /// The dispatcher could not be loaded or put in charge.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel threw the dispatcher out.
    #[error("the kernel ejected the dispatcher: {}: {} (exit kind {}, code {})",
        .0.reason, .0.message, .0.kind, .0.code)]
    Ejected(ExitInfo),
    /// The kernel's own scheduler is not back.
    #[error("the scheduler is still {state} after it was unregistered; press SysRq-S to force it")]
    NotBack {
        /// What /sys/kernel/sched_ext/state says.
        state: String,
    },
    /// The dispatcher's tables cannot be read or written.
    #[error("cannot reach the dispatcher's tables: {0}")]
    Tables(#[from] libbpf_rs::Error),
    /// The recording cannot be written.
    #[error("cannot record to {path}: {cause}")]
    Record {
        /// The file.
        path: String,
        /// What failed.
        cause: io::Error,
    },
    /// Statistics cannot be written.
    #[error("cannot write statistics: {0}")]
    Output(io::Error),
    /// Signals cannot be watched for.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
    /// The host's pCPUs cannot be told.
    #[error("cannot tell this host's pCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// The host has a shape corun does not know.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

fn list(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| format!("- {finding}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Takes over the host's scheduling until told to stop.
///
/// # Errors
/// [`HostError`]; the host is on the kernel's own scheduler then, too.
pub fn run(options: HostOptions) -> Result<HostExit, HostError> {
    let findings = preflight::check();
    if !findings.is_empty() {
        return Err(HostError::Preflight(findings));
    }
    let asked = watch_signals().map_err(HostError::Signals)?;
    priority::raise();
    let online = preflight::online().ok_or(HostError::Online)?;
    let mut storage = MaybeUninit::uninit();
    let recording = options.record.is_some();
    let mut dispatcher = Dispatcher::load(&mut storage, &options.params, &online, recording)?;
    let mut daemon = Daemon::new(options, &online, &dispatcher)?;
    dispatcher.attach()?;
    let ended = daemon.serve(&dispatcher, &asked);
    let info = dispatcher.detach();
    let recorded = daemon.finish_recording(&dispatcher);
    if let Some(state) = sched_ext::state().filter(|state| state != "disabled") {
        return Err(HostError::NotBack { state });
    }
    let cause = ended?;
    match info {
        // It may have been thrown out while it was being told to leave.
        Some(info) if info.kind != ExitInfo::UNREGISTERED => Err(HostError::Ejected(info)),
        info => Ok(HostExit {
            cause,
            info,
            recorded: recorded?,
        }),
    }
}

/// A flag that SIGINT and SIGTERM raise.
fn watch_signals() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    Ok(asked)
}

/// The highest pCPU decides: the model has regular hosts only. Nodes, caches and SMT follow when a
/// policy looks at them.
fn topology(online: &PcpuSet) -> Result<Topology, TopologyError> {
    Topology::flat(online.iter().last().map_or(1, |cpu| cpu.0 + 1))
}

/// What lives as long as the dispatcher is in charge.
struct Daemon {
    options: HostOptions,
    control: Control,
    recorder: Option<Recorder>,
    online: PcpuSet,
    began: Nanos,
    mark: Mark,
    report_due: Option<Nanos>,
}

impl Daemon {
    fn new(
        options: HostOptions,
        online: &PcpuSet,
        dispatcher: &Dispatcher<'_>,
    ) -> Result<Self, HostError> {
        let recorder = match &options.record {
            Some(path) => Some(
                Recorder::new(
                    path,
                    &knobs::raw(&options.params, online),
                    dispatcher.records(),
                )
                .map_err(|cause| record_error(&options, cause))?,
            ),
            None => None,
        };
        let policy = (options.policy.make)(&Settings::default());
        let control = Control::new(policy, topology(online)?, *online);
        let began = clock::now();
        Ok(Self {
            report_due: options.interval.map(|interval| began + interval),
            options,
            control,
            recorder,
            online: *online,
            began,
            mark: Mark {
                at: began,
                ..Mark::default()
            },
        })
    }

    /// Runs until the end, whatever it is.
    fn serve(
        &mut self,
        dispatcher: &Dispatcher<'_>,
        asked: &AtomicBool,
    ) -> Result<Cause, HostError> {
        let end = self.options.run_for.map(|time| self.began + time);
        loop {
            if asked.load(Ordering::Relaxed) {
                return Ok(Cause::Asked);
            }
            if let Some(info) = dispatcher.exit_info() {
                return Err(HostError::Ejected(info));
            }
            if end.is_some_and(|end| clock::now() >= end) {
                return Ok(Cause::TimeOver);
            }
            self.turn(dispatcher)?;
            self.nap(end);
        }
    }

    /// Does what is due.
    fn turn(&mut self, dispatcher: &Dispatcher<'_>) -> Result<(), HostError> {
        if let Some(recorder) = &self.recorder {
            recorder
                .drain()
                .map_err(|cause| record_error(&self.options, cause))?;
        }
        if clock::now() >= self.control.due() {
            self.control.step(&dispatcher.tables())?;
        }
        if self.report_due.is_some_and(|due| clock::now() >= due) {
            self.report(dispatcher)?;
        }
        Ok(())
    }

    fn nap(&self, end: Option<Nanos>) {
        let now = clock::now();
        let events = [
            Some(now + NAP),
            Some(self.control.due()),
            self.report_due,
            end,
        ];
        let next = events.into_iter().flatten().min().unwrap_or(now);
        std::thread::sleep(Duration::from_nanos(next.saturating_sub(now)));
    }

    /// Prints what happened since the last time.
    fn report(&mut self, dispatcher: &Dispatcher<'_>) -> Result<(), HostError> {
        let tables = dispatcher.tables();
        let (mut switches, mut occupied) = (0, 0);
        for cpu in self.online.iter() {
            let cpu = tables.cpu(cpu.0)?.unwrap_or_default();
            switches += cpu.switches;
            occupied += cpu.nr;
        }
        let vcpus = self.control.read(&tables)?;
        let at = clock::now();
        let mark = Mark {
            at,
            switches,
            occupied,
            vcpus,
        };
        let stacking = std::mem::take(&mut self.control.stacking);
        let (name, vms) = (self.options.policy.name, &self.control.vms.list);
        let stats = Stats::between(&self.mark, &mark, self.began, stacking, name, vms);
        self.mark = mark;
        self.report_due = self.options.interval.map(|interval| at + interval);
        self.print(&stats).map_err(HostError::Output)
    }

    fn print(&mut self, stats: &Stats) -> io::Result<()> {
        let out = &mut self.options.out;
        if self.options.json {
            serde_json::to_writer(&mut *out, stats)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{stats}")?;
        }
        out.flush()
    }

    fn finish_recording(
        &mut self,
        dispatcher: &Dispatcher<'_>,
    ) -> Result<Option<Recorded>, HostError> {
        let Some(recorder) = self.recorder.take() else {
            return Ok(None);
        };
        let recorded = recorder.finish(dispatcher.records_lost());
        recorded
            .map(Some)
            .map_err(|cause| record_error(&self.options, cause))
    }
}

fn record_error(options: &HostOptions, cause: io::Error) -> HostError {
    let path = options
        .record
        .as_ref()
        .map(|path| path.display().to_string());
    HostError::Record {
        path: path.unwrap_or_default(),
        cause,
    }
}
