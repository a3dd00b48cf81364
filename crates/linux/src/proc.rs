// SPDX-License-Identifier: GPL-2.0-only
//! What /proc says of processes and threads. They may vanish at any moment: then it is `None`.
//!
//! Names are whatever bytes people chose, so texts are read as far as they are UTF-8.

use corun_model::Nanos;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The numbers of all processes of the host whose files lie below `root`.
pub(crate) fn processes(root: &Path) -> Vec<u32> {
    numbers(&root.join("proc"))
}

/// When a thread of this host started, in clock ticks since boot.
pub(crate) fn start_time(tgid: u32, tid: u32) -> Option<u64> {
    Process::here(tgid).thread_start(tid)
}

/// Which boot of the host this is: numbers of threads and what was set of the kernel mean nothing in another one.
pub(crate) fn boot() -> String {
    line(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

/// A process, as its folder tells.
pub(crate) struct Process(PathBuf);

impl Process {
    /// Of the host whose files lie below `root`.
    pub(crate) fn below(root: &Path, tgid: u32) -> Self {
        Self(root.join("proc").join(tgid.to_string()))
    }

    /// Of this host.
    pub(crate) fn here(tgid: u32) -> Self {
        Self::below(Path::new("/"), tgid)
    }

    fn thread(&self, tid: u32, file: &str) -> PathBuf {
        self.0.join(format!("task/{tid}/{file}"))
    }

    /// The numbers of its threads.
    pub(crate) fn threads(&self) -> Vec<u32> {
        numbers(&self.0.join("task"))
    }

    /// How many threads it has, as links of their folder, of which the kernel counts one each
    /// (`proc_task_getattr` in fs/proc/base.c): far less work than a list.
    pub(crate) fn thread_count(&self) -> Option<u64> {
        fs::metadata(self.0.join("task")).map(|it| it.nlink()).ok()
    }

    /// When it started, in clock ticks since boot.
    pub(crate) fn start(&self) -> Option<u64> {
        start_in(&line(&self.0.join("stat"))?)
    }

    /// When a thread of it started.
    pub(crate) fn thread_start(&self, tid: u32) -> Option<u64> {
        start_in(&line(&self.thread(tid, "stat"))?)
    }

    /// When a thread of it started, and whether it has or wants a pCPU (state R).
    pub(crate) fn thread_now(&self, tid: u32) -> Option<(u64, bool)> {
        let stat = line(&self.thread(tid, "stat"))?;
        Some((start_in(&stat)?, state_in(&stat)? == "R"))
    }

    /// A thread's name.
    pub(crate) fn thread_name(&self, tid: u32) -> Option<String> {
        line(&self.thread(tid, "comm"))
    }

    /// What the kernel counted of a thread.
    pub(crate) fn counted(&self, tid: u32) -> Option<Counted> {
        counted_in(&line(&self.thread(tid, "schedstat"))?)
    }

    /// The words of its command line, which zeros separate.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        let bytes = fs::read(self.0.join("cmdline")).ok()?;
        let words = bytes.split(|&byte| byte == 0);
        let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        Some(words.map(word).collect())
    }

    /// Its cgroup (v2) below the mount point, such as `/machine.slice/vm.scope`.
    pub(crate) fn cgroup(&self) -> Option<String> {
        v2_in(&line(&self.0.join("cgroup"))?)
    }

    /// That of a thread of it, such as `/machine.slice/vm.scope/libvirt/vcpu0`.
    pub(crate) fn thread_cgroup(&self, tid: u32) -> Option<String> {
        v2_in(&line(&self.thread(tid, "cgroup"))?)
    }
}

/// The cgroup (v2) among all that somebody is in.
fn v2_in(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.to_string())
}

/// The entries of a directory that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// A file without the end of its last line.
pub(crate) fn line(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_string())
}

/// Field 22 of a `stat` line. The second field, the name, may contain spaces and parentheses.
fn start_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Field 3.
fn state_in(stat: &str) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().next()
}

/// What the kernel counted of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Time on a pCPU, ns.
    pub run: Nanos,
    /// Time wanting one, ns: what a guest sees as steal.
    pub ready: Nanos,
    /// How often it was given one.
    pub turns: u64,
}

impl Counted {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            ready: self.ready + other.ready,
            turns: self.turns + other.turns,
        }
    }

    /// What happened since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            run: self.run.saturating_sub(before.run),
            ready: self.ready.saturating_sub(before.ready),
            turns: self.turns.saturating_sub(before.turns),
        }
    }
}

/// `schedstat`: time on a pCPU, time wanting one, turns.
fn counted_in(text: &str) -> Option<Counted> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    Some(Counted {
        run: next()?,
        ready: next()?,
        turns: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_survive_odd_names() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 4711 1 2 3";
        assert_eq!(start_in(stat), Some(4711));
        assert_eq!((start_in("12 (a"), state_in(stat)), (None, Some("S")));
    }

    #[test]
    fn a_process_that_is_not_there() {
        let nobody = Process::here(u32::MAX);
        assert!(nobody.threads().is_empty());
        assert_eq!((nobody.words(), nobody.cgroup()), (None, None));
        assert_eq!((nobody.start(), nobody.thread_start(1)), (None, None));
        assert_eq!(nobody.counted(1), None);
    }

    #[test]
    fn this_process_is_there() {
        let me = std::process::id();
        let process = Process::here(me);
        assert!(process.threads().contains(&me));
        assert!(process.start().is_some_and(|start| start > 0));
        assert_eq!(process.start(), start_time(me, me));
        assert!(!process.words().unwrap().is_empty());
        assert!(process.counted(me).is_some());
    }

    #[test]
    fn threads_are_counted() {
        let mut one = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let count = |tgid| Process::here(tgid).thread_count().unwrap();
        let (one_has, we_have) = (count(one.id()), count(std::process::id()));
        one.kill().unwrap();
        one.wait().unwrap();
        // Whoever runs the tests has a thread beside each test's.
        assert!(one_has < we_have, "{one_has} of one, {we_have} of several");
        assert_eq!(Process::here(u32::MAX).thread_count(), None);
    }
}
