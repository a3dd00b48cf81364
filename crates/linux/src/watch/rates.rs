// SPDX-License-Identifier: GPL-2.0-only
//! Two samples → shares of time, in esxtop's terms.
//!
//! A vCPU's time is %RUN + %RDY + %CSTP + %WAIT: on a pCPU, wanting one, held back for its siblings'
//! sake, halted. %MLMTD, throttled by `cpu.max`, is known per VM only unless corun is in charge. A VM's shares are those of its
//! vCPUs' time, so they do not grow with their number; esxtop's group lines are the sum (`summed`).

use super::sample::{Sample, VmSample};
use crate::inventory::Thread;
use crate::status::{VcpuNow, VmNow};
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, Wakers};
use corun_system::procfs::Counted;
use serde::Serialize;
use std::cmp::Ordering;

/// A VM or a vCPU, in an interval. Shares are of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The VM's name.
    pub name: String,
    /// Its UUID, if it says.
    pub uuid: Option<String>,
    /// Its manager.
    pub manager: &'static str,
    /// Its process.
    pub pid: u32,
    /// Of a vCPU: its number.
    pub vcpu: Option<u32>,
    /// Of a vCPU: its thread.
    pub tid: Option<u32>,
    /// vCPUs of the VM.
    pub vcpus: usize,
    /// `cpu.weight` of the VM's own cgroup.
    pub weight: Option<u32>,
    /// Share of time on a pCPU.
    pub run: f64,
    /// Share of time wanting one.
    pub ready: f64,
    /// Share of time co-stopped; `None`: not known.
    pub costop: Option<f64>,
    /// Share of time throttled by `cpu.max`; `None`: it has no cgroup of its own, or is a vCPU for which only the
    /// kernel would know.
    pub throttled: Option<f64>,
    /// Share of time halted.
    pub wait: f64,
    /// Of a VM: time its other threads were on a pCPU, as a share of its vCPUs' time.
    pub helpers: Option<f64>,
    /// How often a pCPU was given, per second.
    pub switches_per_s: f64,
    /// Mean time ready before each turn, ms.
    pub latency_ms: f64,
    /// What the policy takes it to be, if it has types.
    pub class: Option<String>,
    /// The slice the policy gives it, ms.
    pub slice_ms: Option<f64>,
    /// Its pool.
    pub pool: Option<u32>,
    /// Is the VM under a policy of corun's?
    pub under_policy: Option<bool>,
    /// Is what that policy decides for the VM carried out, if it leaves some alone?
    pub enforced: Option<bool>,
    /// CPU time the VM has borrowed (lent, if negative), percent of what it is entitled to.
    pub loan_percent: Option<f64>,
    /// What wakes the VM's vCPUs, if the policy wants to know.
    pub wakers: Option<&'static str>,
}

impl Row {
    /// The same with shares summed over vCPUs.
    pub fn summed(mut self) -> Self {
        let count = match self.vcpu {
            Some(_) => 1.0,
            None => self.vcpus as f64,
        };
        for share in [&mut self.run, &mut self.ready, &mut self.wait] {
            *share *= count;
        }
        for share in [&mut self.costop, &mut self.throttled, &mut self.helpers] {
            *share = share.map(|share| share * count);
        }
        self
    }
}

/// What rows are ordered by; the largest first, names in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// %RDY.
    #[default]
    Ready,
    /// %RUN.
    Run,
    /// %CSTP.
    Costop,
    /// %MLMTD.
    Throttled,
    /// Switches per second.
    Switches,
    /// Mean time ready before each turn.
    Latency,
    /// `cpu.weight`.
    Weight,
    /// The name.
    Name,
}

impl Order {
    /// All, by the names and keys that `corun top` has for them.
    pub const ALL: [(&'static str, char, Order); 8] = [
        ("ready", 'r', Self::Ready),
        ("run", 'u', Self::Run),
        ("costop", 'c', Self::Costop),
        ("throttled", 't', Self::Throttled),
        ("switches", 's', Self::Switches),
        ("latency", 'l', Self::Latency),
        ("weight", 'w', Self::Weight),
        ("name", 'a', Self::Name),
    ];

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let key = |row: &Row| match self {
            Self::Ready => row.ready,
            Self::Run => row.run,
            Self::Costop => row.costop.unwrap_or(0.0),
            Self::Throttled => row.throttled.unwrap_or(0.0),
            Self::Switches => row.switches_per_s,
            Self::Latency => row.latency_ms,
            Self::Weight => row.weight.map_or(0.0, f64::from),
            Self::Name => 0.0,
        };
        let same = |row: &Row| (row.name.clone(), row.pid, row.vcpu);
        key(b)
            .total_cmp(&key(a))
            .then_with(|| same(a).cmp(&same(b)))
    }

    /// Puts rows in this order.
    pub fn sort(self, rows: &mut [Row]) {
        rows.sort_by(|a, b| self.compare(a, b));
    }
}

/// What happened between two samples, VM by VM; with `vcpus`, vCPU by vCPU. VMs and vCPUs that were
/// not there then are left out: there is nothing to compare them with.
pub fn rows(then: &Sample, now: &Sample, vcpus: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for vm in &now.vms {
        let same = |old: &&VmSample| {
            (old.machine.tgid, old.machine.start) == (vm.machine.tgid, vm.machine.start)
        };
        let Some(before) = then.vms.iter().find(same) else {
            continue;
        };
        let told = |sample: &Sample| {
            let daemon = sample.daemon.as_ref()?;
            daemon.vm(vm.machine.tgid).cloned()
        };
        let pair = Pair {
            vm,
            before,
            told: told(now),
            told_before: told(then),
            elapsed: vm.at.saturating_sub(before.at).max(1) as f64,
        };
        let each = pair.vcpus();
        match vcpus {
            true => rows.extend(each),
            false => rows.extend(pair.whole(&each)),
        }
    }
    rows
}

/// A VM in two samples.
struct Pair<'a> {
    vm: &'a VmSample,
    before: &'a VmSample,
    told: Option<VmNow>,
    told_before: Option<VmNow>,
    elapsed: f64,
}

impl Pair<'_> {
    fn vcpus(&self) -> Vec<Row> {
        self.vm
            .machine
            .vcpus()
            .filter(|(_, thread)| self.was_there(thread))
            .map(|(number, thread)| self.vcpu(number, thread))
            .collect()
    }

    fn then(&self, thread: &Thread) -> Option<&Thread> {
        let mut old = self.before.machine.threads.iter();
        old.find(|then| (then.tid, then.start) == (thread.tid, thread.start))
    }

    fn was_there(&self, thread: &Thread) -> bool {
        self.then(thread).is_some()
    }

    /// What a thread did. The kernel counts a wait when it is over: for a thread that wants a pCPU
    /// and was given none between two looks, all time that is not run time was waiting.
    fn did(&self, thread: &Thread) -> Counted {
        let mut did = self.vm.counted(thread.tid);
        did = did.since(self.before.counted(thread.tid));
        let wanted = thread.runnable && self.then(thread).is_some_and(|then| then.runnable);
        if wanted && did.turns == 0 {
            did.ready = (self.elapsed as Nanos).saturating_sub(did.run);
        }
        did
    }

    /// Time that its threads which are no vCPUs were on a pCPU, ns.
    fn helped(&self) -> Nanos {
        let threads = self.vm.machine.threads.iter();
        let helpers = threads.filter(|thread| !thread.role.is_vcpu() && self.was_there(thread));
        helpers.map(|thread| self.did(thread).run).sum()
    }

    fn vcpu(&self, number: u32, thread: &Thread) -> Row {
        let (tid, did) = (thread.tid, self.did(thread));
        let find = |vm: &Option<VmNow>| -> Option<VcpuNow> {
            let vm = vm.as_ref()?;
            vm.vcpus.iter().find(|vcpu| vcpu.tid == tid).cloned()
        };
        let (told, before) = (find(&self.told), find(&self.told_before));
        let costop = told.as_ref().zip(before.as_ref()).map(|(now, then)| {
            let held = (now.costop_s - then.costop_s).max(0.0) * SEC as f64;
            held / self.elapsed
        });
        let throttled = told.as_ref().zip(before.as_ref()).map(|(now, then)| {
            let kept = (now.throttled_s - then.throttled_s).max(0.0) * SEC as f64;
            kept / self.elapsed
        });
        let told = told.unwrap_or_default();
        Row {
            vcpu: Some(number),
            tid: Some(tid),
            costop,
            class: told.class,
            slice_ms: told.slice_ms,
            pool: told.pool,
            throttled,
            ..self.row(did, 1, costop.unwrap_or(0.0) + throttled.unwrap_or(0.0))
        }
    }

    /// Of all its vCPUs.
    fn whole(&self, each: &[Row]) -> Option<Row> {
        let count = each.len();
        if count == 0 {
            return None;
        }
        let vcpus = self.vm.machine.vcpus().map(|(_, thread)| thread);
        let did = vcpus
            .filter(|thread| self.was_there(thread))
            .fold(Counted::default(), |sum, thread| sum.plus(self.did(thread)));
        let held: Option<f64> = each.iter().map(|row| row.costop).sum();
        let held = held.map(|sum| sum / count as f64);
        let throttled = self.vm.group.throttled.zip(self.before.group.throttled);
        let throttled = throttled
            .map(|(now, then)| now.saturating_sub(then) as f64 / self.elapsed / count as f64);
        // Under corun it is the dispatcher that throttles, and the kernel's counter stands still.
        let kept: Option<f64> = each.iter().map(|row| row.throttled).sum();
        let kept = kept.map(|sum| sum / count as f64);
        let throttled = match (throttled, kept) {
            (Some(kernel), Some(corun)) => Some(kernel + corun),
            (kernel, corun) => kernel.or(corun),
        };
        let alike = |of: fn(&Row) -> Option<String>| {
            let first = each.first().and_then(of);
            first.filter(|first| each.iter().all(|row| of(row).as_ref() == Some(first)))
        };
        Some(Row {
            costop: held,
            throttled,
            helpers: Some(self.helped() as f64 / self.elapsed / count as f64),
            class: alike(|row| row.class.clone()),
            ..self.row(did, count, held.unwrap_or(0.0) + kept.unwrap_or(0.0))
        })
    }

    /// What is the same for a vCPU and for `count` of them, kept from their pCPUs for `held` of the time.
    fn row(&self, did: Counted, count: usize, held: f64) -> Row {
        let share = |time: u64| (time as f64 / self.elapsed / count as f64).min(1.0);
        let run = share(did.run);
        // The daemon's books and the kernel's are read at slightly different times.
        let ready = (share(did.ready) - held).max(0.0);
        let identity = &self.vm.machine.identity;
        Row {
            name: identity.name.clone(),
            uuid: identity.uuid.clone(),
            manager: identity.manager.name(),
            pid: self.vm.machine.tgid,
            vcpus: self.vm.machine.vcpus().count(),
            weight: self.vm.group.weight,
            run,
            ready,
            wait: (1.0 - run - ready - held).max(0.0),
            switches_per_s: did.turns as f64 * SEC as f64 / self.elapsed,
            latency_ms: match did.turns {
                0 => 0.0,
                turns => did.ready as f64 / turns as f64 / MS as f64,
            },
            under_policy: self.told.as_ref().map(|told| told.under_policy),
            enforced: self.told.as_ref().and_then(|told| told.enforced),
            loan_percent: self.told.as_ref().and_then(|told| told.loan_percent),
            wakers: self
                .told
                .as_ref()
                .and_then(|told| told.wakers.map(Wakers::name)),
            ..Row::default()
        }
    }
}

#[cfg(test)]
mod tests;
