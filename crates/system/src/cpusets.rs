// SPDX-License-Identifier: GPL-2.0-only
//! Cpusets: the CPUs that a thread's cgroups, of either version, let it use.
//!
//! The kernel cuts a thread's mask to them and keeps the mask that was asked for last (`user_cpus_ptr` in
//! kernel/sched/core.c): where the two have no CPU in common, the thread may use all of its cpuset, and when the cpuset
//! changes, the mask applies again.

use corun_model::PcpuSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where version 2 is mounted, alone or alongside version 1.
const UNIFIED: [&str; 2] = ["", "unified"];

/// The CPUs that are online in the cpuset of a thread in these cgroups ([`crate::procfs::Thread::cgroups`]); `None` if
/// none says. `sys` is a mounted sysfs.
pub fn of(sys: &Path, cgroups: &[(String, String)]) -> Option<PcpuSet> {
    let base = sys.join("fs/cgroup");
    cgroups.iter().find_map(|(controllers, path)| {
        let (mounts, file): (Vec<PathBuf>, _) = if controllers.is_empty() {
            let mounts = UNIFIED.map(|mount| base.join(mount));
            (mounts.to_vec(), "cpuset.cpus.effective")
        } else if controllers.split(',').any(|name| name == "cpuset") {
            (vec![base.join(controllers)], "cpuset.effective_cpus")
        } else {
            return None;
        };
        mounts.iter().find_map(|mount| nearest(mount, path, file))
    })
}

/// `file` of the cgroup `path` below `mount`, or of the nearest one above that has it: where the controller is not
/// enabled, the parent's set applies.
fn nearest(mount: &Path, path: &str, file: &str) -> Option<PcpuSet> {
    let full = mount.join(path.trim_start_matches('/'));
    let read = |folder: &Path| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        text.trim().parse().ok()
    };
    let mut around = full
        .ancestors()
        .take_while(|folder| folder.starts_with(mount));
    around.find_map(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpusets_of_both_versions_and_of_parents() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = root.path().join("fs/cgroup").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |groups: &[(&str, &str)]| {
            let groups: Vec<_> = groups
                .iter()
                .map(|(controllers, path)| (controllers.to_string(), path.to_string()))
                .collect();
            of(root.path(), &groups).map(|set| set.to_string())
        };
        assert_eq!(of(&[("", "/a")]), None);
        put("unified/c/cpuset.cpus.effective", "3\n");
        assert_eq!(of(&[("", "/c/inner")]), Some("3".into()));
        put("cpuset.cpus.effective", "0-3\n");
        put("a/cpuset.cpus.effective", "1\n");
        put("cpuset/b/cpuset.effective_cpus", "2-3\n");
        assert_eq!(of(&[("", "/a")]), Some("1".into()));
        assert_eq!(of(&[("", "/a/inner")]), Some("1".into()));
        assert_eq!(of(&[("", "/other")]), Some("0-3".into()));
        assert_eq!(
            of(&[("memory", "/a"), ("cpuset", "/b")]),
            Some("2-3".into())
        );
        assert_eq!(of(&[("cpuset", "/b"), ("", "/a")]), Some("2-3".into()));
        assert_eq!(of(&[("cpuset", "/none")]), None);
        assert_eq!(of(&[("memory", "/a")]), None);
    }
}
