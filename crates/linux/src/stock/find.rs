// SPDX-License-Identifier: GPL-2.0-only
//! VMs on a host without the dispatcher: those that anybody can see ([`crate::inventory`]), with the affinities that
//! others have given them. A process that may only look like a VM is left alone: otherwise any user could herd all VMs
//! onto one pCPU by naming idle threads like vCPUs.

use crate::cgroup;
use crate::inventory::{self, Machine, Proof};
use crate::outside::Numbers;
use crate::vcpu_own::{Own, Threads};
use corun_model::{PcpuSet, TaskId, VmId};
use corun_policies::weighing::Place;
use corun_system::affinity;
use corun_system::procfs::ThreadKey;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A vCPU thread.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub(crate) task: TaskId,
    pub(crate) key: ThreadKey,
    /// Its affinity as last set by another process, within its cpuset.
    pub(crate) allowed: PcpuSet,
    /// What it weighs among its siblings, and what limits it.
    pub(crate) own: Own,
}

/// A VM.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) vm: VmId,
    pub(crate) name: String,
    pub(crate) weight: Option<u32>,
    /// The cgroups around it, and what they weigh.
    pub(crate) place: Place,
    /// In their order.
    pub(crate) vcpus: Vec<Vcpu>,
}

/// All VMs, in the order of their appearance.
#[derive(Debug, Default)]
pub(crate) struct Vms {
    pub(crate) list: Vec<Vm>,
    /// How many processes look like VMs, and nothing proves it.
    unproved: usize,
    /// What there was too much of, in words.
    left_out: Vec<String>,
    numbers: Numbers,
}

impl Vms {
    /// Looks anew: known VMs and vCPUs keep their numbers, those that have gone are forgotten.
    pub(crate) fn refresh(&mut self) {
        let vcpus = self.list.iter().flat_map(|vm| &vm.vcpus);
        let known: BTreeMap<ThreadKey, PcpuSet> =
            vcpus.map(|vcpu| (vcpu.key, vcpu.allowed)).collect();
        let found = inventory::machines(Path::new("/"));
        self.left_out = inventory::left_out(found.iter());
        let (found, unproved): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|machine| machine.proof == Proof::Kvm);
        self.unproved = unproved.len();
        let all: BTreeSet<u32> = found.iter().map(|machine| machine.tgid).collect();
        let mut read = cgroup::Read::new();
        self.list = found
            .iter()
            .map(|machine| self.vm(machine, &all, &known, &mut read))
            .collect();
        self.numbers.looked();
        self.list.sort_by_key(|vm| vm.vm);
    }

    /// What people should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let unproved = (self.unproved > 0).then(|| {
            format!(
                "{} by the names of threads, but it cannot be seen whether they have vCPUs of KVM's (that takes \
                 CAP_SYS_PTRACE): they are left alone",
                match self.unproved {
                    1 => "one process looks like a VM".to_string(),
                    more => format!("{more} processes look like VMs"),
                }
            )
        });
        self.left_out.iter().cloned().chain(unproved).collect()
    }

    fn vm(
        &mut self,
        machine: &Machine,
        all: &BTreeSet<u32>,
        known: &BTreeMap<ThreadKey, PcpuSet>,
        read: &mut cgroup::Read,
    ) -> Vm {
        let tgid = machine.tgid;
        let vm = self.numbers.vm((tgid, machine.start));
        let mount = cgroup::mount(Path::new("/"));
        let owns = Threads::of(tgid, mount.as_deref());
        let vcpus = machine.vcpus().filter_map(|(_, thread)| {
            let (tid, start) = (thread.tid, thread.start);
            let key = ThreadKey { tgid, tid, start };
            let allowed = known
                .get(&key)
                .copied()
                .or_else(|| affinity::get(tid).ok())?;
            Some(Vcpu {
                task: self.numbers.task((tid, start)),
                key,
                allowed,
                own: owns.of_thread(tid),
            })
        });
        let vcpus = vcpus.collect();
        let is_vm = |process| all.contains(&process);
        let at = mount.zip(machine.cgroup.as_deref());
        let own = at
            .as_ref()
            .and_then(|(mount, path)| cgroup::own_cgroup(mount, tgid, path, &is_vm));
        Vm {
            vm,
            name: machine.identity.name.clone(),
            vcpus,
            weight: own.as_deref().and_then(cgroup::weight_at),
            place: at.map_or_else(Place::default, |(mount, path)| {
                cgroup::place(&mount, own.as_deref(), path, read)
            }),
        }
    }
}
