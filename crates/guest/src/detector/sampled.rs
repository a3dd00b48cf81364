// SPDX-License-Identifier: GPL-2.0-only
//! I/O as seen in /proc, where the kernel lets nobody look closer: a thread whose count of bytes read and written
//! grows, or that is in uninterruptible sleep, is taken to have been in I/O for as long as it neither ran nor waited
//! for a vCPU (`schedstat`). New candidates are found once a second, by a look at all processes, not within
//! milliseconds.

use super::Sighting;
use corun_model::Nanos;
use corun_model::time::SEC;
use corun_policies::vmigrater::{Core, MigraterParams};
use corun_system::procfs::{Counted, Proc, Stat, ThreadKey, transferred_in};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What was read of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    at: Nanos,
    counted: Counted,
    /// Read from and written to devices, bytes.
    bytes: u64,
    /// In uninterruptible sleep.
    uninterruptible: bool,
    vcpu: u32,
}

impl Sample {
    /// The share of the time since `before` that was I/O, thousandths.
    fn share_since(&self, before: &Self) -> u64 {
        let passed = self.at.saturating_sub(before.at);
        let since = self.counted.since(before.counted);
        let on = since.run + since.ready;
        let in_io = self.bytes > before.bytes || self.uninterruptible;
        match in_io && passed > 0 {
            true => passed.saturating_sub(on) * 1000 / passed,
            false => 0,
        }
    }
}

/// A thread's files, kept open: a look is three reads.
#[derive(Debug)]
struct Files {
    stat: File,
    schedstat: Option<File>,
    io: Option<File>,
}

impl Files {
    fn open(proc: &Proc, tgid: u32, tid: u32) -> io::Result<Self> {
        let thread = proc.thread(tgid, tid);
        Ok(Self {
            stat: File::open(thread.file("stat"))?,
            schedstat: File::open(thread.file("schedstat")).ok(),
            io: File::open(thread.file("io")).ok(),
        })
    }

    /// `None`: the thread has gone.
    fn sample(&self, at: Nanos) -> Option<Sample> {
        let mut text = String::new();
        let stat = Stat::parse(read(&self.stat, &mut text)?)?;
        let mut sample = Sample {
            at,
            uninterruptible: stat.state == 'D',
            vcpu: stat.cpu,
            ..Sample::default()
        };
        if let Some(file) = &self.schedstat {
            sample.counted = Counted::parse(read(file, &mut text)?)?;
        }
        if let Some(file) = &self.io {
            sample.bytes = read(file, &mut text).map_or(0, transferred_in);
        }
        Some(sample)
    }
}

fn read<'text>(file: &File, text: &'text mut String) -> Option<&'text str> {
    let mut bytes = [0; 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    *text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    Some(text)
}

#[derive(Debug)]
struct Watched {
    files: Files,
    last: Sample,
    /// Since the last sample its vCPU was descheduled: that time says nothing about the thread.
    spoiled: bool,
}

/// Threads as /proc shows them.
#[derive(Debug)]
pub(crate) struct Sampled {
    proc: Proc,
    window: Nanos,
    watched: BTreeMap<u32, Watched>,
}

impl Sampled {
    pub(crate) fn new(proc: Proc, params: &MigraterParams) -> Self {
        Self {
            proc,
            window: params.window,
            watched: BTreeMap::new(),
        }
    }

    pub(crate) fn watch(&mut self, key: &ThreadKey, now: Nanos) -> io::Result<()> {
        let files = Files::open(&self.proc, key.tgid, key.tid)?;
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let watched = Watched {
            last: files.sample(now).ok_or_else(gone)?,
            files,
            spoiled: false,
        };
        self.watched.insert(key.tid, watched);
        Ok(())
    }

    pub(crate) fn unwatch(&mut self, tid: u32) {
        self.watched.remove(&tid);
    }

    pub(crate) fn vcpu(&self, tid: u32) -> u32 {
        self.watched.get(&tid).map_or(0, |it| it.last.vcpu)
    }

    pub(crate) fn feed(&mut self, core: &mut Core, tid: u32, now: Nanos, regular: bool) {
        let Some(watched) = self.watched.get_mut(&tid) else {
            return;
        };
        watched.spoiled |= !regular;
        if now.saturating_sub(watched.last.at) < self.window {
            return;
        }
        // The daemon finds out about threads that have gone.
        if let Some(sample) = watched.files.sample(now) {
            if !watched.spoiled {
                core.io_sampled(u64::from(tid), sample.share_since(&watched.last));
            }
            (watched.last, watched.spoiled) = (sample, false);
        }
    }
}

/// Looks for candidates among all threads.
#[derive(Debug)]
pub(crate) struct Search {
    proc: Proc,
    enter: u64,
    /// Bytes read and written by whole processes at the last look.
    processes: BTreeMap<u32, u64>,
    /// Threads of processes that did I/O lately.
    threads: BTreeMap<u32, Sample>,
    due: Nanos,
}

impl Search {
    pub(crate) fn new(proc: Proc, params: &MigraterParams) -> Self {
        Self {
            proc,
            enter: params.enter,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            due: 0,
        }
    }

    /// Those that were in I/O for long enough since the last look; looks once a second, and less often
    /// where that would take more than a five-hundredth of a vCPU.
    pub(crate) fn look(&mut self, clock: impl Fn() -> Nanos) -> Vec<Sighting> {
        let now = clock();
        if now < self.due {
            return Vec::new();
        }
        let (mut processes, mut threads) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = Vec::new();
        for tgid in self.proc.processes() {
            let bytes = self.proc.process(tgid).transferred().unwrap_or(0);
            let before = self.processes.get(&tgid).copied();
            processes.insert(tgid, bytes);
            if before.is_some_and(|before| before < bytes) {
                seen.extend(self.look_at_threads(tgid, now, &mut threads));
            }
        }
        (self.processes, self.threads) = (processes, threads);
        self.due = now + SEC.max(clock().saturating_sub(now) * 500);
        seen
    }

    fn look_at_threads(
        &self,
        tgid: u32,
        now: Nanos,
        threads: &mut BTreeMap<u32, Sample>,
    ) -> Vec<Sighting> {
        let mut seen = Vec::new();
        for tid in self.proc.process(tgid).threads() {
            let files = Files::open(&self.proc, tgid, tid);
            let Some(sample) = files.ok().and_then(|files| files.sample(now)) else {
                continue;
            };
            let before = self.threads.get(&tid);
            let share = before.map_or(0, |before| sample.share_since(before));
            if share >= self.enter {
                seen.push(Sighting::Candidate(tid));
            }
            threads.insert(tid, sample);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;

    #[test]
    fn blocked_time_is_io_only_where_bytes_flow_or_sleep_is_deep() {
        let before = Sample::default();
        let mut sample = Sample {
            at: 10 * MS,
            counted: Counted {
                run: 2 * MS,
                ready: MS,
                turns: 1,
            },
            ..before
        };
        assert_eq!(sample.share_since(&before), 0, "it only slept");
        sample.bytes = 4096;
        assert_eq!(sample.share_since(&before), 700);
        sample.bytes = 0;
        sample.uninterruptible = true;
        assert_eq!(sample.share_since(&before), 700);
        assert_eq!(sample.share_since(&sample), 0, "no time has passed");
    }

    #[test]
    fn this_thread_can_be_watched_and_one_that_is_not_there_cannot() {
        let me = std::process::id();
        let params = MigraterParams::default();
        let mut sampled = Sampled::new(Proc::default(), &params);
        let key = crate::testing::key_of(me, me);
        sampled.watch(&key, 0).unwrap();
        let mut core = Core::new(params, 1);
        core.task_appeared(u64::from(me), 0, 0, 0);
        sampled.feed(&mut core, me, params.window, true);
        assert_eq!(core.io_bound(u64::from(me)), Some(false));
        let gone = ThreadKey {
            tid: u32::MAX,
            ..key
        };
        assert!(sampled.watch(&gone, 0).is_err());
    }

    #[test]
    fn a_search_finds_nothing_in_an_empty_place() {
        let empty = tempfile::tempdir().unwrap();
        let mut search = Search::new(Proc::at(empty.path()), &MigraterParams::default());
        assert_eq!(search.look(|| SEC), []);
        assert_eq!(search.due, 2 * SEC);
    }
}
