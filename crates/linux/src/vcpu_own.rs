// SPDX-License-Identifier: GPL-2.0-only
//! What a vCPU has by itself: its weight among its siblings (`cpu.weight` of a cgroup that its thread has to itself,
//! such as libvirt's `vcpu0`, otherwise its thread's nice value), and its own limit, `cpu.max` of that cgroup
//! (libvirt's `<quota>`).
//!
//! The dispatcher divides a VM's time by these: for a cgroup by its weight among its neighbours (dispatcher/group.h),
//! for a thread by `scx.weight`, which the kernel derives from its nice value alone (`set_task_scx_weight()` in
//! kernel/sched/ext.c). In a cgroup that a thread has to itself its nice value has no effect.

use crate::cgroup;
use corun_model::{NEUTRAL_WEIGHT, Nanos};
use corun_system::procfs::{Proc, Process};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// `sched_prio_to_weight[]` of kernel/sched/core.c: nice -20 to 19.
const OF_NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
/// What nice 0 weighs there.
const NICE_0: u32 = 1024;

/// What a vCPU has by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// What it weighs among its siblings: 1 to 10000, 100 is neutral.
    pub(crate) weight: u32,
    /// pCPU time that it may have in a second, ns; `None`: as much as there is.
    pub(crate) quota: Option<Nanos>,
}

impl Own {
    /// What a vCPU has by default.
    pub(crate) const NEUTRAL: Self = Self {
        weight: NEUTRAL_WEIGHT,
        quota: None,
    };
}

/// What threads of one process have by themselves.
///
/// Most VMs have all their threads in one cgroup, and some hosts all VMs: to list its threads for
/// each vCPU was seven tenths of what the daemon did on such a host with 504 vCPUs. So it is
/// checked first whether threads of the process may be in different ones; a thread in the same
/// cgroup as the first thread is known not to be alone.
pub(crate) struct Threads {
    process: Process,
    tgid: u32,
    /// Where cgroups are mounted, unless all threads are in one.
    mount: Option<PathBuf>,
    /// The cgroup of its first thread.
    firsts: Option<String>,
}

impl Threads {
    /// Of a process of this host, whose cgroups are mounted here, if they are at all.
    pub(crate) fn of(tgid: u32, mount: Option<&Path>) -> Self {
        Self::below(Path::new("/"), mount.map(Path::to_path_buf), tgid)
    }

    /// Of one whose host's files lie below `root`, and its cgroups below `mount`.
    fn below(root: &Path, mount: Option<PathBuf>, tgid: u32) -> Self {
        let process = Proc::below(root).process(tgid);
        let firsts = process.cgroup();
        let together = |mount: &PathBuf| firsts.as_ref().is_some_and(|path| holds_all(mount, path));
        Self {
            process,
            tgid,
            mount: mount.filter(|mount| !together(mount)),
            firsts,
        }
    }

    /// What its thread `tid` has by itself; neutral, if it has gone.
    pub(crate) fn of_thread(&self, tid: u32) -> Own {
        let by_nice = || {
            let weight = nice(tid).ok().map(of_nice)?;
            Some(Own {
                weight,
                quota: None,
            })
        };
        let own = self.of_own_cgroup(tid).or_else(by_nice);
        own.unwrap_or(Own::NEUTRAL)
    }

    /// The settings of the cgroup that a thread has to itself; `None` if it shares its cgroup with others.
    fn of_own_cgroup(&self, tid: u32) -> Option<Own> {
        let mount = self.mount.as_ref()?;
        let path = self.process.thread(tid).cgroup()?;
        if tid != self.tgid && self.firsts.as_ref() == Some(&path) {
            return None;
        }
        let own = mount.join(path.trim_start_matches('/'));
        if own == *mount || !is_alone(&own, tid)? {
            return None;
        }
        Some(Own {
            weight: cgroup::weight_at(&own)?,
            quota: cgroup::quota_at(&own),
        })
    }
}

/// Is a thread the only one in its cgroup? The list begins with two, if there are two; with 50,000 threads, each of
/// which asks for this, reading on took seconds.
fn is_alone(own: &Path, tid: u32) -> Option<bool> {
    const TWO_LINES: u64 = 2 * "4294967295\n".len() as u64;
    let list = fs::File::open(own.join("cgroup.threads")).ok()?;
    let mut begins = String::new();
    list.take(TWO_LINES).read_to_string(&mut begins).ok()?;
    Some(begins.lines().all(|line| line.parse() == Ok(tid)))
}

/// Does a process with a thread in this cgroup have all of them there? Only threaded cgroups, and those that these
/// are below, divide processes (Documentation/admin-guide/cgroup-v2.rst, Threads); the root may, and has no type.
fn holds_all(mount: &Path, path: &str) -> bool {
    let file = mount.join(path.trim_start_matches('/')).join("cgroup.type");
    fs::read_to_string(file).is_ok_and(|kind| kind.trim() == "domain")
}

/// A thread's nice value.
fn nice(tid: u32) -> io::Result<i32> {
    // Every answer from -20 on is valid: only errno shows whether the call failed.
    // SAFETY: errno is this thread's own; the call takes integers.
    let nice = unsafe {
        *libc::__errno_location() = 0;
        libc::getpriority(libc::PRIO_PROCESS, tid)
    };
    match io::Error::last_os_error() {
        error if nice == -1 && error.raw_os_error() != Some(0) => Err(error),
        _ => Ok(nice),
    }
}

/// As in the kernel, 1 to 10000 (`sched_weight_to_cgroup()`).
fn of_nice(nice: i32) -> u32 {
    let at = usize::try_from(nice.saturating_add(20)).unwrap_or(0);
    let weight = OF_NICE[at.min(OF_NICE.len() - 1)];
    ((weight * NEUTRAL_WEIGHT + NICE_0 / 2) / NICE_0).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_nice_values_are_the_kernels() {
        let weights = [-20, -1, 0, 1, 19, 99, i32::MIN].map(of_nice);
        assert_eq!(weights, [8668, 125, 100, 80, 1, 1, 8668]);
    }

    #[test]
    fn a_thread_without_a_cgroup_of_its_own_weighs_what_its_nice_value_says() {
        let weighed = std::thread::spawn(|| {
            // SAFETY: takes nothing and always works; then integers, of this thread only.
            let me = unsafe { libc::gettid() } as u32;
            let mount = cgroup::mount(Path::new("/"));
            let owns = Threads::of(std::process::id(), mount.as_deref());
            let before = (owns.of_thread(me).weight, nice(me).unwrap());
            // SAFETY: as above.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, me, 19) };
            (before, owns.of_thread(me).weight, nice(me).unwrap())
        });
        let ((before, nice_before), after, nice_now) = weighed.join().unwrap();
        // Tests may be run at any nice value, the last one included.
        assert_eq!(before, of_nice(nice_before));
        assert_eq!((after, nice_now), (1, 19));
        assert!(nice(u32::MAX >> 1).is_err());
        assert_eq!(
            Threads::of(u32::MAX, None).of_thread(u32::MAX),
            Own::NEUTRAL
        );
    }

    #[test]
    fn libvirts_cgroup_of_a_vcpu_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        put("proc/7/task/8/cgroup", "0::/vm.scope/libvirt/vcpu0\n");
        put("proc/7/task/9/cgroup", "0::/vm.scope/libvirt\n");
        put("cg/vm.scope/libvirt/vcpu0/cgroup.threads", "8\n");
        put("cg/vm.scope/libvirt/vcpu0/cpu.weight", "300\n");
        put("cg/vm.scope/libvirt/vcpu0/cpu.max", "20000 100000\n");
        put("cg/vm.scope/libvirt/cgroup.threads", "9\n10\n");
        put("cg/vm.scope/libvirt/cpu.weight", "200\n");
        // With another one in it, even if the list is long.
        put("proc/7/task/12/cgroup", "0::/many\n");
        put("cg/many/cpu.weight", "300\n");
        put("cg/many/cgroup.threads", "12\n4194303\n");
        assert_eq!(
            Threads::below(root.path(), Some(root.path().join("cg")), 7).of_own_cgroup(12),
            None
        );
        put(
            "cg/many/cgroup.threads",
            &format!("12\n{}", "13\n".repeat(50_000)),
        );
        assert_eq!(
            Threads::below(root.path(), Some(root.path().join("cg")), 7).of_own_cgroup(12),
            None
        );
        put("proc/7/cgroup", "0::/vm.scope/libvirt/emulator\n");
        put("proc/7/task/7/cgroup", "0::/vm.scope/libvirt/emulator\n");
        put("cg/vm.scope/libvirt/emulator/cgroup.threads", "7\n");
        put("cg/vm.scope/libvirt/emulator/cpu.weight", "50\n");
        put("cg/vm.scope/libvirt/emulator/cpu.max", "max 100000\n");
        let owns = Threads::below(root.path(), Some(root.path().join("cg")), 7);
        let of = |tid| owns.of_own_cgroup(tid);
        let own = |weight, quota| Some(Own { weight, quota });
        assert_eq!(
            (of(8), of(9), of(10)),
            (own(300, Some(200_000_000)), None, None)
        );
        assert_eq!(of(7), own(50, None));
        // A thread that is where the process's first thread is does not even look which others are.
        put("proc/7/task/11/cgroup", "0::/vm.scope/libvirt/emulator\n");
        put("cg/vm.scope/libvirt/emulator/cgroup.threads", "11\n");
        assert_eq!(of(11), None);
        // Nor does one in a cgroup that does not divide processes.
        put("cg/vm.scope/libvirt/emulator/cgroup.type", "domain\n");
        assert_eq!(
            Threads::below(root.path(), Some(root.path().join("cg")), 7).of_own_cgroup(8),
            None
        );
    }
}
