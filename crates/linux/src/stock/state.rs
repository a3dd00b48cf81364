// SPDX-License-Identifier: GPL-2.0-only
//! What was changed about threads, in memory and in a file: so that it is undone when the daemon ends, or by the next
//! one if it crashed.
//!
//! A change is written to the file before it is made, together with the former setting. If the
//! daemon is killed in between, or cannot write, or the kernel refuses, the thread may have either
//! of the two. A setting is taken back only if the thread still has one of them; any other was set
//! by another process since, and is kept. If another process sets a mask while the daemon works,
//! that mask counts as the former setting from then on. What the kernel makes of a mask while a cpuset or off-line
//! pCPUs get in its way ([`Around`]) does not count as set by anybody.

use super::around::{Around, is_free};
use super::left::{Had, Left, NotBack, Stuck};
use super::thread;
use crate::{machine, preflight};
use corun_model::{Nanos, PcpuSet};
use corun_system::affinity;
use corun_system::files::{self, Lock};
use corun_system::procfs::{Proc, ThreadKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What can be set for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The pCPUs it may use.
    pub(crate) affinity: PcpuSet,
    /// The slice it asks for, ns; `None`: the scheduler's own, or it is not asked.
    pub(crate) slice: Option<Nanos>,
}

/// A thread for which something was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// The boot it is from: thread ids mean nothing in another one; `None`: written by a daemon that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    #[serde(flatten)]
    key: ThreadKey,
    before: Settings,
    /// It could go anywhere before, or anywhere in its cpuset: it is set free rather than bound to the pCPUs of that
    /// time, so that it may use pCPUs that were plugged in, or given to its cpuset, since.
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
    /// What bounds it, as of the last look.
    #[serde(skip)]
    around: Around,
    /// The pCPUs that it was last given; `None`: none yet.
    #[serde(skip)]
    told: Option<PcpuSet>,
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

    /// Does the kernel show these pCPUs because of a mask that we have set, and that was not there before?
    fn has_set_pcpus(&self, found: &PcpuSet) -> bool {
        let before = self.before.affinity;
        if *found == before {
            return self.in_force().affinity != before;
        }
        let mut set = [Some(self.now), self.was].into_iter().flatten();
        !found.is_empty()
            && set.any(|it| it.affinity != before && self.around.shows(&it.affinity, found))
    }

    /// Has another process set these pCPUs, for sure?
    fn is_anothers(&mut self, found: &PcpuSet, thorough: bool) -> bool {
        if self.is_known(found) {
            self.strange = None;
            return false;
        }
        let before = self.strange.filter(|(pcpus, _)| pcpus == found);
        let looks = before.map_or(0, |(_, looks)| looks) + u32::from(thorough);
        self.strange = Some((*found, looks));
        looks >= SURE
    }

    /// Are these what the kernel shows of the pCPUs that it had before, or of those that we have set? A mask that was
    /// refused lets nobody use all of a cpuset.
    fn is_known(&self, found: &PcpuSet) -> bool {
        let is_part = |set: &Settings| self.around.is_part(&set.affinity, found);
        found.is_empty()
            || is_part(&self.before)
            || is_part(&self.now)
            || self.around.shows(&self.in_force().affinity, found)
    }

    /// Its mask was set by another process.
    fn give_way(&mut self, pcpus: &PcpuSet) {
        self.strange = None;
        self.before.affinity = *pcpus;
        self.free = is_free(&self.key, &self.around);
        self.now.affinity = *pcpus;
        if let Some(was) = &mut self.was {
            was.affinity = *pcpus;
        }
    }

    /// What it could use without us, at the moment.
    fn may_use(&self) -> PcpuSet {
        match self.free {
            true => self.around.all(),
            false => self.around.left_of(&self.before.affinity),
        }
    }

    /// The same if that is news.
    fn news(&mut self) -> Option<PcpuSet> {
        let may = self.may_use();
        (self.strange.is_none() && self.told.replace(may) != Some(may)).then_some(may)
    }

    /// A thread that is to use all that it may use at the moment gets the mask that it had before: it must not be bound
    /// to what its cpuset has just now.
    fn meant(&self, wanted: &Settings) -> Settings {
        let before = self.before.affinity;
        let can_be = self.free || !before.and(&self.around.all()).is_empty();
        match can_be && wanted.affinity == self.may_use() {
            true => Settings {
                affinity: before,
                ..*wanted
            },
            false => *wanted,
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

    /// Which of our settings it has, as far as is known.
    fn in_force(&self) -> Settings {
        self.was.unwrap_or(self.now)
    }
}

/// Is this nothing that we have written, whole or in part? A list of objects is.
fn is_none_of_ours(text: &[u8]) -> bool {
    let mut bytes = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let begins = (bytes.next(), bytes.next());
    !matches!(begins, (None, _) | (Some(b'['), None | Some(b'{' | b']')))
}

/// Renames a file to a free name that says what is wrong with it. Returns the name.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".unreadable");
    // A link is made only if there is nothing, as a file that is renamed is not.
    while let Err(error) = fs::hard_link(path, &aside) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        aside.push("+");
    }
    fs::remove_file(path)?;
    Ok(aside.into())
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
    /// Begins: undoes what an earlier daemon left. Threads that cannot be set are tried again at the end; a file of
    /// ours that cannot be understood is put aside: refusing to start because of either would not help.
    ///
    /// # Errors
    /// If another daemon is at work, the file cannot be read or written, or is none of ours: the name is an option.
    pub(crate) fn open(path: &Path, own_slice: Option<Nanos>) -> io::Result<(Self, Left)> {
        if files::read_own(path)?.is_some_and(|text| is_none_of_ours(&text)) {
            let error =
                "no file of `corun host --backend fair`: it is left as it is; take another name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
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
        let unreadable = match changed {
            Some(_) => None,
            None => Some(put_aside(path)?),
        };
        let boot = machine::boot();
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

    /// Returns those of these threads, as they were `found`, that may use other pCPUs than last reported, with these
    /// pCPUs: because another process has set their masks, or because their cpusets have changed. From now on, masks of
    /// others are the settings that they are given back. Nothing is written: until the next change is, the file is
    /// wrong about such a mask, so the mask would be left alone. `thorough`: it has just been checked which pCPUs are
    /// `online`.
    pub(crate) fn heed(
        &mut self,
        mut found: BTreeMap<ThreadKey, PcpuSet>,
        online: &PcpuSet,
        thorough: bool,
    ) -> BTreeMap<ThreadKey, PcpuSet> {
        for changed in &mut self.changed {
            let Some(pcpus) = found.remove(&changed.key) else {
                continue;
            };
            if thorough {
                changed.around = Around::of(&changed.key, online);
            }
            if changed.is_anothers(&pcpus, thorough) {
                changed.give_way(&pcpus);
            }
            if let Some(may) = changed.news() {
                found.insert(changed.key, may);
            }
        }
        found
    }

    fn write(&self) -> io::Result<()> {
        files::replace_durably(&self.path, &serde_json::to_vec(&self.changed)?)
    }

    /// Sets what is wanted of these threads, each once. Returns those for which it failed, with the reason; threads
    /// that have gone are not among them.
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

    /// Notes what is wanted of these threads, on disk, too, if that is new. Returns those for which something has to be
    /// set.
    fn note(&mut self, wanted: &[(ThreadKey, Settings)]) -> io::Result<Vec<ThreadKey>> {
        let (mut due, mut news) = (Vec::new(), false);
        for (key, wanted) in wanted {
            let known = self.changed.iter_mut().find(|changed| changed.is(key));
            match known {
                Some(known) if known.strange.is_some() => continue,
                Some(known) => {
                    let wanted = known.meant(wanted);
                    if known.now != wanted {
                        known.want(&wanted);
                        news = true;
                    } else if known.was.is_none() {
                        continue;
                    }
                    // Otherwise the kernel refused it, and is asked again.
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

    /// A thread for which nothing was changed yet; `None` if it has gone.
    fn first(&self, key: &ThreadKey, wanted: &Settings) -> Option<Changed> {
        let before = Settings {
            affinity: affinity::get(key.tid).ok()?,
            slice: self.slice_of(key.tid).ok()?,
        };
        let around = Around::of(key, &preflight::online()?);
        Some(Changed {
            boot: Some(self.boot.clone()),
            key: *key,
            before,
            free: is_free(key, &around),
            now: *wanted,
            was: Some(before),
            strange: None,
            around,
            told: Some(before.affinity),
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
    pub(crate) fn restore(&mut self) -> Result<usize, NotBack> {
        let (count, stuck) = self.take_back();
        // What is stuck goes first: a file that lists too much does no harm.
        let kept = self.keep_file();
        match stuck {
            Some(stuck) => Err(NotBack::Thread(stuck)),
            None => kept.map(|()| count).map_err(NotBack::File),
        }
    }

    /// Takes back what can be; the rest stays on the list. Returns how many threads were there, and the first
    /// failure.
    fn take_back(&mut self) -> (usize, Option<Stuck>) {
        let all = std::mem::take(&mut self.changed);
        let (mut count, mut stuck) = (0, None);
        let online = preflight::online().unwrap_or_default();
        for mut changed in all.into_iter().filter(Changed::is_there) {
            count += 1;
            changed.around = Around::of(&changed.key, &online);
            if let Err(error) = self.put_back(&changed) {
                stuck.get_or_insert(error);
                self.changed.push(changed);
            }
        }
        (count, stuck)
    }

    /// Gives a thread what it had, where it still has what was set.
    fn put_back(&self, changed: &Changed) -> Result<(), Stuck> {
        let Changed { key, before, .. } = changed;
        let tid = key.tid;
        let failed = |had| {
            move |cause| Stuck {
                key: *key,
                had,
                cause,
            }
        };
        let found = affinity::get(tid).unwrap_or_default();
        let affinity = match changed.has_set_pcpus(&found) {
            true => gone_is_fine(changed.set_pcpus(&before.affinity)),
            false => Ok(()),
        };
        let slice = self.slice_of(tid);
        if slice.is_ok_and(|slice| slice != before.slice && changed.has_set_slice(slice)) {
            gone_is_fine(thread::set_slice(tid, before.slice)).map_err(failed(Had::Slice))?;
        }
        affinity.map_err(failed(match changed.free {
            true => Had::AllPcpus,
            false => Had::Pcpus(before.affinity),
        }))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> PcpuSet {
        list.parse().unwrap()
    }

    fn changed(before: &str, now: &str, cpuset: Option<&str>, online: &str) -> Changed {
        let settings = |list: &str| Settings {
            affinity: set(list),
            slice: None,
        };
        Changed {
            boot: None,
            key: ThreadKey {
                tgid: 1,
                tid: 1,
                start: 0,
            },
            before: settings(before),
            free: false,
            now: settings(now),
            was: None,
            strange: None,
            around: Around {
                online: set(online),
                cpuset: cpuset.map(set),
            },
            told: None,
        }
    }

    /// Cpusets and pCPUs that are off-line change what is shown, not what was asked for.
    #[test]
    fn what_is_shown_of_our_masks_is_ours() {
        for (before, now, cpuset, online, found, ours) in [
            ("0-3", "0-1", Some("1-2"), "0-3", "1", true),
            ("0-3", "0", Some("1-2"), "0-3", "1-2", true),
            ("0-3", "0", Some("0-3"), "1-3", "1-3", true),
            ("0-3", "0", None, "1-3", "1-3", true),
            ("0-3", "0", Some("1-2"), "0-3", "2", false),
            ("0-3", "0", Some("0-3"), "0-3", "1-3", false),
            ("0-3", "0-1", Some("1-2"), "0-3", "1-2", false),
            ("0-3", "0-3", Some("1-2"), "0-3", "1-2", false),
        ] {
            let changed = changed(before, now, cpuset, online);
            let got = changed.has_set_pcpus(&set(found));
            assert_eq!(got, ours, "{now} in {cpuset:?} of {online}: {found}");
        }
    }

    #[test]
    fn what_a_cpuset_leaves_of_a_mask_is_nobody_s() {
        for (cpuset, found, known) in [
            ("1-3", "1-2", true), // of what it had
            ("1-3", "1-3", true), // nothing is left of ours
            ("1-3", "1", false),
            ("0-3", "0", true),
            ("0-3", "1-3", false),
        ] {
            let changed = changed("0-2", "0", Some(cpuset), "0-3");
            assert_eq!(changed.is_known(&set(found)), known, "{found} of {cpuset}");
        }
        let mut refused = changed("1", "0", Some("1-3"), "0-3");
        refused.was = Some(refused.before);
        assert!(!refused.is_known(&set("1-3")), "it was not set");
    }

    #[test]
    fn who_is_given_all_of_its_cpuset_is_free() {
        let key = ThreadKey {
            tgid: std::process::id(),
            // SAFETY: takes nothing and always works.
            tid: u32::try_from(unsafe { libc::gettid() }).unwrap(),
            start: 0,
        };
        let one = affinity::only(affinity::get(0).unwrap().iter().next().unwrap().0);
        affinity::set(0, &one).unwrap();
        let one = one.to_string();
        for (cpuset, free) in [(Some(one.as_str()), true), (Some("0-511"), false)] {
            let mut changed = changed("0-511", "511", cpuset, "0-511");
            changed.key = key;
            changed.give_way(&set(&one));
            let only_one = preflight::possible().unwrap().len() == 1;
            assert_eq!(changed.free, free || only_one, "{cpuset:?}");
        }
    }

    /// Otherwise a vCPU would stay bound to what its cpuset had for a while.
    #[test]
    fn who_is_to_use_all_that_there_is_has_what_it_had() {
        let meant = |before, cpuset, wanted: &str| {
            let changed = changed(before, "0", Some(cpuset), "0-3");
            let affinity = set(wanted);
            let slice = None;
            changed.meant(&Settings { affinity, slice }).affinity
        };
        assert_eq!(meant("0-2", "1-3", "1-2"), set("0-2"));
        assert_eq!(meant("0-2", "1-3", "1"), set("1"));
        assert_eq!(
            meant("0", "1-3", "1-3"),
            set("1-3"),
            "the kernel would refuse 0"
        );
    }
}
