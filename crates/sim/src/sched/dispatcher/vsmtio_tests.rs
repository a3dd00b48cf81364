// SPDX-License-Identifier: GPL-2.0-only
//! vSMT-IO itself on the dispatcher: whatever vCPUs do, what must hold of cores always does
//! ([`Cores::check`]), also while plans change, VMs come and go, and policies are replaced.

use super::core_tests::{Cores, any_job};
use crate::Simulation;
use crate::host::Host;
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::testing::{Does, Job, Jobs, host};
use corun_dispatcher::PcpuConf;
use corun_model::time::{MS, SEC};
use corun_model::{Nanos, PcpuId, Placement, Plan, Snapshot, TaskId, TaskPlan, VmId, VmPlan};
use corun_policies::vsmtio::{VsmtIo, VsmtIoParams};
use corun_policies::{Policy, Settings, find};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The shortest period: as many plans as there can be.
const PERIOD: Nanos = 20 * MS;
const LENGTH: Nanos = SEC;

/// vSMT-IO, which sees a VM only while it exists, and which is replaced.
struct Steering {
    policy: Box<dyn Policy>,
    /// In which periods VMs exist; VMs not listed always do.
    there: Vec<Range<u64>>,
    /// What comes with which period: vSMT-IO with these settings, or fair order.
    exchanges: BTreeMap<u64, Option<VsmtIoParams>>,
}

fn policy(params: Option<VsmtIoParams>) -> Box<dyn Policy> {
    match params {
        Some(params) => Box::new(VsmtIo::new(params)),
        None => (find("fair").unwrap().make)(&Settings::default()),
    }
}

impl Policy for Steering {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let number = seen.now / PERIOD;
        if let Some(next) = self.exchanges.remove(&number) {
            self.policy = policy(next);
        }
        let mut seen = seen.clone();
        seen.vms.retain(|vm| {
            let there = self.there.get(vm.vm.index());
            there.is_none_or(|there| there.contains(&number))
        });
        self.policy.decide(&seen, plan);
    }
}

/// The checks of cores, told what policies want as the daemon tells it: what a plan no longer mentions is no longer
/// wanted.
struct Steered(Cores);

impl HostScheduler for Steered {
    forward! { 0: know_vms know_cgroups add wake block pick tick timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns }

    fn apply(&mut self, host: &mut Host, plan: &Plan) {
        let mut plan = plan.clone();
        let tasks: BTreeSet<TaskId> = plan.tasks.iter().map(|told| told.task).collect();
        let others = host.tasks().map(|(task, _)| task);
        let others = others.filter(|task| !tasks.contains(task));
        plan.tasks.extend(others.map(TaskPlan::of));
        let vms: BTreeSet<VmId> = plan.vms.iter().map(|told| told.vm).collect();
        let others = (0..self.0.dispatcher.plans.len()).map(VmId::from);
        let others = others.filter(|vm| !vms.contains(vm));
        plan.vms
            .extend(others.map(|vm| VmPlan::placed(vm, Placement::Free)));
        let cores = !plan.pcpus.is_empty();
        let native = &mut self.0.dispatcher.native;
        if !cores {
            host.all_pcpus()
                .for_each(|PcpuId(cpu)| native.configure_pcpu(cpu, PcpuConf::default()));
            native.look_at_no_cores();
            self.0.since = Nanos::MAX;
        } else if self.0.since == Nanos::MAX {
            self.0.since = host.now();
        }
        self.0.dispatcher.apply(host, &plan);
        self.0.check(host, None);
    }
}

fn any_settings() -> impl Strategy<Value = (bool, bool, u64)> {
    (any::<bool>(), any::<bool>(), 50u64..5000)
}

fn params((rass, retain, timeout): (bool, bool, u64), give_way: bool) -> VsmtIoParams {
    VsmtIoParams {
        period: PERIOD,
        rass,
        retain,
        give_way,
        timeout: timeout * corun_model::time::US,
        ..VsmtIoParams::default()
    }
}

/// Runs `jobs`, three vCPUs to a VM: what must hold for cores does hold, and all get to run.
fn holds(
    cores: u32,
    jobs: &[(Does, u32)],
    give_way: bool,
    steering: Steering,
    seed: u64,
) -> Result<(), TestCaseError> {
    let topology = format!("1n1l{cores}c2t");
    let mut sched = Cores::new(&topology, 0, VsmtIoParams::default().bounds.most);
    (sched.by_hand, sched.gives_way) = (false, give_way);
    let vcpu = |(number, (does, weight)): (usize, &(Does, u32))| {
        let job = Job::new(does.clone()).weight(*weight);
        job.vcpu(number as u32 / 3, number as u32 % 3)
    };
    let jobs = Jobs::new(jobs.iter().enumerate().map(vcpu).collect(), seed);
    let params = host(&topology, 250);
    let simulation = Simulation::new(params, Box::new(Steered(sched)), Box::new(jobs), None);
    let outcome = (simulation.with_policy(Box::new(steering))).run(0, LENGTH, |_| {});
    for (name, _, totals) in &outcome.tasks {
        prop_assert!(totals.run > 0, "{name} never ran");
    }
    Ok(())
}

/// A guest (a vCPU on a hardware thread that is not its home) is sent home by a vCPU that wakes there, and interrupts
/// the one that runs at its home: an idle hardware thread of another core is called for that one, whatever was known
/// about the guest that was there before it.
#[test]
fn a_hardware_thread_is_called_for_a_vcpu_that_lost_its_own_to_one_sent_home() {
    let us = corun_model::time::US;
    let hog = (Does::Hog { from: 0 }, 30);
    let cycles = |work, sleep, weight| {
        let (work, sleep) = (work * us, sleep * us);
        let spread = 50;
        (
            Does::Cycles {
                work,
                sleep,
                spread,
            },
            weight,
        )
    };
    let jobs = [
        cycles(20, 14_334, 100),
        hog.clone(),
        hog,
        cycles(569, 822, 30),
        cycles(20, 4_049, 100),
    ];
    let steering = Steering {
        policy: policy(Some(params((true, true, 5000), false))),
        there: Vec::new(),
        exchanges: BTreeMap::from([(2, None)]),
    };
    holds(2, &jobs, false, steering, 2_460_765_269_694_494_753).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever vCPUs do, and whichever VMs exist.
    #[test]
    fn what_holds_of_cores_does_under_the_policy(
        jobs in prop::collection::vec(any_job(), 1..14),
        cores in 1u32..4,
        settings in any_settings(),
        give_way: bool,
        there in prop::collection::vec((0u64..40, 1u64..40).prop_map(|(from, long)| from..from + long), 0..4),
        seed: u64,
    ) {
        let steering = Steering {
            policy: policy(Some(params(settings, give_way))),
            there,
            exchanges: BTreeMap::new(),
        };
        holds(cores, &jobs, give_way, steering, seed)?;
    }

    /// The same if policies are replaced while hardware threads are held.
    #[test]
    fn and_where_policies_are_exchanged(
        jobs in prop::collection::vec(any_job(), 1..14),
        cores in 1u32..4,
        exchanges in prop::collection::btree_map(1u64..45, prop::option::of(any_settings()), 1..12),
        give_way: bool,
        seed: u64,
    ) {
        let next = |settings: Option<_>| settings.map(|settings| params(settings, give_way));
        let exchanges = exchanges.into_iter().map(|(at, settings)| (at, next(settings))).collect();
        let steering = Steering {
            policy: policy(Some(params((true, true, 5000), give_way))),
            there: Vec::new(),
            exchanges,
        };
        holds(cores, &jobs, give_way, steering, seed)?;
    }
}
