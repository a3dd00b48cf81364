// SPDX-License-Identifier: GPL-2.0-only
//! One look at the host.

use crate::inventory::{self, Machine};
use crate::socket;
use crate::socket::protocol::Command;
use crate::status::HostStatus;
use crate::{cgroup, sched_ext};
use corun_model::Nanos;
use corun_model::time::US;
use corun_system::clock;
use corun_system::procfs::{Counted, Proc};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon may take to say what it knows. One that hangs must not keep a scrape, which Prometheus gives up
/// after 10 s, from saying so.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a VM's own cgroup says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// `cpu.weight`.
    pub weight: Option<u32>,
    /// Time for which its threads were throttled by `cpu.max`, ns, summed over pCPUs.
    pub throttled: Option<Nanos>,
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSample {
    /// When it was looked at, ns on the monotonic clock: a look at a whole host takes a while.
    pub at: Nanos,
    /// Its identity, and its threads.
    pub machine: Machine,
    /// Where the cgroup is that it has to itself: finding that takes listing processes, so other code asks here.
    pub(crate) own_cgroup: Option<PathBuf>,
    /// What that says.
    pub group: Group,
    /// What was counted, by thread.
    pub threads: BTreeMap<u32, Counted>,
}

impl VmSample {
    /// What was counted of a thread.
    pub fn counted(&self, tid: u32) -> Counted {
        self.threads.get(&tid).copied().unwrap_or_default()
    }
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it began, ns on the monotonic clock.
    pub at: Nanos,
    /// The scheduler in charge: that of the kernel, or the name of a sched_ext one.
    pub scheduler: String,
    /// What corun's daemon says, if one runs and one may ask.
    pub daemon: Option<HostStatus>,
    /// Time some task waited for a pCPU, ns, as far as the kernel says.
    pub pressure: Option<Nanos>,
    /// By process number.
    pub vms: Vec<VmSample>,
}

/// Looks at a host again and again.
#[derive(Clone, Debug)]
pub struct Sampler {
    root: PathBuf,
    socket: Option<PathBuf>,
}

impl Sampler {
    /// Of this host; asks the daemon on `socket`, if there is one.
    pub fn new(socket: Option<PathBuf>) -> Self {
        Self {
            root: PathBuf::from("/"),
            socket,
        }
    }

    /// Of a host whose files lie below `root`, without requests to a daemon or manager.
    pub fn below(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            socket: None,
        }
    }

    /// Looks.
    pub fn sample(&self) -> Sample {
        let mount = cgroup::mount(&self.root);
        let machines = inventory::machines(&self.root);
        let all: BTreeSet<u32> = machines.iter().map(|machine| machine.tgid).collect();
        let look = |machine| self.vm(machine, &all, mount.as_deref());
        let ask = |socket: &PathBuf| socket::call_within(PATIENCE, socket, &Command::Status).ok();
        Sample {
            at: clock::now(),
            scheduler: sched_ext::scheduler().unwrap_or_else(|| "kernel".to_string()),
            daemon: self.socket.as_ref().and_then(ask),
            pressure: crate::safety::pressure::cpu_total(),
            vms: machines.into_iter().map(look).collect(),
        }
    }

    fn vm(&self, machine: Machine, all: &BTreeSet<u32>, mount: Option<&Path>) -> VmSample {
        let process = Proc::below(&self.root).process(machine.tgid);
        let at = clock::now();
        let threads = machine.threads.iter();
        let threads =
            threads.filter_map(|thread| Some((thread.tid, process.thread(thread.tid).counted()?)));
        let threads = threads.collect();
        let within = mount.zip(machine.cgroup.as_deref());
        let is_vm = |process: u32| all.contains(&process);
        let own_cgroup =
            within.and_then(|(mount, path)| cgroup::own_cgroup(mount, machine.tgid, path, &is_vm));
        VmSample {
            at,
            threads,
            group: own_cgroup.as_deref().map(group).unwrap_or_default(),
            own_cgroup,
            machine,
        }
    }
}

fn group(own: &Path) -> Group {
    let weight = fs::read_to_string(own.join("cpu.weight")).ok();
    Group {
        weight: weight.and_then(|text| text.trim().parse().ok()),
        throttled: throttled(own, cgroup::DEEPEST),
    }
}

/// Time throttled in a cgroup and those below: managers set quotas on either.
fn throttled(group: &Path, levels: u32) -> Option<Nanos> {
    let here = || {
        let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("throttled_usec "))?;
        Some(line.trim().parse::<u64>().ok()? * US)
    };
    let groups = cgroup::children(group).filter(|_| levels > 0);
    let below = groups.into_iter().flatten();
    let below = below.filter_map(|path| throttled(&path, levels - 1));
    here().into_iter().chain(below).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::FakeHost;

    #[test]
    fn counters_of_a_vm_and_its_cgroups() {
        let host = FakeHost::new();
        let names = [(5, "qemu"), (6, "CPU 0/KVM"), (7, "IO a"), (8, "IO b")];
        host.process(5, "qemu -name web", "/vm.scope/libvirt", 1, &names);
        host.file("/proc/5/task/6/schedstat", "900 80 7\n");
        host.file("/proc/5/task/7/schedstat", "10 1 1\n");
        host.file("/proc/5/task/8/schedstat", "20 2 2\n");
        let base = "/sys/fs/cgroup";
        host.file(&format!("{base}/cgroup.controllers"), "cpu\n");
        host.file(&format!("{base}/vm.scope/cgroup.procs"), "");
        host.file(&format!("{base}/vm.scope/cpu.weight"), "300\n");
        host.file(
            &format!("{base}/vm.scope/cpu.stat"),
            "usage_usec 5\nthrottled_usec 40\n",
        );
        host.file(&format!("{base}/vm.scope/libvirt/cgroup.procs"), "5\n");
        host.file(
            &format!("{base}/vm.scope/libvirt/cpu.stat"),
            "throttled_usec 2\n",
        );
        let sample = Sampler::below(host.root()).sample();
        let [vm] = sample.vms.as_slice() else {
            panic!("one VM: {:?}", sample.vms)
        };
        assert_eq!(
            vm.counted(6),
            Counted {
                run: 900,
                ready: 80,
                turns: 7
            }
        );
        assert_eq!(
            vm.own_cgroup,
            Some(host.root().join(&base[1..]).join("vm.scope"))
        );
        assert_eq!(vm.group.weight, Some(300));
        assert_eq!(vm.group.throttled, Some(42_000));
        assert_eq!(sample.daemon, None);
    }
}
