// SPDX-License-Identifier: GPL-2.0-only
//! What /proc says of processes and threads. They may vanish at any moment: then it is `None`.
//!
//! A thread's name is whatever bytes its user chose, and cut after 15 of them also within a character. So texts are
//! read as far as they are UTF-8: who renames itself does not vanish.

use corun_model::PcpuSet;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// `PF_KTHREAD` (include/linux/sched.h): a thread of the kernel's own.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A thread for good: numbers are used again, but never with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    /// Its process.
    pub(crate) tgid: u32,
    /// Itself.
    pub(crate) tid: u32,
    /// When it began, clock ticks since boot.
    pub(crate) start: u64,
}

/// A thread's `stat`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Its name, at most 15 bytes.
    pub(crate) name: String,
    /// Its process's parent.
    pub(crate) parent: u32,
    /// Is it the kernel's?
    pub(crate) is_kernel: bool,
    /// When it began, clock ticks since boot.
    pub(crate) start: u64,
    /// The vCPU on which it ran last.
    pub(crate) vcpu: u32,
}

/// A mounted procfs.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Proc {
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Is it there?
    pub(crate) fn is_mounted(&self) -> bool {
        self.root.join("self/stat").exists()
    }

    fn process(&self, tgid: u32) -> PathBuf {
        self.root.join(tgid.to_string())
    }

    /// The folder of one thread.
    pub(crate) fn thread(&self, tgid: u32, tid: u32) -> PathBuf {
        self.process(tgid).join(format!("task/{tid}"))
    }

    /// The numbers of all processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        numbers(&self.root)
    }

    /// The numbers of a process's threads.
    pub(crate) fn threads(&self, tgid: u32) -> Vec<u32> {
        numbers(&self.process(tgid).join("task"))
    }

    /// What a thread is.
    pub(crate) fn stat(&self, tgid: u32, tid: u32) -> Option<Stat> {
        stat_in(&text_of(&self.thread(tgid, tid).join("stat"))?)
    }

    /// Is this very thread there?
    pub(crate) fn is_there(&self, key: &Key) -> bool {
        let stat = self.stat(key.tgid, key.tid);
        stat.is_some_and(|stat| stat.start == key.start)
    }

    /// The process of thread `tid`.
    pub(crate) fn process_of(&self, tid: u32) -> Option<u32> {
        let text = text_of(&self.process(tid).join("status"))?;
        field(&text, "Tgid:")?.parse().ok()
    }

    /// The effective user of a thread.
    pub(crate) fn user(&self, tgid: u32, tid: u32) -> Option<u32> {
        let text = text_of(&self.thread(tgid, tid).join("status"))?;
        // Real, effective, saved, file system.
        let users = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    /// The vCPUs that a thread's mask allows, those that are off-line included.
    pub(crate) fn allowed(&self, tgid: u32, tid: u32) -> Option<PcpuSet> {
        let text = text_of(&self.thread(tgid, tid).join("status"))?;
        field(&text, "Cpus_allowed_list:")?.parse().ok()
    }

    /// The processes that a thread has created and that are its children still.
    pub(crate) fn children(&self, tgid: u32, tid: u32) -> Vec<u32> {
        let text = text_of(&self.thread(tgid, tid).join("children"));
        let text = text.unwrap_or_default();
        text.split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect()
    }

    /// Clock ticks since boot, the unit of start times.
    pub(crate) fn ticks(&self) -> Option<u64> {
        let text = text_of(&self.root.join("uptime"))?;
        let (seconds, _) = text.split_once(' ')?;
        // Two digits after the point, and 100 ticks in a second (USER_HZ), on all that Linux runs on.
        seconds.replace('.', "").parse().ok()
    }

    /// The cgroups of a thread, one of each hierarchy: the hierarchy's controllers (none for version
    /// 2) and the path below its mount point.
    pub(crate) fn cgroups(&self, tgid: u32, tid: u32) -> Vec<(String, String)> {
        let file = self.thread(tgid, tid).join("cgroup");
        let text = text_of(&file).unwrap_or_default();
        let parts = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_string(), parts.next()?.to_string()))
        };
        text.lines().filter_map(parts).collect()
    }

    /// Which boot this is: start times mean nothing in another one.
    pub(crate) fn boot(&self) -> Option<String> {
        let file = self.root.join("sys/kernel/random/boot_id");
        Some(text_of(&file)?.trim().to_string())
    }

    /// Time stolen by the host since boot, clock ticks: of all vCPUs, and of each.
    pub(crate) fn stolen(&self) -> Option<(u64, Vec<(u32, u64)>)> {
        stolen_in(&text_of(&self.root.join("stat"))?)
    }
}

fn text_of(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn numbers(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

fn field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// A `stat` line; see man 5 proc_pid_stat. The name may contain spaces and parentheses.
fn stat_in(line: &str) -> Option<Stat> {
    let (head, tail) = line.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // The first of these is field 3.
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        name: name.to_string(),
        parent: number(4)?.try_into().ok()?,
        is_kernel: number(9)? & KERNEL_THREAD != 0,
        start: number(22)?,
        vcpu: number(39)?.try_into().ok()?,
    })
}

/// `cpu user nice system idle iowait irq softirq steal …` (man 5 proc_stat).
fn stolen_in(text: &str) -> Option<(u64, Vec<(u32, u64)>)> {
    let steal = |line: &str| line.split_whitespace().nth(8)?.parse().ok();
    let lines = || text.lines().filter(|line| line.starts_with("cpu"));
    let all = lines().find(|line| line.starts_with("cpu "))?;
    let one = |line: &str| {
        let (name, _) = line.split_once(' ')?;
        Some((name.strip_prefix("cpu")?.parse().ok()?, steal(line)?))
    };
    Some((steal(all)?, lines().filter_map(one).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_do_not_shift_fields() {
        let line = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 4711 1 2 3 4 5 6 7 8 9 10 \
                    11 12 13 14 15 17 3 0 0";
        let stat = stat_in(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a) b (c", 1));
        assert_eq!((stat.start, stat.vcpu, stat.is_kernel), (4711, 3, false));
        for short in ["", "12 (a", "12 (a) S 1 12"] {
            assert_eq!(stat_in(short), None, "{short}");
        }
    }

    #[test]
    fn threads_of_the_kernel_are_known_by_their_flag() {
        let line = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 6 0 0 20 0 1 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        assert!(stat_in(line).unwrap().is_kernel);
    }

    #[test]
    fn stolen_time_by_vcpu() {
        let text = "cpu  10 0 5 100 0 0 0 42 0 0\ncpu0 5 0 2 50 0 0 0 40 0 0\ncpu3 5 0 3 50 0 0 0 2 0 0\nintr 1\n";
        assert_eq!(stolen_in(text), Some((42, vec![(0, 40), (3, 2)])));
        assert_eq!(stolen_in("cpu  1 2 3"), None);
        assert_eq!(stolen_in(""), None);
    }

    #[test]
    fn this_process_is_there_and_a_made_up_one_is_not() {
        let (proc, me) = (Proc::default(), std::process::id());
        assert!(proc.is_mounted() && proc.threads(me).contains(&me));
        let stat = proc.stat(me, me).unwrap();
        let key = Key {
            tgid: me,
            tid: me,
            start: stat.start,
        };
        assert!(proc.is_there(&key) && !stat.is_kernel);
        assert!(!proc.is_there(&Key { start: 0, ..key }));
        assert_eq!(proc.process_of(me), Some(me));
        // SAFETY: takes nothing and always works.
        assert_eq!(proc.user(me, me), Some(unsafe { libc::geteuid() }));
        assert!(!proc.cgroups(me, me).is_empty());
        assert_eq!(proc.stat(u32::MAX, 1), None);
        assert!(proc.threads(u32::MAX).is_empty());
    }

    #[test]
    fn without_procfs_there_is_nothing_and_no_panic() {
        let empty = tempfile::tempdir().unwrap();
        let proc = Proc::at(empty.path());
        assert!(!proc.is_mounted());
        assert!(proc.processes().is_empty());
        assert_eq!((proc.boot(), proc.stolen()), (None, None));
    }
}
