// SPDX-License-Identifier: GPL-2.0-only
//! What bounds a thread besides its mask: its cpuset, and which pCPUs are online.
//!
//! The kernel keeps the mask that was asked for last (`user_cpus_ptr` in kernel/sched/core.c), whatever happens to the
//! cpuset. The mask that it shows, and goes by, is what both have in common, or, if that is nothing, all of the cpuset.
//! When the cpuset changes or pCPUs come back, the mask that was asked for counts again: a thread that may go anywhere
//! at the moment may still have been bound.

use crate::preflight;
use corun_model::PcpuSet;
use corun_system::cpusets;
use corun_system::procfs::{Proc, ThreadKey};
use std::path::Path;

/// What a thread could use if it had no mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) online: PcpuSet,
    /// `None`: it has no cpuset, or that cannot be found out.
    pub(crate) cpuset: Option<PcpuSet>,
}

impl Around {
    /// At this moment.
    pub(crate) fn of(key: &ThreadKey, online: &PcpuSet) -> Self {
        let cgroups = Proc::default().thread(key.tgid, key.tid).cgroups();
        Self {
            online: *online,
            cpuset: cpusets::of(Path::new("/sys"), &cgroups),
        }
    }

    /// All that there is for it.
    pub(crate) fn all(&self) -> PcpuSet {
        self.cpuset.map_or(self.online, |it| it.and(&self.online))
    }

    /// Are the pCPUs that were `found` what the kernel shows of a mask that was asked for?
    pub(crate) fn shows(&self, asked: &PcpuSet, found: &PcpuSet) -> bool {
        self.is_part(asked, found) || *found == self.left_of(asked)
    }

    /// The same for a mask that does not let the thread use all of its cpuset.
    pub(crate) fn is_part(&self, asked: &PcpuSet, found: &PcpuSet) -> bool {
        // The first two where its cpuset is not known, or has just changed.
        *found == *asked || *found == asked.and(&self.online) || *found == asked.and(&self.all())
    }

    /// What it may use under a mask that was asked for.
    pub(crate) fn left_of(&self, asked: &PcpuSet) -> PcpuSet {
        let left = asked.and(&self.all());
        match left.is_empty() {
            true => self.all(),
            false => left,
        }
    }

    /// May a thread with this mask use all that there can ever be, or all that its cpuset has? `listed` by /proc, which
    /// unlike `sched_getaffinity()` also lists pCPUs that are off-line.
    pub(crate) fn is_all(&self, listed: &PcpuSet) -> bool {
        let possible = preflight::possible();
        self.cpuset == Some(*listed) || possible.is_some_and(|all| listed.and(&all) == all)
    }
}

/// Is this thread free, as if nobody had ever set a mask for it?
pub(crate) fn is_free(key: &ThreadKey, around: &Around) -> bool {
    let listed = Proc::default().thread(key.tgid, key.tid).allowed();
    listed.is_some_and(|listed| around.is_all(&listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> PcpuSet {
        list.parse().unwrap()
    }

    fn around(online: &str, cpuset: Option<&str>) -> Around {
        Around {
            online: set(online),
            cpuset: cpuset.map(set),
        }
    }

    #[test]
    fn what_the_kernel_makes_of_a_mask() {
        for (asked, online, cpuset, shown) in [
            ("0", "0-3", None, "0"),
            ("0-1", "0-3", Some("1-2"), "1"),
            ("0", "0-3", Some("1-2"), "1-2"),
            ("0", "1-3", None, "1-3"),
            ("0", "1-3", Some("0-1"), "1"),
        ] {
            let around = around(online, cpuset);
            assert_eq!(
                around.left_of(&set(asked)),
                set(shown),
                "{asked} {around:?}"
            );
            assert!(around.shows(&set(asked), &set(shown)));
            assert!(!around.shows(&set(asked), &set("3,9")));
        }
    }

    /// As with systemd's `AllowedCPUs=` for all VMs of a host.
    #[test]
    fn who_may_use_all_of_its_cpuset_is_free() {
        let possible = preflight::possible().unwrap();
        let [all, mine, part] = ["0-500", "2-15", "2-14"].map(set);
        assert!(around("0-15", Some("2-15")).is_all(&mine));
        assert!(!around("0-15", Some("2-15")).is_all(&part));
        assert!(around("0", None).is_all(&all.and(&possible)));
    }
}
