// SPDX-License-Identifier: GPL-2.0-only
//! The control loop in virtual time: a policy sees the modelled host as the daemon would show it a
//! real host.

use crate::host::{Host, Totals};
use crate::load::{Cgroups, Load, Quota, VmInfo};
use crate::sched::HostScheduler;
use corun_model::time::SEC;
use corun_model::{
    HostSeen, Nanos, Plan, Signals, Snapshot, Status, TaskId, TaskSeen, Turns, UnhaltedSeen, VmId,
    VmSeen,
};
use corun_policies::Policy;
use corun_policies::weighing::{self, Place, Weighing};

/// A policy and what it was shown last.
pub(crate) struct Control {
    policy: Box<dyn Policy>,
    /// What VMs weigh, including the cgroups around theirs.
    weighing: Weighing,
    /// Each task's accounts at the end of the last period.
    before: Vec<Before>,
    /// When that period ended.
    looked_at: Nanos,
}

/// A task's accounts at one point in time: the host's, and the scheduler's.
#[derive(Clone, Copy, Default)]
struct Before {
    totals: Totals,
    /// How long a quota kept it from a pCPU that it wanted; not part of its ready time.
    throttled: Nanos,
    signals: Signals,
    depleted: u64,
    preempted: u64,
    late: u64,
    wakeups: u64,
    retained: Nanos,
    kept: u64,
}

impl Control {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            weighing: Weighing::default(),
            before: Vec::new(),
            looked_at: 0,
        }
    }

    /// Time between two decisions, at least 1 ms: the daemon could not be faster either.
    pub fn period(&self) -> Nanos {
        self.policy.period().max(corun_model::time::MS)
    }

    /// What the policy wants, given what happened since it was asked last.
    pub fn decide(&mut self, host: &Host, sched: &dyn HostScheduler, load: &dyn Load) -> Plan {
        let snapshot = self.snapshot(host, sched, load);
        let mut plan = Plan::default();
        self.policy.decide(&snapshot, &mut plan);
        plan
    }

    /// The policy's state as of its last decision.
    pub fn status(&self) -> Status {
        self.policy.status()
    }

    /// As which type the policy recognises a vCPU.
    pub fn recognised(&self, task: TaskId) -> Option<&'static str> {
        self.policy.recognised(task)
    }

    fn snapshot(&mut self, host: &Host, sched: &dyn HostScheduler, load: &dyn Load) -> Snapshot {
        let (infos, cgroups) = (load.vms(), load.cgroups());
        let seen = |(index, info): (usize, &VmInfo)| VmSeen {
            vm: VmId::from(index),
            // As the daemon reads it: a cgroup has a weight, even if none is set.
            weight: info.weight.or_else(|| cgroups.weight_of(index)),
            effective: None,
            quotas: Vec::new(),
            cookie: info.cookie,
            vcpus: Vec::new(),
        };
        let mut vms: Vec<VmSeen> = infos.iter().enumerate().map(seen).collect();
        let mut accounts = Vec::new();
        for (id, task) in host.tasks() {
            let Some(vm) = task.vm().and_then(|vm| vms.get_mut(vm.index())) else {
                accounts.push(Before::default());
                continue;
            };
            let of_vcpu = task.vm().and_then(|vm| cgroups.of_each_vcpu(vm.index()));
            let of_vcpu = of_vcpu.filter(|_| !sched.weighs_each_vcpu());
            let (seen, account) = self.vcpu(host, sched, load, id);
            vm.vcpus.push(TaskSeen {
                quota: of_vcpu.map(per_second),
                ..seen
            });
            accounts.push(account);
        }
        if sched.weighs_each_vcpu() {
            for vm in &mut vms {
                let vcpus = vm.vcpus.len() as u32;
                vm.weight = vm.weight.map(|weight| weight.saturating_mul(vcpus));
            }
        }
        self.before = accounts;
        self.looked_at = host.now();
        let topology = host.params().topology;
        let mut seen = Snapshot {
            now: host.now(),
            host: HostSeen::of(topology),
            vms,
            others: Vec::new(),
        };
        // Xen's Credit has no groups, but caps.
        if sched.weighs_each_vcpu() {
            let of = |(vm, info): (usize, &VmInfo)| capped(&cgroups, vm, info.cap);
            let places: Vec<Place> = infos.iter().enumerate().map(of).collect();
            weighing::limit(&mut seen, &|vm| places.get(vm.index()));
        } else {
            let places: Vec<Place> = (0..infos.len()).map(|vm| place(&cgroups, vm)).collect();
            self.weighing.weigh(&mut seen, &|vm| places.get(vm.index()));
        }
        seen
    }

    /// What a vCPU did since the last period, and its accounts now. Its quota is not in it.
    fn vcpu(
        &self,
        host: &Host,
        sched: &dyn HostScheduler,
        load: &dyn Load,
        task: TaskId,
    ) -> (TaskSeen, Before) {
        let (now, sums) = (
            host.totals_of_run(task),
            sched.turns(host, task, self.looked_at),
        );
        let signals = signals_of(host, load, task);
        let throttled = sched.throttled(host.now(), task);
        let was = self.before(task);
        let (before, signals_now) = (was.totals, signals.since(&was.signals));
        let spec = &host.task(task).spec;
        let seen = TaskSeen {
            task,
            allowed: spec.allowed,
            weight: spec.weight,
            quota: None,
            run: now.run - before.run,
            ready: (now.ready - before.ready)
                .saturating_sub(throttled.saturating_sub(was.throttled)),
            wait: now.wait - before.wait,
            turns: with_guests(
                was.until(&sums),
                now.retained - before.retained,
                &signals_now,
            ),
            signals: signals_now,
        };
        (seen, Before::of(now, throttled, signals, &sums))
    }

    fn before(&self, task: TaskId) -> Before {
        self.before.get(task.index()).copied().unwrap_or_default()
    }
}

impl Before {
    fn of(totals: Totals, throttled: Nanos, signals: Signals, sums: &Turns) -> Self {
        Self {
            totals,
            throttled,
            signals,
            depleted: sums.depleted,
            preempted: sums.preempted,
            late: sums.late,
            wakeups: sums.wakeups,
            retained: sums.retained,
            kept: sums.kept,
        }
    }

    /// What was done between then and `sums`.
    fn until(&self, sums: &Turns) -> Turns {
        Turns {
            depleted: sums.depleted - self.depleted,
            preempted: sums.preempted - self.preempted,
            late: sums.late - self.late,
            wakeups: sums.wakeups - self.wakeups,
            retained: sums.retained.saturating_sub(self.retained),
            kept: sums.kept - self.kept,
            ..sums.clone()
        }
    }
}

/// pCPU time in a second.
fn per_second(quota: Quota) -> Nanos {
    weighing::Cgroup::per_second(quota.time, quota.period)
}

/// Where a VM is among these cgroups.
fn place(cgroups: &Cgroups, vm: usize) -> Place {
    let mut place = Place::default();
    let mut next = cgroups.of_vms.get(vm).copied().flatten();
    while let Some((at, group)) = next.and_then(|at| Some((at, cgroups.all.get(at)?))) {
        place.own = true;
        place.around.push(weighing::Cgroup {
            id: at as u64,
            weight: match group.idle {
                true => weighing::IDLE,
                false => u64::from(group.weight) * weighing::PARTS,
            },
            quota: group.quota.map(per_second),
        });
        next = group.within;
    }
    place.around.reverse();
    place
}

/// Where a VM is under Xen's Credit: by itself, limited in whole percent to the lower of its `cap` (0 if it has none)
/// and its own cgroup's limit.
fn capped(cgroups: &Cgroups, vm: usize, cap: u32) -> Place {
    let quota = cgroups.of_vm(vm).and_then(|group| group.quota);
    let caps = [
        Some(cap).filter(|cap| *cap > 0),
        quota.map(|it| it.percent()),
    ];
    let cap = caps.into_iter().flatten().min();
    let limited = |percent: u32| weighing::Cgroup {
        id: vm as u64,
        weight: weighing::PARTS,
        quota: Some(u64::from(percent) * SEC / 100),
    };
    Place {
        around: cap.map(limited).into_iter().collect(),
        own: true,
    }
}

/// The turns of a vCPU, with the time for which its guest retained the context by itself, if known.
fn with_guests(mut turns: Turns, retained: Nanos, signals: &Signals) -> Turns {
    if let Some(kept) = signals.kept {
        turns.retained += retained;
        turns.kept += kept;
    }
    turns
}

/// What the host knows about a task since the run began.
fn signals_of(host: &Host, load: &dyn Load, task: TaskId) -> Signals {
    let llc = host.llc_seen(task);
    let totals = host.totals_of_run(task);
    Signals {
        instructions: llc.map(|llc| llc.instructions),
        llc,
        cycles: host.cycles_seen(task),
        unhalted: Some(UnhaltedSeen {
            unhalted: totals.run - totals.retained,
            reference: totals.run,
        }),
        ..load.signals(task)
    }
}

#[cfg(test)]
mod tests;
