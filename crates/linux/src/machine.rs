// SPDX-License-Identifier: GPL-2.0-only
//! What this host is made of: which pCPUs share a core, a cache and a node.
//!
//! Read from /sys/devices/system (Documentation/admin-guide/cputopology.rst, Documentation/ABI/testing/
//! sysfs-devices-system-cpu), for pCPUs that are online. Where the kernel lists no caches, as in some VMs, the pCPUs of
//! a package count as sharing one, whose size is unknown; where it says nothing at all, all pCPUs do.

use crate::{ipis, preflight, smt};
use corun_model::{HostSeen, PcpuId, PcpuSet, Sharing, Topology, TopologyError};
use corun_policies::aql::Machine;
use corun_system::procfs::Proc;
use std::fs;
use std::path::Path;

/// Which boot of the host this is: numbers of threads and what was set in the kernel mean nothing in another one.
pub(crate) fn boot() -> String {
    Proc::default().boot().unwrap_or_default()
}

/// Which pCPUs share what. Sets are in the order of their first pCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The pCPUs of each last-level cache.
    pub llcs: Vec<PcpuSet>,
    /// SMT siblings.
    pub cores: Vec<PcpuSet>,
    /// The pCPUs of each NUMA node.
    pub nodes: Vec<PcpuSet>,
    /// Bytes of a core's L2; 0: unknown.
    pub l2: u64,
    /// Bytes of a last-level cache, the largest of the host; 0: unknown.
    pub llc: u64,
}

/// Why a host cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The kernel does not report pCPUs.
    #[error("cannot tell this host's pCPUs from /sys/devices/system/cpu/online")]
    Online,
    /// The kernel does not list caches.
    #[error(
        "this kernel does not describe this machine's caches (/sys/devices/system/cpu/cpu0/cache)"
    )]
    Caches,
    /// The host has a shape corun does not know.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

impl Layout {
    /// Of this host.
    ///
    /// # Errors
    /// [`MachineError::Online`].
    pub fn of_this_host() -> Result<Self, MachineError> {
        Ok(Self::here(
            &preflight::online().ok_or(MachineError::Online)?,
        ))
    }

    /// Of this host, as far as these pCPUs go.
    pub fn here(online: &PcpuSet) -> Self {
        Self::read(Path::new("/"), online)
    }

    fn read(root: &Path, online: &PcpuSet) -> Self {
        let mut layout = Self::default();
        for cpu in online.iter() {
            let cpu_files = root.join(format!("sys/devices/system/cpu/cpu{}", cpu.0));
            let own = || PcpuSet::from_iter([cpu]);
            let shared = |set: PcpuSet| set.and(online);
            let topology = cpu_files.join("topology");
            let package = one_of(&topology, ["package_cpus_list", "core_siblings_list"]);
            let core = one_of(&topology, ["core_cpus_list", "thread_siblings_list"]);
            let caches = caches(&cpu_files.join("cache"));
            let last = caches.iter().max_by_key(|cache| cache.level);
            let second = caches.iter().find(|cache| cache.level == 2);
            layout.l2 = layout.l2.max(second.map_or(0, |cache| cache.bytes));
            layout.llc = layout.llc.max(last.map_or(0, |cache| cache.bytes));
            let last = last.map(|cache| cache.shared).or(package);
            add(&mut layout.llcs, cpu, last.map_or(*online, shared));
            add(&mut layout.cores, cpu, core.map_or_else(own, shared));
        }
        layout.nodes = nodes(&root.join("sys/devices/system/node"), online);
        layout
    }

    /// This machine as calibrations name it. A host that is not regular counts with what its largest
    /// parts have.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn machine(&self) -> Result<Machine, MachineError> {
        if self.llc == 0 || self.l2 == 0 {
            return Err(MachineError::Caches);
        }
        let cores = |llc: &PcpuSet| {
            self.cores
                .iter()
                .filter(|core| !core.and(llc).is_empty())
                .count()
        };
        let most = |counts: &mut dyn Iterator<Item = usize>| counts.max().unwrap_or(1).max(1);
        let nodes = self.nodes.len().max(1);
        let llcs = self.llcs.len().div_ceil(nodes).max(1);
        let cores = most(&mut self.llcs.iter().map(cores));
        let threads = most(&mut self.cores.iter().map(|core| core.len() as usize));
        Ok(Machine {
            topology: format!("{nodes}n{llcs}l{cores}c{threads}t").parse::<Topology>()?,
            l2: self.l2,
            llc: self.llc,
        })
    }
}

/// This host as policies see it. Its `topology` says only how far the numbers of pCPUs go: the kernel numbers them in
/// an order of its own.
pub(crate) fn seen(online: &PcpuSet) -> Result<HostSeen, TopologyError> {
    seen_in(Path::new("/"), online)
}

fn seen_in(root: &Path, online: &PcpuSet) -> Result<HostSeen, TopologyError> {
    let layout = Layout::read(root, online);
    Ok(HostSeen {
        topology: Topology::flat(online.iter().last().map_or(1, |cpu| cpu.0 + 1))?,
        llcs: layout.llcs,
        nodes: layout.nodes,
        smt: smt::order(online),
        wakers_hidden: ipis::hide_wakers(Path::new("/")),
        awaited_hidden: None,
    })
}

/// Which pCPUs share cores and caches, as placement needs it.
pub(crate) fn sharing(online: &PcpuSet) -> Sharing {
    let layout = Layout::here(online);
    Sharing::of(&layout.cores, &layout.llcs)
}

/// Puts a set in unless `cpu` is in one already.
fn add(sets: &mut Vec<PcpuSet>, cpu: PcpuId, set: PcpuSet) {
    if !sets.iter().any(|known| known.contains(cpu)) {
        sets.push(set);
    }
}

fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// The first of these lists that is there; older kernels have other names.
fn one_of(folder: &Path, names: [&str; 2]) -> Option<PcpuSet> {
    let list = |name: &&str| line(&folder.join(name))?.parse().ok();
    names.iter().find_map(list)
}

/// A cache that holds data.
struct Cache {
    level: u32,
    bytes: u64,
    shared: PcpuSet,
}

fn caches(folder: &Path) -> Vec<Cache> {
    let indices = (0..16).map(|index| folder.join(format!("index{index}")));
    indices
        .take_while(|index| index.exists())
        .filter_map(|index| cache(&index))
        .collect()
}

fn cache(index: &Path) -> Option<Cache> {
    let value = |name: &str| line(&index.join(name));
    let data = value("type")? != "Instruction";
    let cache = Cache {
        level: value("level")?.parse().ok()?,
        // The kernel writes kibibytes as `K`.
        bytes: value("size")?
            .strip_suffix('K')?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)?,
        shared: value("shared_cpu_list")?.parse().ok()?,
    };
    data.then_some(cache)
}

/// The nodes that have some of these pCPUs.
fn nodes(folder: &Path, online: &PcpuSet) -> Vec<PcpuSet> {
    let numbers = line(&folder.join("has_cpu")).and_then(|list| list.parse::<PcpuSet>().ok());
    let numbers = numbers.unwrap_or_default();
    let list = |node: PcpuId| {
        line(&folder.join(format!("node{}/cpulist", node.0)))?
            .parse()
            .ok()
    };
    let sets = numbers
        .iter()
        .filter_map(list)
        .map(|set: PcpuSet| set.and(online));
    sets.filter(|set| !set.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }

    /// Two sockets of two cores, numbered as Intel's firmware does: first threads first, sockets by
    /// turns.
    fn interleaved(root: &Path) {
        for cpu in 0..8u32 {
            let (core, socket) = (cpu % 4, cpu % 2);
            let files = format!("sys/devices/system/cpu/cpu{cpu}");
            let package = format!("{socket},{},{},{}", socket + 2, socket + 4, socket + 6);
            write(
                root,
                &format!("{files}/topology/core_cpus_list"),
                &format!("{core},{}", core + 4),
            );
            write(
                root,
                &format!("{files}/topology/package_cpus_list"),
                &package,
            );
            let caches = [
                (1, "Data", "32K"),
                (1, "Instruction", "64K"),
                (2, "Unified", "256K"),
            ];
            for (index, (level, kind, size)) in caches.into_iter().enumerate() {
                let cache = format!("{files}/cache/index{index}");
                write(root, &format!("{cache}/level"), &level.to_string());
                write(root, &format!("{cache}/type"), kind);
                write(root, &format!("{cache}/size"), size);
                write(
                    root,
                    &format!("{cache}/shared_cpu_list"),
                    &format!("{core},{}", core + 4),
                );
            }
            let last = format!("{files}/cache/index3");
            write(root, &format!("{last}/level"), "3");
            write(root, &format!("{last}/type"), "Unified");
            write(root, &format!("{last}/size"), "8192K");
            write(root, &format!("{last}/shared_cpu_list"), &package);
        }
        write(root, "sys/devices/system/node/has_cpu", "0-1");
        write(root, "sys/devices/system/node/node0/cpulist", "0,2,4,6");
        write(root, "sys/devices/system/node/node1/cpulist", "1,3,5,7");
    }

    fn sets(lists: &[&str]) -> Vec<PcpuSet> {
        lists.iter().map(|list| list.parse().unwrap()).collect()
    }

    #[test]
    fn sockets_are_told_by_their_caches_not_by_numbers() {
        let root = tempfile::tempdir().unwrap();
        interleaved(root.path());
        let layout = Layout::read(root.path(), &PcpuSet::first(8));
        assert_eq!(layout.llcs, sets(&["0,2,4,6", "1,3,5,7"]));
        assert_eq!(layout.cores, sets(&["0,4", "1,5", "2,6", "3,7"]));
        let machine = layout.machine().unwrap();
        assert_eq!(machine.to_string(), "2n1l2c2t, L2 256KB, LLC 8MB");
    }

    #[test]
    fn policies_see_which_pcpus_share_a_node() {
        let root = tempfile::tempdir().unwrap();
        interleaved(root.path());
        let seen = seen_in(root.path(), &PcpuSet::first(8)).unwrap();
        assert_eq!(seen.nodes, sets(&["0,2,4,6", "1,3,5,7"]));
        let nodes = [0, 5, 6].map(|cpu| seen.node(PcpuId(cpu)));
        assert_eq!(nodes, [0, 1, 0]);
        // A kernel without NUMA lists no nodes.
        let plain = seen_in(&root.path().join("none"), &PcpuSet::first(2)).unwrap();
        assert_eq!(plain.node(PcpuId(0)), plain.node(PcpuId(1)));
    }

    #[test]
    fn what_is_offline_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        interleaved(root.path());
        let layout = Layout::read(root.path(), &"0,2,4,6".parse().unwrap());
        assert_eq!((layout.llcs.len(), layout.nodes.len()), (1, 1));
        assert_eq!(layout.machine().unwrap().topology.to_string(), "1n1l2c2t");
    }

    #[test]
    fn without_caches_a_package_is_one_and_has_no_name() {
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..4 {
            let list = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_siblings_list");
            write(root.path(), &list, if cpu < 2 { "0-1" } else { "2-3" });
        }
        let layout = Layout::read(root.path(), &PcpuSet::first(4));
        assert_eq!(layout.llcs, sets(&["0-1", "2-3"]));
        assert_eq!(layout.machine(), Err(MachineError::Caches));
        let nothing = Layout::read(&root.path().join("none"), &PcpuSet::first(2));
        assert_eq!(nothing.llcs, sets(&["0-1"]));
    }
}
