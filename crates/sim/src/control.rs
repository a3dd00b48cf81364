// SPDX-License-Identifier: GPL-2.0-only
//! The control loop in virtual time: a policy sees the modelled host as the daemon would show it a
//! real one.

use crate::host::{Host, Totals};
use crate::load::{Load, VmInfo};
use crate::sched::HostScheduler;
use corun_model::{
    HostSeen, Nanos, Plan, Signals, Snapshot, Status, TaskId, TaskSeen, Turns, UnhaltedSeen, VmId,
    VmSeen,
};
use corun_policies::Policy;

/// A policy and what it was shown last.
pub(crate) struct Control {
    policy: Box<dyn Policy>,
    /// Each task's accounts at the end of the last period.
    before: Vec<Before>,
    /// Where each task's time had gone when the host's accounts began anew, if they have.
    warmed_up: Vec<Spent>,
    /// When that was.
    looked_at: Nanos,
}

/// Where a task's time has gone since the run began, ns.
#[derive(Clone, Copy, Default)]
struct Spent {
    run: Nanos,
    ready: Nanos,
    wait: Nanos,
    /// Of `run`: its context retained.
    retained: Nanos,
}

/// A task's accounts at a time: the host's, and the scheduler's.
#[derive(Clone, Copy, Default)]
struct Before {
    spent: Spent,
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
            before: Vec::new(),
            warmed_up: Vec::new(),
            looked_at: 0,
        }
    }

    /// Time between two decisions, at least 1 ms: the daemon could not do better either.
    pub fn period(&self) -> Nanos {
        self.policy.period().max(corun_model::time::MS)
    }

    /// What the policy wants, from what happened since it was asked last.
    pub fn decide(&mut self, host: &Host, sched: &dyn HostScheduler, load: &dyn Load) -> Plan {
        let snapshot = self.snapshot(host, sched, load);
        let mut plan = Plan::default();
        self.policy.decide(&snapshot, &mut plan);
        plan
    }

    /// The host's accounts are about to begin anew, in the midst of a period or at its end. A policy is to see nothing
    /// of that: a daemon's accounts go on.
    pub fn accounts_begin_anew(&mut self, host: &Host) {
        self.warmed_up = host.tasks().map(|(id, _)| self.spent(host, id)).collect();
    }

    /// Where the time of `task` has gone, what is under way included.
    fn spent(&self, host: &Host, task: TaskId) -> Spent {
        let warmed_up = self.warmed_up.get(task.index()).copied();
        warmed_up.unwrap_or_default().and(&host.totals(task))
    }

    /// What the policy thinks, as of its last decision.
    pub fn status(&self) -> Status {
        self.policy.status()
    }

    /// What it takes a vCPU to be.
    pub fn recognised(&self, task: TaskId) -> Option<&'static str> {
        self.policy.recognised(task)
    }

    fn snapshot(&mut self, host: &Host, sched: &dyn HostScheduler, load: &dyn Load) -> Snapshot {
        let (infos, cgroups) = (load.vms(), load.cgroups());
        let seen = |(index, info): (usize, &VmInfo)| VmSeen {
            vm: VmId::from(index),
            // As the daemon reads it: a cgroup has a weight, even if none is said.
            weight: info.weight.or_else(|| cgroups.weight_of(index)),
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
            let (now, sums) = (self.spent(host, id), sched.turns(host, id, self.looked_at));
            let signals = signals_of(host, load, id, &now);
            let was = self.before(id);
            let before = was.spent;
            let signals_now = signals.since(&was.signals);
            vm.vcpus.push(TaskSeen {
                task: id,
                allowed: task.spec.allowed,
                weight: task.spec.weight,
                run: now.run - before.run,
                ready: now.ready - before.ready,
                wait: now.wait - before.wait,
                turns: with_guests(
                    was.until(&sums),
                    now.retained - before.retained,
                    &signals_now,
                ),
                signals: signals_now,
            });
            accounts.push(Before::of(now, signals, &sums));
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
        Snapshot {
            now: host.now(),
            host: HostSeen::of(topology),
            vms,
        }
    }

    fn before(&self, task: TaskId) -> Before {
        self.before.get(task.index()).copied().unwrap_or_default()
    }
}

impl Spent {
    /// This and what is in the host's accounts.
    fn and(self, totals: &Totals) -> Self {
        Self {
            run: self.run + totals.run,
            ready: self.ready + totals.ready,
            wait: self.wait + totals.wait,
            retained: self.retained + totals.retained,
        }
    }
}

impl Before {
    fn of(spent: Spent, signals: Signals, sums: &Turns) -> Self {
        Self {
            spent,
            signals,
            depleted: sums.depleted,
            preempted: sums.preempted,
            late: sums.late,
            wakeups: sums.wakeups,
            retained: sums.retained,
            kept: sums.kept,
        }
    }

    /// What was done since then.
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

/// The turns of a vCPU, with what its guest retained by itself, if it tells.
fn with_guests(mut turns: Turns, retained: Nanos, signals: &Signals) -> Turns {
    if let Some(kept) = signals.kept {
        turns.retained += retained;
        turns.kept += kept;
    }
    turns
}

/// What the host can tell of a task since the run began.
fn signals_of(host: &Host, load: &dyn Load, task: TaskId, spent: &Spent) -> Signals {
    let llc = host.llc_seen(task);
    Signals {
        instructions: llc.map(|llc| llc.instructions),
        llc,
        cycles: host.cycles_seen(task),
        unhalted: Some(UnhaltedSeen {
            unhalted: spent.run - spent.retained,
            reference: spent.run,
        }),
        ..load.signals(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::host::Activity;
    use crate::sched::dispatcher::Dispatcher;
    use crate::testing::{Does, Job, Jobs, host};
    use corun_model::time::{MS, US};
    use corun_model::{DispatcherParams, PcpuId, PcpuPlan, Placement, TaskPlan, VmPlan};
    use std::sync::{Arc, Mutex};

    const PERIOD: Nanos = 10 * MS;

    /// Notes what it sees; the first VM's hardware thread is held for it, for longer than a period.
    struct Notes(Arc<Mutex<Vec<Snapshot>>>);

    impl Policy for Notes {
        fn period(&self) -> Nanos {
            PERIOD
        }

        fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
            self.0.lock().unwrap().push(seen.clone());
            let place = |vm: &VmSeen| VmPlan::placed(vm.vm, Placement::Core);
            plan.vms.extend(seen.vms.iter().map(place));
            plan.tasks.push(TaskPlan {
                home: Some(PcpuId(1)),
                ..TaskPlan::of(TaskId(0))
            });
            let thread = |cpu: u32| PcpuPlan {
                cpu: PcpuId(cpu),
                partner: PcpuId(cpu ^ 1),
                hold: if cpu == 1 { 40 * MS } else { 0 },
                retention: 0,
                gives_way: true,
                cookies: false,
                wait_wait: 0,
                miss_miss: 0,
            };
            plan.pcpus = (0..4).map(thread).collect();
        }
    }

    /// Periods as a policy sees them where the first vCPU halts and its hardware thread is held, and the second retains
    /// its context by itself without end.
    fn periods(warm_up: Nanos) -> Vec<Snapshot> {
        let waits = Does::Cycles {
            work: 100 * US,
            sleep: 35 * MS,
            spread: 0,
        };
        let jobs = vec![
            Job::new(waits).vcpu(0, 0).on("1"),
            Job::new(Does::Keeps(Activity::Retention))
                .vcpu(1, 0)
                .on("2"),
            Job::hog().vcpu(2, 0).on("3"),
        ];
        let params = host("1n1l2c2t", 250);
        let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = Box::new(Notes(Arc::clone(&seen)));
        Simulation::new(
            params,
            Box::new(dispatcher),
            Box::new(Jobs::new(jobs, 1)),
            None,
        )
        .with_policy(notes)
        .run(warm_up, 30 * PERIOD, |_| {});
        let seen = seen.lock().unwrap();
        // The vCPUs begin in the first ones.
        seen[5..].to_vec()
    }

    /// Whether or not anything ends within a period, or the measured part of the run begins there.
    #[test]
    fn each_period_tells_all_of_its_time_and_what_is_under_way() {
        for warm_up in [0, 10 * PERIOD, 10 * PERIOD + 3 * MS] {
            let all = periods(warm_up);
            assert!(all.len() >= 25);
            for seen in all {
                let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
                for (vcpu, at) in vcpus.clone().zip(0..) {
                    let all = vcpu.run + vcpu.ready + vcpu.wait;
                    assert_eq!(all, PERIOD, "vCPU {at} at {}", seen.now);
                }
                let [held, keeps, hog]: [&TaskSeen; 3] =
                    vcpus.collect::<Vec<_>>().try_into().unwrap();
                let dormant = |vcpu: &TaskSeen| vcpu.signals.unhalted.unwrap().dormant(vcpu.run);
                assert!(
                    held.turns.retained >= 9 * MS,
                    "{} at {}",
                    held.turns.retained,
                    seen.now
                );
                assert_eq!(dormant(keeps), PERIOD, "at {}", seen.now);
                assert_eq!((dormant(hog), hog.turns.retained), (0, 0));
            }
        }
    }
}
