// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon does while the dispatcher is in charge: asks the policy when it wants to be
//! asked, prints statistics, drains the recording, answers on its socket.

use crate::control::{Control, Exchange};
use crate::holds::Holds;
use crate::host::{Cause, HostError, HostOptions, Recorded, ejected};
use crate::knobs;
use crate::loader::Dispatcher;
use crate::machine;
use crate::output::Output;
use crate::preflight;
use crate::recorder::Recorder;
use crate::safety::guard::Guard;
use crate::safety::pressure;
use crate::socket::Server;
use crate::socket::protocol::{Command, ErrorKind, InForce, Reply, SetPolicy};
use crate::stats::{Mark, Stats};
use crate::status::{Beside, HostStatus};
use corun_model::time::{MS, SEC, seconds};
use corun_model::{Nanos, PcpuSet};
use corun_policies::{PolicyInfo, SettingError, Settings};
use corun_system::clock;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// How long the daemon sleeps at most: how soon it sees an ejection, or a signal that came just before it
/// slept. Each time it wakes it takes the pCPU from a vCPU, which has the rest of its turn afterwards, but not
/// under gangs or on cores (dispatcher/turn.h).
const NAP: Nanos = 200 * MS;

/// How often statistics begin anew if they are not shown: those that are written down at the end
/// are of the last moments.
const UNSEEN: Nanos = 10 * SEC;

/// Statistics of less time say little.
const SHORT: Nanos = SEC;

/// What lives as long as the dispatcher is in charge.
pub(crate) struct Daemon {
    options: HostOptions,
    output: Output,
    pub(crate) control: Control,
    recorder: Option<Recorder>,
    online: PcpuSet,
    began: Nanos,
    mark: Mark,
    report_due: Nanos,
    guard: Guard,
    forced: Vec<String>,
    /// The last statistics.
    last: Option<Stats>,
}

impl Daemon {
    pub(crate) fn new(
        mut options: HostOptions,
        forced: &[String],
        online: &PcpuSet,
        dispatcher: &Dispatcher<'_>,
    ) -> Result<Self, HostError> {
        let recorder = match &options.record {
            Some(path) => Some(
                Recorder::new(
                    path,
                    &knobs::raw(&options.params, online, &machine::sharing(online)),
                    dispatcher.records(),
                )
                .map_err(|cause| record_error(&options, cause))?,
            ),
            None => None,
        };
        let only = std::mem::take(&mut options.only);
        let out = std::mem::replace(&mut options.out, Box::new(io::sink()));
        let host = machine::seen(online)?;
        let control = Control::new(options.policy, options.settings, only, host, *online);
        let began = clock::now();
        Ok(Self {
            report_due: began.saturating_add(options.interval.unwrap_or(UNSEEN)),
            guard: Guard::new(options.limits, began),
            forced: forced.to_vec(),
            last: None,
            output: Output::new(out, options.notes),
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
    pub(crate) fn serve(
        &mut self,
        dispatcher: &Dispatcher<'_>,
        mut server: Server,
        asked: &AtomicBool,
    ) -> Result<Cause, HostError> {
        let end = self.options.run_for;
        let end = end.map(|time| self.began.saturating_add(time));
        self.mark_policy()?;
        loop {
            if asked.load(Ordering::Relaxed) {
                return Ok(Cause::Asked);
            }
            if let Some(info) = dispatcher.exit_info() {
                return Err(ejected(info));
            }
            if end.is_some_and(|end| clock::now() >= end) {
                return Ok(Cause::TimeOver);
            }
            self.turn(dispatcher)?;
            self.listen(dispatcher, &mut server, end)?;
        }
    }

    /// Does what is due.
    fn turn(&mut self, dispatcher: &Dispatcher<'_>) -> Result<(), HostError> {
        dispatcher.renew_lease();
        if dispatcher.take_lapse() {
            self.control.tell_anew();
            (self.options.notes)(
                "the daemon hung for 5 s or more: VMs were in fair order, and are under the policy again",
            );
        }
        self.output.check().map_err(HostError::Output)?;
        self.drain()?;
        let asked = clock::now() >= self.control.due();
        if asked {
            self.control.step(&dispatcher.tables())?;
            self.refuse_cookies()?;
        }
        if clock::now() >= self.report_due {
            self.report(dispatcher)?;
        }
        if asked || clock::now() >= self.guard.due() {
            self.watch_over(dispatcher, asked)?;
        }
        Ok(())
    }

    /// No task can make any as long as corun is in charge (tags.rs); but a task that began while
    /// others were checked may have had one. To hand the host back is no more dangerous than to
    /// stay: both go through the kernel's pick of a task for a core.
    fn refuse_cookies(&self) -> Result<(), HostError> {
        match self.control.tagged() {
            Some(names) if !self.options.is_forced(preflight::COOKIES) => {
                Err(HostError::Cookies(names))
            }
            _ => Ok(()),
        }
    }

    /// Is everybody served as promised? If not, the daemon ends, and the host is handed back. `shown`: the
    /// policy was just shown what there is to see. Reading it is most of what the daemon does, so it is not
    /// read twice.
    fn watch_over(&mut self, dispatcher: &Dispatcher<'_>, shown: bool) -> Result<(), HostError> {
        let read = match shown {
            true => None,
            false => Some(self.control.read(&dispatcher.tables())?),
        };
        let reading = read.as_ref().unwrap_or(&self.control.last);
        let pressure = match self.guard.limits().max_pressure {
            Some(_) => pressure::cpu_total(),
            None => None,
        };
        let vms = &self.control.vms.list;
        match self.guard.look(clock::now(), vms, reading, pressure) {
            Some(breach) => Err(HostError::RolledBack(breach)),
            None => Ok(()),
        }
    }

    /// Answers requests until something is due.
    fn listen(
        &mut self,
        dispatcher: &Dispatcher<'_>,
        server: &mut Server,
        end: Option<Nanos>,
    ) -> Result<(), HostError> {
        let mut failed = None;
        let limit = self.until_due(end);
        let mut answer = |command| {
            self.answer(command, dispatcher).unwrap_or_else(|error| {
                let reply = Reply::refusal(ErrorKind::NotChanged, error.to_string(), &[]);
                failed.get_or_insert(error);
                reply
            })
        };
        server.turn(limit, &mut answer).map_err(HostError::Wait)?;
        failed.map_or(Ok(()), Err)
    }

    fn until_due(&self, end: Option<Nanos>) -> Nanos {
        let now = clock::now();
        let events = [
            Some(now + NAP),
            Some(self.control.due()),
            Some(self.guard.due()),
            Some(self.report_due),
            end,
        ];
        let next = events.into_iter().flatten().min().unwrap_or(now);
        next.saturating_sub(now)
    }

    /// Does what a client asks for; an error is the daemon's end.
    fn answer(
        &mut self,
        command: Command,
        dispatcher: &Dispatcher<'_>,
    ) -> Result<Reply, HostError> {
        match command {
            Command::Policy => Ok(self.in_force()),
            Command::Status => self.status(dispatcher),
            Command::SetPolicy(wanted) => self.set_policy(&wanted, dispatcher),
        }
    }

    fn status(&mut self, dispatcher: &Dispatcher<'_>) -> Result<Reply, HostError> {
        let beside = Beside {
            now: clock::now(),
            began: self.began,
            limits: self.guard.limits(),
            forced: &self.forced,
            lapses: dispatcher.lapses(),
            cgroups: dispatcher.cgroups(),
        };
        let status = HostStatus::of(&mut self.control, &dispatcher.tables(), &beside)?;
        Ok(Reply::ok(&status))
    }

    fn in_force(&self) -> Reply {
        let info = self.control.policy();
        Reply::ok(&InForce {
            policy: info.name.to_string(),
            summary: info.summary.to_string(),
            source: info.source.to_string(),
            parameters: self.control.parameters(),
            for_s: seconds(clock::now().saturating_sub(self.control.since())),
            changes: self.control.changes,
            vms: self.control.thoughts(),
            status: self.control.notes(),
        })
    }

    /// Puts a policy in force, between two periods of the old one.
    fn set_policy(
        &mut self,
        wanted: &SetPolicy,
        dispatcher: &Dispatcher<'_>,
    ) -> Result<Reply, HostError> {
        let Some(info) = corun_policies::find(&wanted.name) else {
            let known: Vec<&str> = corun_policies::known().map(|info| info.name).collect();
            let message = format!("unknown policy {:?}", wanted.name);
            return Ok(Reply::refusal(ErrorKind::UnknownPolicy, message, &known));
        };
        let settings = match made_of(self.options.settings, info, wanted) {
            Ok(settings) => settings,
            Err(reply) => return Ok(*reply),
        };
        // Statistics and recordings tell policies apart.
        self.report(dispatcher)?;
        self.drain()?;
        let before = self.control.policy().name;
        match self.control.exchange(info, settings, &dispatcher.tables()) {
            Ok(()) => {}
            Err(Exchange::Kept(cause)) => {
                let message = format!(
                    "{} could not be put in force, {before} still is: {cause}",
                    info.name
                );
                return Ok(Reply::refusal(ErrorKind::NotChanged, message, &[]));
            }
            Err(Exchange::Between { cause, again }) => {
                let wanted = info.name;
                return Err(HostError::Between {
                    wanted,
                    cause,
                    before,
                    again,
                });
            }
        }
        self.mark_policy()?;
        Ok(self.in_force())
    }

    /// From here on, the recording says under which policy it was made.
    fn mark_policy(&self) -> Result<(), HostError> {
        let marked = match &self.recorder {
            Some(recorder) => recorder.mark(self.control.policy().name),
            None => Ok(()),
        };
        marked.map_err(|cause| record_error(&self.options, cause))
    }

    fn drain(&self) -> Result<(), HostError> {
        let drained = self.recorder.as_ref().map_or(Ok(()), Recorder::drain);
        drained.map_err(|cause| record_error(&self.options, cause))
    }

    /// Counts what happened since the last time, and prints it if that is wanted.
    fn report(&mut self, dispatcher: &Dispatcher<'_>) -> Result<(), HostError> {
        let stats = self.count(dispatcher)?;
        let printed = match self.options.interval {
            Some(_) => printed(&stats, self.options.json).and_then(|text| self.output.put(text)),
            None => Ok(()),
        };
        self.last = Some(stats);
        printed.map_err(HostError::Output)
    }

    /// The last statistics, for the post-mortem. That there are none must not change how it ends.
    pub(crate) fn last_stats(&mut self, dispatcher: &Dispatcher<'_>) -> Option<Stats> {
        let short = clock::now().saturating_sub(self.mark.at) < SHORT;
        if (self.last.is_none() || !short)
            && let Ok(stats) = self.count(dispatcher)
        {
            self.last = Some(stats);
        }
        self.last.take()
    }

    /// What happened since the last time.
    fn count(&mut self, dispatcher: &Dispatcher<'_>) -> Result<Stats, HostError> {
        let tables = dispatcher.tables();
        let (mut switches, mut occupied, mut holds) = (0, 0, Holds::default());
        for cpu in self.online.iter() {
            let cpu = tables.cpu(cpu.0).unwrap_or_default();
            switches += cpu.switches;
            occupied += cpu.nr;
            holds = holds.plus(&cpu);
        }
        let vcpus = self.control.read(&tables)?;
        let at = clock::now();
        let mark = Mark {
            at,
            switches,
            occupied,
            holds,
            vcpus,
        };
        let stacking = std::mem::take(&mut self.control.stacking);
        let (name, vms) = (self.control.policy().name, &self.control.vms.list);
        let stats = Stats::between(&self.mark, &mark, self.began, stacking, name, vms);
        self.mark = mark;
        self.report_due = at.saturating_add(self.options.interval.unwrap_or(UNSEEN));
        Ok(stats)
    }

    /// The last statistics go out, unless nobody reads them.
    pub(crate) fn finish_output(self) -> Result<(), HostError> {
        self.output.finish().map_err(HostError::Output)
    }

    pub(crate) fn finish_recording(
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

/// Statistics as they are printed.
fn printed(stats: &Stats, json: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match json {
        true => serde_json::to_writer(&mut text, stats)?,
        false => write!(text, "{stats}")?,
    }
    writeln!(text)?;
    Ok(text)
}

/// The settings that are wanted, the rest as the daemon was started with; what is wrong is the reply.
fn made_of(
    mut settings: Settings,
    info: &PolicyInfo,
    wanted: &SetPolicy,
) -> Result<Settings, Box<Reply>> {
    let mut said = wanted.set.iter();
    let set = said.try_for_each(|(key, value)| settings.set(info, key, value));
    let refuse = |error: SettingError| {
        let accepted = match error {
            SettingError::Unknown { .. } | SettingError::Simulated { .. } => Settings::keys(info),
            SettingError::Value { .. } => Vec::new(),
        };
        Box::new(Reply::refusal(
            ErrorKind::Parameter,
            error.to_string(),
            &accepted,
        ))
    };
    set.and_then(|()| settings.check(info)).map_err(refuse)?;
    if let Some(said) = wanted.events {
        let refuse = |kind: u32| {
            let message = format!("events: found type {kind}, expected one that counts cycles");
            Box::new(Reply::refusal(ErrorKind::Parameter, message, &[]))
        };
        settings.vsmtio.events = Some(said.events().map_err(refuse)?);
    }
    Ok(settings)
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
