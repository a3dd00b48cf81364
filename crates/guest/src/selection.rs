// SPDX-License-Identifier: GPL-2.0-only
//! Which threads may be moved: those that the user selects, of these only those that nobody has tied
//! to vCPUs, and never the kernel's own.

use crate::state::Before;
use crate::system::Sys;
use corun_model::PcpuSet;
use corun_system::affinity;
use corun_system::procfs::{Proc, Stat, ThreadKey};
use std::fs;

/// Threads of a process that began less than this ago, clock ticks, are left alone. A moved thread that asks which
/// vCPUs it may use (`sched_getaffinity()`) gets only one as the answer; runtimes ask when they begin, and then have
/// threads for that many vCPUs for good. Assumed: by then most have asked.
const YOUNG: u64 = 10 * 100;

/// What the user selects. A thread must match one value of each kind that is given; nothing given: all threads.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths of cgroups, such as `/system.slice/mysql.service`; those below belong to them.
    pub cgroups: Vec<String>,
    /// Names of threads; `*` stands for any characters.
    pub names: Vec<String>,
    /// Numbers of users.
    pub users: Vec<u32>,
}

/// Why a thread is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    /// The kernel's own.
    Kernel,
    /// The kernel does not let anybody set its mask.
    Fixed,
    /// Ours.
    Own,
    /// The user has not selected it.
    NotSelected,
    /// Somebody has tied it to some vCPUs.
    Pinned,
    /// Its cpuset does not have all vCPUs.
    Confined,
    /// Its process has just begun, and may ask how many vCPUs there are.
    Young,
    /// It has gone.
    Gone,
}

impl Left {
    /// In words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Kernel => "of the kernel's own",
            Self::Fixed => "whose vCPUs the kernel lets nobody set",
            Self::Own => "of corun's own",
            Self::NotSelected => "not selected",
            Self::Pinned => "tied to vCPUs by their users",
            Self::Confined => "in cpusets without all vCPUs",
            Self::Young => "of processes younger than 10 s",
            Self::Gone => "already gone",
        }
    }
}

/// The number of a user, by name or number.
///
/// # Errors
/// If there is no such user, in words.
pub fn user_number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let or = "a number is accepted, too";
    match fs::read("/etc/passwd") {
        Ok(users) => {
            number_in(&users, name).ok_or_else(|| format!("/etc/passwd has no user {name:?}; {or}"))
        }
        Err(why) => Err(format!("no user {name:?}: /etc/passwd: {why}; {or}")),
    }
}

/// The number of a user of this name in a file of users (man 5 passwd). What people are called there may be in any
/// encoding.
fn number_in(users: &[u8], name: &str) -> Option<u32> {
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    };
    String::from_utf8_lossy(users).lines().find_map(number)
}

/// Does `text` match `pattern`, in which `*` stands for any characters?
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Is `path` the cgroup `wanted` or below it?
fn is_within(wanted: &str, path: &str) -> bool {
    let wanted = wanted.trim_matches('/');
    let rest = path.trim_start_matches('/').strip_prefix(wanted);
    rest.is_some_and(|rest| wanted.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

impl Selection {
    fn wants(&self, proc: &Proc, key: &ThreadKey, stat: &Stat) -> bool {
        let ThreadKey { tgid, tid, .. } = *key;
        let fits_name = |pattern: &String| fits(pattern, &stat.name);
        if !self.names.is_empty() && !self.names.iter().any(fits_name) {
            return false;
        }
        let is_user = |user: u32| self.users.contains(&user);
        if !self.users.is_empty() && !proc.thread(tgid, tid).user().is_some_and(is_user) {
            return false;
        }
        let contains = |(_, path): &(String, String)| {
            self.cgroups.iter().any(|wanted| is_within(wanted, path))
        };
        self.cgroups.is_empty() || proc.thread(tgid, tid).cgroups().iter().any(contains)
    }

    /// Why thread `key` is left alone: it has gone, is the kernel's, ours or not selected. `None`: none of these.
    pub(crate) fn refuses(&self, proc: &Proc, key: &ThreadKey, stat: &Stat) -> Option<Left> {
        if stat.start != key.start {
            return Some(Left::Gone);
        }
        if stat.is_kernel {
            return Some(Left::Kernel);
        }
        if stat.is_fixed {
            return Some(Left::Fixed);
        }
        if key.tgid == std::process::id() {
            return Some(Left::Own);
        }
        (!self.wants(proc, key, stat)).then_some(Left::NotSelected)
    }
}

/// What thread `key` would be given back, if it may be moved among `vcpus`. `now` is in clock ticks since boot.
///
/// # Errors
/// Why it may not.
pub(crate) fn movable(
    proc: &Proc,
    sys: &Sys,
    key: &ThreadKey,
    vcpus: &PcpuSet,
    now: u64,
) -> Result<Before, Left> {
    let allowed = affinity::get(key.tid).map_err(|_| Left::Gone)?;
    let cpuset = sys.cpuset(&proc.thread(key.tgid, key.tid).cgroups());
    if allowed.and(vcpus) != *vcpus {
        let confined = cpuset.is_some_and(|cpuset| cpuset.and(vcpus) == allowed.and(vcpus));
        return Err(match confined {
            true => Left::Confined,
            false => Left::Pinned,
        });
    }
    let began = proc.process(key.tgid).start().ok_or(Left::Gone)?;
    if now.saturating_sub(began) < YOUNG {
        return Err(Left::Young);
    }
    // Unlike sched_getaffinity(), this also lists vCPUs that are off-line.
    let listed = proc.thread(key.tgid, key.tid).allowed().ok_or(Left::Gone)?;
    let everywhere = sys.possible().is_none_or(|all| listed.and(&all) == all);
    Ok(Before {
        allowed: listed,
        free: everywhere || cpuset == Some(listed),
        since: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sleeper;

    #[test]
    fn names_with_and_without_stars() {
        for (pattern, text, expected) in [
            ("mysqld", "mysqld", true),
            ("mysqld", "mysqld2", false),
            ("mysql*", "mysqld", true),
            ("*sql*", "mysqld", true),
            ("*d", "mysqld", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn cgroups_contain_what_is_below_them() {
        assert!(is_within("/a/b", "/a/b") && is_within("a/b/", "/a/b/c"));
        assert!(is_within("/", "/anything"));
        assert!(!is_within("/a/b", "/a/bc") && !is_within("/a/b", "/a"));
    }

    #[test]
    fn users_by_name_and_number() {
        assert_eq!(user_number("root"), Ok(0));
        assert_eq!(user_number("1000"), Ok(1000));
        assert!(
            user_number("no such user")
                .unwrap_err()
                .contains("no such user")
        );
    }

    #[test]
    fn people_may_be_called_something_in_another_encoding() {
        let users =
            b"root:x:0:0:root:/root:/bin/sh\njm:x:1001:1001:J\xfcrgen M\xfcller:/home/jm:/bin/sh\n";
        assert_eq!(number_in(users, "jm"), Some(1001));
        assert_eq!(number_in(users, "j"), None);
    }

    fn refusal(selection: &Selection, task: &Sleeper) -> Option<Left> {
        let proc = Proc::default();
        let stat = proc.thread(task.id(), task.id()).stat().unwrap();
        selection.refuses(&proc, &task.key(), &stat)
    }

    #[test]
    fn a_thread_must_fit_each_kind() {
        let task = Sleeper::new();
        let name = Proc::default().thread(task.id(), task.id()).name().unwrap();
        // SAFETY: takes nothing and always works.
        let me = unsafe { libc::geteuid() };
        let mut selection = Selection::default();
        assert_eq!(refusal(&selection, &task), None);
        selection.names = vec!["nothing".into(), name];
        selection.users = vec![me];
        selection.cgroups = vec!["/".into()];
        assert_eq!(refusal(&selection, &task), None);
        selection.users = vec![me + 1];
        assert_eq!(refusal(&selection, &task), Some(Left::NotSelected));
        selection.users = vec![me];
        selection.cgroups = vec!["/no/such/group".into()];
        assert_eq!(refusal(&selection, &task), Some(Left::NotSelected));
    }

    #[test]
    fn neither_the_kernel_s_threads_nor_ours() {
        let (proc, selection) = (Proc::default(), Selection::default());
        let me = std::process::id();
        let own = crate::testing::key_of(me, me);
        let mut stat = proc.thread(me, me).stat().unwrap();
        assert_eq!(selection.refuses(&proc, &own, &stat), Some(Left::Own));
        stat.is_kernel = true;
        assert_eq!(selection.refuses(&proc, &own, &stat), Some(Left::Kernel));
        stat.start += 1;
        assert_eq!(selection.refuses(&proc, &own, &stat), Some(Left::Gone));
    }

    /// Like those of io_uring on some kernels: they do I/O and are not the kernel's own.
    #[test]
    fn a_thread_whose_mask_nobody_may_set_is_left_alone() {
        let (proc, task) = (Proc::default(), Sleeper::new());
        let mut stat = proc.thread(task.id(), task.id()).stat().unwrap();
        stat.is_fixed = true;
        let left = Selection::default().refuses(&proc, &task.key(), &stat);
        assert_eq!(left, Some(Left::Fixed));
    }

    #[test]
    fn a_thread_that_its_user_pinned_is_left_alone() {
        let (proc, sys, task) = (Proc::default(), Sys::default(), Sleeper::new());
        let all = affinity::get(task.id()).unwrap();
        let key = task.key();
        let now = key.start + YOUNG;
        let before = movable(&proc, &sys, &key, &all, now).unwrap();
        assert!(before.free && before.since == now && before.allowed == all);
        if all.len() > 1 {
            affinity::pin(task.id(), all.iter().next().unwrap()).unwrap();
            let left = movable(&proc, &sys, &key, &all, now).unwrap_err();
            assert_eq!(left, Left::Pinned);
        }
    }

    /// It would size its pools for the single vCPU that it sees.
    #[test]
    fn a_process_that_has_just_begun_is_left_alone() {
        let (proc, sys, task) = (Proc::default(), Sys::default(), Sleeper::new());
        let (all, key) = (affinity::get(task.id()).unwrap(), task.key());
        let left = |now| movable(&proc, &sys, &key, &all, now).err();
        assert_eq!(left(key.start), Some(Left::Young));
        assert_eq!(left(key.start + YOUNG - 1), Some(Left::Young));
        assert_eq!(left(key.start + YOUNG), None);
    }
}
