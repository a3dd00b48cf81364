// SPDX-License-Identifier: GPL-2.0-only
//! What a VM is worth: `cpu.weight` of the cgroup (v2) it has to itself.
//!
//! Its own is the outermost cgroup around its VMM with no other process in it. libvirt puts the VMM
//! and its vCPUs into (threaded) cgroups within the VM's scope; a slice is for many by its nature,
//! even if there is but one VM in it now.

use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted, alone or beside v1.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// Where it is on the host whose files lie below `root`.
pub(crate) fn mount(root: &Path) -> Option<PathBuf> {
    let is_v2 = |root: &PathBuf| root.join("cgroup.controllers").exists();
    MOUNTS.iter().map(|path| root.join(path)).find(is_v2)
}

/// The weight of the VM with this process and cgroup; `None` if it shares its cgroup.
pub(crate) fn weight(tgid: u32, cgroup: &str) -> Option<u32> {
    weight_in(&mount(Path::new("/"))?, tgid, cgroup)
}

pub(crate) fn weight_in(root: &Path, tgid: u32, cgroup: &str) -> Option<u32> {
    weight_at(&own_cgroup(root, tgid, cgroup)?)
}

/// The weight of the cgroup with this directory.
pub(crate) fn weight_at(cgroup: &Path) -> Option<u32> {
    let weight = fs::read_to_string(cgroup.join("cpu.weight")).ok()?;
    weight
        .trim()
        .parse()
        .ok()
        .filter(|weight| (1..=10_000).contains(weight))
}

/// The outermost cgroup that holds process `tgid` and no other.
pub(crate) fn own_cgroup(root: &Path, tgid: u32, cgroup: &str) -> Option<PathBuf> {
    let mut own = None;
    let mut at = root.join(cgroup.trim_start_matches('/'));
    while at != root && at.starts_with(root) && !is_slice(&at) {
        match alone(&at, tgid, DEEPEST) {
            Some(true) => own = Some(at.clone()),
            Some(false) => break,
            None => {} // threaded: its processes are listed further out
        }
        if !at.pop() {
            break;
        }
    }
    own
}

fn is_slice(cgroup: &Path) -> bool {
    cgroup.extension().is_some_and(|end| end == "slice")
}

/// How many levels of cgroups a VM may have within its own.
pub(crate) const DEEPEST: u32 = 4;

/// The cgroups just below one; `None` if it has gone.
pub(crate) fn children(cgroup: &Path) -> Option<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(cgroup).ok()?.flatten();
    let paths = entries.map(|entry| entry.path());
    Some(paths.filter(|path| path.is_dir()))
}

/// Is there no process but `tgid` in this cgroup and those below? `None` if it does not say.
fn alone(cgroup: &Path, tgid: u32, levels: u32) -> Option<bool> {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    if processes.lines().any(|line| line.parse() != Ok(tgid)) {
        return Some(false);
    }
    let others = |group: PathBuf| levels == 0 || alone(&group, tgid, levels - 1) == Some(false);
    Some(!children(cgroup)?.any(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of cgroups: (path, processes, weight).
    fn tree(groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, processes, weight) in groups {
            let group = root.path().join(path);
            fs::create_dir_all(&group).unwrap();
            if *processes != "threaded" {
                fs::write(group.join("cgroup.procs"), processes).unwrap();
            }
            fs::write(group.join("cpu.weight"), weight).unwrap();
        }
        root
    }

    #[test]
    fn a_cgroup_to_itself() {
        let root = tree(&[("a", "7\n", "300\n"), ("b", "8\n", "100\n")]);
        assert_eq!(weight_in(root.path(), 7, "/a"), Some(300));
    }

    #[test]
    fn the_root_or_a_shared_cgroup_is_not_its_own() {
        let root = tree(&[("a", "7\n8\n", "300\n"), ("x.slice", "9\n", "50\n")]);
        assert_eq!(weight_in(root.path(), 7, "/a"), None);
        assert_eq!(weight_in(root.path(), 7, "/"), None);
        assert_eq!(weight_in(root.path(), 9, "/x.slice"), None);
        assert_eq!(weight_in(root.path(), 9, "/../../etc"), None);
    }

    #[test]
    fn libvirt_has_threaded_cgroups_in_a_scope() {
        let root = tree(&[
            ("machine.slice", "", "100\n"),
            ("machine.slice/vm.scope", "", "250\n"),
            ("machine.slice/vm.scope/libvirt", "7\n", "100\n"),
            (
                "machine.slice/vm.scope/libvirt/emulator",
                "threaded",
                "100\n",
            ),
            ("machine.slice/vm.scope/libvirt/vcpu0", "threaded", "100\n"),
        ]);
        let path = "/machine.slice/vm.scope/libvirt/emulator";
        assert_eq!(weight_in(root.path(), 7, path), Some(250));
    }
}
