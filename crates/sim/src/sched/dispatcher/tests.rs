// SPDX-License-Identifier: GPL-2.0-only
//! Simulation testing of the dispatcher: random hosts and loads, with checks of what must always
//! hold.

use super::Dispatcher;
use crate::host::{Costs, HardwareParams, Host, HostParams};
use crate::load::{Pattern, Patterns};
use crate::sched::HostScheduler;
use crate::sched::forward::forward;
use crate::{Outcome, Simulation};
use corun_model::time::{MS, SEC};
use corun_model::{
    DispatcherParams, Gang, Nanos, PcpuSet, Placement, Plan, Skew, Snapshot, TaskId, Topology,
    VmId, VmPlan,
};
use corun_policies::Policy;
use proptest::prelude::*;

pub(super) fn params(pcpus: u32) -> HostParams {
    HostParams {
        topology: Topology::flat(pcpus).unwrap(),
        hz: 250,
        tick_skew: false,
        idle_states: Vec::new(),
        costs: Costs::default(),
        hardware: HardwareParams::default(),
    }
}

fn run(pcpus: u32, load: Patterns, placement: Placement, length: Nanos) -> Outcome {
    run_gangs(pcpus, load, placement, Gang::None, length)
}

pub(super) fn run_gangs(
    pcpus: u32,
    load: Patterns,
    placement: Placement,
    gang: Gang,
    length: Nanos,
) -> Outcome {
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params(pcpus));
    let placed = Box::new(Placed(dispatcher, placement, gang));
    Simulation::new(params(pcpus), placed, Box::new(load), None).run(0, length, |_| {})
}

/// The dispatcher with one placement mode and gang mode from the start.
pub(super) struct Placed(pub(super) Dispatcher, pub(super) Placement, pub(super) Gang);

impl HostScheduler for Placed {
    forward! { 0: know_vms know_cgroups block tick timer directs_yields yield_pcpu flush_ipi co_stopped throttled turns apply }

    fn add(&mut self, host: &mut Host, task: TaskId) {
        if task.0 == 0 {
            let vms = 0..self.0.plans.len();
            let wanted = |vm| VmPlan {
                gang: self.2,
                ..VmPlan::placed(VmId::from(vm), self.1)
            };
            let plan = Plan {
                vms: vms.map(wanted).collect(),
                ..Plan::default()
            };
            self.0.apply(host, &plan);
        }
        self.0.add(host, task);
    }
    fn wake(&mut self, host: &mut Host, task: TaskId, waker: Option<corun_model::PcpuId>) {
        self.0.wake(host, task, waker);
        self.check(host);
    }
    fn pick(&mut self, host: &mut Host, cpu: corun_model::PcpuId) -> Option<TaskId> {
        let next = self.0.pick(host, cpu);
        self.check(host);
        next
    }
}

impl Placed {
    /// Checks that the dispatcher's counts match what is there.
    fn check(&self, host: &Host) {
        let throttled = |task: TaskId| {
            let known = &self.0.native.peek(task.0 as usize).ctx;
            known.state == corun_dispatcher::TASK_THROTTLED && known.released == 0
        };
        let wants = |(task, t): &(TaskId, &crate::host::Task)| {
            t.state != crate::host::TaskState::Waiting && !throttled(*task)
        };
        let wanting = host.tasks().filter(wants);
        let counted: u64 = (0..host.pcpus())
            .map(|cpu| self.0.native.cpu(cpu as u32).nr)
            .sum();
        assert_eq!(
            counted,
            wanting.count() as u64,
            "tasks occupying pCPUs at {}",
            host.now()
        );
        for (vm, _) in self.0.plans.iter().enumerate() {
            let here = &self.0.native.vm((vm + 1) % corun_dispatcher::MAX_VMS).here;
            let counted: u32 = here.iter().sum();
            let ready = host
                .tasks()
                .filter(|(task, t)| t.vm() == Some(VmId::from(vm)) && wants(&(*task, t)));
            assert_eq!(
                counted as usize,
                ready.count(),
                "vCPUs of vm{vm} at {}",
                host.now()
            );
        }
    }
}

#[test]
fn pools_have_their_pcpus_and_slices() {
    crate::testing::shared::pools_have_their_pcpus_and_slices("dispatcher", |params| {
        Dispatcher::new(DispatcherParams::default(), params)
    });
}

/// A VM's vCPU and its helper share the pool's only pCPU; another task has a pCPU to itself.
#[test]
fn a_thread_that_serves_a_vm_is_in_its_pool() {
    use crate::testing::{Job, Jobs, run_shares, shared};
    let jobs = vec![Job::hog().vcpu(0, 0), Job::hog().helper_of(0), Job::hog()];
    let jobs = Jobs::new(jobs, 1);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params(3));
    let outcome = Simulation::new(params(3), Box::new(dispatcher), Box::new(jobs), None)
        .with_policy(shared::in_pools(&[0]))
        .run(SEC, 3 * SEC, |_| {});
    let shares = run_shares(&outcome);
    for (share, wanted) in shares.iter().zip([0.5, 0.5, 1.0]) {
        assert!((share - wanted).abs() < 0.03, "{shares:?}");
    }
}

/// Three vCPUs take turns on the two pCPUs of their pool, though pCPU 0, another pool's, is more crowded.
#[test]
fn a_crowded_pool_does_not_keep_others_from_balancing() {
    use crate::testing::{Job, Jobs, run_shares, shared};
    let jobs = (0..7).map(|n| Job::hog().vcpu(u32::from(n > 2), n));
    let jobs = Jobs::new(jobs.collect(), 1);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params(3));
    let outcome = Simulation::new(params(3), Box::new(dispatcher), Box::new(jobs), None)
        .with_policy(shared::in_pools(&[1, 1, 1, 0, 0, 0, 0]))
        .run(2 * SEC, 22 * SEC, |_| {});
    let shares = run_shares(&outcome);
    for share in &shares[..3] {
        assert!((share - 2.0 / 3.0).abs() < 0.07, "{shares:?}");
    }
}

#[test]
fn balance_never_stacks_and_free_does() {
    let hogs = || {
        (0..12)
            .map(|n| Pattern::hog(Some((n / 4, n % 4))))
            .collect::<Vec<_>>()
    };
    let balanced = run(
        4,
        Patterns::new(hogs(), &[None; 3], 1),
        Placement::Balance,
        5 * SEC,
    );
    assert_eq!(balanced.stacking[2..].iter().sum::<f64>(), 0.0);
    let free = run(
        4,
        Patterns::new(hogs(), &[None; 3], 1),
        Placement::Free,
        5 * SEC,
    );
    assert!(
        free.stacking[2..].iter().sum::<f64>() > 0.1,
        "{:?}",
        free.stacking
    );
    for outcome in [balanced, free] {
        let shares: Vec<f64> = outcome.tasks.iter().map(|t| t.2.run as f64 / 5e9).collect();
        assert!(
            shares.iter().all(|share| (share - 1.0 / 3.0).abs() < 0.03),
            "{shares:?}"
        );
    }
}

#[test]
fn more_siblings_than_pcpus_still_run() {
    let hogs = (0..6).map(|n| Pattern::hog(Some((0, n)))).collect();
    let outcome = run(
        4,
        Patterns::new(hogs, &[None], 1),
        Placement::Balance,
        3 * SEC,
    );
    let least = outcome.tasks.iter().map(|t| t.2.run).min().unwrap();
    // Six equal tasks in lockstep are the worst case: a task that is pulled shares a pCPU again.
    assert!(
        least > 3 * SEC * 4 / 6 * 7 / 10,
        "fair share is 2 s, the least got {least} ns"
    );
}

#[test]
fn weights_share_one_pcpu() {
    let weighted = |weight| Pattern {
        weight,
        ..Pattern::hog(None)
    };
    let hogs = vec![weighted(100), weighted(200), weighted(1000)];
    let outcome = run(1, Patterns::new(hogs, &[], 1), Placement::Free, 10 * SEC);
    let shares: Vec<f64> = outcome
        .tasks
        .iter()
        .map(|t| t.2.run as f64 / 10e9)
        .collect();
    for (share, fair) in shares.iter().zip([1.0 / 13.0, 2.0 / 13.0, 10.0 / 13.0]) {
        assert!((share / fair - 1.0).abs() < 0.05, "{shares:?}");
    }
}

#[test]
fn a_vms_weight_is_shared_by_its_vcpus() {
    // One pCPU: a VM of three vCPUs against one of a single vCPU, equal weights: half each.
    let mut hogs: Vec<_> = (0..3).map(|n| Pattern::hog(Some((0, n)))).collect();
    hogs.push(Pattern::hog(Some((1, 0))));
    let load = Patterns::new(hogs, &[Some(100), Some(100)], 1);
    let outcome = run(1, load, Placement::Free, 10 * SEC);
    let single = outcome.tasks[3].2.run as f64 / 10e9;
    assert!((single - 0.5).abs() < 0.03, "{single}");
}

#[test]
fn weights_hold_across_pcpus() {
    // Two pCPUs, two VMs of two vCPUs: both heavy vCPUs on one pCPU would make the ratio one to
    // one.
    for placement in [Placement::Free, Placement::Balance] {
        for seed in 0..10 {
            let hogs = (0..4).map(|n| Pattern::hog(Some((n / 2, n % 2)))).collect();
            let load = Patterns::new(hogs, &[Some(100), Some(300)], seed);
            let outcome = run(2, load, placement, 20 * SEC);
            let of = |vm: usize| {
                outcome.vms[vm]
                    .vcpus
                    .iter()
                    .map(|vcpu| vcpu.run)
                    .sum::<u64>()
            };
            let ratio = of(1) as f64 / of(0) as f64;
            assert!(
                (ratio - 3.0).abs() < 0.2,
                "{placement}, seed {seed}: {ratio}"
            );
        }
    }
}

/// Relaxed co-scheduling, then balance, then relaxed again.
struct ThereAndBack;

impl Policy for ThereAndBack {
    fn period(&self) -> Nanos {
        100 * MS
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        let relaxed = !(2 * SEC..6 * SEC).contains(&seen.now);
        let gang = match relaxed {
            true => Gang::Relaxed(Skew::default()),
            false => Gang::None,
        };
        let vms = seen.vms.iter().map(|vm| VmPlan {
            gang,
            ..VmPlan::placed(vm.vm, Placement::Balance)
        });
        plan.vms.extend(vms);
    }
}

/// While policies without gangs are in force, siblings drift apart; a gang policy that comes back
/// must not make them wait because of that.
#[test]
fn what_happened_under_another_policy_is_not_caught_up_with() {
    let on = |cpu, vcpu| Pattern {
        allowed: [corun_model::PcpuId(cpu)].into_iter().collect(),
        ..Pattern::hog(vcpu)
    };
    let mut tasks = vec![on(0, Some((0, 0))), on(1, Some((0, 1)))];
    tasks.extend((0..3).map(|_| on(0, None)));
    let load = Patterns::new(tasks, &[None], 1);
    let params = params(2);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let outcome = Simulation::new(params, Box::new(dispatcher), Box::new(load), None)
        .with_policy(Box::new(ThereAndBack))
        .run(6500 * MS, 8500 * MS, |_| {});
    // One vCPU has a quarter of a pCPU, and so has its sibling, which is held back to that.
    let run: Vec<u64> = outcome.tasks[..2]
        .iter()
        .map(|task| task.2.run / MS)
        .collect();
    assert!(
        run.iter().all(|run| (450..600).contains(run)),
        "{run:?} ms of 2000"
    );
}

#[test]
fn extreme_weights_do_not_starve() {
    let light = Pattern {
        weight: 1,
        ..Pattern::hog(None)
    };
    let heavy = Pattern {
        weight: 10_000,
        ..Pattern::hog(None)
    };
    let load = Patterns::new(vec![light, heavy.clone(), heavy], &[], 1);
    let outcome = run(1, load, Placement::Free, 20 * SEC);
    assert!(
        outcome.tasks[0].2.switches >= 10,
        "one slice a second at least: {:?}",
        outcome.tasks[0]
    );
}

#[test]
fn five_tasks_on_four_pcpus_take_turns() {
    let hogs = (0..5).map(|_| Pattern::hog(None)).collect();
    let outcome = run(4, Patterns::new(hogs, &[], 1), Placement::Free, 20 * SEC);
    let shares: Vec<f64> = outcome
        .tasks
        .iter()
        .map(|t| t.2.run as f64 / 20e9)
        .collect();
    assert!(
        shares.iter().all(|share| (share - 0.8).abs() < 0.05),
        "{shares:?}"
    );
}

pub(super) fn pattern(vms: u32) -> impl Strategy<Value = Pattern> {
    let timing = (10_000u64..20 * MS, prop_oneof![Just(0), 10_000u64..50 * MS]);
    (timing, 0..=vms, 1u32..=10_000, 0u64..u64::MAX).prop_map(
        move |((run, sleep), vm, weight, bits)| {
            // A third of the tasks is bound to some of the pCPUs.
            let some: PcpuSet = (0..64)
                .filter(|n| bits >> n & 1 == 1)
                .map(corun_model::PcpuId)
                .collect();
            let allowed = if bits % 3 == 0 {
                some
            } else {
                PcpuSet::first(512)
            };
            let weight = if bits % 5 == 0 { weight } else { 100 };
            Pattern {
                vcpu: (vm < vms).then_some((vm, 0)),
                run,
                sleep,
                weight,
                allowed,
            }
        },
    )
}

/// Numbers the vCPUs of each VM; returns how many there are.
pub(super) fn number(tasks: &mut [Pattern]) -> [u32; 3] {
    let mut next = [0; 3];
    for task in tasks {
        if let Some((vm, n)) = &mut task.vcpu {
            *n = next[*vm as usize];
            next[*vm as usize] += 1;
        }
    }
    next
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Random tasks on random hosts: counters true at every step (`Placed::check`), no task
    /// starves, no pCPU idles while a task waits that may run there, and all counters return to
    /// zero.
    #[test]
    fn what_must_always_hold(
        pcpus in 1u32..9,
        mut tasks in prop::collection::vec(pattern(3), 1..24),
        placement in prop_oneof![Just(Placement::Free), Just(Placement::Balance)],
        weight in prop_oneof![Just(None), (1u32..=10_000).prop_map(Some)],
        seed in any::<u64>(),
    ) {
        let next = number(&mut tasks);
        let fits = next.iter().all(|&vcpus| vcpus <= pcpus);
        let free_to_move = tasks.iter().all(|task| task.allowed == PcpuSet::first(512));
        let count = tasks.len() as u64;
        let load = Patterns::new(tasks, &[weight; 3], seed).quiet_from(3 * SEC);
        let outcome = run(pcpus, load, placement, 6 * SEC);
        for (name, _, totals) in &outcome.tasks {
            prop_assert!(totals.run > 0, "{name} never ran");
        }
        for vm in &outcome.vms {
            let bound = SEC + 200 * MS * count;
            prop_assert!(vm.ready_waits.max() < bound, "ready for {} ns", vm.ready_waits.max());
        }
        if placement == Placement::Balance && fits && free_to_move {
            prop_assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
        }
    }
}

#[test]
fn a_vm_that_sleeps_much_gets_its_pcpu_soon() {
    // Found by replaying a recorded host: tasks that moved between pCPUs pushed the clock, and a
    // task that woke after that waited behind those that had not moved.
    let hogs = (0..6).map(|n| Pattern::hog(Some((n / 3, n % 3))));
    let short = |n| Pattern {
        run: 65_000,
        sleep: MS,
        ..Pattern::hog(Some((2, n)))
    };
    let tasks = hogs.chain((0..4).map(short)).collect();
    let load = Patterns::new(tasks, &[None; 3], 1);
    let outcome = run(4, load, Placement::Balance, 5 * SEC);
    let waits = &outcome.vms[2].ready_waits;
    assert!(
        waits.quantile(0.99) <= 4 * MS,
        "{} ns",
        waits.quantile(0.99)
    );
}
