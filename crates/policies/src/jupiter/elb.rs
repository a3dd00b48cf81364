// SPDX-License-Identifier: GPL-2.0-only
//! ELB, the enhanced leaky bucket: VMs lend CPU time that they cannot use, and get it back (dissertation, §4.4.2;
//! lending and borrowing after Arpaci-Dusseau & Culler).
//!
//! A scheduler gives unused time to other VMs, and it is lost to the VM that it belonged to. Here
//! it is lent to one VM on the same pCPUs that could use more than it is entitled to (a VM of which
//! one thread is busy could use a pCPU and no more): the one with the fewest conflicts of latencies, since it makes the
//! most of it. Of several with as few, the one with the least debts for its size borrows (our reading: the dissertation
//! does not say which, and if it were always the same one, that VM would owe all lenders at once).
//!
//! The loan grows gradually, by a hundredth of the lender's entitlement each period. It grows no further than what the
//! lender leaves unused because its vCPUs are halted: entitlements ignore everything on the host that is not a VM, and
//! a VM that therefore seems entitled to too much wants all that it can get. Nor does a VM borrow what a
//! [quota](crate::quotas) would keep it from using. If the lender uses 5 % less than it did before the loan (its usual
//! use, or that of the period before the loan if that was less), it is harmed: the loan does not grow, but is halved,
//! and ends when less than a step is left; then the lender may lend anew, measured by what it uses at that time.
//!
//! A VM whose bucket is full lends to no single VM: what it goes on leaving [overflows](overflow) to all others.
//!
//! What the borrower used of the loan is owed, up to a bucket's depth. When the lender could use more than its
//! entitlement, it lends nothing, and what is owed comes back out of the borrower's entitlement: up to half of that in
//! a period, and no more than the lender could use. What the lender used beyond its entitlement repays the debt, or
//! what the borrower went without, if that is more: other VMs may have got the time, and a debt must not cost the
//! borrower more than it had. A VM that could use more time, even if not more than it is entitled to, lends nothing
//! either, unless it has all that it can use.
//!
//! When Jupiter goes off for a VM, the period that has just ended is closed for it as for any other: what it used of a
//! loan is owed. From then on the VM neither lends nor borrows nor repays. Debts stay; the rest of its account (its
//! loan, what it offered, and what it uses as a rule) is forgotten, since what the VM did is no longer a guide to what
//! it does. Debts of VMs that have gone are written off.

mod overflow;

use super::params::JupiterParams;
use super::per_mille;
use corun_model::{Nanos, PcpuSet, VmId};
use overflow::{Bucket, Overflow};
use std::collections::{BTreeMap, BTreeSet};

/// In the average of what a VM uses as a rule, the last period counts one part in this many.
pub(super) const USUAL: u64 = 8;

/// A VM in the period that has just ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct VmUse {
    pub vm: VmId,
    /// Is Jupiter on for it in the next period? If not, it neither lends nor borrows nor repays then.
    pub on: bool,
    /// The pCPUs that it may use.
    pub allowed: PcpuSet,
    /// What it is entitled to without loans: in that period while this is [closed](Bank::close), in the next one while
    /// that is [agreed on](Bank::agree).
    pub entitled: Nanos,
    /// What it could have used at most: a pCPU for each vCPU that wants more, as far as there are pCPUs that it may
    /// use, and what the other vCPUs used.
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

/// What a lender lends in a period, and what it used as a rule before.
#[derive(Clone, Copy, Debug)]
struct Loan {
    amount: Nanos,
    usual: Nanos,
}

/// What becomes of the time that a VM leaves.
#[derive(Clone, Copy, Debug)]
enum Lending {
    /// It is lent to this VM, which owes what it uses of it.
    To(VmId, Loan),
    /// It is left to all others, and nobody owes it.
    ToAll(Overflow),
}

/// All that was ever lent: what is owed, repaid and written off adds up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoanTotals {
    pub lent: Nanos,
    pub repaid: Nanos,
    pub written_off: Nanos,
}

/// What is known of a VM from period to period.
#[derive(Clone, Copy, Debug)]
struct Account {
    vm: VmId,
    lends: Option<Lending>,
    bucket: Bucket,
    /// What it uses as a rule, if that is known.
    usual: Option<Nanos>,
}

/// What has been agreed on for a VM so far, for the next period.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    gets: Nanos,
    lends: Nanos,
    repays: Nanos,
}

/// Loans and debts.
#[derive(Clone, Debug, Default)]
pub(super) struct Bank {
    /// One for each VM of the last period, in the same order.
    accounts: Vec<Account>,
    /// Where each VM is among them.
    places: BTreeMap<VmId, usize>,
    /// What is owed, by lender and borrower.
    owed: BTreeMap<(VmId, VmId), Nanos>,
    /// What was agreed on for the period that has just ended.
    agreed: Vec<Transfer>,
    totals: LoanTotals,
}

impl VmUse {
    /// From now on it counts with what it is entitled to in the next period.
    pub fn is_next_entitled_to(&mut self, entitled: Nanos) {
        self.entitled = entitled;
    }

    /// Could it use more than it is entitled to, and may it get that from others?
    fn wants_more_than_its_own(&self) -> bool {
        self.on && self.wants && self.most > self.entitled
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

    /// What it used, or would have used with more.
    fn could_use(&self) -> Nanos {
        match self.wants {
            true => self.most,
            false => self.used,
        }
    }

    /// How much of its entitlement it leaves unused. A VM that wants more, and does not have nearly all that it can
    /// use, leaves nothing: it would lack what it lends.
    fn leaves(&self, lack: u32) -> Nanos {
        let could = self.could_use();
        match self.used < percent(could, 100 - lack.min(100)) {
            true => 0,
            false => self.entitled.saturating_sub(could).min(self.halted),
        }
    }
}

impl Loan {
    /// What `vm` lends in the next period after it lent `before`. A loan that harm has reduced
    /// below a step is over: a VM that lends nothing is not harmed by lending, and what it uses from
    /// then on is what it uses as a rule.
    fn next(
        vm: &VmUse,
        before: Option<Self>,
        usual: Nanos,
        params: &JupiterParams,
    ) -> Option<Self> {
        let slack = slack(vm, params)?;
        let step = step(vm, params);
        let amount = match before {
            Some(loan) if loan.harms(vm, params) => loan.amount / 2,
            Some(loan) => (loan.amount + step).min(slack),
            None => step.min(slack),
        };
        (amount >= least(vm, params)).then(|| Self {
            amount,
            usual: before.map_or(usual, |loan| loan.usual),
        })
    }

    /// Does the lender use less than it does as a rule, by more than a loan may cost it?
    fn harms(&self, lender: &VmUse, params: &JupiterParams) -> bool {
        lender.used + percent(self.usual, params.loan_harm) < self.usual
    }
}

impl Lending {
    fn loan(self) -> Loan {
        match self {
            Self::To(_, loan) => loan,
            Self::ToAll(overflow) => overflow.loan,
        }
    }
}

impl Account {
    fn of(vm: VmId) -> Self {
        Self {
            vm,
            lends: None,
            bucket: Bucket::default(),
            usual: None,
        }
    }

    /// A period is over, in which others used `used` of what `vm` lent; so much is `owed` to it.
    fn close(&mut self, vm: &VmUse, used: Nanos, owed: Nanos, params: &JupiterParams) {
        if !vm.on {
            *self = Self::of(self.vm);
            return;
        }
        self.bucket.fill(vm, self.lends, used, owed, params);
        if self.bucket.is_full {
            let overflow = Overflow::next(vm, self.lends, self.usual(vm), params);
            self.lends = overflow.map(Lending::ToAll);
        }
    }

    /// What `vm` uses as a rule, when it begins to lend. A VM that has just become idle uses less, and not because of
    /// a loan.
    fn usual(&self, vm: &VmUse) -> Nanos {
        self.usual.map_or(vm.used, |usual| usual.min(vm.used))
    }

    /// What a VM that lends nothing uses as a rule: an average in which the last period counts a [`USUAL`]th.
    fn learn(&mut self, used: Nanos) {
        if self.lends.is_none() {
            let usual = self.usual.unwrap_or(used);
            self.usual = Some((usual * (USUAL - 1) + used) / USUAL);
        }
    }

    /// What it keeps for itself in the next period, if it leaves the rest to all others.
    fn keeps(&self) -> Option<Nanos> {
        match self.lends? {
            Lending::ToAll(overflow) => Some(overflow.keeps),
            Lending::To(..) => None,
        }
    }
}

impl Terms {
    /// How much more could `vm` use than it is entitled to, and gets already?
    fn room(&self, vm: &VmUse) -> Nanos {
        (vm.most.saturating_sub(vm.entitled)).saturating_sub(self.gets)
    }

    /// What it has left, of what it is `entitled` to, after what has been agreed on.
    fn after(&self, entitled: Nanos) -> Nanos {
        (entitled + self.gets).saturating_sub(self.lends + self.repays)
    }
}

impl Bank {
    /// A period is over: which VM gets what from which in the next one. Nobody is entitled to more than before.
    pub fn settle(&mut self, vms: &[VmUse], params: &JupiterParams) -> &[Transfer] {
        self.close(vms, params);
        self.agree(vms, params);
        &self.agreed
    }

    /// A period of these VMs is over: works out what is owed for it, and which of them leave what to all others in the
    /// next one.
    pub fn close(&mut self, vms: &[VmUse], params: &JupiterParams) {
        self.meet(vms);
        let used = self.account(vms);
        let owed = self.sums_owed(|(lender, _)| *lender);
        let did = vms.iter().zip(used).zip(owed);
        for (account, ((vm, used), owed)) in self.accounts.iter_mut().zip(did) {
            account.close(vm, used, owed, params);
        }
    }

    /// Decides who lends to whom in the next period, and who repays, among the `vms` with which the last one was
    /// closed, by what they are [entitled to in it](VmUse::is_next_entitled_to). Returns what each of them has then.
    pub fn agree(&mut self, vms: &[VmUse], params: &JupiterParams) -> Vec<Nanos> {
        let mut terms = vec![Terms::default(); vms.len()];
        let mut burden = self.sums_owed(|(_, borrower)| *borrower);
        let wanting: Vec<usize> = (0..vms.len())
            .filter(|&at| vms[at].wants_more_than_its_own())
            .collect();
        self.agreed.clear();
        for (from, vm) in vms.iter().enumerate() {
            if !vm.on || self.accounts[from].bucket.is_full {
                continue;
            }
            let lent = self.lend(from, vms, &wanting, &burden, params);
            if let Some((to, loan)) = lent {
                let amount = loan.amount.min(terms[to].room(&vms[to]));
                terms[to].gets += amount;
                terms[from].lends += amount;
                burden[to] += amount;
                self.transfer(vm, &vms[to], amount, false);
            }
            self.accounts[from].lends = lent.map(|(to, loan)| Lending::To(vms[to].vm, loan));
        }
        self.repay(vms, &wanting, &mut terms, params);
        let those_on = self.accounts.iter_mut().zip(vms).filter(|(_, vm)| vm.on);
        for (account, vm) in those_on {
            account.learn(vm.used);
        }
        (terms.iter().zip(vms))
            .map(|(terms, vm)| terms.after(vm.entitled))
            .collect()
    }

    /// Accounts of these VMs, and of no others.
    fn meet(&mut self, vms: &[VmUse]) {
        let known = self.accounts.iter().map(|account| account.vm);
        if known.eq(vms.iter().map(|vm| vm.vm)) {
            return;
        }
        let account = |vm: &VmUse| match self.place(vm.vm) {
            Some(at) => self.accounts[at],
            None => Account::of(vm.vm),
        };
        self.accounts = vms.iter().map(account).collect();
        self.places = (vms.iter().map(|vm| vm.vm)).zip(0..).collect();
    }

    fn place(&self, vm: VmId) -> Option<usize> {
        self.places.get(&vm).copied()
    }

    /// Books the transfers that were agreed on: what a borrower used of a loan is owed; what the lender used of a
    /// repayment, or the borrower went without, is repaid. Returns what was used of loans, by lender.
    fn account(&mut self, vms: &[VmUse]) -> Vec<Nanos> {
        let mut beyond: Vec<Nanos> = vms.iter().map(VmUse::used_beyond).collect();
        let mut without: Vec<Nanos> = vms.iter().map(VmUse::went_without).collect();
        let mut lent = vec![0; vms.len()];
        for agreed in std::mem::take(&mut self.agreed) {
            let (from, to) = (self.place(agreed.from), self.place(agreed.to));
            let used = draw(&mut beyond, to, agreed.amount);
            if agreed.repays {
                let given = draw(&mut without, from, agreed.amount);
                if let Some(owed) = self.owed.get_mut(&(agreed.to, agreed.from)) {
                    let repaid = used.max(given).min(*owed);
                    *owed -= repaid;
                    self.totals.repaid += repaid;
                }
            } else {
                *self.owed.entry((agreed.from, agreed.to)).or_insert(0) += used;
                if let Some(from) = from {
                    lent[from] += used;
                }
                self.totals.lent += used;
            }
        }
        self.owed.retain(|_, owed| *owed > 0);
        lent
    }

    /// Only these VMs are left: the others owe nothing, and are owed nothing.
    pub fn forget_all_but(&mut self, here: &BTreeSet<VmId>) {
        // Otherwise what is under way would be owed at the end of the period.
        self.agreed
            .retain(|agreed| here.contains(&agreed.from) && here.contains(&agreed.to));
        let written_off = &mut self.totals.written_off;
        self.owed.retain(|(lender, borrower), owed| {
            let stays = here.contains(lender) && here.contains(borrower);
            *written_off += if stays { 0 } else { *owed };
            stays
        });
    }

    /// What the VM at `from` lends in the next period, and to which, if anything. Its bucket is not full. `wanting`:
    /// those that could use more than they are entitled to. `burden`: what VMs owe, and what they will owe once they
    /// have used what they are lent in that period.
    fn lend(
        &self,
        from: usize,
        vms: &[VmUse],
        wanting: &[usize],
        burden: &[Nanos],
        params: &JupiterParams,
    ) -> Option<(usize, Loan)> {
        let (vm, account) = (&vms[from], &self.accounts[from]);
        // With nothing to lend it need not look for a borrower.
        slack(vm, params)?;
        // A VM cannot use the time of a pCPU that it may not use.
        let may_borrow = |to: &usize| *to != from && !vms[*to].allowed.and(&vm.allowed).is_empty();
        let still = match account.lends {
            Some(Lending::To(borrower, loan)) => self.place(borrower).map(|to| (to, loan)),
            _ => None,
        };
        let still = still.filter(|(to, _)| vms[*to].wants_more_than_its_own() && may_borrow(to));
        let to = still.map(|(to, _)| to).or_else(|| {
            let debts = |to: usize| per_mille(burden[to], vms[to].entitled);
            let others = wanting.iter().copied().filter(may_borrow);
            others.min_by_key(|&to| (vms[to].conflicts, debts(to), vms[to].vm))
        })?;
        let before = still.map(|(_, loan)| loan);
        let loan = Loan::next(vm, before, account.usual(vm), params)?;
        Some((to, loan))
    }

    /// Repays debts to VMs that could use more than they are entitled to: those at `wanting`.
    fn repay(
        &mut self,
        vms: &[VmUse],
        wanting: &[usize],
        terms: &mut [Terms],
        params: &JupiterParams,
    ) {
        let mut repaid = Vec::new();
        for &to in wanting {
            for (&(_, borrower), &owed) in self.debts_to(vms[to].vm) {
                let Some(from) = self.place(borrower).filter(|&from| vms[from].on) else {
                    continue;
                };
                let entitled = vms[from].entitled;
                let keeps = self.accounts[from].keeps().unwrap_or(Nanos::MAX);
                let most = percent(entitled, params.repayment)
                    .min(entitled.min(keeps).saturating_sub(terms[from].lends))
                    .saturating_sub(terms[from].repays);
                let amount = owed.min(most).min(terms[to].room(&vms[to]));
                terms[from].repays += amount;
                terms[to].gets += amount;
                repaid.push((from, to, amount));
            }
        }
        for (from, to, amount) in repaid {
            self.transfer(&vms[from], &vms[to], amount, true);
        }
    }

    /// Agrees on this transfer, unless it is nothing.
    fn transfer(&mut self, from: &VmUse, to: &VmUse, amount: Nanos, repays: bool) {
        if amount > 0 {
            self.agreed.push(Transfer {
                from: from.vm,
                to: to.vm,
                amount,
                repays,
            });
        }
    }

    /// What `vm` keeps for itself in the next period, if it leaves the rest to all others.
    pub fn keeps(&self, vm: VmId) -> Option<Nanos> {
        self.accounts[self.place(vm)?].keeps()
    }

    /// What all others together owe to each VM, or each VM to all others: `whose` picks a debt's lender or its
    /// borrower.
    fn sums_owed(&self, whose: impl Fn(&(VmId, VmId)) -> VmId) -> Vec<Nanos> {
        let mut sums = vec![0; self.accounts.len()];
        for (between, owed) in &self.owed {
            if let Some(at) = self.place(whose(between)) {
                sums[at] += owed;
            }
        }
        sums
    }

    fn debts_to(&self, lender: VmId) -> impl Iterator<Item = (&(VmId, VmId), &Nanos)> {
        self.owed
            .range((lender, VmId(0))..=(lender, VmId(u32::MAX)))
    }

    /// The totals, and the sum of what is owed.
    #[cfg(test)]
    pub fn totals(&self) -> (LoanTotals, Nanos) {
        (self.totals, self.owed.values().sum())
    }
}

/// Takes up to `amount` of what is `left` of the VM at `at`; returns how much that is.
fn draw(left: &mut [Nanos], at: Option<usize>, amount: Nanos) -> Nanos {
    let Some(left) = at.map(|at| &mut left[at]) else {
        return 0;
    };
    let taken = amount.min(*left);
    *left -= taken;
    taken
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

/// What a VM leaves that can be lent, if it is enough for that.
fn slack(vm: &VmUse, params: &JupiterParams) -> Option<Nanos> {
    let leaves = vm.leaves(params.lack);
    (leaves >= least(vm, params)).then_some(leaves)
}

fn percent(of: Nanos, percent: u32) -> Nanos {
    of * Nanos::from(percent) / 100
}

#[cfg(test)]
mod tests;
