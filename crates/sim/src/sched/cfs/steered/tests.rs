// SPDX-License-Identifier: GPL-2.0-only
//! CFS with claims of its vCPUs by hand, and under Jupiter.

use super::SteeredCfs;
use crate::host::{Host, HostParams};
use crate::load::Load;
use crate::sched::HostScheduler;
use crate::sched::cfs::{Cfs, CfsParams, Siblings};
use crate::sched::fair::scaled;
use crate::testing::{Audited, Does, Job, Jobs, Runs, Witness, host};
use crate::{Outcome, Simulation};
use corun_model::time::{MS, SEC, US};
use corun_model::{
    Allotments, Claim, Gang, Nanos, PcpuId, Placement, Plan, Snapshot, TaskId, TaskPlan, VmId,
    VmPlan,
};
use corun_policies::jupiter::{Jupiter, JupiterParams};
use corun_policies::{Policy, Settings, find};
use proptest::prelude::*;

const PERIOD: Nanos = 100 * MS;

type Switches = Vec<(Nanos, PcpuId, TaskId)>;

fn params(host: &HostParams) -> CfsParams {
    CfsParams {
        // As on a host of eight pCPUs or more.
        latency: 24 * MS,
        min_granularity: 3 * MS,
        wakeup_granularity: 4 * MS,
        ..CfsParams::preset("4.x", host.topology.pcpus()).unwrap()
    }
}

/// A policy whose plans are a function of time.
struct Says<F>(F);

impl<F: Fn(Nanos) -> Plan + Send> Policy for Says<F> {
    fn period(&self) -> Nanos {
        PERIOD
    }
    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        *plan = self.0(seen.now);
    }
}

fn asymmetric(vm: u32, has: u32) -> VmPlan {
    VmPlan {
        gang: Gang::Asymmetric(Allotments {
            period: PERIOD,
            neutral: 4 * MS,
            has,
        }),
        ..VmPlan::placed(VmId(vm), Placement::Balance)
    }
}

fn claim(task: u32, share: u32, latency: Nanos, allotment: Nanos) -> TaskPlan {
    TaskPlan {
        claim: Some(Claim {
            share,
            latency,
            allotment,
        }),
        ..TaskPlan::of(TaskId(task))
    }
}

fn simulate(
    host: &HostParams,
    sched: impl HostScheduler + 'static,
    policy: Option<Box<dyn Policy>>,
    load: Jobs,
    end: Nanos,
) -> (Outcome, Switches) {
    let runs = Runs::default();
    let witness = Box::new(Witness(runs.clone()));
    let sched = Box::new(Audited::new(sched, Nanos::MAX));
    let mut simulation = Simulation::new(host.clone(), sched, Box::new(load), Some(witness));
    if let Some(policy) = policy {
        simulation = simulation.with_policy(policy);
    }
    let outcome = simulation.run(0, end, |_| {});
    let runs = runs.borrow().clone();
    (outcome, runs)
}

/// The outcome of `load` under these plans.
fn under(
    topology: &str,
    load: Jobs,
    end: Nanos,
    plan: impl Fn(Nanos) -> Plan + Send + 'static,
) -> (Outcome, Switches) {
    let host = host(topology, 250);
    let sched = SteeredCfs::new(params(&host), &host);
    simulate(&host, sched, Some(Box::new(Says(plan))), load, end)
}

fn run_ms(outcome: &Outcome) -> Vec<Nanos> {
    outcome.tasks.iter().map(|task| task.2.run / MS).collect()
}

/// Two VMs of two hogs, one of each VM on a pCPU.
fn two_by_two() -> Jobs {
    let hogs = (0..4).map(|n| Job::hog().vcpu(n / 2, n % 2).on(["0", "1"][n as usize % 2]));
    Jobs::new(hogs.collect(), 1).with_vm_weights(&[100, 100])
}

/// On their pCPUs the other VM's hogs weigh a half each; the first VM's weigh one and a half times and half of a half:
/// 3:2 and 1:2, whatever the VM's shares add up to.
#[test]
fn shares_divide_a_groups_weight() {
    for whole in [Claim::NEUTRAL, 3 * Claim::NEUTRAL] {
        let (outcome, _) = under("1n1l2c1t", two_by_two(), 10 * SEC, move |_| Plan {
            vms: vec![asymmetric(0, Claim::NEUTRAL)],
            tasks: vec![
                claim(0, whole / 2 * 3, 0, PERIOD),
                claim(1, whole / 2, 0, PERIOD),
            ],
            ..Plan::default()
        });
        let run = run_ms(&outcome);
        let due = [6_000u64, 3_333, 4_000, 6_667];
        let near = |(run, due): (&u64, u64)| run.abs_diff(due) < 150;
        assert!(run.iter().zip(due).all(near), "{run:?}");
    }
}

/// The part that a VM has of its weight counts against others, and the VM regains its share when it
/// has all of its weight again.
#[test]
fn a_loan_gives_the_borrower_time_and_comes_back() {
    let half = Claim::NEUTRAL / 2;
    let plan = move |has: [u32; 2]| Plan {
        vms: vec![asymmetric(0, has[0]), asymmetric(1, has[1])],
        tasks: (0..4)
            .map(|task| claim(task, has[task as usize / 2], 0, PERIOD))
            .collect(),
        ..Plan::default()
    };
    let lent = move |now| match now < 5 * SEC {
        true => plan([half, 3 * half]),
        false => plan([2 * half; 2]),
    };
    let at = |end| run_ms(&under("1n1l2c1t", two_by_two(), end, lent).0);
    let (during, after) = (at(5 * SEC), at(10 * SEC));
    let of = |run: &[Nanos]| [run[0] + run[1], run[2] + run[3]];
    let lent = of(&during);
    let back = [0, 1].map(|vm| of(&after)[vm] - lent[vm]);
    assert!(lent[0].abs_diff(2_500) < 150, "{lent:?}");
    assert!(back[0].abs_diff(5_000) < 150, "{back:?}");
    assert_eq!(of(&after).iter().sum::<Nanos>(), 20_000);
}

/// A vCPU that computes for 1 ms and sleeps for 9, with a 16th of its VM's weight, shares a pCPU
/// with a hog: how long it waits at most when it wakes, and in all of a second.
fn waits(latency: Nanos, allotment: Nanos) -> (Nanos, Nanos) {
    let wakes = Does::Cycles {
        work: MS,
        sleep: 9 * MS + 300 * US,
        spread: 0,
    };
    let jobs = vec![
        Job::new(wakes).vcpu(0, 0).weight(6),
        Job::hog().vcpu(1, 0).weight(6),
    ];
    let (outcome, _) = under("1n1l1c1t", Jobs::new(jobs, 1), SEC, move |_| Plan {
        vms: vec![asymmetric(0, Claim::NEUTRAL)],
        tasks: vec![claim(0, Claim::NEUTRAL, latency, allotment)],
        ..Plan::default()
    });
    (outcome.vms[0].ready_waits.max(), outcome.tasks[0].2.ready)
}

#[test]
fn a_vcpu_with_a_short_latency_preempts_until_its_slice_is_used_up() {
    let (default, _) = waits(0, PERIOD);
    assert!(default > 2 * MS, "{default}");
    // A new vCPU begins a slice behind, so that the first time the bound applies.
    let (short, sum) = waits(MS / 2, PERIOD);
    assert!(short <= 501 * US && sum <= MS, "{short}, {sum}");
    // Too little to preempt at once: then the bound applies.
    let (bounded, _) = waits(2 * MS, PERIOD);
    assert!((MS..=2 * MS + 10 * US).contains(&bounded), "{bounded}");
    // The first two of the nine times in a period are as above, the others as by default.
    let (used_up, sum) = waits(MS / 2, 2 * MS);
    assert!(used_up > 2 * MS, "{used_up}");
    assert!(sum < waits(0, PERIOD).1, "{sum}");
    assert_eq!(waits(MS / 2, 0), waits(0, PERIOD));
}

/// Two vCPUs of different VMs are swapped; a sibling of the first one is there, too.
#[test]
fn swaps_move_both_and_keep_siblings_apart() {
    let jobs = vec![
        Job::hog().vcpu(0, 0),
        Job::hog().vcpu(1, 0),
        Job::hog().vcpu(0, 1),
    ];
    let of = |runs: &Switches, task: u32, from: Nanos| -> Vec<PcpuId> {
        let its = runs
            .iter()
            .filter(|run| run.2 == TaskId(task) && run.0 >= from);
        let mut pcpus: Vec<PcpuId> = its.map(|run| run.1).collect();
        pcpus.dedup();
        pcpus
    };
    let free = |_| Plan::default();
    let load = || Jobs::new(jobs.clone(), 1).with_vm_weights(&[100, 100]);
    let (_, before) = under("1n1l3c1t", load(), 50 * MS, free);
    let at = [0, 1].map(|task| of(&before, task, 0)[0]);
    assert_ne!(at[0], at[1]);
    let home = |task: u32, home| TaskPlan {
        home: Some(home),
        ..claim(task, Claim::NEUTRAL, 0, PERIOD)
    };
    let plan = move |now| Plan {
        vms: vec![asymmetric(0, Claim::NEUTRAL), asymmetric(1, Claim::NEUTRAL)],
        tasks: match now >= PERIOD {
            true => vec![home(0, at[1]), home(1, at[0])],
            false => Vec::new(),
        },
        ..Plan::default()
    };
    let (outcome, after) = under("1n1l3c1t", load(), 2 * SEC, plan);
    assert_eq!(of(&after, 0, PERIOD), [at[1]]);
    assert_eq!(of(&after, 1, PERIOD), [at[0]]);
    assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
    // It does not go where a sibling is.
    let sibling = of(&before, 2, 0)[0];
    let plan = move |_| Plan {
        vms: vec![asymmetric(0, Claim::NEUTRAL)],
        tasks: vec![home(0, sibling)],
        ..Plan::default()
    };
    let (outcome, _) = under("1n1l3c1t", load(), 2 * SEC, plan);
    assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
    assert_eq!(outcome.tasks[0].2.migrations, 0);
}

/// Four VMs of four vCPUs on four pCPUs that wake and sleep.
fn busy(seed: u64) -> Jobs {
    let job = |n: u32| {
        let does = match n % 8 {
            0 => Does::Hog { from: 0 },
            n => Does::Cycles {
                work: MS * u64::from(n),
                sleep: 2 * MS,
                spread: 70,
            },
        };
        Job::new(does).vcpu(n / 4, n % 4)
    };
    Jobs::new((0..16).map(job).collect(), seed).with_vm_weights(&[100; 4])
}

fn balance(load: Jobs, end: Nanos) -> Switches {
    let host = host("1n2l2c1t", 250);
    let apart = CfsParams {
        siblings: Siblings::Apart,
        ..params(&host)
    };
    simulate(&host, Cfs::new(apart, &host), None, load, end).1
}

fn jupiter(settings: JupiterParams, load: Jobs, end: Nanos) -> (Outcome, Switches) {
    let host = host("1n2l2c1t", 250);
    let policy = Box::new(Jupiter::new(settings));
    let sched = SteeredCfs::new(params(&host), &host);
    simulate(&host, sched, Some(policy), load, end)
}

#[test]
fn without_its_parts_jupiter_is_balance_scheduling() {
    let none = JupiterParams {
        dats: false,
        dasl: false,
        rcr: false,
        elb: false,
        ..JupiterParams::default()
    };
    for seed in 1..4 {
        assert_eq!(
            jupiter(none, busy(seed), 2 * SEC).1,
            balance(busy(seed), 2 * SEC)
        );
    }
    let all = JupiterParams::default();
    assert!(jupiter(all, busy(1), 2 * SEC).1 != balance(busy(1), 2 * SEC));
}

/// A VM that is left alone weighs what it did, has no promises and no home: nothing is left of claims that were void
/// before any vCPU ran.
#[test]
fn a_vm_left_alone_is_scheduled_as_by_balance_scheduling() {
    let plan = |now| match now {
        0 => Plan {
            vms: (0..4)
                .map(|vm| asymmetric(vm, 2 * Claim::NEUTRAL))
                .collect(),
            tasks: (0..16)
                .map(|task| TaskPlan {
                    home: Some(PcpuId(task % 4)),
                    ..claim(task, Claim::NEUTRAL / 2 * (task + 1), MS / 2, PERIOD)
                })
                .collect(),
            ..Plan::default()
        },
        _ => Plan {
            vms: (0..4)
                .map(|vm| VmPlan::placed(VmId(vm), Placement::Balance))
                .collect(),
            ..Plan::default()
        },
    };
    // They begin when the claims are void.
    let late = |seed| {
        let job = |n: u32| {
            Job::new(Does::Hog {
                from: PERIOD + MS * u64::from(n),
            })
        };
        let hogs = (0..8).map(|n| job(n).vcpu(n / 4, n % 4));
        Jobs::new(hogs.collect(), seed).with_vm_weights(&[100; 2])
    };
    let host = host("1n2l2c1t", 250);
    let sched = SteeredCfs::new(params(&host), &host);
    let (_, steered) = simulate(&host, sched, Some(Box::new(Says(plan))), late(1), 2 * SEC);
    assert_eq!(steered, balance(late(1), 2 * SEC));
    let told = |_| Plan {
        vms: (0..4)
            .map(|vm| VmPlan::placed(VmId(vm), Placement::Balance))
            .collect(),
        ..Plan::default()
    };
    let sched = SteeredCfs::new(params(&host), &host);
    let (_, alone) = simulate(&host, sched, Some(Box::new(Says(told))), busy(2), 2 * SEC);
    assert_eq!(alone, balance(busy(2), 2 * SEC));
}

#[test]
fn two_runs_are_the_same() {
    let run = || jupiter(JupiterParams::default(), busy(3), 3 * SEC).1;
    assert_eq!(run(), run());
}

/// A scheduler whose vCPUs, of the VMs of `load`, are ready in the order of their numbers.
fn ready(topology: &str, load: &Jobs) -> (Host, SteeredCfs) {
    let params_of = host(topology, 250);
    let mut sched = SteeredCfs::new(params(&params_of), &params_of);
    sched.know_vms(&load.vms());
    let mut host = Host::new(params_of, None);
    let tasks: Vec<TaskId> = load
        .tasks()
        .into_iter()
        .map(|spec| host.add_task(spec))
        .collect();
    for &task in &tasks {
        sched.add(&mut host, task);
    }
    for task in tasks {
        host.make_ready(task);
        let by = host.task(TaskId(0)).running_on();
        sched.wake(&mut host, task, by);
        let cpu = host.task(task).runqueue().unwrap();
        let next = sched.pick(&mut host, cpu).unwrap();
        host.put_on(next, cpu);
    }
    (host, sched)
}

#[test]
fn the_weights_of_a_vm_add_up_to_its_own() {
    let jobs = (0..4).map(|n| Job::hog().vcpu(0, n)).collect();
    let load = Jobs::new(jobs, 1).with_vm_weights(&[100]);
    let (mut host, mut sched) = ready("1n1l4c1t", &load);
    let whole = scaled(100);
    for quarters in [[8, 5, 2, 1], [1, 1, 1, 13], [4, 4, 4, 4]] {
        let share = |n: usize| Claim::NEUTRAL / 4 * quarters[n];
        let plan = Plan {
            vms: vec![asymmetric(0, Claim::NEUTRAL)],
            tasks: (0..4)
                .map(|n| claim(n, share(n as usize), 0, PERIOD))
                .collect(),
            ..Plan::default()
        };
        sched.apply(&mut host, &plan);
        let weights = [0, 1, 2, 3].map(|n| sched.fair.weight_of(TaskId(n)));
        let due = quarters.map(|n| whole * u64::from(n) / 16);
        let near = |(is, due): (u64, u64)| is.abs_diff(due) <= 4;
        assert!(
            weights.into_iter().zip(due).all(near),
            "{weights:?}, {due:?}"
        );
    }
}

/// A sibling's wake-up is reported for as long as it counts as recent.
#[test]
fn wakers_are_siblings() {
    let jobs = (0..2).map(|n| Job::hog().vcpu(0, n)).collect();
    let (host, sched) = ready("1n1l2c1t", &Jobs::new(jobs, 1));
    let (waker, woken) = (TaskId(0), TaskId(1));
    let turns = sched.turns(&host, woken, 0);
    assert_eq!((turns.wakers, turns.wakeups), (vec![waker], 1));
    assert_eq!(sched.turns(&host, waker, 0).wakers, []);
    assert_eq!(sched.turns(&host, woken, 1).wakers, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Three VMs under Jupiter, of hogs and of those that sleep: no vCPU that wants to run starves for half a second,
    /// siblings stay apart, and no VM of hogs has less than nine tenths of its share.
    #[test]
    fn nobody_starves(
        sleepers in prop::collection::vec((100_000u64..20 * MS, 100_000u64..40 * MS), 4..9),
        seed in any::<u64>(),
    ) {
        let hog = |n: u32| Job::hog().vcpu(0, n);
        let sleeper = |(n, &(work, sleep)): (usize, &(Nanos, Nanos))| {
            Job::new(Does::Cycles { work, sleep, spread: 50 }).vcpu(1 + n as u32 / 4, n as u32 % 4)
        };
        let jobs = (0..4).map(hog).chain(sleepers.iter().enumerate().map(sleeper));
        let vms = 1 + sleepers.len().div_ceil(4);
        let load = Jobs::new(jobs.collect(), seed).with_vm_weights(&vec![100; vms]);
        let (outcome, _) = jupiter(JupiterParams::default(), load, 3 * SEC);
        for vm in &outcome.vms {
            prop_assert!(vm.ready_waits.max() < 500 * MS, "{} waited", vm.ready_waits.max());
        }
        let run: Nanos = outcome.tasks[..4].iter().map(|task| task.2.run).sum();
        prop_assert!(run >= 4 * outcome.measured / vms as u64 * 9 / 10, "{run} of {vms}");
        prop_assert_eq!(outcome.stacking[2..].iter().sum::<f64>(), 0.0);
    }
}

/// The policy's own settings make the same policy as its name.
#[test]
fn by_name_it_is_the_same() {
    let host = host("1n2l2c1t", 250);
    let policy = (find("jupiter").unwrap().make)(&Settings::default());
    let sched = SteeredCfs::new(params(&host), &host);
    let named = simulate(&host, sched, Some(policy), busy(1), SEC).1;
    assert_eq!(named, jupiter(JupiterParams::default(), busy(1), SEC).1);
}
