// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::Simulation;
use crate::host::Activity;
use crate::sched::dispatcher::Dispatcher;
use crate::testing::{Does, Job, Jobs, host};
use corun_model::time::{MS, SEC, US};
use corun_model::{DispatcherParams, PcpuId, PcpuPlan, Placement, TaskPlan, VmPlan};
use std::sync::{Arc, Mutex};

/// What a policy is shown of each vCPU in each period: run, ready and wait.
type Shown = Arc<Mutex<Vec<Vec<[Nanos; 3]>>>>;

struct Looks(Shown);

impl Policy for Looks {
    fn period(&self) -> Nanos {
        100 * MS
    }

    fn decide(&mut self, seen: &Snapshot, _: &mut Plan) {
        let vcpus = seen.vms.iter().flat_map(|vm| &vm.vcpus);
        let spent = vcpus.map(|vcpu| [vcpu.run, vcpu.ready, vcpu.wait]);
        self.0.lock().unwrap().push(spent.collect());
    }
}

/// Two vCPUs that compute on a pCPU, together with one that sleeps: periods as a policy sees them.
fn shown(warm_up: Nanos) -> Vec<Vec<[Nanos; 3]>> {
    let sleeps = Does::Hog { from: 10 * SEC };
    let jobs = vec![
        Job::hog().vcpu(0, 0),
        Job::hog().vcpu(1, 0),
        Job::new(sleeps).vcpu(2, 0),
    ];
    let params = host("1n1l1c1t", 1000);
    let dispatcher: Dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let shown = Shown::default();
    let load = Box::new(Jobs::new(jobs, 1));
    Simulation::new(params, Box::new(dispatcher), load, None)
        .with_policy(Box::new(Looks(shown.clone())))
        .run(warm_up, SEC, |_| {});
    shown.lock().unwrap().clone()
}

/// Accounts of what is measured begin anew when the warm-up ends, at the end of a period or in the middle of one. A
/// policy sees nothing of that.
#[test]
fn policies_do_not_see_when_measuring_begins() {
    let periods = shown(0);
    for period in &periods[1..] {
        assert!(
            period
                .iter()
                .all(|vcpu| vcpu.iter().sum::<Nanos>() == 100 * MS)
        );
    }
    for warm_up in [500 * MS, 550 * MS] {
        assert_eq!(shown(warm_up), periods);
    }
}

const PERIOD: Nanos = 10 * MS;

/// A policy that notes what it sees; the first VM's hardware thread is held for it, for longer than
/// a period.
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

/// Periods as a policy sees them if the first vCPU halts and its hardware thread is held, and the second retains its
/// context by itself without end.
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
    // The vCPUs begin in the first periods.
    seen[5..].to_vec()
}

/// Holds whether or not anything ends within a period, or the measured part of the run begins
/// there.
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
            let [held, keeps, hog]: [&TaskSeen; 3] = vcpus.collect::<Vec<_>>().try_into().unwrap();
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

/// Two VMs in slices, one of them idle, one VM next to the slices and one without a cgroup: what each weighs in
/// thousandths.
#[test]
fn policies_see_cgroups_around_vms_and_idle_ones() {
    let group = |weight, idle, within| crate::load::Cgroup {
        weight,
        idle,
        quota: None,
        within,
    };
    let cgroups = Cgroups {
        all: vec![
            group(10, false, None),
            group(100, false, Some(0)),
            group(300, false, Some(0)),
            group(50, true, None),
        ],
        of_vms: vec![Some(1), Some(2), Some(3), None],
        ..Cgroups::default()
    };
    let jobs = (0..4).map(|vm| Job::hog().vcpu(vm, 0)).collect();
    let params = host("1n1l2c2t", 250);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let load = Box::new(Jobs::new(jobs, 1).in_cgroups(cgroups));
    Simulation::new(params, Box::new(dispatcher), load, None)
        .with_policy(Box::new(Notes(Arc::clone(&seen))))
        .run(0, 5 * PERIOD, |_| {});
    let seen = seen.lock().unwrap();
    let weights = seen[4].vms.iter().map(|vm| (vm.weight, vm.effective));
    let expected = [
        (Some(100), Some(2500)),
        (Some(300), Some(7500)),
        (Some(50), Some(weighing::IDLE)),
        (None, None),
    ];
    assert_eq!(weights.collect::<Vec<_>>(), expected);
}
