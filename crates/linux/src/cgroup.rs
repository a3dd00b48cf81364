// SPDX-License-Identifier: GPL-2.0-only
//! The weight of a VM: `cpu.weight` of the cgroup (v2) that it has to itself.
//!
//! Which cgroup is that? Other processes in a VMM's cgroup serve its VM, unless they are VMMs: libvirt puts swtpm,
//! virtiofsd, passt and the like into it with QEMU, KubeVirt its launcher. So the innermost cgroup around a VMM is the
//! VM's own if no other VMM is in it. The cgroups around that one are the VM's own, too, as long as they hold nothing
//! else: libvirt puts the VMM and its vCPUs into (threaded) cgroups within the VM's scope. A scope or a service is made
//! for one thing, so processes that are not VMs may be in it as well; a slice is made for many, even while only one VM
//! is in it.

use corun_model::Nanos;
use corun_policies::weighing::{self, PARTS, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where cgroup v2 is mounted, alone or alongside v1.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// Where it is on the host whose files lie below `root`.
pub(crate) fn mount(root: &Path) -> Option<PathBuf> {
    let is_v2 = |root: &PathBuf| root.join("cgroup.controllers").exists();
    MOUNTS.iter().map(|path| root.join(path)).find(is_v2)
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

/// `cpu.max` of the cgroup with this directory, as pCPU time in a second, ns; `None`: no limit.
pub(crate) fn quota_at(cgroup: &Path) -> Option<Nanos> {
    let max = fs::read_to_string(cgroup.join("cpu.max")).ok()?;
    let (time, period) = max.trim().split_once(' ')?;
    let (time, period): (Nanos, Nanos) = (time.parse().ok()?, period.parse().ok()?);
    (time > 0 && period > 0).then(|| weighing::Cgroup::per_second(time, period))
}

/// Cgroups by their directories, as read in one look: those that are around many VMs are read once.
#[derive(Debug, Default)]
pub(crate) struct Read(BTreeMap<PathBuf, Known>);

/// What was read of a cgroup.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its `cpu.weight`.
    weight: Option<u32>,
    /// The cgroup as a member of the one around it; `None`: no controller divides CPU time there.
    member: Option<weighing::Cgroup>,
}

impl Read {
    /// With nothing read yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// `cpu.weight` of the cgroup with this directory.
    pub(crate) fn weight(&mut self, cgroup: &Path) -> Option<u32> {
        self.known(cgroup).weight
    }

    fn known(&mut self, cgroup: &Path) -> Known {
        if let Some(known) = self.0.get(cgroup) {
            return *known;
        }
        let known = Known::of(cgroup);
        self.0.insert(cgroup.to_path_buf(), known);
        known
    }
}

impl Known {
    /// What is read in this directory. With `cpu.idle`, `cpu.weight` reads 0 or 1.
    fn of(cgroup: &Path) -> Self {
        let weight = weight_at(cgroup);
        let idle = fs::read_to_string(cgroup.join("cpu.idle")).is_ok_and(|idle| idle.trim() == "1");
        let in_parts = match idle {
            true => Some(weighing::IDLE),
            false => weight.map(|weight| u64::from(weight) * PARTS),
        };
        let id = || fs::metadata(cgroup).ok().map(|it| it.ino());
        Self {
            weight,
            member: in_parts.and_then(|weight| {
                Some(weighing::Cgroup {
                    id: id()?,
                    weight,
                    quota: quota_at(cgroup),
                })
            }),
        }
    }
}

/// Where a VM is among cgroups: it has `own` to itself, or else is in `cgroup`. `root` is where they are mounted.
pub(crate) fn place(root: &Path, own: Option<&Path>, cgroup: &str, read: &mut Read) -> Place {
    let within = root.join(cgroup.trim_start_matches('/'));
    let innermost = own.unwrap_or(&within);
    let mut around: Vec<weighing::Cgroup> = innermost
        .ancestors()
        .take_while(|at| *at != root && at.starts_with(root) && !at.ends_with(".."))
        .filter_map(|at| read.known(at).member)
        .collect();
    let own = own.is_some_and(|own| read.known(own).member.is_some());
    around.reverse();
    Place { around, own }
}

/// The cgroup that VM `tgid` has to itself, as said above.
pub(crate) fn own_cgroup(
    root: &Path,
    tgid: u32,
    cgroup: &str,
    is_vm: &dyn Fn(u32) -> bool,
) -> Option<PathBuf> {
    let mut own = None;
    let mut known = BTreeSet::new();
    let mut at = root.join(cgroup.trim_start_matches('/'));
    while at != root && at.starts_with(root) && !is_slice(&at) {
        let mut inside = BTreeSet::from([tgid]);
        let may_come_in = own.is_none() || is_unit(&at);
        let fits = |process| match process == tgid || known.contains(&process) {
            true => true,
            false => may_come_in && !is_vm(process),
        };
        match gather(&at, DEEPEST, &fits, &mut inside) {
            Some(true) => {
                own = Some(at.clone());
                known = inside;
            }
            Some(false) => break,
            None => {} // threaded: its processes are listed further out
        }
        if !at.pop() {
            break;
        }
    }
    own
}

/// A scope or a service of systemd's.
fn is_unit(cgroup: &Path) -> bool {
    let end = cgroup.extension();
    end.is_some_and(|end| end == "scope" || end == "service")
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

/// Lists the processes of this cgroup and those below, as long as each `fits`: do they all? `None` if that is not
/// known.
fn gather(
    cgroup: &Path,
    levels: u32,
    fits: &dyn Fn(u32) -> bool,
    inside: &mut BTreeSet<u32>,
) -> Option<bool> {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    for line in processes.lines() {
        match line.parse() {
            Ok(process) if fits(process) => inside.insert(process),
            _ => return Some(false),
        };
    }
    let mut below = children(cgroup)?;
    let others =
        |group: PathBuf| levels == 0 || gather(&group, levels - 1, fits, inside) == Some(false);
    Some(!below.any(others))
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

    /// Processes 7, 8 and 70 are VMs.
    fn weight_of(root: &tempfile::TempDir, tgid: u32, cgroup: &str) -> Option<u32> {
        let is_vm = |process| [7, 8, 70].contains(&process);
        weight_at(&own_cgroup(root.path(), tgid, cgroup, &is_vm)?)
    }

    /// Weights of the cgroups around, in thousandths.
    #[test]
    fn what_is_around_a_vm_and_idle_counts() {
        let root = tree(&[
            ("low.slice", "", "10\n"),
            ("low.slice/plain", "", ""),
            ("low.slice/plain/a.scope", "7\n", "300\n"),
            ("low.slice/b.scope", "8\n", "0\n"),
            ("low.slice/c.scope", "9\n", "1\n"),
            ("low.slice/d.scope", "10\n", "1\n"),
        ]);
        for idle in ["b", "c"] {
            let idle = format!("low.slice/{idle}.scope/cpu.idle");
            fs::write(root.path().join(idle), "1\n").unwrap();
        }
        let (a, b) = ("low.slice/plain/a.scope", "low.slice/b.scope");
        let mut read = Read::new();
        let mut of = |own: Option<&str>, cgroup: &str| {
            let own = own.map(|own| root.path().join(own));
            let place = place(root.path(), own.as_deref(), cgroup, &mut read);
            let weights = place.around.iter().map(|cgroup| cgroup.weight);
            (weights.collect::<Vec<_>>(), place.own, place.around)
        };
        let (one, other) = (of(Some(a), "/"), of(Some(b), "/"));
        assert_eq!((&one.0[..], one.1), (&[10_000, 300_000][..], true));
        assert_eq!(
            (&other.0[..], other.1),
            (&[10_000, weighing::IDLE][..], true)
        );
        assert_eq!(one.2[0], other.2[0]);
        assert_ne!(one.2[1].id, other.2[1].id);
        let least = |vm: &str| of(Some(vm), "/").0[1];
        let weights = ["low.slice/c.scope", "low.slice/d.scope"].map(least);
        assert_eq!(weights, [weighing::IDLE, 1_000]);
        // In a slice with others, in one that does not divide CPU time, in the root, and outside it.
        assert_eq!(of(None, "/low.slice").0, [10_000]);
        let plain = of(Some("low.slice/plain"), "/");
        assert_eq!((plain.0, plain.1), (vec![10_000], false));
        assert_eq!((of(None, "/").0, of(None, "/..").0), (vec![], vec![]));
    }

    /// pCPU time in a second of the cgroups around.
    #[test]
    fn quotas_around_a_vm_count() {
        let root = tree(&[
            ("slice", "", "100\n"),
            ("slice/plain", "", "100\n"),
            ("slice/plain/a", "7\n", "100\n"),
            ("slice/b", "8\n", "100\n"),
        ]);
        let said = [
            ("slice", "150000 100000\n"),
            ("slice/plain", "max 100000\n"),
            ("slice/plain/a", "5000 20000\n"),
            ("slice/b", "0 x\n"),
        ];
        for (cgroup, max) in said {
            fs::write(root.path().join(cgroup).join("cpu.max"), max).unwrap();
        }
        let mut read = Read::new();
        let mut of = |own: &str| -> Vec<Option<Nanos>> {
            let own = root.path().join(own);
            let place = place(root.path(), Some(&own), "/", &mut read);
            place.around.iter().map(|cgroup| cgroup.quota).collect()
        };
        let outer = Some(1_500_000_000);
        assert_eq!(of("slice/plain/a"), [outer, None, Some(250_000_000)]);
        assert_eq!(of("slice/b"), [outer, None]);
    }

    #[test]
    fn a_cgroup_to_itself() {
        let root = tree(&[("a", "7\n", "300\n"), ("b", "8\n", "100\n")]);
        assert_eq!(weight_of(&root, 7, "/a"), Some(300));
    }

    #[test]
    fn the_root_or_a_shared_cgroup_is_not_its_own() {
        let root = tree(&[("a", "9\n7\n8\n", "300\n"), ("x.slice", "7\n9\n", "50\n")]);
        assert_eq!(weight_of(&root, 7, "/a"), None);
        assert_eq!(weight_of(&root, 7, "/"), None);
        assert_eq!(weight_of(&root, 7, "/x.slice"), None);
        assert_eq!(weight_of(&root, 7, "/../../etc"), None);
    }

    #[test]
    fn libvirt_has_threaded_cgroups_in_a_scope() {
        // Alone, and with swtpm or the like, which libvirt puts into the emulator's.
        for processes in ["7\n", "7\n9\n10\n"] {
            let root = tree(&[
                ("machine.slice", "", "100\n"),
                ("machine.slice/vm.scope", "", "250\n"),
                ("machine.slice/vm.scope/libvirt", processes, "100\n"),
                (
                    "machine.slice/vm.scope/libvirt/emulator",
                    "threaded",
                    "100\n",
                ),
                ("machine.slice/vm.scope/libvirt/vcpu0", "threaded", "100\n"),
            ]);
            let path = "/machine.slice/vm.scope/libvirt/emulator";
            assert_eq!(weight_of(&root, 7, path), Some(250), "{processes}");
        }
    }

    #[test]
    fn helpers_beside_it_in_its_scope_do_not_make_it_anothers() {
        let root = tree(&[
            ("machine.slice/vm.scope", "", "250\n"),
            ("machine.slice/vm.scope/libvirt", "7\n", "100\n"),
            ("machine.slice/vm.scope/helpers", "9\n", "20\n"),
            ("machine.slice/two.scope", "", "500\n"),
            ("machine.slice/two.scope/a", "8\n9\n", "30\n"),
            ("machine.slice/two.scope/b", "70\n", "60\n"),
        ]);
        let of = |tgid, path| weight_of(&root, tgid, path);
        assert_eq!(of(7, "/machine.slice/vm.scope/libvirt"), Some(250));
        assert_eq!(of(8, "/machine.slice/two.scope/a"), Some(30));
        assert_eq!(of(70, "/machine.slice/two.scope/b"), Some(60));
    }

    /// VMs with a helper each that were put into one slice, or one cgroup without a unit.
    #[test]
    fn several_vms_with_helpers_share_what_is_around_them() {
        for around in ["machine.slice", "machine"] {
            let [both, one, other] = ["", "/one", "/other"].map(|at| format!("{around}{at}"));
            let root = tree(&[
                (&both, "", "900\n"),
                (&one, "7\n9\n", "200\n"),
                (&other, "10\n8\n", "300\n"),
            ]);
            assert_eq!(weight_of(&root, 7, &one), Some(200));
            assert_eq!(weight_of(&root, 8, &other), Some(300));
            let root = tree(&[(&both, "7\n8\n9\n10\n", "900\n")]);
            assert_eq!(weight_of(&root, 7, &both), None);
        }
    }

    /// As the kubelet makes them without systemd: the only VM has its container to itself, not all pods.
    #[test]
    fn what_is_around_others_is_not_its_own() {
        let root = tree(&[
            ("kubepods", "", "9000\n"),
            ("kubepods/pod1", "", "80\n"),
            ("kubepods/pod1/compute", "10\n11\n7\n", "40\n"),
            ("kubepods/pod2", "", "80\n"),
            ("kubepods/pod2/web", "12\n", "40\n"),
        ]);
        assert_eq!(weight_of(&root, 7, "/kubepods/pod1/compute"), Some(80));
        fs::create_dir(root.path().join("kubepods/pod1/sidecar")).unwrap();
        fs::write(
            root.path().join("kubepods/pod1/sidecar/cgroup.procs"),
            "13\n",
        )
        .unwrap();
        assert_eq!(weight_of(&root, 7, "/kubepods/pod1/compute"), Some(40));
    }
}
