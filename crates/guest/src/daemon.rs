// SPDX-License-Identifier: GPL-2.0-only
//! The daemon: who may be moved, whether anything should be, and how fast to beat. Everything here may
//! be late; what must be on time is in [`heart`](crate::heart) and [`engine`](crate::engine).

use crate::affinity;
use crate::clock;
use crate::detector::bpf::{Sightings, trace};
use crate::detector::sampled::{Sampled, Search};
use crate::detector::{Detector, Sighting};
use crate::engine::Engine;
use crate::guest::{Cause, GuestError, GuestOptions, Source};
use crate::heart::{self, Heart, Priority, lock};
use crate::pace::{self, Pace};
use crate::proc::{Key, Proc};
use crate::selection::{Left, movable};
use crate::sharing::Sharing;
use crate::state::{State, is_pinned, set_back};
use crate::status::{Status, replace};
use crate::system::Sys;
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuSet};
use corun_policies::vmigrater::MigraterParams;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the daemon waits at most: how soon it sees a signal.
const NAP: Nanos = 50 * MS;
/// A thread that was not I/O-bound for so long gets its mask back. Assumed: long against the pauses of
/// a task that does I/O, short against what people wait for.
const FORGIVEN: Nanos = SEC;
/// How long a thread that is left alone is remembered, for the status.
const REMEMBERED: Nanos = 10 * SEC;

/// Who looks for candidates.
enum Lookout {
    Sightings(Sightings),
    Search(Search),
}

pub(crate) struct Daemon {
    options: GuestOptions,
    proc: Proc,
    sys: Sys,
    state: State,
    engine: Arc<Mutex<Engine>>,
    heart: Option<Heart>,
    lookout: Lookout,
    detector: (&'static str, String),
    priority: Priority,
    vcpus: PcpuSet,
    pace: Pace,
    sharing: Sharing,
    began: Nanos,
    due: Nanos,
    left: BTreeMap<Key, (Left, Nanos)>,
    refused: BTreeMap<Key, Nanos>,
    heirs: u64,
    notes: Vec<String>,
}

impl Daemon {
    pub(crate) fn new(
        options: GuestOptions,
        state: State,
        vcpus: PcpuSet,
    ) -> Result<Self, GuestError> {
        let (proc, sys) = (Proc::default(), Sys::default());
        let priority = heart::raise().map_err(GuestError::Priority)?;
        let params = pace::params(options.heartbeat);
        let (detector, lookout, note) = detector(options.source, &proc, &params)?;
        let name = detector.name();
        let (began, sharing) = (clock::now(), Sharing::new(&proc));
        let engine = Engine::new(params, vcpus, detector);
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
            engine: Arc::new(Mutex::new(engine)),
            heart: None,
            lookout,
            detector: (name, note),
            priority,
            vcpus: PcpuSet::default(),
            began,
            due: began,
            left: BTreeMap::new(),
            refused: BTreeMap::new(),
            heirs: 0,
            notes: Vec::new(),
            options,
        })
    }

    /// Works until it is told to stop.
    pub(crate) fn serve(&mut self, asked: &AtomicBool) -> Result<Cause, GuestError> {
        let end = self.options.run_for.map(|time| self.began + time);
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
        let count = self
            .state
            .give_back_all()
            .map_err(|cause| self.failed(cause))?;
        for file in [Some(&self.options.status), self.options.metrics.as_ref()] {
            // One that was never written is not there to be removed.
            let _ = file.map(std::fs::remove_file);
        }
        Ok(count)
    }

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
        let shared = lock(&self.engine).shared();
        self.sharing.update(&self.proc, shared, now);
        let reason = self.reason_not_to_work();
        self.look_after_threads(now)?;
        if reason.is_some() {
            self.release_all()?;
        }
        lock(&self.engine).at_work = reason.is_none();
        self.free_heirs()?;
        self.set_pace(now);
        self.tell(now, reason)
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

    /// Heartbeats on the vCPUs that are online now.
    fn follow_hotplug(&mut self) -> Result<(), GuestError> {
        let online = self.sys.online().ok_or(GuestError::Online)?;
        if online == self.vcpus && self.heart.is_some() {
            return Ok(());
        }
        self.heart = None;
        self.release_all()?;
        let now = clock::now();
        let params = self.params();
        lock(&self.engine).restart(params, online, now);
        let started = Heart::start(&self.engine, online.iter(), params.heartbeat);
        match started {
            Ok(heart) => (self.heart, self.vcpus) = (Some(heart), online),
            // A vCPU may have gone meanwhile: tried again in a second.
            Err(error) => self.notes.push(format!("no heartbeats: {error}")),
        }
        Ok(())
    }

    fn params(&self) -> MigraterParams {
        pace::params(self.pace.period())
    }

    /// Beats fast only while there is something to move.
    fn set_pace(&mut self, now: Nanos) {
        let busy = !lock(&self.engine).keys().is_empty();
        let changed = self
            .pace
            .update(busy || self.sharing.is_probed(now), self.vcpus.len(), now);
        if changed && let Some(heart) = &self.heart {
            let params = self.params();
            heart.set_period(params.heartbeat);
            lock(&self.engine).restart(params, self.vcpus, now);
        }
    }

    /// The detector has something to say.
    fn seen(&mut self, sighting: Sighting) -> Result<(), GuestError> {
        let now = clock::now();
        let tid = match sighting {
            Sighting::Candidate(tid) | Sighting::Heir(tid) => tid,
        };
        let Some(tgid) = self.proc.process_of(tid) else {
            return Ok(());
        };
        let Some(stat) = self.proc.stat(tgid, tid) else {
            return Ok(());
        };
        let start = stat.start;
        let key = Key { tgid, tid, start };
        if let Sighting::Heir(_) = sighting {
            return self.free_heir(key, stat.parent);
        }
        if lock(&self.engine).knows(&key) || self.refused.contains_key(&key) {
            return Ok(());
        }
        self.free_heir(key, stat.parent)?;
        let verdict = match self.options.selection.refuses(&self.proc, &key, &stat) {
            Some(left) => Err(left),
            None => {
                let ticks = self.proc.ticks().unwrap_or(start);
                movable(&self.proc, &self.sys, &key, &self.vcpus, ticks)
            }
        };
        let before = match verdict {
            Ok(before) => before,
            Err(Left::Own | Left::Gone) => return Ok(()),
            Err(left) => {
                self.left.insert(key, (left, now));
                return Ok(());
            }
        };
        if self.reason_not_to_work().is_some() {
            self.sharing.probe(now);
            return Ok(());
        }
        self.state
            .enrol(&[(key, before)])
            .map_err(|cause| self.failed(cause))?;
        let added = lock(&self.engine).add(key, stat.vcpu, now);
        match added {
            Ok(()) => self.set_pace(now),
            Err(error) => {
                self.notes
                    .push(format!("thread {tid} cannot be watched: {error}"));
                self.state
                    .forget(&[key])
                    .map_err(|cause| self.failed(cause))?;
            }
        }
        Ok(())
    }

    /// Threads that have gone, changed, or do no I/O any more.
    fn look_after_threads(&mut self, now: Nanos) -> Result<(), GuestError> {
        let (keys, idle) = {
            let engine = lock(&self.engine);
            (engine.keys(), engine.unbound_for(FORGIVEN, now))
        };
        let unfit = |key: &&Key| match self.proc.stat(key.tgid, key.tid) {
            // It may have changed its name (exec), its user or its cgroup.
            Some(stat) => self
                .options
                .selection
                .refuses(&self.proc, key, &stat)
                .is_some(),
            None => true,
        };
        let unfit: Vec<Key> = keys.iter().filter(unfit).copied().collect();
        self.release(&[idle, unfit].concat())?;
        self.left
            .retain(|_, (_, at)| now.saturating_sub(*at) < REMEMBERED);
        self.refused.retain(|key, _| self.proc.is_there(key));
        Ok(())
    }

    fn release(&mut self, keys: &[Key]) -> Result<(), GuestError> {
        {
            let mut engine = lock(&self.engine);
            keys.iter().for_each(|key| engine.remove(key));
        }
        self.state
            .give_back(keys)
            .map_err(|cause| self.failed(cause))
    }

    fn release_all(&mut self) -> Result<(), GuestError> {
        let keys = lock(&self.engine).keys();
        self.release(&keys)
    }

    /// Forgets threads that somebody else has placed; one that the kernel does not let us move is not
    /// tried again.
    fn forget_lost(&mut self) -> Result<(), GuestError> {
        let lost = std::mem::take(&mut lock(&self.engine).lost);
        let now = clock::now();
        for key in &lost {
            if affinity::get(key.tid).is_ok() {
                self.refused.insert(*key, now);
            }
        }
        self.state.forget(&lost).map_err(|cause| self.failed(cause))
    }

    /// Threads that were created by moved ones and have their masks.
    fn free_heirs(&mut self) -> Result<(), GuestError> {
        let keys = lock(&self.engine).keys();
        for parent in keys {
            let siblings = self.proc.threads(parent.tgid).into_iter();
            let siblings = siblings.map(|tid| (parent.tgid, tid));
            let children = self.proc.children(parent.tgid, parent.tid).into_iter();
            for (tgid, tid) in siblings.chain(children.map(|tgid| (tgid, tgid))) {
                if let Some(stat) = self.proc.stat(tgid, tid) {
                    let start = stat.start;
                    self.free_heir(Key { tgid, tid, start }, stat.parent)?;
                }
            }
        }
        Ok(())
    }

    fn free_heir(&mut self, key: Key, parent: u32) -> Result<(), GuestError> {
        if !is_pinned(key.tid) || self.vcpus.len() < 2 {
            return Ok(());
        }
        if let Some(before) = self.state.inherited(&key, parent) {
            match set_back(&self.proc, &key, &before) {
                Ok(freed) => self.heirs += u64::from(freed),
                Err(error) => self
                    .notes
                    .push(format!("thread {} cannot be freed: {error}", key.tid)),
            }
        }
        Ok(())
    }

    fn tell(&mut self, now: Nanos, reason: Option<String>) -> Result<(), GuestError> {
        let mut left_alone = BTreeMap::new();
        for (left, _) in self.left.values() {
            *left_alone.entry(left.text().to_string()).or_insert(0) += 1;
        }
        let engine = lock(&self.engine);
        let threads = engine.keys().len();
        let doing = match (&reason, threads) {
            (Some(_), _) => "stood down",
            (None, 0) => "watching",
            (None, _) => "working",
        };
        let status = Status {
            pid: std::process::id(),
            running_ns: now - self.began,
            doing: doing.to_string(),
            because: reason.unwrap_or_default(),
            detector: self.detector.0.to_string(),
            detector_note: self.detector.1.clone(),
            steal: self
                .sharing
                .source(engine.detector.stolen(0).is_some())
                .to_string(),
            priority: self.priority,
            heartbeat_ns: engine.params().heartbeat,
            own_permille: self.pace.own_permille(),
            vcpus: engine.counts(),
            threads,
            io_bound: engine.bound(),
            left_alone,
            moves: engine.moves,
            heirs: self.heirs,
            notes: self.notes.clone(),
        };
        drop(engine);
        let output = |path: &std::path::Path, cause| GuestError::Output {
            path: path.to_path_buf(),
            cause,
        };
        let path = &self.options.status;
        status.write(path).map_err(|cause| output(path, cause))?;
        if let Some(path) = &self.options.metrics {
            replace(path, &status.metrics()).map_err(|cause| output(path, cause))?;
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

/// The best detector that works here, or the one asked for; and why none better.
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
