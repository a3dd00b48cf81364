// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter: asymmetric, unaggressive co-scheduling with an enhanced leaky bucket (dissertation,
//! ch. 4).
//!
//! Co-scheduling makes all vCPUs of a VM run at once, which they do not need and which hurts others.
//! Jupiter gives each vCPU just the weight and the rescheduling latency that its progress needs,
//! and finds these by watching: every 100 ms it looks at how much each vCPU used of its slice and
//! what it did when the period ended, and adjusts. Its parts, each in a file and each switchable:
//!
//!   * [`dats`] divides a VM's time among its vCPUs (dynamically adjusting the time slices);
//!   * [`dasl`] says how soon each must run (… the rescheduling latencies);
//!   * [`rcr`] swaps vCPUs between pCPUs where these claims conflict (resource conflict resolver);
//!   * [`elb`] lets VMs lend and borrow time (enhanced leaky bucket);
//!   * [`predict`] turns it off for VMs that do not do what was expected of them.
//!
//! [`entitled`] is what VMs may use. It rests on balance placement; how the dispatcher keeps weights
//! and latencies is in `dispatcher/gang_asymmetric.h`. A VM it is off for is told what plain
//! balance would tell it, nothing else.
//!
//! "Slice" means here what a vCPU may use in a period, as in the dissertation; how long it runs at a
//! time is the dispatcher's business.

mod dasl;
mod dats;
mod elb;
mod entitled;
mod params;
mod predict;
mod rcr;
pub mod rules;
#[cfg(test)]
mod tests;
mod vm;

pub use params::{JupiterParams, constants};

use crate::Policy;
use corun_model::{
    Allotments, Claim, Gang, Nanos, PcpuSet, Placement, Plan, Snapshot, Status, TaskPlan, TaskSeen,
    VcpuStatus, VmId, VmPlan, VmSeen, VmStatus,
};
use elb::{Bank, Transfer, VmUse};
use entitled::Claimant;
use rcr::{Layout, Placed};
use std::collections::{BTreeMap, BTreeSet};
use vm::Vm;

/// A note for users of hosts that hide wakers.
const HIDDEN: &str = "this host's hardware delivers IPIs between vCPUs (IPI virtualisation), so it is hidden who \
                      wakes whom; of a vCPU that is stuck all siblings with high latencies are hurried instead";

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Jupiter {
    params: JupiterParams,
    vms: BTreeMap<VmId, Vm>,
    bank: Bank,
    /// The VMs of its last decision, as they came.
    seen: Vec<VmId>,
    /// Did hardware hide then which task woke which?
    wakers_hidden: bool,
    /// When it was asked last.
    asked: Option<Nanos>,
}

impl Jupiter {
    /// With these settings.
    pub fn new(params: JupiterParams) -> Self {
        Self {
            params,
            ..Self::default()
        }
    }

    /// A period is over: everything is adjusted.
    fn adjust(&mut self, seen: &Snapshot, passed: Nanos) {
        for vm in &seen.vms {
            if let Some(known) = self.vms.get_mut(&vm.vm) {
                known.judge(vm, passed, seen.host.wakers_hidden, &self.params);
            }
        }
        let lack = self.vms.values().any(|vm| vm.lacks(&self.params));
        for known in self.vms.values_mut() {
            known.adjust(lack, &self.params);
        }
        self.share(seen, true);
        if self.params.rcr {
            self.resolve_conflicts(seen);
        }
    }

    /// VMs and vCPUs come and go.
    fn meet(&mut self, seen: &Snapshot) {
        self.seen.clear();
        self.seen.extend(seen.vms.iter().map(|vm| vm.vm));
        if !self.vms.keys().eq(&self.seen) {
            let here: BTreeSet<VmId> = self.seen.iter().copied().collect();
            self.vms.retain(|vm, _| here.contains(vm));
            self.bank.forget_all_but(&here);
        }
        for vm in &seen.vms {
            let tasks = || vm.vcpus.iter().map(|vcpu| (vcpu.task, own_weight(vcpu)));
            let known = self.vms.get_mut(&vm.vm);
            match known {
                Some(known) if known.is_of(tasks()) => known.leave_forbidden_homes(vm),
                Some(known) => {
                    let mut anew = Vm::new(tasks(), &self.params);
                    anew.keep_homes_of(known);
                    anew.leave_forbidden_homes(vm);
                    *known = anew;
                }
                None => drop(self.vms.insert(vm.vm, Vm::new(tasks(), &self.params))),
            }
        }
    }

    /// Tells every VM what it has in the next period, and every vCPU its slice of that.
    /// `settle`: a period is over, so loans go on.
    fn share(&mut self, seen: &Snapshot, settle: bool) {
        let claimant = |vm: &VmSeen| Claimant {
            weight: weight_of(vm),
            vcpus: vm.vcpus.len() as u64,
            allowed: (vm.vcpus.iter()).fold(PcpuSet::default(), |all, vcpu| all.or(&vcpu.allowed)),
            limit: Nanos::MAX,
        };
        let mut claimants: Vec<Claimant> = seen.vms.iter().map(claimant).collect();
        // VMs with full buckets come first, as what they leave to all is what others are entitled to, and may lend.
        let uses = (self.params.elb && settle).then(|| self.uses(seen, &claimants));
        if let Some(uses) = &uses {
            self.bank.close(uses, &self.params);
        }
        if self.params.elb {
            for (claimant, vm) in claimants.iter_mut().zip(&seen.vms) {
                claimant.limit = self.bank.keeps(vm.vm).unwrap_or(Nanos::MAX);
            }
        }
        let shares = entitled::shares(&claimants, self.params.period);
        let shares: Vec<(VmId, Nanos)> = seen.vms.iter().map(|vm| vm.vm).zip(shares).collect();
        let has = match uses {
            Some(uses) => elb::after(&shares, self.lend(uses, &shares)),
            None => shares.iter().map(|(_, share)| *share).collect(),
        };
        for ((vm, entitled), has) in shares.into_iter().zip(has) {
            let leaves = (self.bank.keeps(vm)).map_or(0, |keeps| entitled.saturating_sub(keeps));
            if let Some(known) = self.vms.get_mut(&vm) {
                known.allot(entitled, has, leaves, &self.params);
            }
        }
    }

    /// What VMs that Jupiter is on for used in the period that is over, of what they were entitled to in it.
    fn uses(&self, seen: &Snapshot, claimants: &[Claimant]) -> Vec<VmUse> {
        let mut uses = Vec::with_capacity(claimants.len());
        for (vm, claimant) in seen.vms.iter().zip(claimants) {
            let known = self.vms.get(&vm.vm).filter(|known| known.is_on());
            uses.extend(known.map(|known| VmUse {
                vm: vm.vm,
                allowed: claimant.allowed,
                entitled: known.entitled(),
                most: known.usable(claimant.most(), self.params.period),
                used: known.used(),
                halted: known.halted(),
                wants: known.wants(),
                conflicts: known.conflicts(&self.params),
            }));
        }
        uses
    }

    /// Who lends what to whom in the next period, if VMs do as in the last one and are entitled to `shares`.
    fn lend(&mut self, mut uses: Vec<VmUse>, shares: &[(VmId, Nanos)]) -> &[Transfer] {
        let mut of = uses.iter_mut().peekable();
        for (vm, entitled) in shares {
            if let Some(uses) = of.next_if(|uses| uses.vm == *vm) {
                uses.entitled = *entitled;
            }
        }
        self.bank.agree(&uses, &self.params)
    }

    /// Swaps vCPUs whose claims conflict, of VMs that Jupiter is on for. A swapped vCPU has its
    /// home where it went until the period is over. If it is elsewhere at the end, the dispatcher
    /// moved it for a reason.
    fn resolve_conflicts(&mut self, seen: &Snapshot) {
        let vcpus = seen.vms.iter().map(|vm| vm.vcpus.len()).sum();
        let mut placed = Vec::with_capacity(vcpus);
        self.vms.values_mut().for_each(Vm::leave_homes);
        for vm in &seen.vms {
            let Some(known) = self.vms.get(&vm.vm).filter(|known| known.is_on()) else {
                continue;
            };
            // A VM that leaves all of its time claims none, and its vCPUs are in nobody's way.
            if known.keeps() == 0 {
                continue;
            }
            for (vcpu, claimed) in vm.vcpus.iter().zip(known.claims(&self.params)) {
                placed.extend(vcpu.turns.cpu.map(|cpu| Placed {
                    task: vcpu.task,
                    vm: vm.vm,
                    cpu,
                    allowed: vcpu.allowed,
                    slice: known.kept_of(claimed.claim.allotment),
                    low: claimed.low,
                    conflicts: vcpu.turns.preempted + vcpu.turns.late,
                }));
            }
        }
        let mut layout = Layout::new(&mut placed, self.params.period);
        let mut moved = layout.even_out_slices(self.params.slice_conflict);
        moved.extend(layout.spread_low_latencies(self.params.latency_conflict));
        if moved.is_empty() {
            return;
        }
        for vcpu in placed.iter().filter(|vcpu| moved.contains(&vcpu.task)) {
            if let Some(known) = self.vms.get_mut(&vcpu.vm) {
                known.settle(vcpu.task, vcpu.cpu);
            }
        }
    }

    /// What holds in the next period.
    fn say(&self, seen: &Snapshot, plan: &mut Plan) {
        plan.vms.reserve(seen.vms.len());
        (plan.tasks).reserve(seen.vms.iter().map(|vm| vm.vcpus.len()).sum());
        for vm in &seen.vms {
            let balance = VmPlan::placed(vm.vm, Placement::Balance);
            let Some(known) = self.vms.get(&vm.vm).filter(|known| known.is_on()) else {
                plan.vms.push(balance);
                continue;
            };
            plan.vms.push(VmPlan {
                gang: Gang::Asymmetric(Allotments {
                    period: self.params.period,
                    neutral: self.params.latency,
                    has: known.part(),
                }),
                ..balance
            });
            let claims = vm.vcpus.iter().zip(known.claims(&self.params));
            plan.tasks.extend(claims.map(|(vcpu, claimed)| TaskPlan {
                home: claimed.home,
                claim: Some(claimed.claim),
                ..TaskPlan::of(vcpu.task)
            }));
        }
    }

    /// Its status, computed only on demand, since it is not asked for in most periods.
    fn think(&self) -> Status {
        let vcpu = |claimed: vm::Claimed| VcpuStatus {
            task: claimed.task,
            weight: per_mille(claimed.weight, Claim::NEUTRAL.into()) as u32,
            latency: claimed.claim.latency,
        };
        let vm = |(vm, known): (VmId, &Vm)| VmStatus {
            vm,
            enforced: known.is_on(),
            loan: known.loan(),
            wakers: known.wakers(),
            vcpus: known.claims(&self.params).map(vcpu).collect(),
        };
        let known = (self.seen.iter()).filter_map(|vm| Some((*vm, self.vms.get(vm)?)));
        Status {
            vms: known.map(vm).collect(),
            notes: (self.wakers_hidden.then(|| HIDDEN.to_string()))
                .into_iter()
                .collect(),
        }
    }
}

impl Policy for Jupiter {
    fn period(&self) -> Nanos {
        self.params.period
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.meet(seen);
        match self.asked.map(|asked| seen.now.saturating_sub(asked)) {
            // New VMs have their slices from the start.
            None | Some(0) => self.share(seen, false),
            Some(passed) => self.adjust(seen, passed),
        }
        self.asked = Some(seen.now);
        self.wakers_hidden = seen.host.wakers_hidden;
        self.say(seen, plan);
    }

    fn status(&self) -> Status {
        self.think()
    }
}

/// What a VM weighs against others. Without a weight of its own its vCPUs count one by one, each by what it
/// weighs: a policy does not see the cgroups around VMs' own.
fn weight_of(vm: &VmSeen) -> u64 {
    let each = || vm.vcpus.iter().map(own_weight).sum();
    vm.weight.map_or_else(each, u64::from)
}

/// What a vCPU weighs by itself.
fn own_weight(vcpu: &TaskSeen) -> u64 {
    u64::from(vcpu.weight.max(1))
}

/// `part` times `by`, divided by `whole`, which is not 0. Division of 128 bits is slow and seldom needed.
fn scaled(part: u64, by: u64, whole: u64) -> u64 {
    match part.checked_mul(by) {
        Some(product) => product / whole,
        None => {
            let product = u128::from(part) * u128::from(by) / u128::from(whole);
            u64::try_from(product).unwrap_or(u64::MAX)
        }
    }
}

/// `part` in thousandths of `whole`.
fn per_mille(part: u64, whole: u64) -> u64 {
    (part * 1000).checked_div(whole).unwrap_or(0)
}
