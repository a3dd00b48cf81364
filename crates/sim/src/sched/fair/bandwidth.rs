// SPDX-License-Identifier: GPL-2.0-only
//! How much of each period a cgroup may have (`cpu.max`, `cpu.max.burst`): the accounts of CFS bandwidth
//! control.
//!
//! A limited cgroup has a *pool* of runtime, which a timer fills each period, and on each pCPU *local* runtime that was
//! taken from the pool, 5 ms at a time. What its tasks run there comes off the local runtime. Where that is used up and
//! the pool is empty, the cgroup is throttled on this pCPU until the pool is filled; what its tasks ran too long until
//! that was noticed, at the next tick or switch, is owed and comes off the next period.
//! This file has the accounts only; [`throttle`](super::throttle) takes tasks off their runqueues and back.
//!
//! Modelled after `kernel/sched/fair.c` of 5.7 and of 6.12 (which are the same except as noted below):
//! `account_cfs_rq_runtime()` and `assign_cfs_rq_runtime()` ([`Bandwidth::charge`]), `check_enqueue_throttle()`
//! ([`Bandwidth::enter`]), `return_cfs_rq_runtime()` ([`Bandwidth::leave`]), `check_cfs_rq_runtime()` and
//! `throttle_cfs_rq()` ([`Bandwidth::check`]), `start_cfs_bandwidth()`, `do_sched_cfs_period_timer()`
//! ([`Bandwidth::period_over`]), `do_sched_cfs_slack_timer()` ([`Bandwidth::slack_over`]),
//! `distribute_cfs_runtime()`, `__refill_cfs_bandwidth_runtime()` of 6.12, with the burst.
//!
//! - When the pool is filled, a cgroup gets on each pCPU where it is throttled what it owes there and 1 ns, in the
//!   order of being throttled, until the pool is empty.
//! - A cgroup of which no task is left on a pCPU gives back what it has there beyond 1 ms. If it is throttled on other
//!   pCPUs and the pool then has more than a slice, these get it 5 ms later, unless a period ends by then.
//! - Local runtime does not expire at the end of a period, as it did for some versions before 5.4 (512ac999d275
//!   to de53fd7aedb1: kubernetes/kubernetes#67577).
//! - The timer stops after a period in which no runtime was taken. It goes on in its old phase, which is the same for
//!   all cgroups in 5.7 and each one's own in 6.12 ("so that timers interleave").
//!
//! Left out: that the kernel makes periods longer if the timer fires too often, settings that change, the time that
//! timers and IPIs take. Kernels before 3.2 have no quotas; here they have these, so that `cfs` with the preset of
//! 2.6.33 can be compared with others on a host with quotas. The same goes for bursts (5.14). Since 6.18 a task is
//! throttled only on its way out of the kernel, a way that vCPUs take all the time.

#[cfg(test)]
mod tests;

use crate::load::{Cgroups, Quota};
use crate::rng::Rng;
use corun_model::{Nanos, Parameter, PcpuId, TaskId, Value, time::MS};

/// How much is taken from the pool at once (`sched_cfs_bandwidth_slice_us`).
const SLICE: Nanos = 5 * MS;
/// What is not given back (`min_cfs_rq_runtime`).
const KEPT: Nanos = MS;
/// How long the timer waits for more to be given back (`cfs_bandwidth_slack_period`).
const SLACK_WAIT: Nanos = 5 * MS;
/// If a new period begins within this time, a throttled cgroup waits for that (`min_bandwidth_expiration`).
const SOON: Nanos = 2 * MS;

/// The numbers that quotas rest on; cgroups' own settings are in scenarios.
pub(crate) fn parameters() -> Vec<Parameter> {
    let of = |key, meaning, time, source| {
        Parameter::new(key, meaning, Value::Time(time), source, "fixed in Linux")
    };
    vec![
        of(
            "corun_sim::sched::fair::bandwidth::SLICE",
            "quotas under `cfs` and `eevdf`: how much is taken for a pCPU at once",
            SLICE,
            "sysctl_sched_cfs_bandwidth_slice of Linux 5.7 and 6.12",
        ),
        of(
            "corun_sim::sched::fair::bandwidth::KEPT",
            "what a pCPU keeps of that when nobody of the cgroup is left there",
            KEPT,
            "min_cfs_rq_runtime of Linux 5.7 and 6.12",
        ),
        of(
            "corun_sim::sched::fair::bandwidth::SLACK_WAIT",
            "how long after something was given back others have it",
            SLACK_WAIT,
            "cfs_bandwidth_slack_period of Linux 5.7 and 6.12",
        ),
        of(
            "corun_sim::sched::fair::bandwidth::SOON",
            "if less than this is left before a new period, they wait for that",
            SOON,
            "min_bandwidth_expiration of Linux 5.7 and 6.12",
        ),
    ]
}

/// The place of a limited cgroup in the list of them.
pub(super) type Pool = usize;

/// What a cgroup has on one pCPU.
#[derive(Clone, Debug, Default)]
struct Local {
    /// Runtime; below 0: it is owed.
    left: i64,
    /// Its tasks that are on the runqueue, or would be if it were not throttled itself.
    members: u32,
    throttled: bool,
    /// Its tasks that it keeps out.
    parked: Vec<TaskId>,
}

/// A limited cgroup.
#[derive(Clone, Debug)]
struct Account {
    quota: Quota,
    /// What is left in the pool.
    runtime: Nanos,
    /// By pCPU.
    local: Vec<Local>,
    /// Where it is throttled, in the order of becoming so.
    throttled: Vec<PcpuId>,
    /// When the pool is filled next; the timer runs only if it is `active`.
    next: Nanos,
    active: bool,
    /// Has nothing been taken since it was filled?
    idle: bool,
    slack_timer: bool,
}

/// Which timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    Period(Pool),
    Slack(Pool),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// This pCPU is to schedule: its current task has nothing left.
    Resched(PcpuId),
    /// This timer is to be set.
    Set(Timer, Nanos),
}

/// The place of a cgroup that has tasks: VMs' cgroups come first, in the VMs' order, then those of single vCPUs.
pub(super) type Leaf = usize;

/// All accounts.
#[derive(Clone, Debug)]
pub(super) struct Bandwidth {
    accounts: Vec<Account>,
    /// By leaf: the limited cgroups around its tasks, itself included, inner ones first; and how many cgroups out from
    /// the VM's own each is (`None`: it is within that).
    paths: Vec<Vec<Pool>>,
    levels: Vec<Vec<Option<usize>>>,
    asks: Vec<Ask>,
    pcpus: usize,
    interleave: bool,
}

impl Account {
    /// The account of the cgroup in place `pool`. Do timers `interleave`?
    fn new(quota: Quota, pool: Pool, pcpus: usize, interleave: bool) -> Self {
        let phase = match interleave {
            // The scheduler knows no seed.
            true => {
                let mut rng = Rng::of(0, "cpu.max", pool as u64);
                rng.between(0, quota.period.saturating_sub(1))
            }
            false => 0,
        };
        Self {
            quota,
            runtime: quota.time,
            local: vec![Local::default(); pcpus],
            throttled: Vec::new(),
            next: phase,
            active: false,
            idle: false,
            slack_timer: false,
        }
    }

    /// `__refill_cfs_bandwidth_runtime()`.
    fn refill(&mut self) {
        let most = self.quota.time.saturating_add(self.quota.burst);
        self.runtime = self.runtime.saturating_add(self.quota.time).min(most);
    }

    /// `distribute_cfs_runtime()`: returns the pCPUs where the cgroup may run again.
    fn distribute(&mut self) -> Vec<PcpuId> {
        let mut freed = Vec::new();
        for cpu in &self.throttled {
            if self.runtime == 0 {
                break;
            }
            let local = &mut self.local[cpu.index()];
            let wanted = (1 - local.left).unsigned_abs();
            let given = wanted.min(self.runtime);
            self.runtime -= given;
            local.left += given as i64;
            if local.left > 0 {
                freed.push(*cpu);
            }
        }
        freed
    }

    /// Is the pool filled in less than `time` (`runtime_refresh_within()`)?
    fn is_filled_within(&self, time: Nanos, now: Nanos) -> bool {
        self.next.saturating_sub(now) < time
    }
}

impl Bandwidth {
    /// The quotas of these cgroups; `None` if there are none. Do their timers `interleave`?
    pub(super) fn of(cgroups: &Cgroups, pcpus: usize, interleave: bool) -> Option<Self> {
        let mut accounts = Vec::new();
        let mut places = Vec::new();
        for group in &cgroups.all {
            let pool = accounts.len();
            places.push(group.quota.map(|_| pool));
            let account = |quota| Account::new(quota, pool, pcpus, interleave);
            accounts.extend(group.quota.map(account));
        }
        let path = |own: &Option<usize>| {
            let out = |at: &usize| cgroups.all.get(*at)?.within;
            let up = std::iter::successors(*own, out).enumerate();
            let limited = up.filter_map(|(level, at)| Some(((*places.get(at)?)?, Some(level))));
            limited.unzip()
        };
        let (paths, levels) = cgroups.of_vms.iter().map(path).unzip();
        let limits_any = !accounts.is_empty() || cgroups.of_vcpus.iter().any(Option::is_some);
        limits_any.then_some(Self {
            paths,
            levels,
            accounts,
            asks: Vec::new(),
            pcpus,
            interleave,
        })
    }

    /// One more vCPU of this VM, with a cgroup of its own that has this quota; returns its leaf.
    pub(super) fn add_vcpu(&mut self, vm: usize, quota: Quota) -> Leaf {
        let pool = self.accounts.len();
        let account = Account::new(quota, pool, self.pcpus, self.interleave);
        self.accounts.push(account);
        let mut path = vec![pool];
        path.extend_from_slice(self.path(vm));
        let mut levels = vec![None];
        levels.extend(self.levels.get(vm).into_iter().flatten());
        self.paths.push(path);
        self.levels.push(levels);
        self.paths.len() - 1
    }

    /// What is to be done since the last call.
    pub(super) fn asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// The limited cgroups around the tasks of a leaf, inner ones first.
    pub(super) fn path(&self, leaf: Leaf) -> &[Pool] {
        self.paths.get(leaf).map_or(&[], Vec::as_slice)
    }

    /// How many cgroups out from the VM's own the `pool` around the leaf is; `None`: it is a vCPU's own.
    pub(super) fn level(&self, leaf: Leaf, pool: Pool) -> Option<usize> {
        let at = self.path(leaf).iter().position(|&other| other == pool);
        at.map_or(Some(0), |at| self.levels[leaf][at])
    }

    /// Is any cgroup around the leaf throttled on `cpu` (`throttled_hierarchy()`)?
    pub(super) fn is_throttled(&self, leaf: Leaf, cpu: PcpuId) -> bool {
        let mut path = self.path(leaf).iter();
        path.any(|&pool| self.accounts[pool].local[cpu.index()].throttled)
    }

    /// A task of the leaf, the current one of `cpu`, had it for `time`.
    pub(super) fn charge(&mut self, leaf: Leaf, cpu: PcpuId, time: Nanos, now: Nanos) {
        for at in 0..self.path(leaf).len() {
            let pool = self.paths[leaf][at];
            let local = &mut self.accounts[pool].local[cpu.index()];
            local.left -= time as i64;
            if local.left <= 0 && !local.throttled && !self.assign(pool, cpu, SLICE, now) {
                self.asks.push(Ask::Resched(cpu));
            }
        }
    }

    /// A task of the leaf joins the runqueue of `cpu`, unless a cgroup around it is throttled there: returns that one.
    pub(super) fn enter(&mut self, leaf: Leaf, cpu: PcpuId, now: Nanos) -> Option<Pool> {
        self.enter_from(leaf, 0, cpu, now)
    }

    /// The same for a task that `inner` kept out until now.
    pub(super) fn rise(
        &mut self,
        leaf: Leaf,
        inner: Pool,
        cpu: PcpuId,
        now: Nanos,
    ) -> Option<Pool> {
        self.enter_from(leaf, self.level_around(leaf, inner), cpu, now)
    }

    fn enter_from(&mut self, leaf: Leaf, level: usize, cpu: PcpuId, now: Nanos) -> Option<Pool> {
        for at in level..self.path(leaf).len() {
            let pool = self.paths[leaf][at];
            let local = &mut self.accounts[pool].local[cpu.index()];
            local.members += 1;
            let first = local.members == 1 && !local.throttled;
            if first && local.left <= 0 && !self.assign(pool, cpu, SLICE, now) {
                self.throttle(pool, cpu, now);
            }
            if self.accounts[pool].local[cpu.index()].throttled {
                return Some(pool);
            }
        }
        None
    }

    /// A task of the leaf leaves the runqueue of `cpu`.
    pub(super) fn leave(&mut self, leaf: Leaf, cpu: PcpuId, now: Nanos) {
        self.leave_from(leaf, 0, cpu, now);
    }

    /// The same for a task that `inner` keeps out from now on.
    pub(super) fn sink(&mut self, leaf: Leaf, inner: Pool, cpu: PcpuId, now: Nanos) {
        self.leave_from(leaf, self.level_around(leaf, inner), cpu, now);
    }

    fn leave_from(&mut self, leaf: Leaf, level: usize, cpu: PcpuId, now: Nanos) {
        for at in level..self.path(leaf).len() {
            let pool = self.paths[leaf][at];
            let local = &mut self.accounts[pool].local[cpu.index()];
            local.members -= 1;
            if local.members == 0 {
                self.give_back(pool, cpu, now);
            }
        }
    }

    /// How many limited cgroups are around the leaf up to `inner`, that one included.
    fn level_around(&self, leaf: Leaf, inner: Pool) -> usize {
        let mut path = self.path(leaf).iter();
        path.position(|&pool| pool == inner).map_or(0, |at| at + 1)
    }

    /// The pCPU checks the cgroups around the leaf that it ran: those without runtime left are throttled from now on,
    /// and returned.
    pub(super) fn check(&mut self, leaf: Leaf, cpu: PcpuId, now: Nanos) -> Vec<Pool> {
        let mut throttled = Vec::new();
        for at in 0..self.path(leaf).len() {
            let pool = self.paths[leaf][at];
            let local = &self.accounts[pool].local[cpu.index()];
            if local.left <= 0 && !local.throttled && self.throttle(pool, cpu, now) {
                throttled.push(pool);
            }
        }
        throttled
    }

    /// Throttles a cgroup on `cpu`, unless its pool got something meanwhile.
    fn throttle(&mut self, pool: Pool, cpu: PcpuId, now: Nanos) -> bool {
        if self.assign(pool, cpu, 1, now) {
            return false;
        }
        let account = &mut self.accounts[pool];
        account.local[cpu.index()].throttled = true;
        account.throttled.push(cpu);
        true
    }

    /// Takes from the pool, so that `cpu` has `wanted` if there is enough. False if `cpu` has nothing afterwards.
    fn assign(&mut self, pool: Pool, cpu: PcpuId, wanted: Nanos, now: Nanos) -> bool {
        self.start(pool, now);
        let account = &mut self.accounts[pool];
        let local = &mut account.local[cpu.index()];
        if account.runtime > 0 {
            let missing = (wanted as i64 - local.left).unsigned_abs();
            let given = missing.min(account.runtime);
            account.runtime -= given;
            account.idle = false;
            local.left += given as i64;
        }
        local.left > 0
    }

    /// Makes sure that the timer that fills the pool is set.
    fn start(&mut self, pool: Pool, now: Nanos) {
        let account = &mut self.accounts[pool];
        if std::mem::replace(&mut account.active, true) {
            return;
        }
        if account.next <= now {
            let period = account.quota.period;
            account.next += ((now - account.next) / period + 1) * period;
        }
        self.asks.push(Ask::Set(Timer::Period(pool), account.next));
    }

    /// No task of a cgroup is left on `cpu`: other pCPUs may have what it has there.
    fn give_back(&mut self, pool: Pool, cpu: PcpuId, now: Nanos) {
        let account = &mut self.accounts[pool];
        let local = &mut account.local[cpu.index()];
        let slack = local.left - KEPT as i64;
        if slack <= 0 {
            return;
        }
        local.left -= slack;
        account.runtime += slack.unsigned_abs();
        let worth_it = account.runtime > SLICE && !account.throttled.is_empty();
        if worth_it
            && !account.is_filled_within(SLACK_WAIT + SOON, now)
            && !std::mem::replace(&mut account.slack_timer, true)
        {
            let at = now + SLACK_WAIT;
            self.asks.push(Ask::Set(Timer::Slack(pool), at));
        }
    }

    /// A period of the cgroup is over: returns the pCPUs where it may run again.
    pub(super) fn period_over(&mut self, pool: Pool) -> Vec<PcpuId> {
        let Some(account) = self.accounts.get_mut(pool) else {
            return Vec::new();
        };
        account.next += account.quota.period;
        account.refill();
        let kept = !account.throttled.is_empty();
        if account.idle && !kept {
            account.active = false;
            return Vec::new();
        }
        account.idle = !kept;
        let freed = account.distribute();
        self.asks.push(Ask::Set(Timer::Period(pool), account.next));
        freed
    }

    /// The time to wait for more to be given back is over: returns the pCPUs where the cgroup may
    /// run again.
    pub(super) fn slack_over(&mut self, pool: Pool, now: Nanos) -> Vec<PcpuId> {
        let Some(account) = self.accounts.get_mut(pool) else {
            return Vec::new();
        };
        account.slack_timer = false;
        match account.runtime > SLICE && !account.is_filled_within(SOON, now) {
            true => account.distribute(),
            false => Vec::new(),
        }
    }

    /// A throttled cgroup keeps `task` out of the runqueue of `cpu`.
    pub(super) fn park(&mut self, task: TaskId, pool: Pool, cpu: PcpuId) {
        self.accounts[pool].local[cpu.index()].parked.push(task);
    }

    /// The cgroup is not throttled on `cpu` any more: returns the tasks that it kept out.
    pub(super) fn unthrottle(&mut self, pool: Pool, cpu: PcpuId) -> Vec<TaskId> {
        let account = &mut self.accounts[pool];
        account.throttled.retain(|other| *other != cpu);
        let local = &mut account.local[cpu.index()];
        local.throttled = false;
        std::mem::take(&mut local.parked)
    }
}
