// SPDX-License-Identifier: GPL-2.0-only
//! A VM's bucket, and what overflows (our reading: the dissertation says that unused time accumulates, up to a depth).
//!
//! The bucket holds what the VM is owed and, as any leaky bucket does, what it offered and nobody used:
//! there may be no VM that could use more. (That part is forgotten when the VM needs its time
//! itself.) What a VM with a full bucket goes on leaving unused overflows: it belongs to all others, by their weights,
//! and nobody owes it, as long as it is left. The overflow grows and ends as a loan does. It is settled before loans,
//! since it raises what other VMs are entitled to, by which loans go. A VM that leaves time in this way is itself
//! entitled to a part of what others leave. That is no reason to keep more; if it can use more, it does keep more, and
//! if it is harmed, it keeps what it used as a rule. Without all this, a VM that sleeps for good would for ever take a
//! part of what VMs are entitled to, and the others would all seem to have more than their shares.

use super::{JupiterParams, Lending, Loan, Nanos, VmUse, percent, slack, step};

/// What a VM is owed and has offered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// What it offers in the period: grows as a loan does, whether or not somebody takes it.
    offers: Nanos,
    /// What it offered and nobody used.
    kept: Nanos,
    /// Was it full when the last period ended?
    pub is_full: bool,
}

/// What a VM leaves to all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overflow {
    /// As if it were a loan.
    pub loan: Loan,
    /// What the VM keeps of what it is entitled to.
    pub keeps: Nanos,
}

impl Bucket {
    /// A period is over, in which `vm` lent as in `lends`, and others used `used` of that; so much is `owed` to it.
    pub fn fill(
        &mut self,
        vm: &VmUse,
        lends: Option<Lending>,
        used: Nanos,
        owed: Nanos,
        params: &JupiterParams,
    ) {
        let depth = percent(vm.entitled, params.bucket);
        let harmed = |loan: &Loan| loan.harms(vm, params);
        (self.kept, self.offers) = match slack(vm, params) {
            Some(slack) => (
                (self.kept + self.offers.saturating_sub(used)).min(depth),
                match lends.map(Lending::loan).filter(harmed) {
                    Some(loan) => loan.amount / 2,
                    None => (self.offers + step(vm, params)).min(slack),
                },
            ),
            None => (0, 0),
        };
        // When the bucket gets full, a loan goes on, but to all; and what is left to all goes on as long as it is left:
        // the depth of a bucket rises with what others leave, which must not end it.
        let overflows = matches!(lends, Some(Lending::ToAll(_)));
        self.is_full = overflows || owed + self.kept >= depth;
    }
}

impl Overflow {
    /// What `vm`, whose bucket is full, leaves in the next period, after it lent as in `lends`.
    pub fn next(
        vm: &VmUse,
        lends: Option<Lending>,
        usual: Nanos,
        params: &JupiterParams,
    ) -> Option<Self> {
        let loan = Loan::next(vm, lends.map(Lending::loan), usual, params)?;
        let rest = vm.entitled.saturating_sub(loan.amount);
        // What others leave raises the entitlement of a VM that leaves time itself: it keeps more only if it can use
        // more.
        let keeps = match lends {
            Some(Lending::ToAll(before)) => match before.loan.harms(vm, params) {
                true => before.keeps.max(before.loan.usual),
                false => rest.min(before.keeps.max(vm.could_use())),
            },
            _ => rest,
        };
        Some(Self { loan, keeps })
    }
}
