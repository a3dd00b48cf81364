// SPDX-License-Identifier: GPL-2.0-only
//! Records what a host's pCPUs and vCPUs do, for `corun record`, on any kernel with BTF.
//!
//! The kernel's half (bpf/record.bpf.c) writes events into a ring for each pCPU; here they are read every [`NAP`], put
//! in order of time, and written as blocks (corun_recording::native). Events of the last [`UNSETTLED`] are kept for the
//! next time: an interrupted pCPU may still be writing older ones. Nothing on the host is changed.

mod event;
mod exits;
mod file;
mod probes;
mod ring;
mod scheduler;
mod threads;

use crate::{inventory, namespaces, preflight, priority};
use corun_model::Nanos;
use corun_model::time::{MS, SEC};
use corun_recording::native::{Anonymiser, Encoder, Entry};
use corun_recording::scheduler::both;
use corun_system::clock;
use corun_system::procfs::Proc;
use event::Raw;
use exits::Exits;
use file::Writer;
pub use probes::Missing;
use probes::Probes;
use signal_hook::consts::SIGXFSZ;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use threads::Threads;

/// How often events are taken: a ring holds those of 20 ms at more than a million a second.
const NAP: Nanos = 20 * MS;
/// Younger events may have older ones still coming. Writing one takes well below a microsecond; an
/// interrupt or, under a hypervisor, a lost pCPU can hold that up (assumed: rarely this long; what comes
/// later is put in order by the reader).
const UNSETTLED: Nanos = MS;
/// How often counts are read and what was taken is written.
const PACE: Nanos = SEC;

/// What to record.
pub struct RecordOptions<'a> {
    /// Where to. A file that holds something is not overwritten.
    pub file: PathBuf,
    /// How long; `None`: until SIGINT, SIGTERM or SIGHUP.
    pub run_for: Option<Nanos>,
    /// Without names.
    pub anonymise: bool,
    /// The socket of corun's daemon, which knows the policy of a host under corun.
    pub daemon: PathBuf,
    /// Hears how far it is, a few times a second.
    pub progress: &'a mut dyn FnMut(&Progress),
}

/// How far a recording is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Since it began, ns.
    pub elapsed: Nanos,
    /// Events so far.
    pub events: u64,
    /// Events that found no room.
    pub lost: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// The whole of it.
    pub progress: Progress,
    /// VMs that were there at its beginning or end.
    pub vms: usize,
    /// What was not available.
    pub missing: Vec<Missing>,
    /// It ended because the file could not be written on; it can be read up to [`Recorded::until`].
    pub cut: Option<io::Error>,
    /// How much of it the file has, ns since its beginning.
    pub until: Nanos,
}

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Only some may trace the kernel.
    #[error("nothing is recorded: to trace the kernel takes root, or CAP_BPF and CAP_PERFMON")]
    Rights,
    /// The kernel's half is refused.
    #[error(
        "the kernel does not let this be traced: {cause}; it takes root (CAP_BPF, CAP_PERFMON), Linux 5.8 \
         or newer, and BTF (/sys/kernel/btf/vmlinux)\n{log}"
    )]
    Load {
        /// What failed.
        cause: libbpf_rs::Error,
        /// What libbpf said.
        log: String,
    },
    /// The object lacks something; a mistake in the build.
    #[error("the tracing program has no {0}: built from other sources?")]
    Object(&'static str),
    /// The events' memory is not available.
    #[error("cannot map the memory that the kernel writes events into: {0}")]
    Rings(io::Error),
    /// The file cannot be made.
    #[error("{path}: {error}; recordings are written to a new file, or an empty one", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Threads have other numbers here than in the kernel.
    #[error("this is a PID namespace of its own (a container?): record on the host itself")]
    Namespace,
    /// The kernel does not report pCPUs.
    #[error("cannot tell this host's pCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// Signals cannot be watched for.
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

/// Records until the time is over or a signal comes.
///
/// # Errors
/// [`RecordError`]: nothing was recorded. Whatever happens later leaves a recording that can be read, and is reported
/// in [`Recorded`].
pub fn run(options: RecordOptions<'_>) -> Result<Recorded, RecordError> {
    if !namespaces::numbers_are_the_kernels() {
        return Err(RecordError::Namespace);
    }
    if preflight::may_load_nothing() {
        return Err(RecordError::Rights);
    }
    let asked = signals().map_err(RecordError::Signals)?;
    let online = preflight::online().ok_or(RecordError::Online)?;
    let kernel = Proc::default().release().unwrap_or_default();
    let scheduler = scheduler::in_charge(&kernel, &options.daemon);
    // The program first: without the right to trace, no empty file is left.
    let mut probes = Probes::begin(&online)?;
    let writer = Writer::create(&options.file)?;
    priority::raise();
    let mut session = Session {
        began: clock::now(),
        waiting: Vec::new(),
        threads: Threads::of_this_host(),
        vms: BTreeMap::new(),
        exits: Exits::default(),
        names: options.anonymise.then(Anonymiser::default),
        encoder: Encoder::default(),
        writer,
        told: 0,
        progress: Progress::default(),
        scheduler,
        daemon: options.daemon,
        kernel,
    };
    let highest = online.iter().last().map_or(0, |cpu| cpu.0);
    session.facts(highest + 1);
    session.look_for_vms();
    let end = options
        .run_for
        .map(|time| session.began.saturating_add(time));
    let over = |now| end.is_some_and(|end| now >= end) || asked.load(Ordering::Relaxed);
    let mut due = session.began + PACE;
    let mut alive = true;
    while alive && !over(clock::now()) {
        let left = end.map_or(NAP, |end| end.saturating_sub(clock::now()).min(NAP));
        std::thread::sleep(Duration::from_nanos(left));
        let now = clock::now();
        alive = session.take(&mut probes, now.saturating_sub(UNSETTLED));
        if now >= due {
            due = now + PACE;
            alive &= session.settle(&mut probes);
        }
        session.progress.elapsed = now - session.began;
        session.progress.bytes = session.writer.bytes();
        (options.progress)(&session.progress);
    }
    Ok(session.end(probes))
}

/// A flag that the usual signals raise. The signal of a file size limit must not kill the process: the write fails
/// then.
fn signals() -> io::Result<Arc<AtomicBool>> {
    let asked = corun_system::signals::watch()?;
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(asked)
}

/// A recording under way.
struct Session {
    /// When, on the monotonic clock.
    began: Nanos,
    /// Events that are not old enough.
    waiting: Vec<Raw>,
    threads: Threads,
    /// Names of VMs by process.
    vms: BTreeMap<u32, String>,
    exits: Exits,
    names: Option<Anonymiser>,
    encoder: Encoder,
    writer: Writer,
    /// Time of the last entry.
    told: Nanos,
    progress: Progress,
    kernel: String,
    /// What was in charge when it began.
    scheduler: String,
    /// The socket of corun's daemon.
    daemon: PathBuf,
}

impl Session {
    fn facts(&mut self, pcpus: u32) {
        let facts = [
            ("version", env!("CARGO_PKG_VERSION").to_string()),
            ("kernel", self.kernel.clone()),
            ("scheduler", self.scheduler.clone()),
            ("clock", "mono".to_string()),
            ("pcpus", pcpus.to_string()),
        ];
        for (name, value) in facts {
            self.fact(name, value);
        }
        self.told = self.began;
        let at = self.began;
        self.push(Entry::Edge { at, last: false });
    }

    fn fact(&mut self, name: &str, value: String) {
        let name = name.to_string();
        self.push(Entry::Fact { name, value });
    }

    /// VMs, and all their threads, those that do nothing included.
    fn look_for_vms(&mut self) {
        for machine in inventory::machines(Path::new("/")) {
            let (tgid, name) = (machine.tgid, machine.identity.name);
            if self.vms.insert(tgid, name.clone()).is_none() {
                self.push(Entry::Vm { tgid, name });
            }
            for thread in machine.threads {
                let told = self.threads.tell(thread.tid);
                told.into_iter().for_each(|entry| {
                    self.push(entry);
                });
            }
        }
    }

    /// Takes events and writes those older than `settled`; false if they cannot be written.
    fn take(&mut self, probes: &mut Probes, settled: Nanos) -> bool {
        probes.take(settled, &mut self.waiting);
        // What a ring gives is in order already, and sorting makes use of that.
        self.waiting.sort_by_key(|event| event.at);
        let old = self.waiting.partition_point(|event| event.at < settled);
        let rest = self.waiting.split_off(old);
        let ready = std::mem::replace(&mut self.waiting, rest);
        let (mut alive, began) = (true, self.began);
        for event in ready.iter().filter(|event| event.at >= began) {
            alive &= self.event(event);
        }
        alive
    }

    fn event(&mut self, event: &Raw) -> bool {
        let mut alive = true;
        if let Some((tid, tgid, comm)) = event.names() {
            self.threads.named(tid, tgid, comm);
        }
        for tid in [event.running, event.thread] {
            if let Some(entry) = self.threads.tell(tid) {
                alive &= self.push(entry);
            }
        }
        if let Some(entry) = event.entry() {
            self.progress.events += 1;
            self.told = event.at;
            alive &= self.push(entry);
        }
        alive
    }

    /// What is not an event: counts and losses. Then everything goes to the file.
    fn settle(&mut self, probes: &mut Probes) -> bool {
        for entry in self.exits.since(&probes.counts) {
            self.push(entry);
        }
        for (cpu, events) in probes.lost() {
            self.progress.lost += events;
            let at = self.told;
            self.push(Entry::Lost { at, cpu, events });
        }
        match self.encoder.flush() {
            Some(block) => self.writer.write(block, self.told),
            None => true,
        }
    }

    fn push(&mut self, entry: Entry) -> bool {
        let entry = match &mut self.names {
            Some(names) => names.entry(entry),
            None => entry,
        };
        match self.encoder.push(&entry) {
            Some(block) => self.writer.write(block, self.told),
            None => true,
        }
    }

    fn end(mut self, mut probes: Probes) -> Recorded {
        let at = clock::now();
        probes.end();
        self.take(&mut probes, at);
        self.look_for_vms();
        let last = scheduler::in_charge(&self.kernel, &self.daemon);
        if last != self.scheduler {
            // The last one counts.
            self.fact("scheduler", both(&self.scheduler, &last));
        }
        self.settle(&mut probes);
        self.told = at;
        self.push(Entry::Edge { at, last: true });
        if let Some(block) = self.encoder.flush() {
            self.writer.write(block, at);
        }
        let written = self.writer.finish();
        let elapsed = at - self.began;
        Recorded {
            progress: Progress {
                elapsed,
                bytes: written.bytes,
                ..self.progress
            },
            vms: self.vms.len(),
            missing: probes.missing,
            cut: written.error,
            until: written.until.saturating_sub(self.began),
        }
    }
}
