// SPDX-License-Identifier: GPL-2.0-only
//! What was changed of threads, in memory and in a file: so that it is taken back when the daemon
//! ends, and by the next one if it crashed.
//!
//! A change is written to the file before it is made, together with the former setting. If the
//! daemon is killed in between, or cannot write, or the kernel refuses, the thread may have either
//! of the two. A setting is taken back only if the thread still has one of them; any other was set
//! by another process since, and is kept. If another process sets a mask while the daemon works,
//! that mask counts as the former setting from then on.

use super::thread;
use crate::{cgroup, machine, preflight};
use corun_model::{Nanos, PcpuSet, counted};
use corun_system::affinity;
use corun_system::files::{self, Lock};
use corun_system::procfs::{Proc, ThreadKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What can be set of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The pCPUs it may use.
    pub(crate) affinity: PcpuSet,
    /// The slice it asks for, ns; `None`: the scheduler's own, or it is not asked.
    pub(crate) slice: Option<Nanos>,
}

/// A thread of which something was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// Of which boot, whose numbers mean nothing in another one; `None`: a daemon wrote it that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    #[serde(flatten)]
    key: ThreadKey,
    before: Settings,
    /// It could go anywhere before: it is set free instead of being tied to the pCPUs of that time, so that it may use
    /// those that were plugged in since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    free: bool,
    now: Settings,
    /// What was set until then, as long as it is not known that `now` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<Settings>,
    /// A mask that we have not set, and at how many thorough looks it was there: until it is known whose that is,
    /// nothing is set.
    #[serde(skip)]
    strange: Option<(PcpuSet, u32)>,
}

/// A pCPU that goes off-line is missing in masks for a moment before it is reported to be off-line:
/// after this many thorough looks, each of which has found the same pCPUs, a mask counts as set by
/// another process.
const SURE: u32 = 2;

impl Changed {
    fn is(&self, key: &ThreadKey) -> bool {
        self.key == *key
    }

    fn is_there(&self) -> bool {
        Proc::default().is_there(&self.key)
    }

    /// May it be this boot's?
    fn is_of(&self, boot: &str) -> bool {
        self.boot.as_deref().is_none_or(|of| of == boot)
    }

    /// Have we set what the kernel shows as these pCPUs? It leaves out those that are not `online`; where none is
    /// left it lets a thread go anywhere, and ties it again when they come back (`user_cpus_ptr` in
    /// kernel/sched/core.c).
    fn has_set_pcpus(&self, found: &PcpuSet, online: &PcpuSet) -> bool {
        if *found == self.before.affinity {
            return self.in_force() != self.before;
        }
        let shown = |set: &Settings| *found == set.affinity || *found == set.affinity.and(online);
        !found.is_empty() && (shown(&self.now) || self.was.as_ref().is_some_and(shown))
    }

    /// Has another process set these pCPUs, for sure?
    fn is_anothers(&mut self, found: &PcpuSet, online: &PcpuSet, thorough: bool) -> bool {
        if self.is_known(found, online) {
            self.strange = None;
            return false;
        }
        let before = self.strange.filter(|(pcpus, _)| pcpus == found);
        let looks = before.map_or(0, |(_, looks)| looks) + u32::from(thorough);
        self.strange = Some((*found, looks));
        looks >= SURE
    }

    /// Are these the pCPUs that it had before, those that we have set, or what the kernel has left of them within a cpuset?
    /// When that is wider again, so is the mask.
    fn is_known(&self, found: &PcpuSet, online: &PcpuSet) -> bool {
        let cut = || {
            let cpuset = cpuset_of(&self.key);
            cpuset.is_some_and(|cpuset| *found == self.in_force().affinity.and(&cpuset))
        };
        found.is_empty()
            || *found == self.before.affinity
            || self.has_set_pcpus(found, online)
            || cut()
    }

    /// Its mask was set by another process.
    fn give_way(&mut self, pcpus: &PcpuSet) {
        self.strange = None;
        self.before.affinity = *pcpus;
        self.free = may_go_anywhere(&self.key);
        self.now.affinity = *pcpus;
        if let Some(was) = &mut self.was {
            was.affinity = *pcpus;
        }
    }

    /// Have we set this slice?
    fn has_set_slice(&self, found: Option<Nanos>) -> bool {
        let known = |set: &Settings| found == set.slice;
        known(&self.now) || self.was.as_ref().is_some_and(known)
    }

    /// Lets it use these pCPUs.
    fn set_pcpus(&self, pcpus: &PcpuSet) -> io::Result<()> {
        match self.free && *pcpus == self.before.affinity {
            true => affinity::free(self.key.tid),
            false => affinity::set(self.key.tid, pcpus),
        }
    }

    /// It is to have this now.
    fn want(&mut self, wanted: &Settings) {
        self.was = Some(self.in_force());
        self.now = *wanted;
    }

    /// What it has of what we set, as far as is known.
    fn in_force(&self) -> Settings {
        self.was.unwrap_or(self.now)
    }
}

/// What a daemon before has left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Of so many threads.
    pub(crate) threads: usize,
    /// Why not all of that could be taken back: the first failure.
    pub(crate) stuck: Option<io::Error>,
    /// The file did not say what was changed, and is gone.
    pub(crate) unreadable: bool,
}

impl Left {
    /// For people, a sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let threads = counted(self.threads, "thread");
        let back = match &self.stuck {
            _ if self.threads == 0 => None,
            None => Some(format!(
                "took back what a daemon before had left of {threads}"
            )),
            Some(why) => Some(format!(
                "not all that a daemon before had left of {threads} could be taken back, which is tried \
                 again at the end: {why}"
            )),
        };
        let unreadable = self.unreadable.then(|| {
            "what a daemon before had changed of threads is not known: its file could not be understood, and is \
             kept as .unreadable"
                .to_string()
        });
        back.into_iter().chain(unreadable).collect()
    }
}

/// All changes.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    changed: Vec<Changed>,
    /// The scheduler's own slice; `None`: slices cannot be set.
    own_slice: Option<Nanos>,
    boot: String,
    /// Held as long as we are at work.
    _lock: Lock,
}

impl State {
    /// Begins: takes back what a daemon before left. Threads that cannot be set are tried again at
    /// the end; a file that cannot be understood is put aside: to refuse to start because of either
    /// would not help.
    ///
    /// # Errors
    /// If another daemon is at work, or the file cannot be read or written.
    pub(crate) fn open(path: &Path, own_slice: Option<Nanos>) -> io::Result<(Self, Left)> {
        if let Some(folder) = path.parent() {
            files::make_folder(folder)?;
        }
        let lock = Lock::take(path)?.ok_or_else(|| {
            let error = "another `corun host --backend fair` is at work";
            io::Error::new(io::ErrorKind::ResourceBusy, error)
        })?;
        let changed: Option<Vec<Changed>> = match files::read_own(path)? {
            Some(text) => serde_json::from_slice(&text).ok(),
            None => Some(Vec::new()),
        };
        let (unreadable, boot) = (changed.is_none(), machine::boot());
        if unreadable {
            // It may belong to another program: the name is an option.
            fs::rename(path, path.with_extension("unreadable"))?;
        }
        let mut changed = changed.unwrap_or_default();
        changed.retain(|changed| changed.is_of(&boot));
        let mut state = Self {
            path: path.to_path_buf(),
            changed,
            own_slice,
            boot,
            _lock: lock,
        };
        let (threads, stuck) = state.take_back();
        state.keep_file()?;
        let left = Left {
            threads,
            stuck,
            unreadable,
        };
        Ok((state, left))
    }

    /// Of these threads, as they were `found`, those whose masks another process has set, with
    /// these masks. From now on, these are the settings that they are given back. Nothing is
    /// written: until the next change is, the file says of such a mask what it is not, and it would
    /// be left alone. `thorough`: it has just been looked which pCPUs are `online`.
    pub(crate) fn heed(
        &mut self,
        mut found: BTreeMap<ThreadKey, PcpuSet>,
        online: &PcpuSet,
        thorough: bool,
    ) -> BTreeMap<ThreadKey, PcpuSet> {
        for changed in &mut self.changed {
            let Some(pcpus) = found.get(&changed.key) else {
                continue;
            };
            match changed.is_anothers(pcpus, online, thorough) {
                true => changed.give_way(pcpus),
                false => drop(found.remove(&changed.key)),
            }
        }
        found
    }

    fn write(&self) -> io::Result<()> {
        files::replace_durably(&self.path, &serde_json::to_vec(&self.changed)?)
    }

    /// Sets what is wanted of these threads, each once. Returns those for which it failed, with the
    /// reason; threads that have gone are none of them.
    pub(crate) fn set(
        &mut self,
        wanted: &[(ThreadKey, Settings)],
    ) -> io::Result<Vec<(ThreadKey, io::Error)>> {
        let due = self.note(wanted)?;
        let mut failed = Vec::new();
        for key in due {
            let known = self.changed.iter().position(|changed| changed.is(&key));
            // A thread that has its number by now is another one.
            let Some(at) = known.filter(|_| Proc::default().is_there(&key)) else {
                continue;
            };
            match self.make(&self.changed[at]) {
                Ok(()) => self.changed[at].was = None,
                Err(error) if affinity::is_gone(&error) => {}
                Err(error) => failed.push((key, error)),
            }
        }
        Ok(failed)
    }

    /// Notes what is wanted of these threads, on disk too if that is news. Returns those of which something is to be
    /// set.
    fn note(&mut self, wanted: &[(ThreadKey, Settings)]) -> io::Result<Vec<ThreadKey>> {
        let (mut due, mut news) = (Vec::new(), false);
        for (key, wanted) in wanted {
            let known = self.changed.iter_mut().find(|changed| changed.is(key));
            match known {
                Some(known) if known.strange.is_some() => continue,
                Some(known) if known.now == *wanted && known.was.is_none() => continue,
                // The kernel refused it, and is asked again.
                Some(known) if known.now == *wanted => {}
                Some(known) => {
                    known.want(wanted);
                    news = true;
                }
                None => match self.first(key, wanted) {
                    Some(first) if first.before != first.now => {
                        self.changed.push(first);
                        news = true;
                    }
                    _ => continue,
                },
            }
            due.push(*key);
        }
        self.changed.retain(Changed::is_there);
        if news {
            self.write()?;
        }
        Ok(due)
    }

    /// A thread that nothing was changed of yet; `None` if it has gone.
    fn first(&self, key: &ThreadKey, wanted: &Settings) -> Option<Changed> {
        let before = Settings {
            affinity: affinity::get(key.tid).ok()?,
            slice: self.slice_of(key.tid).ok()?,
        };
        Some(Changed {
            boot: Some(self.boot.clone()),
            key: *key,
            before,
            free: may_go_anywhere(key),
            now: *wanted,
            was: Some(before),
            strange: None,
        })
    }

    /// The slice that a thread asks for.
    fn slice_of(&self, tid: u32) -> io::Result<Option<Nanos>> {
        let slice = thread::slice(tid)?;
        Ok(slice.filter(|_| self.own_slice.is_some() && slice != self.own_slice))
    }

    fn make(&self, changed: &Changed) -> io::Result<()> {
        let (tid, wanted) = (changed.key.tid, &changed.now);
        if self.own_slice.is_some() && self.slice_of(tid)? != wanted.slice {
            thread::set_slice(tid, wanted.slice)?;
        }
        changed.set_pcpus(&wanted.affinity)
    }

    /// Takes everything back. Returns how many threads that concerned.
    ///
    /// # Errors
    /// The first of those that could not be taken back, which the file still has, or why there is no file.
    pub(crate) fn restore(&mut self) -> io::Result<usize> {
        let (count, stuck) = self.take_back();
        self.keep_file()?;
        stuck.map_or(Ok(count), Err)
    }

    /// Takes back what can be; the rest stays on the list. Returns how many threads were there, and the first
    /// failure.
    fn take_back(&mut self) -> (usize, Option<io::Error>) {
        let all = std::mem::take(&mut self.changed);
        let (mut count, mut stuck) = (0, None);
        for changed in all.into_iter().filter(Changed::is_there) {
            count += 1;
            if let Err(error) = self.put_back(&changed) {
                stuck.get_or_insert(error);
                self.changed.push(changed);
            }
        }
        (count, stuck)
    }

    /// Gives a thread what it had, where it still has what was set.
    fn put_back(&self, changed: &Changed) -> io::Result<()> {
        let Changed { key, before, .. } = changed;
        let tid = key.tid;
        let online = preflight::online().unwrap_or_default();
        let found = affinity::get(tid).unwrap_or_default();
        let affinity = match changed.has_set_pcpus(&found, &online) {
            true => gone_is_fine(changed.set_pcpus(&before.affinity)),
            false => Ok(()),
        };
        let slice = self.slice_of(tid);
        if slice.is_ok_and(|slice| slice != before.slice && changed.has_set_slice(slice)) {
            gone_is_fine(thread::set_slice(tid, before.slice))?;
        }
        affinity
    }

    /// There is a file as long as there is something to take back.
    fn keep_file(&self) -> io::Result<()> {
        if !self.changed.is_empty() {
            return self.write();
        }
        files::remove(&self.path)
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

/// The pCPUs that the cgroups (v2) around a thread let it use; `None`: any.
fn cpuset_of(key: &ThreadKey) -> Option<PcpuSet> {
    let mount = cgroup::mount(Path::new("/"))?;
    let path = Proc::default().thread(key.tgid, key.tid).cgroup()?;
    // Those without a cpuset of their own have that of the next one around them that has.
    let around = mount.join(path.trim_start_matches('/'));
    let mut around = around.ancestors().take_while(|at| at.starts_with(&mount));
    let text = around.find_map(|at| fs::read_to_string(at.join("cpuset.cpus.effective")).ok())?;
    text.trim().parse().ok()
}

/// May a thread use all pCPUs that there can ever be? Unlike `sched_getaffinity()`, /proc lists those that are
/// off-line, too.
fn may_go_anywhere(key: &ThreadKey) -> bool {
    let listed = Proc::default().thread(key.tgid, key.tid).allowed();
    let all = preflight::possible();
    (listed.zip(all)).is_some_and(|(listed, all)| listed.and(&all) == all)
}
