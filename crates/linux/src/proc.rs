// SPDX-License-Identifier: GPL-2.0-only
//! What /proc says of processes and threads. They may vanish at any moment: then it is `None`.

pub(crate) use crate::inventory::identity::name as vm_name;
pub(crate) use crate::inventory::role::vcpu_number;
use std::fs;
use std::path::{Path, PathBuf};

/// Where procfs is mounted.
const PROC: &str = "/proc";

fn process(tgid: u32) -> PathBuf {
    Path::new(PROC).join(tgid.to_string())
}

/// The numbers of all processes.
pub(crate) fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir(PROC) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// What the kernel counted of a thread: run time, run-queue time, ns, and turns.
pub(crate) fn schedstat(tgid: u32, tid: u32) -> Option<String> {
    fs::read_to_string(process(tgid).join(format!("task/{tid}/schedstat"))).ok()
}

/// The numbers of a process's threads.
pub(crate) fn threads(tgid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(process(tgid).join("task")) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// A thread's name.
pub(crate) fn thread_name(tgid: u32, tid: u32) -> Option<String> {
    let file = process(tgid).join(format!("task/{tid}/comm"));
    fs::read_to_string(file)
        .ok()
        .map(|name| name.trim_end().to_string())
}

/// When a thread started, in clock ticks since boot.
pub(crate) fn start_time(tgid: u32, tid: u32) -> Option<u64> {
    let file = process(tgid).join(format!("task/{tid}/stat"));
    start_time_in(&fs::read_to_string(file).ok()?)
}

/// Field 22 of a `stat` line. The second field, the name, may contain spaces and parentheses.
fn start_time_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// The words of a process's command line.
pub(crate) fn command_line(tgid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(process(tgid).join("cmdline")).ok()?;
    let words = bytes.split(|&byte| byte == 0);
    Some(
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    )
}

/// Its cgroup below the mount point (v2), such as `/machine.slice/vm.scope`.
pub(crate) fn cgroup(tgid: u32) -> Option<String> {
    let text = fs::read_to_string(process(tgid).join("cgroup")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_survive_odd_names() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 4711 1 2 3";
        assert_eq!(start_time_in(stat), Some(4711));
        assert_eq!(start_time_in("12 (a"), None);
    }

    #[test]
    fn a_process_that_is_not_there() {
        assert!(threads(u32::MAX).is_empty());
        assert_eq!(command_line(u32::MAX), None);
        assert_eq!(cgroup(u32::MAX), None);
        assert_eq!(start_time(u32::MAX, 1), None);
    }

    #[test]
    fn this_process_is_there() {
        let me = std::process::id();
        assert!(threads(me).contains(&me));
        assert!(start_time(me, me).is_some());
        assert!(!command_line(me).unwrap().is_empty());
    }
}
