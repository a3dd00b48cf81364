// SPDX-License-Identifier: GPL-2.0-only
//! The few kinds of files under /proc that say what runs. What is not there is `None`.

use std::fs;
use std::path::Path;

/// The entries of a directory that are numbers.
pub(super) fn numbers(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// A file of one line.
pub(super) fn line(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_string())
}

/// The words of a command line, which zeros separate.
pub(super) fn words(file: &Path) -> Option<Vec<String>> {
    let bytes = fs::read(file).ok()?;
    let words = bytes.split(|&byte| byte == 0);
    let word = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    Some(words.map(word).collect())
}

/// When a task started: field 22 of its `stat`. Its name may contain spaces and parentheses.
pub(super) fn start(file: &Path) -> Option<u64> {
    let stat = line(file)?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// A process's cgroup (v2) below the mount point, such as `/machine.slice/vm.scope`.
pub(super) fn cgroup(process: &Path) -> Option<String> {
    let text = fs::read_to_string(process.join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.to_string())
}
