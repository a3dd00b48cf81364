// SPDX-License-Identifier: GPL-2.0-only
//! ELB, the enhanced leaky bucket: VMs lend CPU time that they cannot use, and get it back
//! (dissertation, §4.4.2; loan and borrow after Arpaci-Dusseau & Culler).
//!
//! A scheduler gives unused time to other VMs, and it is lost to the VM that it belonged to. Here
//! it is lent to one VM on the same pCPUs that could use more than it is entitled to (a VM of which
//! one thread is busy could use a pCPU and no more): the one with the fewest conflicts of
//! latencies, since it makes most of it. Of several with as few it is the one with the least debts for
//! its size (our reading): the dissertation does not say which, and if it were always the same one,
//! that would owe all lenders at once.
//!
//! The loan grows gradually, by a hundredth of the lender's entitlement each period. It grows no
//! further than what the lender leaves unused because its vCPUs are halted: entitlements are
//! computed without outer cgroups and quotas, and a VM that therefore seems entitled to too much
//! wants all that it can get. If the lender uses 5 % less than it did before the loan (as a rule,
//! or in the period before the loan if that was less), it is harmed: the loan does not grow, but is
//! halved, and ends when less than a step is left; then the lender may lend anew, measured by what
//! it uses at that time.
//!
//! A VM's bucket holds what it is owed and, as any leaky bucket does, what it offered and nobody used:
//! there may be no VM that could use more. (That part is forgotten when the VM needs its time
//! itself.) A VM whose bucket is full lends to none. What it goes on leaving unused overflows: it
//! belongs to all others, by their weights, and nobody owes it, as long as it is left. This grows and
//! ends as a loan does, and comes before loans, which go by what VMs are entitled to with it. A VM
//! that leaves time so is entitled to its part of what others leave, which is no reason to keep more;
//! if it is harmed, it keeps what it used as a rule. Otherwise a VM that sleeps for
//! good would for ever take a part of what VMs are entitled to, and the others would all seem to have
//! more than their shares.
//!
//! What the borrower used of the loan is owed, up to a bucket's depth. When the lender could use
//! more than its entitlement it lends nothing, and what is owed comes back out of the borrower's
//! entitlement: up to half of that in a period, and no more than the lender could use. A debt is
//! repaid by what the lender used beyond its entitlement, or by what the borrower went without, if
//! that is more: others may have the time, and a debt must not cost the borrower more than it had. A
//! VM that could use more, even if not more than it is entitled to, lends nothing either, unless it
//! has all that it can use. Debts of VMs that have gone are written off; those of VMs that Jupiter is
//! off for stay.

use super::params::JupiterParams;
use super::per_mille;
use corun_model::{Nanos, PcpuSet, VmId};
use std::collections::{BTreeMap, BTreeSet};

/// In the average of what a VM uses as a rule, the last period counts one part in this many.
pub(super) const USUAL: u64 = 8;

/// A VM in the period that has just ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct VmUse {
    pub vm: VmId,
    /// The pCPUs that it may use.
    pub allowed: PcpuSet,
    /// What it is entitled to in a period, without loans.
    pub entitled: Nanos,
    /// What it could have used at most: a pCPU for each vCPU that wants more, of those that it may use, and what
    /// the others used.
    pub most: Nanos,
    /// What it used.
    pub used: Nanos,
    /// How long its vCPUs were halted in it, together.
    pub halted: Nanos,
    /// Could it have used more, had it had more? Not necessarily more than it is entitled to.
    pub wants: bool,
    /// Its conflicts of low latencies, thousandths of one per vCPU.
    pub conflicts: u64,
}

/// Time that goes from one VM to another in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub from: VmId,
    pub to: VmId,
    pub amount: Nanos,
    /// Is it repayment of a debt?
    pub repays: bool,
}

/// What a lender lends, and what it used before.
#[derive(Clone, Copy, Debug)]
struct Loan {
    /// `None`: its bucket is full, so that this is for all, and owed by nobody.
    to: Option<VmId>,
    amount: Nanos,
    /// What the lender keeps of what it is entitled to.
    keeps: Nanos,
    usual: Nanos,
}

/// What a VM offers that goes on leaving time unused.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    /// In the period: grows as a loan does, whether or not somebody takes it.
    amount: Nanos,
    /// What nobody used so far.
    kept: Nanos,
}

/// All that was ever lent: what is owed, repaid and written off adds up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Books {
    pub lent: Nanos,
    pub repaid: Nanos,
    pub written_off: Nanos,
}

/// Loans and debts.
#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    loans: BTreeMap<VmId, Loan>,
    /// What is owed, by lender and borrower.
    owed: BTreeMap<(VmId, VmId), Nanos>,
    /// What VMs offer that leave time unused.
    offers: BTreeMap<VmId, Offer>,
    /// Those whose buckets were full when the last period ended.
    full: BTreeSet<VmId>,
    /// What each VM uses as a rule.
    usual: BTreeMap<VmId, Nanos>,
    /// What was agreed on for the period that has just ended.
    agreed: Vec<Transfer>,
    books: Books,
}

impl VmUse {
    /// Could it use more than it is entitled to?
    fn wants_more_than_its_own(&self) -> bool {
        self.wants && self.most > self.entitled
    }

    /// What it used beyond its entitlement.
    fn used_beyond(&self) -> Nanos {
        self.used.saturating_sub(self.entitled)
    }

    /// What it did not get of its entitlement, and could have used.
    fn went_without(&self) -> Nanos {
        match self.wants {
            true => self.entitled.min(self.most).saturating_sub(self.used),
            false => 0,
        }
    }

    /// How much of its entitlement it leaves unused. A VM that wants more, and does not have nearly
    /// all that it can use, leaves nothing: it would miss what it lends.
    fn leaves(&self, lack: u32) -> Nanos {
        let could = match self.wants {
            true if self.used < percent(self.most, 100 - lack.min(100)) => return 0,
            true => self.most,
            false => self.used,
        };
        self.entitled.saturating_sub(could).min(self.halted)
    }
}

impl Bank {
    /// A period is over: which VM gets what from which in the next one. Nobody is entitled to more than before.
    pub fn settle(&mut self, vms: &[VmUse], params: &JupiterParams) -> &[Transfer] {
        self.close(vms, params);
        self.agree(vms, params)
    }

    /// A period is over, of these VMs: what is owed for it, and which of them leave what to all others in the next one.
    pub fn close(&mut self, vms: &[VmUse], params: &JupiterParams) {
        let present: BTreeMap<VmId, &VmUse> = vms.iter().map(|vm| (vm.vm, vm)).collect();
        let used = self.account(&present);
        let is_on = |vm: &VmId| present.contains_key(vm);
        self.loans.retain(|vm, _| is_on(vm));
        self.offers.retain(|vm, _| is_on(vm));
        self.usual.retain(|vm, _| is_on(vm));
        self.full.clear();
        for vm in vms {
            self.keep(vm, used.get(&vm.vm).copied().unwrap_or(0), params);
            // A loan goes on when the bucket gets full, but for all, and what is left to all goes on as long as
            // it is left: the depth of a bucket rises with what others leave, which must not end it.
            let loan = self.loans.get(&vm.vm).copied();
            if loan.is_some_and(|loan| loan.to.is_none()) || self.is_full(vm, params) {
                self.full.insert(vm.vm);
                let next = Self::next_loan(vm, None, loan, self.usual(vm), params);
                self.note(vm.vm, next);
            }
        }
    }

    /// Who lends to whom in the next period, of `vms`, and who repays: by what they are entitled to in it.
    pub fn agree(&mut self, vms: &[VmUse], params: &JupiterParams) -> &[Transfer] {
        let present: BTreeMap<VmId, &VmUse> = vms.iter().map(|vm| (vm.vm, vm)).collect();
        let mut burden = self.debts();
        let mut next = Vec::new();
        let mut taken = BTreeMap::new();
        for vm in vms.iter() {
            if self.full.contains(&vm.vm) {
                continue;
            }
            let loan = self.lend(vm, vms, &burden, params);
            if let Some(Loan {
                to: Some(to),
                amount,
                ..
            }) = loan
            {
                let amount = amount.min(room(&present, &taken, to));
                *taken.entry(to).or_insert(0) += amount;
                *burden.entry(to).or_insert(0) += amount;
                next.push(transfer(vm.vm, to, amount, false));
            }
            self.note(vm.vm, loan);
        }
        self.repay(vms, &present, &mut taken, params, &mut next);
        self.learn(vms);
        next.retain(|transfer| transfer.amount > 0);
        self.agreed = next;
        &self.agreed
    }

    /// What `vm` lends, or no more.
    fn note(&mut self, vm: VmId, loan: Option<Loan>) {
        match loan {
            Some(loan) => drop(self.loans.insert(vm, loan)),
            None => drop(self.loans.remove(&vm)),
        }
    }

    /// What became of the transfers that were agreed on: what a borrower used of them is owed, what
    /// the lender used of them, or the borrower went without, is repaid. Returns what was used of loans, by lender.
    fn account(&mut self, vms: &BTreeMap<VmId, &VmUse>) -> BTreeMap<VmId, Nanos> {
        let beyond = |vm| vms.get(&vm).map_or(0, |did| did.used_beyond());
        let without = |vm| vms.get(&vm).map_or(0, |did| did.went_without());
        let (mut left_beyond, mut left_without) = (BTreeMap::new(), BTreeMap::new());
        let mut lent = BTreeMap::new();
        for agreed in std::mem::take(&mut self.agreed) {
            let (from, to) = (agreed.from, agreed.to);
            let left = left_beyond.entry(to).or_insert_with(|| beyond(to));
            let used = draw(left, agreed.amount);
            if agreed.repays {
                let left = left_without.entry(from).or_insert_with(|| without(from));
                let given = draw(left, agreed.amount);
                if let Some(owed) = self.owed.get_mut(&(to, from)) {
                    let repaid = used.max(given).min(*owed);
                    *owed -= repaid;
                    self.books.repaid += repaid;
                }
            } else {
                *self.owed.entry((from, to)).or_insert(0) += used;
                *lent.entry(from).or_insert(0) += used;
                self.books.lent += used;
            }
        }
        self.owed.retain(|_, owed| *owed > 0);
        lent
    }

    /// What `vm` offered in the period that is over, of which others used `used`, stays in its bucket; what it
    /// offers in the next one.
    fn keep(&mut self, vm: &VmUse, used: Nanos, params: &JupiterParams) {
        let slack = vm.leaves(params.lack);
        if slack < least(vm, params) {
            self.offers.remove(&vm.vm);
            return;
        }
        let harmed = (self.loans.get(&vm.vm)).filter(|loan| is_harmed(vm, loan, params));
        let depth = percent(vm.entitled, params.bucket);
        let offer = self.offers.entry(vm.vm).or_default();
        offer.kept = (offer.kept + offer.amount.saturating_sub(used)).min(depth);
        offer.amount = match harmed {
            Some(loan) => loan.amount / 2,
            None => (offer.amount + step(vm, params)).min(slack),
        };
    }

    /// Does the bucket of `vm` hold as much as it can?
    fn is_full(&self, vm: &VmUse, params: &JupiterParams) -> bool {
        let kept = self.offers.get(&vm.vm).map_or(0, |offer| offer.kept);
        self.owed_to(vm.vm) + kept >= percent(vm.entitled, params.bucket)
    }

    /// Only these VMs are left: the others owe nothing, and are owed nothing.
    pub fn forget_all_but(&mut self, here: &BTreeSet<VmId>) {
        let written_off = &mut self.books.written_off;
        self.owed.retain(|(lender, borrower), owed| {
            let stays = here.contains(lender) && here.contains(borrower);
            *written_off += if stays { 0 } else { *owed };
            stays
        });
    }

    /// What `vm` lends in the next period, and to which of `all`, if anything. Its bucket is not full. `burden`: what
    /// VMs owe, and what they will owe once they have used what they are lent in that period.
    fn lend(
        &self,
        vm: &VmUse,
        all: &[VmUse],
        burden: &BTreeMap<VmId, Nanos>,
        params: &JupiterParams,
    ) -> Option<Loan> {
        // A VM cannot use the time of a pCPU that it may not use.
        let borrowers = || {
            (all.iter()).filter(|other| {
                other.wants_more_than_its_own()
                    && other.vm != vm.vm
                    && !other.allowed.and(&vm.allowed).is_empty()
            })
        };
        let burden = |other: &VmUse| {
            let owes = burden.get(&other.vm).copied().unwrap_or(0);
            per_mille(owes, other.entitled)
        };
        let loan = self.loans.get(&vm.vm).copied();
        let still = loan.filter(|loan| borrowers().any(|other| loan.to == Some(other.vm)));
        let to = match still {
            Some(loan) => loan.to,
            None => borrowers()
                .min_by_key(|other| (other.conflicts, burden(other), other.vm))
                .map(|other| other.vm),
        };
        Self::next_loan(vm, Some(to?), still, self.usual(vm), params)
    }

    /// What `vm` lends in the next period after it lent `loan`: to one VM, or to all. A loan that harm has reduced
    /// below a step is over: a VM that lends nothing is not harmed by lending, and what it uses from
    /// then on is what it uses as a rule.
    fn next_loan(
        vm: &VmUse,
        to: Option<VmId>,
        loan: Option<Loan>,
        usual: Nanos,
        params: &JupiterParams,
    ) -> Option<Loan> {
        let slack = vm.leaves(params.lack);
        let least = least(vm, params);
        if slack < least {
            return None;
        }
        let step = step(vm, params);
        let harmed = loan.is_some_and(|loan| is_harmed(vm, &loan, params));
        let amount = match loan {
            Some(loan) if harmed => loan.amount / 2,
            Some(loan) => (loan.amount + step).min(slack),
            None => step.min(slack),
        };
        let keeps = vm.entitled.saturating_sub(amount);
        // What others leave raises what a VM is entitled to that leaves time itself.
        let keeps = match loan.filter(|loan| to.is_none() && loan.to.is_none()) {
            Some(loan) if harmed => loan.keeps.max(loan.usual),
            Some(loan) => keeps.min(loan.keeps),
            None => keeps,
        };
        (amount >= least).then(|| Loan {
            to,
            amount,
            keeps,
            usual: loan.map_or(usual, |loan| loan.usual),
        })
    }

    /// What `vm` uses as a rule, when it begins to lend. A VM that has just become idle uses less, and not because of
    /// a loan.
    fn usual(&self, vm: &VmUse) -> Nanos {
        let usual = self.usual.get(&vm.vm).copied();
        usual.map_or(vm.used, |usual| usual.min(vm.used))
    }

    /// Debts to VMs that could use more than they are entitled to are repaid.
    fn repay(
        &self,
        vms: &[VmUse],
        present: &BTreeMap<VmId, &VmUse>,
        taken: &mut BTreeMap<VmId, Nanos>,
        params: &JupiterParams,
        next: &mut Vec<Transfer>,
    ) {
        let mut given: BTreeMap<VmId, Nanos> = BTreeMap::new();
        for lender in vms.iter().filter(|vm| vm.wants_more_than_its_own()) {
            for (&(to, from), &owed) in self.debts_to(lender.vm) {
                let Some(borrower) = present.get(&from) else {
                    continue;
                };
                let lends: Nanos = (next.iter().filter(|t| !t.repays && t.from == from))
                    .map(|t| t.amount)
                    .sum();
                let keeps = self.keeps(from).unwrap_or(Nanos::MAX);
                let gives = given.entry(from).or_insert(0);
                let most = percent(borrower.entitled, params.repayment)
                    .min(borrower.entitled.min(keeps).saturating_sub(lends))
                    .saturating_sub(*gives);
                let amount = owed.min(most).min(room(present, taken, to));
                *gives += amount;
                *taken.entry(to).or_insert(0) += amount;
                next.push(transfer(from, to, amount, true));
            }
        }
    }

    /// What VMs that lend nothing use as a rule: an average in which the last period counts a
    /// [`USUAL`]th.
    fn learn(&mut self, vms: &[VmUse]) {
        for vm in vms.iter().filter(|vm| !self.loans.contains_key(&vm.vm)) {
            let usual = self.usual.entry(vm.vm).or_insert(vm.used);
            *usual = (*usual * (USUAL - 1) + vm.used) / USUAL;
        }
    }

    /// What `vm` keeps for itself in the next period, if it leaves the rest to all others.
    pub fn keeps(&self, vm: VmId) -> Option<Nanos> {
        let loan = self.loans.get(&vm).filter(|loan| loan.to.is_none());
        loan.map(|loan| loan.keeps)
    }

    /// What each VM that owes something owes to all others together.
    fn debts(&self) -> BTreeMap<VmId, Nanos> {
        let mut debts = BTreeMap::new();
        for ((_, borrower), owed) in &self.owed {
            *debts.entry(*borrower).or_insert(0) += owed;
        }
        debts
    }

    fn debts_to(&self, lender: VmId) -> impl Iterator<Item = (&(VmId, VmId), &Nanos)> {
        self.owed
            .range((lender, VmId(0))..=(lender, VmId(u32::MAX)))
    }

    fn owed_to(&self, lender: VmId) -> Nanos {
        self.debts_to(lender).map(|(_, owed)| owed).sum()
    }

    /// The books, and the sum of what is owed.
    #[cfg(test)]
    pub fn books(&self) -> (Books, Nanos) {
        (self.books, self.owed.values().sum())
    }
}

/// Takes up to `amount` of what is `left`; returns how much that is.
fn draw(left: &mut Nanos, amount: Nanos) -> Nanos {
    let taken = amount.min(*left);
    *left -= taken;
    taken
}

fn transfer(from: VmId, to: VmId, amount: Nanos, repays: bool) -> Transfer {
    Transfer {
        from,
        to,
        amount,
        repays,
    }
}

/// How much more a VM could use than it is entitled to and has been promised.
fn room(vms: &BTreeMap<VmId, &VmUse>, taken: &BTreeMap<VmId, Nanos>, to: VmId) -> Nanos {
    let taken = taken.get(&to).copied().unwrap_or(0);
    let most = vms
        .get(&to)
        .map_or(0, |vm| vm.most.saturating_sub(vm.entitled));
    most.saturating_sub(taken)
}

/// Does a lender use less than it does as a rule, by more than a loan may cost it?
fn is_harmed(lender: &VmUse, loan: &Loan, params: &JupiterParams) -> bool {
    lender.used + percent(loan.usual, params.loan_harm) < loan.usual
}

/// By how much a loan grows in a period.
fn step(lender: &VmUse, params: &JupiterParams) -> Nanos {
    percent(lender.entitled, params.loan_step)
}

/// The least that is lent: very small amounts are not. If steps are larger than that, a smaller rest is lent as a
/// whole.
fn least(lender: &VmUse, params: &JupiterParams) -> Nanos {
    step(lender, params).min(percent(lender.entitled, 1)).max(1)
}

fn percent(of: Nanos, percent: u32) -> Nanos {
    of * Nanos::from(percent) / 100
}

/// What each VM has of a period after these transfers between them.
pub(super) fn after(entitled: &[(VmId, Nanos)], transfers: &[Transfer]) -> Vec<Nanos> {
    let mut sums: BTreeMap<VmId, (Nanos, Nanos)> = BTreeMap::new();
    for transfer in transfers {
        sums.entry(transfer.to).or_default().0 += transfer.amount;
        sums.entry(transfer.from).or_default().1 += transfer.amount;
    }
    let of = |(vm, share): &(VmId, Nanos)| {
        let (gets, gives) = sums.get(vm).copied().unwrap_or_default();
        (share + gets).saturating_sub(gives)
    };
    entitled.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
