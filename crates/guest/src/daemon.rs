// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: which threads may be moved, whether any should be, and how fast to beat. Everything here may
//! be late; what must be on time is in [`heart`] and [`migrater`](crate::migrater).

use crate::detector::bpf::{Sightings, trace};
use crate::detector::sampled::{Sampled, Search};
use crate::detector::{Detector, Sighting};
use crate::guest::{Cause, GuestError, GuestOptions, Source, none_is_stuck};
use crate::heart::{self, Heart, Priority, lock};
use crate::migrater::Migrater;
use crate::pace::{self, Pace};
use crate::selection::Left;
use crate::sharing::Sharing;
use crate::state::{State, in_words};
use crate::status::Status;
use crate::system::Sys;
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuSet};
use corun_policies::vmigrater::MigraterParams;
use corun_system::procfs::{Proc, ThreadKey};
use corun_system::{clock, files};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the daemon waits at most: how soon it sees a signal.
const NAP: Nanos = 50 * MS;

mod heirs;
mod threads;

use heirs::Heirs;

/// What looks for candidates.
enum Lookout {
    Sightings(Sightings),
    Search(Search),
}

pub(crate) struct Daemon {
    options: GuestOptions,
    proc: Proc,
    sys: Sys,
    state: State,
    migrater: Arc<Mutex<Migrater>>,
    heart: Option<Heart>,
    lookout: Lookout,
    /// Which detector is at work, and why not a better one.
    detector: &'static str,
    detector_note: String,
    priority: Priority,
    vcpus: PcpuSet,
    pace: Pace,
    sharing: Sharing,
    began: Nanos,
    due: Nanos,
    left: BTreeMap<ThreadKey, (Left, Nanos)>,
    /// Threads that are not tried again.
    refused: BTreeSet<ThreadKey>,
    heirs: Heirs,
    notes: Vec<String>,
}

impl Daemon {
    pub(crate) fn new(
        options: GuestOptions,
        state: State,
        vcpus: PcpuSet,
    ) -> Result<Self, GuestError> {
        let (proc, sys) = (Proc::default(), Sys::default());
        heart::keep_memory();
        heart::be_prompt();
        let priority = heart::try_priority().map_err(GuestError::Priority)?;
        let params = pace::params(options.heartbeat);
        let (detector, lookout, note) = detector(options.source, &proc, &params)?;
        let name = detector.name();
        let (began, sharing) = (clock::now(), Sharing::new(&proc));
        let migrater = Migrater::new(params, vcpus, detector);
        Ok(Self {
            pace: Pace::new(
                options.heartbeat,
                options.own_permille,
                sharing.tells_steal(),
            ),
            sharing,
            proc,
            sys,
            state,
            migrater: Arc::new(Mutex::new(migrater)),
            heart: None,
            lookout,
            detector: name,
            detector_note: note,
            priority,
            vcpus: PcpuSet::default(),
            began,
            due: began,
            left: BTreeMap::new(),
            refused: BTreeSet::new(),
            heirs: Heirs::default(),
            notes: Vec::new(),
            options,
        })
    }

    /// Works until it is told to stop.
    pub(crate) fn serve(&mut self, asked: &AtomicBool) -> Result<Cause, GuestError> {
        let end = self.options.run_for;
        let end = end.map(|time| self.began.saturating_add(time));
        loop {
            if asked.load(Ordering::Relaxed) {
                return Ok(Cause::Asked);
            }
            let now = clock::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(Cause::TimeOver);
            }
            if now >= self.due {
                self.due = now + SEC;
                self.look_around(now)?;
            }
            let until = [Some(self.due), end].into_iter().flatten().min();
            let limit = until
                .map_or(NAP, |until| until.saturating_sub(now))
                .min(NAP);
            for sighting in self.lookout.wait(limit) {
                self.seen(sighting)?;
            }
            self.forget_lost()?;
        }
    }

    /// Stops, and gives everything back. Returns to how many threads.
    pub(crate) fn finish(&mut self) -> Result<usize, GuestError> {
        // Nobody may move a thread after it was given back.
        self.heart = None;
        let given = self.state.give_back_all();
        // From here on nobody inherits anything.
        let heirs = self.free_last_heirs();
        for file in [Some(&self.options.status), self.options.metrics.as_ref()] {
            // A file that was never written cannot be removed.
            let _ = file.map(std::fs::remove_file);
        }
        let given = given.map_err(|cause| self.failed(cause))?;
        let heirs = usize::try_from(heirs?).unwrap_or(usize::MAX);
        none_is_stuck(&self.options.state, &self.state)?;
        Ok(given + heirs)
    }

    /// Frees heirs that nothing has reported yet. Returns how many.
    fn free_last_heirs(&mut self) -> Result<u64, GuestError> {
        let before = self.heirs.freed;
        for sighting in self.lookout.wait(0) {
            if let Sighting::Heir { tid, root, vcpu } = sighting {
                self.heir_seen(tid, root, vcpu);
            }
        }
        self.free_heirs()?;
        Ok(self.heirs.freed - before)
    }

    /// The state file cannot be written.
    fn failed(&self, cause: std::io::Error) -> GuestError {
        GuestError::State {
            path: self.options.state.clone(),
            cause,
        }
    }

    /// Once a second: what has changed about this guest, and what follows.
    fn look_around(&mut self, now: Nanos) -> Result<(), GuestError> {
        self.notes.clear();
        self.follow_hotplug()?;
        let shared = lock(&self.migrater).shared();
        self.sharing.update(&self.proc, shared, now);
        let reason = self.reason_not_to_work();
        self.look_after_threads(now)?;
        if reason.is_some() {
            self.release_all()?;
        }
        lock(&self.migrater).at_work = reason.is_none();
        if self.vcpus.len() > 1 {
            // With a single vCPU every thread would look pinned.
            self.free_heirs()?;
        }
        self.set_pace(now);
        self.tell(&self.status(now, reason))
    }

    /// Why nothing may be moved now.
    fn reason_not_to_work(&self) -> Option<String> {
        if let Some(governor) = self.sys.governor() {
            return Some(governor);
        }
        if self.vcpus.len() < 2 {
            return Some("this guest has one vCPU".to_string());
        }
        self.sharing.reason()
    }

    /// Starts heartbeats on the vCPUs that are online now.
    fn follow_hotplug(&mut self) -> Result<(), GuestError> {
        let online = self.sys.online().ok_or(GuestError::Online)?;
        if online == self.vcpus && self.heart.is_some() {
            return Ok(());
        }
        self.heart = None;
        self.forget_lost()?;
        self.release_all()?;
        // The kernel widens the mask of a thread whose vCPU goes, and refuses moves to that vCPU: neither was anybody's
        // will.
        self.refused.clear();
        let now = clock::now();
        let params = self.params();
        lock(&self.migrater).restart(params, online, now);
        let started = Heart::start(&self.migrater, online.iter(), params.heartbeat);
        match started {
            Ok(heart) => (self.heart, self.vcpus) = (Some(heart), online),
            // A vCPU may have gone meanwhile: the next try is in a second.
            Err(error) => self.notes.push(format!("no heartbeats: {error}")),
        }
        Ok(())
    }

    fn params(&self) -> MigraterParams {
        pace::params(self.pace.period())
    }

    /// Beats fast only while there is something to move.
    fn set_pace(&mut self, now: Nanos) {
        let busy = !lock(&self.migrater).keys().is_empty();
        let changed = self
            .pace
            .update(busy || self.sharing.is_probed(now), self.vcpus.len(), now);
        if changed && let Some(heart) = &self.heart {
            let params = self.params();
            heart.set_period(params.heartbeat);
            lock(&self.migrater).restart(params, self.vcpus, now);
        }
    }

    /// The daemon's state; `reason`: why nothing may be moved now.
    fn status(&self, now: Nanos, reason: Option<String>) -> Status {
        let mut left_alone = BTreeMap::new();
        for (left, _) in self.left.values() {
            *left_alone.entry(left.text().to_string()).or_insert(0) += 1;
        }
        let migrater = lock(&self.migrater);
        let threads = migrater.keys().len();
        let doing = match (&reason, threads) {
            (Some(_), _) => "stood down",
            (None, 0) => "watching",
            (None, _) => "working",
        };
        Status {
            pid: std::process::id(),
            running_ns: now - self.began,
            doing: doing.to_string(),
            because: reason.unwrap_or_default(),
            detector: self.detector.to_string(),
            detector_note: self.detector_note.clone(),
            steal: self
                .sharing
                .source(migrater.detector.stolen(0).is_some())
                .to_string(),
            priority: self.priority,
            heartbeat_ns: migrater.params().heartbeat,
            own_permille: self.pace.own_permille(),
            vcpus: migrater.counts(),
            threads,
            io_bound: migrater.bound(),
            left_alone,
            moves: migrater.moves,
            heirs: self.heirs.freed,
            notes: [self.notes.clone(), in_words(self.state.stuck())].concat(),
        }
    }

    /// Writes the status down for those who ask.
    fn tell(&self, status: &Status) -> Result<(), GuestError> {
        let output = |path: &std::path::Path, cause| GuestError::Output {
            path: path.to_path_buf(),
            cause,
        };
        let path = &self.options.status;
        status.write(path).map_err(|cause| output(path, cause))?;
        if let Some(path) = &self.options.metrics {
            files::replace(path, status.metrics().as_bytes())
                .map_err(|cause| output(path, cause))?;
        }
        Ok(())
    }
}

impl Lookout {
    fn wait(&mut self, limit: Nanos) -> Vec<Sighting> {
        let limit = Duration::from_nanos(limit);
        match self {
            Self::Sightings(sightings) => sightings.wait(limit),
            Self::Search(search) => {
                std::thread::sleep(limit);
                search.look(clock::now)
            }
        }
    }
}

/// The best detector that works here, or the one asked for; and why not a better one.
fn detector(
    source: Source,
    proc: &Proc,
    params: &MigraterParams,
) -> Result<(Detector, Lookout, String), GuestError> {
    let why = match source {
        Source::Proc => "as asked".to_string(),
        Source::Auto | Source::Bpf => match trace(params) {
            Ok((traced, sightings)) => {
                let lookout = Lookout::Sightings(sightings);
                return Ok((Detector::Traced(traced), lookout, String::new()));
            }
            Err(why) if source == Source::Bpf => return Err(GuestError::NoBpf(why)),
            Err(why) => format!("no BPF: {why}"),
        },
    };
    let sampled = Detector::Sampled(Sampled::new(proc.clone(), params));
    let search = Lookout::Search(Search::new(proc.clone(), params));
    Ok((sampled, search, why))
}
