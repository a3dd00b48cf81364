// SPDX-License-Identifier: GPL-2.0-only
//! How much of each period a cgroup may have (`cpu.max`, `cpu.max.burst`): the accounts of CFS bandwidth
//! control.
//!
//! A limited cgroup has a *pool* of runtime, which a timer fills each period, and on each pCPU something
//! *local* that was taken from the pool, 5 ms at a time. What its tasks run there comes off that. Where it is
//! used up and the pool has nothing left, the cgroup is throttled on this pCPU until the pool is filled; what
//! ran too long until that was noticed, at the next tick or switch, is owed and comes off the next period.
//! This file has the accounts only; [`throttle`](super::throttle) takes tasks off their runqueues and back.
//!
//! Followed, by `kernel/sched/fair.c` of 5.7 and of 6.12 (which have the same but for what is said below):
//! `account_cfs_rq_runtime()` and `assign_cfs_rq_runtime()` ([`Bandwidth::charge`]), `check_enqueue_throttle()`
//! ([`Bandwidth::enter`]), `return_cfs_rq_runtime()` ([`Bandwidth::leave`]), `check_cfs_rq_runtime()` and
//! `throttle_cfs_rq()` ([`Bandwidth::check`]), `start_cfs_bandwidth()`, `do_sched_cfs_period_timer()`
//! ([`Bandwidth::period_over`]), `do_sched_cfs_slack_timer()` ([`Bandwidth::slack_over`]),
//! `distribute_cfs_runtime()`, `__refill_cfs_bandwidth_runtime()` of 6.12, with the burst.
//!
//! - Who is throttled gets what it owes and 1 ns, in the order of being throttled, until the pool is empty.
//! - A cgroup of which nobody is left on a pCPU gives back what it has there beyond 1 ms. If others of it are
//!   throttled and there is more than a slice by then, they have it 5 ms later, unless a period ends by then.
//! - Local runtime does not expire at the end of a period, as it did for some versions before 5.4 (512ac999d275
//!   to de53fd7aedb1: kubernetes/kubernetes#67577).
//! - The timer stops after a period in which nobody took anything. It goes on in step: by one clock for all cgroups in
//!   5.7, with a phase of its own for each in 6.12 ("so that timers interleave").
//!
//! Left out: that a timer which fires too often makes periods longer, settings that change, the time that
//! timers and IPIs take. Kernels before 3.2 have no quotas; here they have these, so that `cfs` with the
//! preset of 2.6.33 can be compared with others on a host with quotas. The same goes for bursts (5.14).
//! Since 6.18 a task is throttled on its way out of the kernel only, which vCPUs are on all the time.

use crate::load::{Cgroups, Quota};
use crate::rng::Rng;
use corun_model::{Nanos, Parameter, PcpuId, TaskId, Value, time::MS};

/// So much is taken from the pool at once (`sched_cfs_bandwidth_slice_us`).
const SLICE: Nanos = 5 * MS;
/// What is not given back (`min_cfs_rq_runtime`).
const KEPT: Nanos = MS;
/// How long it is waited for more that is given back (`cfs_bandwidth_slack_period`).
const SLACK_WAIT: Nanos = 5 * MS;
/// Who comes so shortly before a new period waits for that (`min_bandwidth_expiration`).
const SOON: Nanos = 2 * MS;

/// The numbers that quotas stand on; what is said of cgroups is said in scenarios.
pub(crate) fn parameters() -> Vec<Parameter> {
    let of = |key, meaning, time, source| {
        Parameter::new(key, meaning, Value::Time(time), source, "fixed in Linux")
    };
    vec![
        of(
            "corun_sim::sched::fair::bandwidth::SLICE",
            "quotas under `cfs` and `eevdf`: so much is taken for a pCPU at once",
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
            "so shortly before a new period they wait for that",
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
    /// Those of them that it keeps out.
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
    /// Has nobody taken anything since it was filled?
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

/// All accounts.
#[derive(Clone, Debug)]
pub(super) struct Bandwidth {
    accounts: Vec<Account>,
    /// By VM: the limited cgroups around it, inner ones first.
    paths: Vec<Vec<Pool>>,
    asks: Vec<Ask>,
}

impl Account {
    fn new(quota: Quota, pcpus: usize, phase: Nanos) -> Self {
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

    /// `distribute_cfs_runtime()`: the pCPUs where it may run again.
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
            places.push(group.quota.map(|_| accounts.len()));
            accounts.extend(group.quota.map(|quota| {
                let phase = match interleave {
                    // The scheduler knows no seed.
                    true => {
                        let mut rng = Rng::of(0, "cpu.max", accounts.len() as u64);
                        rng.between(0, quota.period.saturating_sub(1))
                    }
                    false => 0,
                };
                Account::new(quota, pcpus, phase)
            }));
        }
        let path = |own: &Option<usize>| {
            let out = |at: &usize| cgroups.all.get(*at)?.within;
            let up = std::iter::successors(*own, out);
            up.filter_map(|at| *places.get(at)?).collect()
        };
        (!accounts.is_empty()).then(|| Self {
            paths: cgroups.of_vms.iter().map(path).collect(),
            accounts,
            asks: Vec::new(),
        })
    }

    /// What is to be done by now.
    pub(super) fn asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// The limited cgroups around a VM, inner ones first.
    pub(super) fn path(&self, vm: usize) -> &[Pool] {
        self.paths.get(vm).map_or(&[], Vec::as_slice)
    }

    /// Is any cgroup around the VM throttled on `cpu` (`throttled_hierarchy()`)?
    pub(super) fn is_throttled(&self, vm: usize, cpu: PcpuId) -> bool {
        let mut path = self.path(vm).iter();
        path.any(|&pool| self.accounts[pool].local[cpu.index()].throttled)
    }

    /// A task of the VM, the current one of `cpu`, had it for `time`.
    pub(super) fn charge(&mut self, vm: usize, cpu: PcpuId, time: Nanos, now: Nanos) {
        for at in 0..self.path(vm).len() {
            let pool = self.paths[vm][at];
            let local = &mut self.accounts[pool].local[cpu.index()];
            local.left -= time as i64;
            if local.left <= 0 && !local.throttled && !self.assign(pool, cpu, SLICE, now) {
                self.asks.push(Ask::Resched(cpu));
            }
        }
    }

    /// A task of the VM joins the runqueue of `cpu`, or would if the answer were not a cgroup that is
    /// throttled there.
    pub(super) fn enter(&mut self, vm: usize, cpu: PcpuId, now: Nanos) -> Option<Pool> {
        self.enter_from(vm, 0, cpu, now)
    }

    /// The same for one that `inner` kept out until now.
    pub(super) fn rise(&mut self, vm: usize, inner: Pool, cpu: PcpuId, now: Nanos) -> Option<Pool> {
        self.enter_from(vm, self.level_around(vm, inner), cpu, now)
    }

    fn enter_from(&mut self, vm: usize, level: usize, cpu: PcpuId, now: Nanos) -> Option<Pool> {
        for at in level..self.path(vm).len() {
            let pool = self.paths[vm][at];
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

    /// A task of the VM leaves the runqueue of `cpu`.
    pub(super) fn leave(&mut self, vm: usize, cpu: PcpuId, now: Nanos) {
        self.leave_from(vm, 0, cpu, now);
    }

    /// The same for one that `inner` keeps out from now on.
    pub(super) fn sink(&mut self, vm: usize, inner: Pool, cpu: PcpuId, now: Nanos) {
        self.leave_from(vm, self.level_around(vm, inner), cpu, now);
    }

    fn leave_from(&mut self, vm: usize, level: usize, cpu: PcpuId, now: Nanos) {
        for at in level..self.path(vm).len() {
            let pool = self.paths[vm][at];
            let local = &mut self.accounts[pool].local[cpu.index()];
            local.members -= 1;
            if local.members == 0 {
                self.give_back(pool, cpu, now);
            }
        }
    }

    /// How many limited cgroups are around the VM up to `inner`, that one included.
    fn level_around(&self, vm: usize, inner: Pool) -> usize {
        let mut path = self.path(vm).iter();
        path.position(|&pool| pool == inner).map_or(0, |at| at + 1)
    }

    /// The pCPU looks at the cgroups around the VM that it ran: those that have nothing left are throttled
    /// from now on.
    pub(super) fn check(&mut self, vm: usize, cpu: PcpuId, now: Nanos) -> Vec<Pool> {
        let mut throttled = Vec::new();
        for at in 0..self.path(vm).len() {
            let pool = self.paths[vm][at];
            let local = &self.accounts[pool].local[cpu.index()];
            if local.left <= 0 && !local.throttled && self.throttle(pool, cpu, now) {
                throttled.push(pool);
            }
        }
        throttled
    }

    /// Throttles a cgroup on `cpu`, unless something came into its pool meanwhile.
    fn throttle(&mut self, pool: Pool, cpu: PcpuId, now: Nanos) -> bool {
        if self.assign(pool, cpu, 1, now) {
            return false;
        }
        let account = &mut self.accounts[pool];
        account.local[cpu.index()].throttled = true;
        account.throttled.push(cpu);
        true
    }

    /// Takes from the pool, so that `cpu` has `wanted` if there is enough. False if it has nothing then.
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

    /// Sees to it that the pool is filled.
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

    /// Nobody of a cgroup is left on `cpu`: others may have what it has there.
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

    /// A period of the cgroup is over: the pCPUs where it may run again.
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

    /// The time to wait for what is given back is over: the pCPUs where the cgroup may run again.
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

    /// The cgroup is not throttled on `cpu` any more: those that it kept out.
    pub(super) fn unthrottle(&mut self, pool: Pool, cpu: PcpuId) -> Vec<TaskId> {
        let account = &mut self.accounts[pool];
        account.throttled.retain(|other| *other != cpu);
        let local = &mut account.local[cpu.index()];
        local.throttled = false;
        std::mem::take(&mut local.parked)
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle_tests::limited;
    use super::*;
    use crate::load::Cgroup;

    const CPU: PcpuId = PcpuId(0);
    const OTHER: PcpuId = PcpuId(1);
    const VM: usize = 0;

    /// VM 0 in its own group, the last of these.
    fn bandwidth(all: Vec<Cgroup>) -> Bandwidth {
        let of_vms = vec![Some(all.len() - 1)];
        let cgroups = Cgroups { all, of_vms };
        Bandwidth::of(&cgroups, 4, false).unwrap()
    }

    /// What `cpu` has, and what is left in the pool.
    fn left(all: &Bandwidth, pool: Pool, cpu: PcpuId) -> (i64, Nanos) {
        let account = &all.accounts[pool];
        (account.local[cpu.index()].left, account.runtime)
    }

    /// How long a hog runs until `cpu` is asked to schedule, if it is charged at ticks.
    fn runs(all: &mut Bandwidth, cpu: PcpuId, tick: Nanos, now: Nanos) -> Nanos {
        let mut ran = 0;
        while !all.asks().contains(&Ask::Resched(cpu)) {
            all.charge(VM, cpu, tick, now + ran);
            ran += tick;
        }
        ran
    }

    /// 20 ms in 100: taken by slices of 5 ms, then nothing is left until the period is over. What it owes then is
    /// nothing, so that it gets 1 ns, and takes a slice when that is used up.
    #[test]
    fn a_quota_is_used_up_in_slices() {
        let mut all = bandwidth(vec![limited(20 * MS, 0, None)]);
        assert_eq!(all.enter(VM, CPU, 0), None);
        assert_eq!(left(&all, 0, CPU), (5_000_000, 15 * MS));
        assert_eq!(all.asks(), [Ask::Set(Timer::Period(0), 100 * MS)]);
        assert_eq!(runs(&mut all, CPU, MS, 0), 20 * MS);
        assert_eq!(all.check(VM, CPU, 20 * MS), [0]);
        assert!(all.is_throttled(VM, CPU) && !all.is_throttled(VM, OTHER));
        assert_eq!(all.period_over(0), [CPU]);
        assert_eq!(left(&all, 0, CPU), (1, 20 * MS - 1));
        all.unthrottle(0, CPU);
        all.charge(VM, CPU, MS, 101 * MS);
        assert_eq!(left(&all, 0, CPU), (5_000_000, 14 * MS));
        assert_eq!(runs(&mut all, CPU, MS, 101 * MS), 19 * MS);
    }

    /// 10 ms with ticks of 4 ms: the third finds 2 ms too many, which come off the next period. So it runs
    /// for 12 and 8 ms in turn.
    #[test]
    fn what_ran_too_long_is_owed() {
        let mut all = bandwidth(vec![limited(10 * MS, 0, None)]);
        all.enter(VM, CPU, 0);
        for (period, ran) in [(0, 12), (1, 8), (2, 12), (3, 8)] {
            let now = period * 100 * MS;
            assert_eq!(runs(&mut all, CPU, 4 * MS, now), ran * MS, "{period}");
            assert_eq!(all.check(VM, CPU, now + ran * MS), [0]);
            assert_eq!(all.period_over(0), [CPU]);
            all.unthrottle(0, CPU);
        }
    }

    /// Debts beyond a whole period: it gets that, and stays throttled.
    #[test]
    fn who_owes_more_than_a_period_waits_for_another() {
        let mut all = bandwidth(vec![limited(10 * MS, 0, None)]);
        all.enter(VM, CPU, 0);
        all.charge(VM, CPU, 25 * MS, 25 * MS);
        assert_eq!(all.check(VM, CPU, 25 * MS), [0]);
        assert_eq!(all.period_over(0), []);
        assert_eq!(left(&all, 0, CPU), (-5_000_000, 0));
        assert_eq!(all.period_over(0), [CPU]);
        assert_eq!(left(&all, 0, CPU), (1, 5 * MS - 1));
    }

    /// On two pCPUs 8 ms are a slice and 3 ms; who was throttled first is served first.
    #[test]
    fn pcpus_share_a_pool() {
        let mut all = bandwidth(vec![limited(8 * MS, 0, None)]);
        all.enter(VM, CPU, 0);
        all.enter(VM, OTHER, 0);
        assert_eq!(left(&all, 0, OTHER), (3_000_000, 0));
        assert_eq!(runs(&mut all, OTHER, MS, 0), 3 * MS);
        assert_eq!(all.check(VM, OTHER, 3 * MS), [0]);
        assert_eq!(runs(&mut all, CPU, 12 * MS, 0), 12 * MS);
        assert_eq!(all.check(VM, CPU, 12 * MS), [0]);
        // 1 ns for the first, the rest for the debt of 7 ms.
        assert_eq!(all.period_over(0), [OTHER, CPU]);
        assert_eq!(left(&all, 0, CPU), (1, MS - 2));
    }

    /// Nobody is left on a pCPU: it keeps 1 ms. Others have the rest 5 ms later, if it is more than a slice.
    #[test]
    fn slack_is_given_back() {
        let mut all = bandwidth(vec![limited(16 * MS, 0, None)]);
        for cpu in 0..4 {
            all.enter(VM, PcpuId(cpu), 0);
        }
        let last = PcpuId(3);
        assert_eq!(left(&all, 0, last), (1_000_000, 0));
        assert_eq!(runs(&mut all, last, MS, 0), MS);
        assert_eq!(all.check(VM, last, MS), [0]);
        all.leave(VM, CPU, 10 * MS);
        assert_eq!(left(&all, 0, CPU), (1_000_000, 4 * MS));
        assert_eq!(all.asks(), [], "not more than a slice");
        all.leave(VM, OTHER, 11 * MS);
        assert_eq!(all.asks(), [Ask::Set(Timer::Slack(0), 16 * MS)]);
        all.leave(VM, PcpuId(2), 12 * MS);
        assert_eq!(all.asks(), [], "it is set already");
        assert_eq!(all.slack_over(0, 16 * MS), [last]);
        assert_eq!(left(&all, 0, last), (1, 12 * MS - 1));
    }

    /// Not so shortly before a period ends.
    #[test]
    fn slack_is_not_worth_it_at_the_end_of_a_period() {
        let mut all = bandwidth(vec![limited(12 * MS, 0, None)]);
        for cpu in 0..4 {
            all.enter(VM, PcpuId(cpu), 0);
        }
        // The third has 2 ms, the last nothing: throttled before it began.
        assert!(all.is_throttled(VM, PcpuId(3)));
        all.asks();
        all.leave(VM, CPU, 94 * MS);
        all.leave(VM, OTHER, 94 * MS);
        assert_eq!((all.asks(), left(&all, 0, CPU).1), (vec![], 8 * MS));
    }

    /// What is left at the end of a period is saved up to the burst. The timer fills the pool once more when
    /// nobody came, and stops; it goes on in step.
    #[test]
    fn a_burst_is_saved_up() {
        let mut all = bandwidth(vec![limited(20 * MS, 30 * MS, None)]);
        all.enter(VM, CPU, 0);
        all.charge(VM, CPU, 2 * MS, 2 * MS);
        all.leave(VM, CPU, 2 * MS);
        assert_eq!(left(&all, 0, CPU), (1_000_000, 17 * MS));
        assert_eq!(all.period_over(0), []);
        assert_eq!(left(&all, 0, CPU).1, 37 * MS);
        assert_eq!(all.period_over(0), []);
        assert_eq!(left(&all, 0, CPU).1, 50 * MS, "quota and burst");
        all.asks();
        all.enter(VM, CPU, 250 * MS);
        assert_eq!(all.asks(), [], "1 ms is left");
        assert_eq!(runs(&mut all, CPU, MS, 250 * MS), 51 * MS);
        let mut all = bandwidth(vec![limited(20 * MS, 0, None)]);
        all.enter(VM, CPU, 250 * MS);
        assert_eq!(all.asks(), [Ask::Set(Timer::Period(0), 300 * MS)]);
    }

    /// A VM with 30 ms in a slice with 20: the slice's end first. The VM's is not throttled then, nor does it
    /// lose what it has.
    #[test]
    fn outer_quotas_hold_for_those_within() {
        let mut all = bandwidth(vec![
            limited(20 * MS, 0, None),
            limited(30 * MS, 0, Some(0)),
        ]);
        assert_eq!(all.path(VM), [1, 0]);
        all.enter(VM, CPU, 0);
        assert_eq!(runs(&mut all, CPU, MS, 0), 20 * MS);
        assert_eq!(all.check(VM, CPU, 20 * MS), [0]);
        assert_eq!(left(&all, 1, CPU), (5_000_000, 5 * MS));
        // It is kept out by the outer one, the inner one's counts going on.
        assert_eq!(all.enter(VM, CPU, 21 * MS), Some(0));
        assert_eq!(all.accounts[1].local[0].members, 2);
    }

    /// The inner one is throttled, which leaves the outer one empty there; then both.
    #[test]
    fn an_inner_quota_leaves_the_rest_to_others() {
        let mut all = bandwidth(vec![limited(40 * MS, 0, None), limited(8 * MS, 0, Some(0))]);
        all.enter(VM, CPU, 0);
        assert_eq!(runs(&mut all, CPU, MS, 0), 8 * MS);
        assert_eq!(left(&all, 0, CPU), (2_000_000, 30 * MS));
        assert_eq!(all.check(VM, CPU, 8 * MS), [1]);
        all.sink(VM, 1, CPU, 8 * MS);
        assert_eq!(left(&all, 0, CPU), (1_000_000, 31 * MS));
        assert_eq!(all.enter(VM, CPU, 9 * MS), Some(1));
        assert_eq!(all.period_over(1), [CPU]);
        all.unthrottle(1, CPU);
        assert_eq!(all.rise(VM, 1, CPU, 100 * MS), None);
        assert_eq!(all.accounts[0].local[0].members, 1);
    }

    #[test]
    fn timers_interleave_in_6_12() {
        let groups = vec![limited(20 * MS, 0, None); 3];
        let of_vms = vec![Some(0), Some(1), Some(2)];
        let all = Cgroups {
            all: groups,
            of_vms,
        };
        let phases = |interleave| {
            let all = Bandwidth::of(&all, 1, interleave).unwrap();
            let next = all.accounts.iter().map(|account| account.next);
            next.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!((phases(false).len(), phases(true).len()), (1, 3));
        assert_eq!(
            Bandwidth::of(&Cgroups::default(), 1, true).map(|_| ()),
            None
        );
    }
}
