// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling in the dispatcher: the papers' examples by hand here, each mode's rules and what holds for any
//! VMs below.

mod demand;
mod relaxed;
mod sharing;
mod strict;

use super::Dispatcher;
use super::tests::Placed;
use crate::Outcome;
use crate::host::HostParams;
use crate::testing::{Does, Job, Jobs, host, run};
use corun_model::time::{MS, SEC, US};
use corun_model::{
    Allotments, Boost, Claim, DispatcherParams, Gang, Nanos, PcpuId, Placement, Skew, Slots, TaskId,
};

/// Every gang mode but none.
fn gangs() -> [Gang; 7] {
    let filled = Slots {
        fill: true,
        ..Slots::default()
    };
    [
        Gang::Dynamic,
        Gang::Strict(Slots::default()),
        Gang::Strict(filled),
        Gang::Demand(Boost::default()),
        Gang::Relaxed(Skew::default()),
        Gang::RelaxedAll(Skew::default()),
        Gang::Asymmetric(Allotments {
            has: Claim::NEUTRAL,
            period: 100 * MS,
            neutral: 4 * MS,
        }),
    ]
}

/// The dispatcher with balance placement and a gang mode.
fn placed(params: &HostParams, gang: Gang) -> Placed {
    placed_with_slice(params, gang, DispatcherParams::default().slice)
}

/// The same with slices of this length.
fn placed_with_slice(params: &HostParams, gang: Gang, slice: Nanos) -> Placed {
    let settings = DispatcherParams {
        slice,
        ..DispatcherParams::default()
    };
    let dispatcher = Dispatcher::new(settings, params);
    Placed(dispatcher, Placement::Balance, gang)
}

/// Which vCPU began to run where and when, on `pcpus` pCPUs where nothing costs time.
fn starts(
    pcpus: u32,
    jobs: Vec<Job>,
    gang: Gang,
    end: Nanos,
) -> (Outcome, Vec<(Nanos, PcpuId, TaskId)>) {
    let params = host(&format!("1n1l{pcpus}c1t"), 1000);
    run(&params, placed(&params, gang), Jobs::new(jobs, 1), 0, end)
}

/// When `task` first began to run, and each time after that.
fn of_task(runs: &[(Nanos, PcpuId, TaskId)], task: u32) -> Vec<Nanos> {
    let its = runs.iter().filter(|run| run.2 == TaskId(task));
    its.map(|run| run.0).collect()
}

/// A vCPU that computes from then on.
fn from(from: Nanos, vm: u32, number: u32) -> Job {
    Job::new(Does::Hog { from }).vcpu(vm, number)
}

/// A vCPU of VM 0 that works for `work`, wakes its neighbour (0 and 1, 2 and 3 …) and waits for it in turn; the even
/// ones begin.
fn asking(work: Nanos, number: u32) -> Job {
    let does = Does::Asks {
        work,
        to: number ^ 1,
        first: number.is_multiple_of(2),
    };
    Job::new(does).vcpu(0, number)
}

const STRICT: Gang = Gang::Strict(Slots {
    length: 10 * MS,
    fill: false,
});

/// VMs of these numbers of vCPUs, which compute from `begin` on.
fn hogs(sizes: &[u32], begin: Nanos) -> Vec<Job> {
    let vms = sizes.iter().zip(0..);
    vms.flat_map(|(&size, vm)| (0..size).map(move |n| from(begin, vm, n)))
        .collect()
}

/// Figure 3 of Sukwong & Kim, EuroSys 2011: two pCPUs, one of them taken until T1 = 10 ms; vCPU0 and
/// vCPU1 become ready at T0 = 4 ms, an I/O job between T0 and T1. T2 is 20 ms.
fn figure_3() -> Vec<Job> {
    vec![
        from(0, 0, 0),
        from(4 * MS, 1, 0),
        from(4 * MS, 1, 1),
        from(6 * MS, 2, 0),
    ]
}

#[test]
fn figure_3_under_strict_co_scheduling() {
    let (outcome, runs) = starts(2, figure_3(), STRICT, 30 * MS);
    // CPU fragmentation and execution delay: one pCPU idles from T0 to T1, both vCPUs wait.
    assert_eq!(of_task(&runs, 1)[0], 10 * MS);
    assert_eq!(of_task(&runs, 2)[0], 10 * MS);
    assert_eq!(outcome.idle_share, (10.0 * 1.0) / 60.0);
    // Priority inversion: the I/O job waits for T2.
    assert_eq!(of_task(&runs, 3)[0], 20 * MS);
}

#[test]
fn figure_3_under_balance_scheduling() {
    let (_, runs) = starts(2, figure_3(), Gang::None, 30 * MS);
    assert_eq!(of_task(&runs, 1)[0], 4 * MS, "one vCPU starts at T0");
    assert!(
        of_task(&runs, 3)[0] < 10 * MS,
        "the I/O job starts before T1"
    );
}

#[test]
fn figure_3_with_filling() {
    let filled = Gang::Strict(Slots {
        fill: true,
        ..Slots::default()
    });
    let (outcome, runs) = starts(2, figure_3(), filled, 30 * MS);
    // Until T0 there is nothing to fill with; then one vCPU, or the job, uses what would idle.
    assert_eq!(of_task(&runs, 1)[0], 4 * MS);
    assert_eq!(outcome.idle_share, 4.0 / 60.0);
}

/// Algorithm 1: the first slot with k available pCPUs. VMs of three, two and one vCPU on four pCPUs.
#[test]
fn algorithm_1_takes_the_first_slot_with_enough_pcpus() {
    let (outcome, runs) = starts(4, hogs(&[3, 2, 1], 0), STRICT, 59 * MS);
    for vcpu in 0..3 {
        assert_eq!(of_task(&runs, vcpu), [0, 20 * MS, 40 * MS]);
    }
    for vcpu in 3..5 {
        assert_eq!(of_task(&runs, vcpu), [10 * MS, 30 * MS, 50 * MS]);
    }
    // The single vCPU fits into a slot with either of the others.
    assert_eq!(outcome.tasks[5].2.run, 59 * MS);
    assert_eq!(outcome.idle_share, 29.0 / 236.0);
}

/// Algorithm 2: no two siblings on one pCPU. Siblings come one by one while others are there.
#[test]
fn algorithm_2_leaves_out_the_pcpus_of_siblings() {
    let others = (0..3).map(|n| from(0, 1, n).on(["0", "0", "1"][n as usize]));
    let jobs: Vec<Job> = (0..3).map(|n| from(MS, 0, n)).chain(others).collect();
    let (outcome, runs) = starts(3, jobs, Gang::None, 3 * SEC);
    let first = |task: u32| runs.iter().find(|run| run.2 == TaskId(task)).unwrap().1;
    let mut places = [first(0), first(1), first(2)];
    places.sort_unstable();
    assert_eq!(places, [PcpuId(0), PcpuId(1), PcpuId(2)]);
    assert_eq!(outcome.stacking[3..].iter().sum::<f64>(), 0.0);
}

/// Algorithm 3: pCPU 0 gives vCPU0 its turn at once, pCPU 1 would let its task finish its slice.
#[test]
fn algorithm_3_calls_the_siblings_of_the_first() {
    let late = 1500 * US;
    let jobs = || {
        vec![
            from(0, 0, 0).on("0"),
            from(MS, 1, 0).on("1"),
            from(late, 2, 0),
            from(late, 2, 1),
        ]
    };
    let (_, runs) = starts(2, jobs(), Gang::Dynamic, 20 * MS);
    assert_eq!((of_task(&runs, 2)[0], of_task(&runs, 3)[0]), (late, late));
    let (_, runs) = starts(2, jobs(), Gang::None, 20 * MS);
    assert_eq!((of_task(&runs, 2)[0], of_task(&runs, 3)[0]), (late, 4 * MS));
}

/// One of four vCPUs has a pCPU to itself, so that the VM never stands still; the others share
/// theirs with one vCPU each. The one that gets its turn calls the two that wait.
#[test]
fn algorithm_3_calls_beside_a_sibling_that_runs() {
    let together = |gang| {
        let vcpus = (0..4).map(|n| from(MS, 0, n));
        let out_of_step = (0..3).map(|n| from(2 * MS + 1300 * US * u64::from(n), 1 + n, 0));
        let (outcome, _) = starts(4, vcpus.chain(out_of_step).collect(), gang, 10 * SEC);
        let skew = &outcome.vms[0].siblings;
        skew.together as f64 / skew.together_due as f64
    };
    let (called, not) = (together(Gang::Dynamic), together(Gang::None));
    assert!(called > 0.45 && not < 0.4, "{called}, {not}");
}
