// SPDX-License-Identifier: GPL-2.0-only
//! How much of each period real-time tasks may have (`sched_rt_runtime_us`, `sched_rt_period_us`).
//!
//! Each pCPU has a budget of its own. A pCPU that has spent it borrows from those that have some
//! left, an n-th of what each has, n being the number of pCPUs, until it has a whole period
//! (`do_balance_runtime()`); what is lent is not given back. Once no budget is left, its real-time
//! tasks wait, even if the pCPU then idles. At the beginning of a period each pCPU's budget is
//! subtracted from its account; what it ran too long, up to a tick, is debt.

use super::RrParams;
use corun_model::{Nanos, PcpuId};

/// The account of a pCPU.
#[derive(Clone, Copy, Debug)]
struct Account {
    spent: Nanos,
    budget: Nanos,
    throttled: bool,
}

/// All accounts.
#[derive(Debug)]
pub(super) struct Bandwidth {
    period: Nanos,
    accounts: Vec<Account>,
}

impl Bandwidth {
    pub(super) fn new(params: &RrParams, pcpus: usize) -> Self {
        let account = Account {
            spent: 0,
            budget: params.runtime,
            throttled: false,
        };
        Self {
            period: params.period,
            accounts: vec![account; pcpus],
        }
    }

    pub(super) fn period(&self) -> Nanos {
        self.period
    }

    pub(super) fn is_throttled(&self, cpu: PcpuId) -> bool {
        self.accounts[cpu.index()].throttled
    }

    pub(super) fn spent(&self, cpu: PcpuId) -> Nanos {
        self.accounts[cpu.index()].spent
    }

    /// Books that a real-time task ran (`sched_rt_runtime_exceeded()`). True if real-time tasks
    /// have to wait from now on.
    pub(super) fn spend(&mut self, cpu: PcpuId, time: Nanos) -> bool {
        let account = &mut self.accounts[cpu.index()];
        account.spent += time;
        if account.throttled || account.budget >= self.period {
            return account.throttled;
        }
        self.borrow_if_short(cpu);
        let account = &mut self.accounts[cpu.index()];
        account.throttled = account.spent > account.budget;
        account.throttled
    }

    fn borrow_if_short(&mut self, cpu: PcpuId) {
        let Account { spent, budget, .. } = self.accounts[cpu.index()];
        if spent <= budget {
            return;
        }
        let (mut budget, shares) = (budget, self.accounts.len() as u64);
        for other in (0..self.accounts.len()).filter(|&other| other != cpu.index()) {
            if budget >= self.period {
                break;
            }
            let other = &mut self.accounts[other];
            let lent = other.budget.saturating_sub(other.spent) / shares;
            let lent = lent.min(self.period - budget);
            other.budget -= lent;
            budget += lent;
        }
        self.accounts[cpu.index()].budget = budget;
    }

    /// A period begins (`do_sched_rt_period_timer()`). True if throttling ends.
    pub(super) fn begin_period(&mut self, cpu: PcpuId) -> bool {
        if self.accounts[cpu.index()].spent == 0 {
            return false;
        }
        if self.accounts[cpu.index()].throttled {
            self.borrow_if_short(cpu);
        }
        let account = &mut self.accounts[cpu.index()];
        account.spent = account.spent.saturating_sub(account.budget);
        let ends = account.throttled && account.spent < account.budget;
        account.throttled &= !ends;
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::MS;
    use proptest::prelude::*;

    fn bandwidth(runtime: Nanos, period: Nanos, pcpus: usize) -> Bandwidth {
        let params = RrParams {
            runtime,
            period,
            ..RrParams::default()
        };
        Bandwidth::new(&params, pcpus)
    }

    /// Four pCPUs, 15 of 30 ms. One that has spent 16 borrows a quarter of what each has left: 3.75 ms
    /// from each of three; then it has 26.25 ms.
    #[test]
    fn borrows_a_share_of_what_is_left() {
        let mut bandwidth = bandwidth(15 * MS, 30 * MS, 4);
        assert!(!bandwidth.spend(PcpuId(0), 16 * MS));
        let budgets: Vec<_> = bandwidth
            .accounts
            .iter()
            .map(|a| a.budget / 10_000)
            .collect();
        assert_eq!(budgets, [2625, 1125, 1125, 1125]);
    }

    /// Where all have spent theirs there is nothing to borrow, and debt is carried over.
    #[test]
    fn throttled_until_the_next_period() {
        let mut bandwidth = bandwidth(15 * MS, 30 * MS, 2);
        let (a, b) = (PcpuId(0), PcpuId(1));
        assert!(!bandwidth.spend(a, 15 * MS) && !bandwidth.spend(b, 15 * MS));
        assert!(bandwidth.spend(a, MS) && bandwidth.spend(b, MS));
        assert!(bandwidth.begin_period(a) && !bandwidth.is_throttled(a));
        assert_eq!(bandwidth.spent(a), MS);
        assert!(bandwidth.is_throttled(b));
    }

    proptest! {
        /// Budgets move between pCPUs; their sum stays, and none exceeds a period.
        #[test]
        fn nothing_is_lost(
            steps in prop::collection::vec((0usize..4, 1u64..3_000_000, any::<bool>()), 1..200)
        ) {
            let mut bandwidth = bandwidth(15 * MS, 30 * MS, 4);
            for (cpu, time, begins) in steps {
                bandwidth.spend(PcpuId::from(cpu), time);
                if begins {
                    (0..4).for_each(|cpu| _ = bandwidth.begin_period(PcpuId::from(cpu)));
                }
                let budgets = bandwidth.accounts.iter().map(|account| account.budget);
                prop_assert_eq!(budgets.clone().sum::<Nanos>(), 60 * MS);
                prop_assert!(budgets.max() <= Some(30 * MS));
            }
        }
    }
}
