// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter: asymmetric, unaggressive co-scheduling with an enhanced leaky bucket (dissertation,
//! ch. 4).
//!
//! Co-scheduling makes all vCPUs of a VM run at once, which they do not need and which hurts others.
//! Jupiter gives each vCPU just the weight and the rescheduling latency that its progress needs, and finds these by
//! watching: every 100 ms it looks at how much of its slice each vCPU used and what it did when the period ended, and
//! adjusts both. Its parts, each in a file of its own and each switchable:
//!
//!   * [`dats`] divides a VM's time among its vCPUs (dynamically adjusting the time slices);
//!   * [`dasl`] decides how soon each must run (… the rescheduling latencies);
//!   * [`rcr`] swaps vCPUs between pCPUs where these claims conflict (resource conflict resolver);
//!   * [`elb`] lets VMs lend and borrow time (enhanced leaky bucket);
//!   * [`predict`] turns it off for VMs that do not do what was expected of them.
//!
//! [`entitled`] works out what VMs may use. Jupiter builds on balance placement; how the dispatcher enforces weights
//! and latencies is in `dispatcher/gang_asymmetric.h`. The plan for a VM that it is off for is that of plain balance,
//! nothing else.
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

use crate::filled::scaled;
use crate::{Policy, parts::Part, quotas};
use corun_model::{
    Allotments, Claim, Gang, Nanos, Placement, Plan, Snapshot, Status, TaskPlan, VcpuStatus, VmId,
    VmPlan, VmSeen, VmStatus,
};
use elb::{Bank, VmUse};
use entitled::Claimant;
use rcr::{Layout, Placed};
use std::collections::BTreeMap;
use vm::Vm;

/// A note for users of hosts that hide wakers.
const HIDDEN: &str = "this host's hardware delivers IPIs between vCPUs (IPI virtualisation), so it is hidden who \
                      wakes whom; of a vCPU that is stuck all siblings with high latencies are hurried instead";

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Jupiter {
    params: JupiterParams,
    /// The VMs of its last decision, as they came.
    vms: Vec<Vm>,
    bank: Bank,
    /// At its last decision, did hardware hide which task woke which?
    wakers_hidden: bool,
    /// When it decided last.
    decided_at: Option<Nanos>,
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
        for (known, vm) in self.vms.iter_mut().zip(&seen.vms) {
            known.judge(vm, passed, seen.host.wakers_hidden, &self.params);
        }
        let lack = self.vms.iter().any(|vm| vm.lacks(&self.params));
        for known in &mut self.vms {
            known.adjust(lack, &self.params);
        }
        let parts = self.divide(seen, true);
        if self.params.rcr {
            self.resolve_conflicts(seen, &parts);
        }
    }

    /// VMs and vCPUs come and go.
    fn update_members(&mut self, seen: &Snapshot) {
        let here = || seen.vms.iter().map(|vm| vm.vm);
        if !self.vms.iter().map(Vm::id).eq(here()) {
            self.bank.forget_all_but(&here().collect());
            let before = std::mem::take(&mut self.vms).into_iter();
            let mut before: BTreeMap<VmId, Vm> = before.map(|vm| (vm.id(), vm)).collect();
            let mut known = |vm: &VmSeen| before.remove(&vm.vm);
            self.vms = (seen.vms.iter())
                .map(|vm| known(vm).unwrap_or_else(|| Vm::new(vm, &self.params)))
                .collect();
        }
        for (known, vm) in self.vms.iter_mut().zip(&seen.vms) {
            if !known.is_of(vm) {
                let mut anew = Vm::new(vm, &self.params);
                anew.keep_homes_of(known);
                *known = anew;
            }
        }
    }

    /// Works out what every VM has in the next period, and every vCPU's slice of that. `settle`: a period is over, so
    /// loans are settled. Returns the parts into which cpusets divide the host.
    fn divide(&mut self, seen: &Snapshot, settle: bool) -> Vec<Part> {
        // The VMs that Jupiter is for come first, and only they are given anything.
        let mut claimants: Vec<Claimant<'_>> = seen.all().map(Claimant::of).collect();
        // VMs with full buckets come first, since what they leave to all raises what others are entitled to, and may
        // lend.
        let uses = (self.params.elb && settle).then(|| self.uses(&claimants));
        if let Some(uses) = &uses {
            self.bank.close(uses, &self.params);
        }
        if self.params.elb {
            for (claimant, known) in claimants.iter_mut().zip(&self.vms) {
                claimant.limit = self.bank.keeps(known.id()).unwrap_or(Nanos::MAX);
            }
        }
        let parts = entitled::parts(&claimants);
        let shares = entitled::shares(&claimants, &parts, self.params.period);
        let has = match uses {
            Some(uses) => self.lend(uses, &shares),
            None => shares.clone(),
        };
        let each = self.vms.iter_mut().zip(&claimants).zip(shares).zip(has);
        for (((known, claimant), entitled), has) in each {
            let leaves = entitled.saturating_sub(claimant.limit);
            known.allot(entitled, has, leaves, &self.params);
        }
        parts
    }

    /// What VMs used, in the period that is over, of what they were entitled to in it. VMs that Jupiter has just gone
    /// off for are included: they may have used what they had borrowed.
    fn uses(&self, claimants: &[Claimant<'_>]) -> Vec<VmUse> {
        let period = self.params.period;
        let most = |at: usize| self.vms[at].usable(claimants[at].most(period));
        let known = |at: usize| self.vms.get(at).map(|known| known.claimed(most(at)));
        let left = quotas::left(
            claimants.len(),
            |at| claimants[at].quotas,
            |at| known(at).unwrap_or(Nanos::MAX),
            period,
        );
        let mut uses = Vec::with_capacity(claimants.len());
        let each = self.vms.iter().zip(claimants).zip(left);
        for (((known, claimant), left), at) in each.zip(0..) {
            uses.push(VmUse {
                vm: known.id(),
                on: known.is_on(),
                allowed: claimant.allowed,
                entitled: known.entitled(),
                most: most(at).min(left),
                used: known.used(),
                halted: known.halted(),
                wants: known.wants(),
                conflicts: known.conflicts(&self.params),
            });
        }
        uses
    }

    /// What each VM has in the next period, if VMs lend by these `uses` of the last one and are entitled to `shares`.
    fn lend(&mut self, mut uses: Vec<VmUse>, shares: &[Nanos]) -> Vec<Nanos> {
        for (uses, share) in uses.iter_mut().zip(shares) {
            uses.is_next_entitled_to(*share);
        }
        self.bank.agree(&uses, &self.params)
    }

    /// Swaps vCPUs whose claims conflict, of VMs that Jupiter is on for. A swapped vCPU has its home where it was sent
    /// until the period is over. If it is elsewhere by then, the dispatcher moved it for a reason.
    fn resolve_conflicts(&mut self, seen: &Snapshot, parts: &[Part]) {
        let vcpus = seen.vms.iter().map(|vm| vm.vcpus.len()).sum();
        let mut placed = Vec::with_capacity(vcpus);
        self.vms.iter_mut().for_each(Vm::leave_homes);
        // A VM that leaves all of its time claims none, and its vCPUs are in no other's way.
        let takes_part = |known: &Vm| known.is_on() && known.keeps() > 0;
        for ((at, known), vm) in self.vms.iter().enumerate().zip(&seen.vms) {
            if !takes_part(known) {
                continue;
            }
            for (vcpu, (slice, low)) in vm.vcpus.iter().zip(known.slices(&self.params)) {
                if let Some(cpu) = vcpu.turns.cpu {
                    placed.push(Placed {
                        task: vcpu.task,
                        vm: at,
                        cpu,
                        allowed: &vcpu.allowed,
                        slice,
                        low,
                        conflicts: vcpu.turns.preempted + vcpu.turns.late,
                    });
                }
            }
        }
        let mut layout = Layout::new(&mut placed, parts, self.params.period);
        let mut moved = layout.even_out_slices(self.params.slice_conflict);
        moved.extend(layout.spread_low_latencies(self.params.latency_conflict));
        for vcpu in moved.into_iter().map(|at| &placed[at]) {
            self.vms[vcpu.vm].settle(vcpu.task, vcpu.cpu);
        }
    }

    /// What holds in the next period.
    fn write_plan(&self, seen: &Snapshot, plan: &mut Plan) {
        plan.vms.reserve(seen.vms.len());
        (plan.tasks).reserve(seen.vms.iter().map(|vm| vm.vcpus.len()).sum());
        for (known, vm) in self.vms.iter().zip(&seen.vms) {
            let balance = VmPlan::placed(vm.vm, Placement::Balance);
            if !known.is_on() {
                plan.vms.push(balance);
                continue;
            }
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
}

impl Policy for Jupiter {
    fn period(&self) -> Nanos {
        self.params.period
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.update_members(seen);
        let passed = self.decided_at.map(|then| seen.now.saturating_sub(then));
        match passed {
            // New VMs have their slices from the start.
            None | Some(0) => {
                for (known, vm) in self.vms.iter_mut().zip(&seen.vms) {
                    known.leave_forbidden_homes(vm);
                }
                let _ = self.divide(seen, false);
            }
            Some(passed) => self.adjust(seen, passed),
        }
        self.decided_at = Some(seen.now);
        self.wakers_hidden = seen.host.wakers_hidden;
        self.write_plan(seen, plan);
    }

    /// Computed only on demand, since it is not asked for in most periods.
    fn status(&self) -> Status {
        let vcpu = |claimed: vm::Claimed| VcpuStatus {
            task: claimed.task,
            weight: per_mille(claimed.weight, Claim::NEUTRAL.into()) as u32,
            latency: claimed.claim.latency,
        };
        let vm = |known: &Vm| VmStatus {
            vm: known.id(),
            enforced: known.is_on(),
            loan: known.loan(),
            wakers: known.wakers(),
            vcpus: known.claims(&self.params).map(vcpu).collect(),
        };
        Status {
            vms: self.vms.iter().map(vm).collect(),
            notes: (self.wakers_hidden.then(|| HIDDEN.to_string()))
                .into_iter()
                .collect(),
        }
    }
}

/// `part` in thousandths of `whole`.
fn per_mille(part: u64, whole: u64) -> u64 {
    (part * 1000).checked_div(whole).unwrap_or(0)
}
