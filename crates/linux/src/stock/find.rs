// SPDX-License-Identifier: GPL-2.0-only
//! VMs on a host without the dispatcher: processes with threads that are named as vCPUs are.

use crate::discovery::ThreadKey;
use crate::{cgroup, pidfd, proc};
use corun_model::{Nanos, PcpuSet, TaskId, VmId};
use std::collections::BTreeMap;

/// A vCPU thread.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub(crate) task: TaskId,
    pub(crate) key: ThreadKey,
    pub(crate) number: u32,
    /// Its affinity when it was found.
    pub(crate) allowed: PcpuSet,
}

/// A VM.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) vm: VmId,
    pub(crate) tgid: u32,
    pub(crate) name: String,
    pub(crate) weight: Option<u32>,
    pub(crate) vcpus: Vec<Vcpu>,
}

/// All VMs.
#[derive(Debug, Default)]
pub(crate) struct Vms {
    pub(crate) list: Vec<Vm>,
    next_vm: u32,
    next_task: u32,
}

impl Vms {
    /// Looks anew: known vCPUs keep their numbers, those that have gone are forgotten.
    pub(crate) fn refresh(&mut self) {
        let mut found: BTreeMap<u32, Vec<(u32, ThreadKey)>> = BTreeMap::new();
        for tgid in proc::processes() {
            for tid in proc::threads(tgid) {
                let name = proc::thread_name(tgid, tid);
                let number = name.as_deref().and_then(proc::vcpu_number);
                let start = number.and_then(|_| proc::start_time(tgid, tid));
                if let (Some(number), Some(start)) = (number, start) {
                    let key = ThreadKey { tgid, tid, start };
                    found.entry(tgid).or_default().push((number, key));
                }
            }
        }
        self.list.retain(|vm| found.contains_key(&vm.tgid));
        for (tgid, mut threads) in found {
            threads.sort_by_key(|(number, key)| (*number, key.tid));
            let at = self.list.iter().position(|vm| vm.tgid == tgid);
            let at = at.unwrap_or_else(|| self.add(tgid));
            self.update(at, &threads);
        }
    }

    fn add(&mut self, tgid: u32) -> usize {
        let words = proc::command_line(tgid).unwrap_or_default();
        self.list.push(Vm {
            vm: VmId(self.next_vm),
            tgid,
            name: proc::vm_name(&words).unwrap_or_else(|| format!("pid-{tgid}")),
            weight: None,
            vcpus: Vec::new(),
        });
        self.next_vm += 1;
        self.list.len() - 1
    }

    fn update(&mut self, at: usize, threads: &[(u32, ThreadKey)]) {
        let vm = &mut self.list[at];
        vm.weight = proc::cgroup(vm.tgid).and_then(|path| cgroup::weight(vm.tgid, &path));
        vm.vcpus
            .retain(|vcpu| threads.iter().any(|(_, key)| *key == vcpu.key));
        for (number, key) in threads {
            if vm.vcpus.iter().any(|vcpu| vcpu.key == *key) {
                continue;
            }
            let Some(allowed) = pidfd::allowed(key.tid) else {
                continue;
            };
            vm.vcpus.push(Vcpu {
                task: TaskId(self.next_task),
                key: *key,
                number: *number,
                allowed,
            });
            self.next_task += 1;
        }
        vm.vcpus.sort_by_key(|vcpu| (vcpu.number, vcpu.key.tid));
    }
}

/// What the kernel counted of a thread: time on a pCPU and wanting one, ns, and turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) run: Nanos,
    pub(crate) ready: Nanos,
    pub(crate) turns: u64,
}

impl Counted {
    /// Of a thread that is there.
    pub(crate) fn of(key: &ThreadKey) -> Option<Self> {
        let text = proc::schedstat(key.tgid, key.tid)?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            run: next()?,
            ready: next()?,
            turns: next()?,
        })
    }

    /// What happened since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            run: self.run.saturating_sub(before.run),
            ready: self.ready.saturating_sub(before.ready),
            turns: self.turns.saturating_sub(before.turns),
        }
    }
}
