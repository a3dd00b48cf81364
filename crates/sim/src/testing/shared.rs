// SPDX-License-Identifier: GPL-2.0-only
//! What every host scheduler has to pass: the same loads, by hand and at random.

use super::{Audited, Does, Job, Jobs, Runs, Witness, host, run, run_shares};
use crate::Simulation;
use crate::host::HostParams;
use crate::sched::HostScheduler;
use corun_model::time::{MS, SEC, US};
use corun_model::{
    Nanos, PcpuId, PcpuSet, Placement, Plan, Pool, Snapshot, TaskId, TaskPlan, VmId, VmPlan,
};
use corun_policies::Policy;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Three hogs of weights 1, 2 and 10 get a pCPU by their weights, give or take `tolerance` of that.
pub(crate) fn shares_follow_weights<S: HostScheduler + 'static>(
    name: &str,
    tolerance: f64,
    make: impl Fn(&HostParams) -> S,
) {
    let params = host("1n1l1c1t", 1000);
    let hogs = [100, 200, 1000].map(|weight| Job::hog().weight(weight));
    let jobs = Jobs::new(hogs.to_vec(), 1);
    let (outcome, _) = run(&params, make(&params), jobs, SEC, 61 * SEC);
    for (share, weight) in run_shares(&outcome).into_iter().zip([1.0, 2.0, 10.0]) {
        let fair: f64 = weight / 13.0;
        let off = (share - fair).abs();
        assert!(
            off < tolerance * fair.max(0.1),
            "{name}: {share} for {fair}"
        );
    }
}

/// As many hogs as pCPUs get one each; twice as many, two per pCPU. Between nodes, shares may be
/// off by `across_nodes`.
pub(crate) fn hogs_spread_evenly<S: HostScheduler + 'static>(
    name: &str,
    hz: u32,
    across_nodes: f64,
    make: impl Fn(&HostParams) -> S,
) {
    for topology in ["1n1l4c1t", "1n2l2c1t", "1n1l2c2t", "2n2l2c2t"] {
        let params = host(topology, hz);
        let bound = match topology.starts_with("2n") {
            true => across_nodes,
            false => 0.02,
        };
        for per_pcpu in [1u32, 2] {
            let hogs = (0..params.topology.pcpus() * per_pcpu).map(|_| Job::hog());
            let jobs = Jobs::new(hogs.collect(), 1);
            let (outcome, _) = run(&params, make(&params), jobs, 3 * SEC, 13 * SEC);
            let fair = 1.0 / f64::from(per_pcpu);
            for share in run_shares(&outcome) {
                let even = share > fair * (1.0 - bound);
                assert!(even, "{name} {topology}: {share}, not {fair}");
            }
            assert!(outcome.idle_share < 0.001, "{name} {topology}");
        }
    }
}

/// Two pinned hogs on one pCPU, one on the other: affinity is obeyed though unfair.
pub(crate) fn affinity_wins_over_balance<S: HostScheduler + 'static>(
    name: &str,
    make: impl Fn(&HostParams) -> S,
) {
    let params = host("1n1l2c1t", 1000);
    let hogs = ["0", "0", "1"].map(|mask| Job::hog().on(mask));
    let jobs = Jobs::new(hogs.to_vec(), 1);
    let (outcome, _) = run(&params, make(&params), jobs, SEC, 5 * SEC);
    let shares = run_shares(&outcome);
    let obeyed = (shares[0] - 0.5).abs() < 0.02 && shares[2] > 0.99;
    assert!(obeyed, "{name}: {shares:?}");
}

/// A host and what it has to carry.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    jobs: Vec<Job>,
    topology: &'static str,
    hz: u32,
    /// Do the VMs have weights of their own?
    grouped: bool,
    seed: u64,
}

impl Scene {
    /// Its host and its load.
    pub(crate) fn parts(&self) -> (HostParams, Jobs) {
        let jobs = Jobs::new(self.jobs.clone(), self.seed);
        let jobs = match self.grouped {
            true => jobs.with_vm_weights(&[100, 300]),
            false => jobs,
        };
        (host(self.topology, self.hz), jobs)
    }

    /// The VMs that its tasks belong to.
    pub(crate) fn vms(&self) -> usize {
        let vm = |job: &Job| job.vcpu.map_or(0, |(vm, _)| vm as usize + 1);
        self.jobs.iter().map(vm).max().unwrap_or(0)
    }

    /// May every task use every pCPU?
    pub(crate) fn is_free(&self) -> bool {
        let host = host(self.topology, self.hz).topology.pcpus();
        let all = PcpuSet::first(host);
        let free = |job: &Job| [0, host].contains(&job.allowed.and(&all).len());
        self.jobs.iter().all(free)
    }

    /// Do all tasks count the same?
    pub(crate) fn is_equal(&self) -> bool {
        !self.grouped
            && self
                .jobs
                .iter()
                .all(|job| job.weight == self.jobs[0].weight)
    }
}

/// How the tasks of a scene may be bound.
fn masks(kind: u32) -> BoxedStrategy<PcpuSet> {
    let set = |bits: u32| (0..8).filter(move |n| bits >> n & 1 == 1).map(PcpuId);
    match kind {
        0 => Just(PcpuSet::first(8)).boxed(),
        1 => prop::sample::select(vec![0xff, 0xff, 0x01, 0x06, 0x28])
            .prop_map(move |bits| set(bits).collect())
            .boxed(),
        _ => (1u32..256)
            .prop_map(move |bits| set(bits).collect())
            .boxed(),
    }
}

fn job(bound: u32, equal: bool) -> impl Strategy<Value = Job> {
    let cycles =
        (10u64..20_000, 10u64..40_000, 0u32..100).prop_map(|(work, sleep, spread)| Does::Cycles {
            work: work * US,
            sleep: sleep * US,
            spread,
        });
    let does = prop_oneof![
        1 => (0u64..100).prop_map(|from| Does::Hog { from: from * MS }),
        1 => (20u64..2000).prop_map(|each| Does::Spins { each: each * US }),
        4 => cycles,
    ];
    let slice = prop::option::weighted(0.2, 100 * US..3 * MS);
    (does, 1u32..1000, masks(bound), 0u32..3, slice).prop_map(
        move |(does, weight, allowed, vm, slice)| {
            let weight = if equal { 100 } else { weight };
            let mut job = Job::new(does).weight(weight);
            (job.allowed, job.slice) = (allowed, slice);
            match vm {
                0 => job,
                vm => job.vcpu(vm - 1, weight),
            }
        },
    )
}

/// Hosts of one to eight pCPUs with up to 23 tasks: none bound, some bound narrowly, or all bound
/// at random.
pub(crate) fn scenes() -> impl Strategy<Value = Scene> {
    let jobs = (0u32..3, any::<bool>())
        .prop_flat_map(|(bound, equal)| prop::collection::vec(job(bound, equal), 1..24));
    let topologies = ["1n1l1c1t", "1n1l2c1t", "1n2l2c1t", "1n1l4c2t", "2n1l2c2t"];
    let topology = prop::sample::select(topologies.to_vec());
    let hz = prop::sample::select(vec![100u32, 250, 1000]);
    (jobs, topology, hz, any::<bool>(), any::<u64>()).prop_map(
        |(jobs, topology, hz, grouped, seed)| Scene {
            jobs,
            topology,
            hz,
            grouped,
            seed,
        },
    )
}

/// No task is lost or run twice, affinity holds at every decision, every ready task gets to run,
/// and no pCPU idles for longer than `patience` while one waits that may use it.
pub(crate) fn is_served<S: HostScheduler + 'static>(
    scene: Scene,
    patience: Nanos,
    make: impl Fn(&HostParams) -> S,
) -> Result<(), TestCaseError> {
    let (params, jobs) = scene.parts();
    let audited = Audited::new(make(&params), patience);
    let weights: Vec<u32> = scene.jobs.iter().map(|job| job.weight).collect();
    let total: u32 = weights.iter().sum();
    let (outcome, _) = run(&params, audited, jobs, 0, 4 * SEC);
    // A light task among heavy ones, or a small part of a VM, may be due only after the run: the first of many that
    // come at once is put back by a whole latency of CFS (START_DEBIT), 80 ms of its own virtual time, that is, 80 ms *
    // total / weight of pCPU time.
    for ((name, _, totals), weight) in outcome.tasks.iter().zip(weights) {
        let due = weight >= 100 && weight * 20 >= total && !scene.grouped;
        let served = totals.run > 0 || totals.ready < 3 * SEC;
        prop_assert!(served || !due, "{name} starves: {totals:?}");
    }
    Ok(())
}

/// Two pools: hogs of the first take turns of 1 ms on pCPU 0, those of the second of 90 ms on the
/// other two. Tasks that enter a pool are spread over it, and slices are delivered.
pub(crate) fn pools_have_their_pcpus_and_slices<S: HostScheduler + 'static>(
    name: &str,
    make: impl Fn(&HostParams) -> S,
) {
    let members = [0, 1, 0, 1, 1, 1];
    let vcpu = |(at, pool): (usize, &usize)| Job::hog().vcpu(*pool as u32, at as u32);
    let jobs = Jobs::new(members.iter().enumerate().map(vcpu).collect(), 1);
    let params = host("1n1l3c1t", 1000);
    let sched = Box::new(make(&params));
    let outcome = Simulation::new(params, sched, Box::new(jobs), None)
        .with_policy(in_pools(&members))
        .run(SEC, 11 * SEC, |_| {});
    let shares = run_shares(&outcome);
    let even = shares.iter().all(|share| (share - 0.5).abs() < 0.03);
    assert!(even, "{name}: {shares:?}");
    for (vm, slice) in [(0, MS), (1, 90 * MS)] {
        let turns = &outcome.vms[vm].turns;
        // Equals take turns, of a slice each.
        let turn = |share| turns.quantile(share) as f64 / slice as f64;
        let (shorter, longer) = (turn(0.1), turn(0.9));
        assert!(
            shorter > 0.98 && longer < 1.02,
            "{name}, {slice}: {shorter} to {longer}"
        );
    }
}

/// Next to hogs that take turns of 30 ms, a vCPU with micro slices of 5 ms has its share in turns of that length,
/// spread evenly over theirs, which go on after each.
pub(crate) fn micro_slices_are_spread<S: HostScheduler + 'static>(
    name: &str,
    make: impl Fn(&HostParams) -> S,
) {
    for (micro, hogs) in [(1, 1), (1, 3), (2, 2)] {
        let tasks = micro + hogs;
        let jobs = Jobs::new((0..tasks).map(|vm| Job::hog().vcpu(vm, 0)).collect(), 1);
        let params = host("1n1l1c1t", 1000);
        let runs = Runs::default();
        let witness = Box::new(Witness(runs.clone()));
        let sched = Box::new(make(&params));
        let outcome = Simulation::new(params, sched, Box::new(jobs), Some(witness))
            .with_policy(in_micro_slices(micro, hogs))
            .run(SEC, 11 * SEC, |_| {});
        let shares = run_shares(&outcome);
        let fair = 1.0 / f64::from(tasks);
        let even = shares.iter().all(|share| (share - fair).abs() < 0.02);
        assert!(even, "{name}: {shares:?}");
        let runs = runs.take();
        let later = runs.partition_point(|run| run.0 < SEC);
        let of_first = |run: &&(Nanos, PcpuId, TaskId)| run.2 == TaskId(0);
        let begins: Vec<Nanos> = runs[later..]
            .iter()
            .filter(of_first)
            .map(|run| run.0)
            .collect();
        let mut apart: Vec<Nanos> = begins.windows(2).map(|pair| pair[1] - pair[0]).collect();
        apart.sort_unstable();
        let wanted = 5 * MS * Nanos::from(tasks);
        let (median, most) = (apart[apart.len() / 2], apart[apart.len() * 99 / 100]);
        assert!(
            median.abs_diff(wanted) < MS,
            "{name}: {median} ns for {wanted}"
        );
        assert!(most < wanted + 11 * MS, "{name}: {most} ns for {wanted}");
    }
}

/// The first tasks have micro slices of 5 ms, the others slices of 30 ms.
pub(crate) fn in_micro_slices(micro: u32, others: u32) -> Box<dyn Policy> {
    let task = |task: u32| TaskPlan {
        slice: Some(if task < micro { 5 * MS } else { 30 * MS }),
        micro: task < micro,
        ..TaskPlan::of(TaskId(task))
    };
    Box::new(Fixed(Plan {
        tasks: (0..micro + others).map(task).collect(),
        ..Plan::default()
    }))
}

/// Tasks in two pools: pCPU 0 with slices of 1 ms, pCPUs 1 and 2 with slices of 90 ms.
pub(crate) fn in_pools(members: &[usize]) -> Box<dyn Policy> {
    let task = |(task, pool): (usize, &usize)| TaskPlan {
        pool: Some(*pool),
        ..TaskPlan::of(TaskId::from(task))
    };
    let pool = |slice, pcpus: [u32; 2]| Pool {
        slice,
        pcpus: pcpus.map(PcpuId).into_iter().collect(),
    };
    Box::new(Fixed(Plan {
        vms: (0..2)
            .map(|vm| VmPlan::placed(VmId(vm), Placement::Pool))
            .collect(),
        tasks: members.iter().enumerate().map(task).collect(),
        pools: vec![pool(MS, [0, 0]), pool(90 * MS, [1, 2])],
        ..Plan::default()
    }))
}

/// A policy that always says the same.
pub(crate) struct Fixed(pub(crate) Plan);

impl Policy for Fixed {
    fn period(&self) -> Nanos {
        30 * MS
    }

    fn decide(&mut self, _: &Snapshot, plan: &mut Plan) {
        *plan = self.0.clone();
    }
}
