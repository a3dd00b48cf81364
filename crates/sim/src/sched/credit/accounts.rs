// SPDX-License-Identifier: GPL-2.0-only
//! How much credit each vCPU has, and the priority that follows.
//!
//! Running burns 10 credits per millisecond. Every slice, a slice's worth of credit per pCPU is
//! handed out among the *active* vCPUs, by weight; what one domain cannot use goes to the others. A
//! vCPU in debt is OVER, others are UNDER. A vCPU that has more than a slice's worth does not use
//! its share: it stops being active and keeps half; the next tick that finds it running makes it
//! active again.

use super::params::{CREDITS_PER_MS, CreditParams, WEIGHT};
use crate::load::{Cgroups, VmInfo};
use corun_model::{Nanos, TaskId, VmId, time::MS};

/// A vCPU's priority, in rising order (`CSCHED_PRI_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// In debt.
    Over,
    /// Has credit.
    Under,
    /// Woke up having credit, and no tick has found it running since.
    Boost,
}

#[derive(Debug)]
struct Account {
    domain: usize,
    priority: Priority,
    credit: i64,
    /// Credit burnt but below one whole, in millionths.
    residual: u64,
    /// Up to when its time is charged; while it does not run, relative to when it stopped.
    charged: i64,
    active: bool,
    parked: bool,
    /// What one of its turns costs, if a policy has set their length.
    turn: i64,
}

impl Account {
    /// `burn_credits()`: whole credits by the clock. What is charged never leads or lags the clock
    /// by more than one.
    fn burn(&mut self, now: Nanos) {
        let spent = now as i64 - self.charged;
        if spent <= 0 {
            return;
        }
        let value = spent as u64 * CREDITS_PER_MS + self.residual;
        self.residual = value % MS;
        let credits = value / MS;
        self.credit -= credits as i64;
        self.charged += (credits * MS / CREDITS_PER_MS) as i64;
    }
}

/// A VM, or a host task that is no VM's vCPU (`struct csched_dom`).
#[derive(Debug)]
struct Domain {
    /// `None`: follows from its vCPUs' weight.
    weight: Option<i64>,
    /// The most it may earn, in percent of one pCPU; 0: no limit.
    cap: i64,
    /// The one that became active last comes first.
    active: Vec<TaskId>,
    last: Option<TaskId>,
}

impl Domain {
    fn weight(&self) -> i64 {
        self.weight.unwrap_or(i64::from(WEIGHT))
    }

    /// What it counts against others: its weight, once per active vCPU.
    fn claim(&self) -> i64 {
        self.weight() * self.active.len() as i64
    }
}

/// The vCPUs whose state accounting changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) parked: Vec<TaskId>,
    pub(super) unparked: Vec<TaskId>,
}

/// The credit of all vCPUs.
#[derive(Debug)]
pub(super) struct Accounts {
    accounts: Vec<Account>,
    domains: Vec<Domain>,
    /// Domains that have active vCPUs; the one that got its first of them last comes first.
    active: Vec<usize>,
    /// Sum of the active vCPUs' credit after the last accounting.
    balance: i64,
    per_slice: i64,
    pcpus: i64,
}

/// A weight of corun (100 is neutral) as one of Xen's (256 is).
fn scaled(weight: u32) -> i64 {
    i64::from(weight * WEIGHT / 100).max(1)
}

fn div_up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

impl Accounts {
    pub(super) fn new(params: &CreditParams, pcpus: u32) -> Self {
        Self {
            accounts: Vec::new(),
            domains: Vec::new(),
            active: Vec::new(),
            balance: 0,
            per_slice: params.credits_per_slice(),
            pcpus: i64::from(pcpus),
        }
    }

    /// Accounting has another period from now on.
    pub(super) fn set_slice(&mut self, params: &CreditParams) {
        self.per_slice = params.credits_per_slice();
    }

    /// A policy makes turns of `task` this long.
    pub(super) fn set_turn(&mut self, task: TaskId, turn: Nanos) {
        self.accounts[task.index()].turn = (turn * CREDITS_PER_MS / MS) as i64;
    }

    pub(super) fn know_vms(&mut self, vms: &[VmInfo]) {
        let domain = |vm: &VmInfo| Domain {
            weight: vm.weight.map(scaled),
            cap: i64::from(vm.cap),
            active: Vec::new(),
            last: None,
        };
        self.domains = vms.iter().map(domain).collect();
    }

    /// A VM's `cpu.max` is its cap, unless it has a lower one.
    pub(super) fn know_cgroups(&mut self, groups: &Cgroups) {
        for (vm, domain) in self.domains.iter_mut().enumerate() {
            let quota = groups.of_vm(vm).and_then(|own| own.quota);
            let Some(cap) = quota.map(|quota| i64::from(quota.percent())) else {
                continue;
            };
            domain.cap = match domain.cap {
                0 => cap,
                own => own.min(cap),
            };
        }
    }

    /// One more vCPU; returns its domain's previous one.
    pub(super) fn add(&mut self, task: TaskId, vm: Option<VmId>, weight: u32) -> Option<TaskId> {
        let domain = vm.map_or(self.domains.len(), VmId::index);
        if domain == self.domains.len() {
            self.domains.push(Domain {
                weight: None,
                cap: 0,
                active: Vec::new(),
                last: None,
            });
        }
        self.accounts.push(Account {
            domain,
            priority: Priority::Under,
            credit: 0,
            residual: 0,
            charged: 0,
            active: false,
            parked: false,
            turn: 0,
        });
        let domain = &mut self.domains[domain];
        domain.weight.get_or_insert(scaled(weight));
        domain.last.replace(task)
    }

    pub(super) fn priority(&self, task: TaskId) -> Priority {
        self.accounts[task.index()].priority
    }

    /// What a vCPU weighs against others.
    pub(super) fn weight(&self, task: TaskId) -> u64 {
        let domain = self.accounts[task.index()].domain;
        u64::try_from(self.domains[domain].weight()).unwrap_or(0)
    }

    /// Is it taken off for having used more than its VM's cap?
    pub(super) fn parked(&self, task: TaskId) -> bool {
        self.accounts[task.index()].parked
    }

    /// A vCPU wakes up.
    pub(super) fn boost(&mut self, task: TaskId) {
        let account = &mut self.accounts[task.index()];
        if account.priority == Priority::Under && !account.parked {
            account.priority = Priority::Boost;
        }
    }

    /// A vCPU gets a pCPU.
    pub(super) fn start(&mut self, task: TaskId, now: Nanos) {
        self.accounts[task.index()].charged += now as i64;
    }

    /// A vCPU gives its pCPU up.
    pub(super) fn stop(&mut self, task: TaskId, now: Nanos) {
        let account = &mut self.accounts[task.index()];
        account.burn(now);
        account.charged -= now as i64;
    }

    /// A tick finds a vCPU running (`csched_unit_acct()`): no more boost, and it is active from now
    /// on. True if it was before.
    pub(super) fn found_running(&mut self, task: TaskId, now: Nanos) -> bool {
        let account = &mut self.accounts[task.index()];
        account.priority = account.priority.min(Priority::Under);
        account.burn(now);
        if std::mem::replace(&mut account.active, true) {
            return true;
        }
        let domain = account.domain;
        self.domains[domain].active.insert(0, task);
        if !self.active.contains(&domain) {
            self.active.insert(0, domain);
        }
        false
    }

    /// `csched_acct()`: hands out credit and sets priorities anew.
    pub(super) fn hand_out(&mut self) -> Changes {
        let mut changes = Changes::default();
        let weight: i64 = self.active.iter().map(|&n| self.domains[n].claim()).sum();
        if weight == 0 {
            self.balance = 0;
            return changes;
        }
        // The total debt is handed out, too.
        let debt = (-self.balance).max(0);
        let mut total = self.per_slice * self.pcpus + debt;
        let (mut left, mut balance, mut others_lack) = (weight, 0, false);
        for n in self.active.clone() {
            let claim = self.domains[n].claim();
            left -= claim;
            let (peak, cap_each) = self.bounds(n, debt, weight);
            let mut fair = div_up(total * claim, weight);
            if fair < peak {
                others_lack = true;
            } else {
                if left > 0 {
                    total += div_up((fair - peak) * weight, left);
                }
                if others_lack {
                    // It has more than it can use: next time it comes first, so that it passes the
                    // rest on.
                    self.active.retain(|&other| other != n);
                    self.active.insert(0, n);
                }
                fair = peak;
            }
            let each = div_up(fair, self.domains[n].active.len() as i64);
            for task in self.domains[n].active.clone() {
                balance += self.earn(task, each, cap_each, &mut changes);
            }
        }
        self.balance = balance;
        changes
    }

    /// The most a domain may earn, and the debt beyond which a vCPU of it is parked if it has a cap.
    fn bounds(&self, domain: usize, debt: i64, weight: i64) -> (i64, Option<i64>) {
        let domain = &self.domains[domain];
        let vcpus = domain.active.len() as i64;
        let peak = vcpus * self.per_slice + div_up(debt * domain.claim(), weight);
        if domain.cap == 0 {
            return (peak, None);
        }
        let cap = div_up(domain.cap * self.per_slice, 100);
        (peak.min(cap), Some(div_up(cap, vcpus)))
    }

    /// An active vCPU earns credit. Returns what it has now.
    fn earn(&mut self, task: TaskId, credit: i64, cap: Option<i64>, changes: &mut Changes) -> i64 {
        let account = &mut self.accounts[task.index()];
        // Otherwise, where turns last longer than accounting's period, most of what one costs would be forgiven, and
        // half of what is saved up between turns lost.
        let bound = self.per_slice.max(account.turn);
        account.credit += credit;
        if account.credit < 0 {
            account.priority = Priority::Over;
            if cap.is_some_and(|cap| account.credit < -cap) && !account.parked {
                account.parked = true;
                changes.parked.push(task);
            }
            account.credit = account.credit.max(-bound);
            return account.credit;
        }
        account.priority = Priority::Under;
        if std::mem::take(&mut account.parked) {
            changes.unparked.push(task);
        }
        if account.credit > bound {
            account.active = false;
            account.credit /= 2;
            let domain = account.domain;
            self.domains[domain].active.retain(|&other| other != task);
            if self.domains[domain].active.is_empty() {
                self.active.retain(|&other| other != domain);
            }
        }
        self.accounts[task.index()].credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Domains with these weights, caps and numbers of vCPUs, all active.
    fn accounts(pcpus: u32, domains: &[(u32, u32, u32)]) -> Accounts {
        let mut all = Accounts::new(&CreditParams::default(), pcpus);
        let info = |&(weight, cap, _): &(u32, u32, u32)| VmInfo {
            name: String::new(),
            weight: Some(weight),
            cookie: 0,
            cap,
            realtime: false,
        };
        all.know_vms(&domains.iter().map(info).collect::<Vec<_>>());
        for (vm, &(_, _, vcpus)) in domains.iter().enumerate() {
            for _ in 0..vcpus {
                let task = TaskId::from(all.accounts.len());
                all.add(task, Some(VmId::from(vm)), 100);
                all.found_running(task, 0);
            }
        }
        all
    }

    fn credits(all: &Accounts) -> Vec<i64> {
        all.accounts.iter().map(|account| account.credit).collect()
    }

    #[test]
    fn credit_is_handed_out_by_weight_and_vcpus() {
        let mut all = accounts(1, &[(300, 0, 1), (100, 0, 1)]);
        all.hand_out();
        assert_eq!(credits(&all), [225, 75]);
        let mut all = accounts(1, &[(100, 0, 1), (100, 0, 2)]);
        all.hand_out();
        assert_eq!(credits(&all), [100, 100, 100], "weights count per vCPU");
    }

    /// A domain with one vCPU cannot use a second pCPU: others get what it leaves.
    #[test]
    fn what_one_cannot_use_others_get() {
        let mut all = accounts(2, &[(100, 0, 2), (800, 0, 1)]);
        all.hand_out();
        // Of 600 credits, divided 1:1:8, the heavy domain would have 480; it can use 300.
        assert_eq!(credits(&all), [150, 150, 300]);
    }

    #[test]
    fn a_cap_bounds_what_is_earned_and_parks() {
        let mut all = accounts(1, &[(100, 20, 1), (100, 0, 1)]);
        let capped = TaskId(0);
        all.start(capped, 0);
        all.stop(capped, 13 * MS);
        let changes = all.hand_out();
        // 130 burnt, 60 earned: 70 in debt, more than the cap's 60.
        assert_eq!(
            (credits(&all)[0], &changes.parked[..]),
            (-70, &[capped][..])
        );
        let changes = all.hand_out();
        assert_eq!((credits(&all)[0], changes.unparked.len()), (-10, 0));
        let changes = all.hand_out();
        assert_eq!(
            (credits(&all)[0], &changes.unparked[..]),
            (50, &[capped][..])
        );
        assert_eq!(all.priority(capped), Priority::Under);
    }

    #[test]
    fn a_vcpu_that_does_not_use_its_credit_leaves_with_half() {
        let mut all = accounts(1, &[(100, 0, 1)]);
        all.hand_out();
        assert_eq!(credits(&all), [300]);
        all.hand_out();
        assert_eq!(credits(&all), [300], "600 halved");
        all.hand_out();
        assert_eq!(credits(&all), [300], "earns no more");
        assert!(!all.found_running(TaskId(0), 0));
        assert!(all.found_running(TaskId(0), 0));
    }

    #[test]
    fn running_burns_by_the_clock() {
        let mut all = accounts(1, &[(100, 0, 1)]);
        let task = TaskId(0);
        for n in 0..1000 {
            all.start(task, n * MS);
            all.stop(task, n * MS + 30_000);
        }
        let burnt = -credits(&all)[0];
        assert!((299..=301).contains(&burnt), "{burnt} for 30 ms");
    }

    #[test]
    fn only_those_with_credit_are_boosted() {
        let mut all = accounts(1, &[(100, 0, 1)]);
        let task = TaskId(0);
        all.boost(task);
        assert_eq!(all.priority(task), Priority::Boost);
        all.found_running(task, 0);
        assert_eq!(all.priority(task), Priority::Under);
        all.start(task, 0);
        all.stop(task, 70 * MS);
        all.hand_out();
        all.boost(task);
        assert_eq!(all.priority(task), Priority::Over);
        assert_eq!(credits(&all), [-300], "a slice's worth of debt at most");
    }

    /// A vCPU whose turns are longer than accounting's period may owe and save up what one turn
    /// costs.
    #[test]
    fn bounds_are_those_of_a_turn() {
        let mut all = accounts(1, &[(100, 0, 1)]);
        let task = TaskId(0);
        all.set_turn(task, 90 * MS);
        all.start(task, 0);
        all.stop(task, 120 * MS);
        all.hand_out();
        assert_eq!(credits(&all), [-900]);
        (0..3).for_each(|_| drop(all.hand_out()));
        assert_eq!(credits(&all), [900]);
        all.hand_out();
        assert_eq!(credits(&all), [600], "1200 halved");
    }
}
