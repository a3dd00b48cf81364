// SPDX-License-Identifier: GPL-2.0-only
//! What /proc shows of processes and threads. They may vanish at any moment: then the answer is `None`, or empty.
//!
//! Names are whatever bytes people chose, so texts are read as far as they are UTF-8. For tests, the root can be
//! another one than this machine's. Only those files of a thread are read that are asked for, since daemons do that for
//! hundreds of threads every second. This, and the threads that come and go meanwhile, is why the crate `procfs` is not
//! used: it reads more at once and has an error for each failure.

use corun_model::{Nanos, PcpuSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `PF_KTHREAD` (include/linux/sched.h): a thread of the kernel's own.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// `PF_NO_SETAFFINITY` (include/linux/sched.h): nobody may set its mask. Kernel threads that belong to a CPU have it,
/// and on some kernels (5.12 to 6.2) so do threads that io_uring makes for programs.
const FIXED_MASK: u64 = 0x0400_0000;

/// How many links of a process's open files are looked at: anybody may have half a million (fs.nr_open and service
/// managers' limits are above that). A VMM opens its vCPUs before most of its devices.
const MOST_LINKS: usize = 4096;

/// A size that most files of /proc fit into, bytes.
const PAGE: usize = 4096;

/// How often a process is listed at most, if its threads come and go faster than they are listed.
const MOST_LISTS: usize = 8;

/// Identifies a thread for good: numbers are used again, but never with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadKey {
    /// Its process.
    pub tgid: u32,
    /// Itself.
    pub tid: u32,
    /// When it began, clock ticks since boot.
    pub start: u64,
}

/// A mounted procfs.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    /// This machine's.
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Proc {
    /// The one mounted at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// That of a machine whose files lie below `root`.
    pub fn below(root: &Path) -> Self {
        Self::at(root.join("proc"))
    }

    /// Is it there?
    pub fn is_mounted(&self) -> bool {
        self.root.join("self/stat").exists()
    }

    /// A process, by its number.
    pub fn process(&self, tgid: u32) -> Process {
        Process(self.root.join(tgid.to_string()))
    }

    /// A thread, by its process's number and its own.
    pub fn thread(&self, tgid: u32, tid: u32) -> Thread {
        self.process(tgid).thread(tid)
    }

    /// A thread whose process is not known. Each thread has a folder, though only those of processes are listed.
    pub fn any_thread(&self, tid: u32) -> Thread {
        Thread(self.root.join(tid.to_string()))
    }

    /// The numbers of all processes.
    pub fn processes(&self) -> Vec<u32> {
        numbers(&self.root)
    }

    /// Is this very thread there?
    pub fn is_there(&self, key: &ThreadKey) -> bool {
        self.thread(key.tgid, key.tid).start() == Some(key.start)
    }

    /// Clock ticks since boot, the unit of start times.
    pub fn ticks(&self) -> Option<u64> {
        let text = text(&self.root.join("uptime"))?;
        let (seconds, _) = text.split_once(' ')?;
        // Two digits after the point, and 100 ticks in a second (USER_HZ), wherever Linux runs.
        seconds.replace('.', "").parse().ok()
    }

    /// Which boot this is: numbers of threads and start times mean nothing in another one.
    pub fn boot(&self) -> Option<String> {
        line(&self.root.join("sys/kernel/random/boot_id"))
    }

    /// The kernel's release, such as `7.2.13+deb14-cloud-amd64`.
    pub fn release(&self) -> Option<String> {
        line(&self.root.join("sys/kernel/osrelease"))
    }

    /// Time stolen by the host since boot, clock ticks: of all CPUs, and of each.
    pub fn stolen(&self) -> Option<(u64, Vec<(u32, u64)>)> {
        stolen_in(&text(&self.root.join("stat"))?)
    }
}

/// A process, as its folder tells.
#[derive(Clone, Debug)]
pub struct Process(PathBuf);

impl Process {
    /// Of this machine.
    pub fn here(tgid: u32) -> Self {
        Proc::default().process(tgid)
    }

    /// The process's first thread; some of what its folder shows holds for all threads.
    fn itself(&self) -> Thread {
        Thread(self.0.clone())
    }

    /// A thread of it.
    pub fn thread(&self, tid: u32) -> Thread {
        Thread(self.0.join(format!("task/{tid}")))
    }

    /// The numbers of its threads, in their order. The kernel's list lacks some if other threads end while it is read
    /// (`first_tid` in fs/proc/base.c counts anew, and there are fewer by then): so the list is read until it shows
    /// nobody new.
    pub fn threads(&self) -> Vec<u32> {
        self.some_threads(usize::MAX)
    }

    /// The same for no more than `most` threads, those that the kernel lists first, the oldest: anybody may have a
    /// hundred thousand, and listing them takes the kernel that much longer.
    pub fn some_threads(&self, most: usize) -> Vec<u32> {
        let folder = self.0.join("task");
        let mut threads = BTreeSet::new();
        for _ in 0..MOST_LISTS {
            let known = threads.len();
            threads.extend(some_numbers(&folder, most));
            if threads.len() == known || threads.len() >= most {
                break;
            }
        }
        threads.into_iter().take(most).collect()
    }

    /// How many threads it has, by the links of their folder, of which the kernel counts one for each thread
    /// (`proc_task_getattr` in fs/proc/base.c): far less work than a list.
    pub fn thread_count(&self) -> Option<u64> {
        fs::metadata(self.0.join("task")).map(|it| it.nlink()).ok()
    }

    /// When it started, in clock ticks since boot.
    pub fn start(&self) -> Option<u64> {
        self.itself().start()
    }

    /// The words of its command line, which zeros separate.
    pub fn words(&self) -> Option<Vec<String>> {
        let bytes = fs::read(self.0.join("cmdline")).ok()?;
        let words = bytes.split(|&byte| byte == 0);
        let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        Some(words.map(word).collect())
    }

    /// Its cgroup of version 2 below the mount point, such as `/machine.slice/vm.scope`.
    pub fn cgroup(&self) -> Option<String> {
        self.itself().cgroup()
    }

    /// Has it a file open whose link in its folder begins with `link`? `None`: that is not known. Only a process that
    /// might trace this one may look (man 5 proc_pid_fd); and if very many files are open, not all are looked at.
    pub fn has_open(&self, link: &str) -> Option<bool> {
        let mut entries = fs::read_dir(self.0.join("fd")).ok()?.flatten();
        for entry in entries.by_ref().take(MOST_LINKS) {
            match fs::read_link(entry.path()) {
                Ok(to)
                    if to
                        .as_os_str()
                        .as_encoded_bytes()
                        .starts_with(link.as_bytes()) =>
                {
                    return Some(true);
                }
                Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return None,
                // Another file, or closed meanwhile.
                _ => {}
            }
        }
        entries.next().is_none().then_some(false)
    }

    /// Its effective user.
    pub fn user(&self) -> Option<u32> {
        self.itself().user()
    }

    /// What it has read from and written to devices, bytes.
    pub fn transferred(&self) -> Option<u64> {
        Some(transferred_in(&text(&self.0.join("io"))?))
    }
}

/// A thread, as its folder tells.
#[derive(Clone, Debug)]
pub struct Thread(PathBuf);

impl Thread {
    /// One of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Its name.
    pub fn name(&self) -> Option<String> {
        line(&self.file("comm"))
    }

    /// Its name, state and other properties.
    pub fn stat(&self) -> Option<Stat> {
        Stat::parse(&text(&self.file("stat"))?)
    }

    /// When it started, in clock ticks since boot.
    pub fn start(&self) -> Option<u64> {
        Some(self.stat()?.start)
    }

    /// What the kernel has counted for it.
    pub fn counted(&self) -> Option<Counted> {
        Counted::parse(&text(&self.file("schedstat"))?)
    }

    /// A line of its `status`, by the name before the colon.
    fn status(&self, name: &str) -> Option<String> {
        let text = text(&self.file("status"))?;
        let value = |line: &str| {
            Some(
                line.strip_prefix(name)?
                    .strip_prefix(':')?
                    .trim()
                    .to_string(),
            )
        };
        text.lines().find_map(value)
    }

    /// Its process.
    pub fn process(&self) -> Option<u32> {
        self.status("Tgid")?.parse().ok()
    }

    /// Its effective user.
    pub fn user(&self) -> Option<u32> {
        // Real, effective, saved, file system.
        self.status("Uid")?.split_whitespace().nth(1)?.parse().ok()
    }

    /// The CPUs that its mask allows, those that are off-line included.
    pub fn allowed(&self) -> Option<PcpuSet> {
        self.status("Cpus_allowed_list")?.parse().ok()
    }

    /// The processes that it has created and that are still its children.
    pub fn children(&self) -> Vec<u32> {
        let text = text(&self.file("children")).unwrap_or_default();
        let numbers = text.split_whitespace();
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// Its cgroups, one of each hierarchy: the hierarchy's controllers (none for version 2) and the path below
    /// its mount point.
    pub fn cgroups(&self) -> Vec<(String, String)> {
        let text = text(&self.file("cgroup")).unwrap_or_default();
        let parts = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_string(), parts.next()?.to_string()))
        };
        text.lines().filter_map(parts).collect()
    }

    /// Its cgroup of version 2, such as `/machine.slice/vm.scope/libvirt/vcpu0`.
    pub fn cgroup(&self) -> Option<String> {
        let mut groups = self.cgroups().into_iter();
        let unified = groups.find(|(controllers, _)| controllers.is_empty());
        unified.map(|(_, path)| path)
    }
}

/// A thread's `stat`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its state: `R` has or wants a CPU, `S` sleeps, `D` sleeps and cannot be interrupted, and others.
    pub state: char,
    /// Its process's parent.
    pub parent: u32,
    /// Is it one of the kernel's?
    pub is_kernel: bool,
    /// Does the kernel refuse to set its mask, whoever asks?
    pub is_fixed: bool,
    /// When it began, clock ticks since boot.
    pub start: u64,
    /// The CPU on which it ran last.
    pub cpu: u32,
}

impl Stat {
    /// Parses a `stat` line; see man 5 proc_pid_stat. The name may contain spaces and parentheses.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        // The first of these is field 3.
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let number = |place: usize| field(place)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_string(),
            state: field(3)?.chars().next()?,
            parent: number(4)?.try_into().ok()?,
            is_kernel: number(9)? & KERNEL_THREAD != 0,
            is_fixed: number(9)? & FIXED_MASK != 0,
            start: number(22)?,
            cpu: number(39)?.try_into().ok()?,
        })
    }
}

/// What the kernel has counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Time on a CPU, ns.
    pub run: Nanos,
    /// Time waiting for one, ns: for a vCPU's thread, what its guest sees as steal.
    pub ready: Nanos,
    /// How often it was given one.
    pub turns: u64,
}

impl Counted {
    /// Parses a `schedstat` line; see Documentation/scheduler/sched-stats.rst.
    pub fn parse(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            run: next()?,
            ready: next()?,
            turns: next()?,
        })
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            run: self.run + other.run,
            ready: self.ready + other.ready,
            turns: self.turns + other.turns,
        }
    }

    /// What happened since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            run: self.run.saturating_sub(before.run),
            ready: self.ready.saturating_sub(before.ready),
            turns: self.turns.saturating_sub(before.turns),
        }
    }
}

/// What was read from and written to devices, bytes: from the lines of an `io` file (man 5 proc_pid_io).
pub fn transferred_in(text: &str) -> u64 {
    let names = ["read_bytes: ", "write_bytes: "];
    let values = text.lines().filter_map(|line| {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.parse::<u64>().ok()
    });
    values.fold(0, u64::saturating_add)
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

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    some_numbers(folder, usize::MAX)
}

/// The first ones, no more than `most`: the folder is not read any further.
fn some_numbers(folder: &Path, most: usize) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).take(most).collect()
}

/// A file, as far as it is UTF-8. Asking for its size, as `fs::read` does, is no use: the kernel says 0.
fn text(file: &Path) -> Option<String> {
    let mut bytes = Vec::with_capacity(PAGE);
    // With no size known, this reads into the room that there is.
    let mut unsized_file = fs::File::open(file).ok()?.take(u64::MAX);
    unsized_file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes);
    Some(text.unwrap_or_else(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned()))
}

/// A file without the end of its last line.
pub fn line(file: &Path) -> Option<String> {
    Some(text(file)?.trim_end().to_string())
}

#[cfg(test)]
mod tests;
