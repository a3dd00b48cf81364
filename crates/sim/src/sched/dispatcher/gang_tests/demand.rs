// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling on demand (Kim et al., ASPLOS 2013): vCPUs that siblings wake start at once, but do not get more than
//! their share because of that.

use super::{Placed, asking, from, placed, starts};
use crate::sched::dispatcher::Dispatcher;
use crate::testing::{Does, Job, Jobs, host, run, run_shares};
use corun_model::time::{MS, SEC, US};
use corun_model::{Boost, DispatcherParams, Gang, Placement};

/// Two vCPUs that hand work to each other all the time, on pCPUs with two VMs each that compute:
/// they use more than their share, and may do so for as long as their lead allows.
#[test]
fn demand_lets_the_woken_start_at_once() {
    let others = (0..4).map(|n| from(0, 1 + n, 0).on(["0", "1"][n as usize % 2]));
    let handed = |gang| {
        let pair = (0..2).map(|n| asking(100 * US, n));
        let jobs = pair.chain(others.clone()).collect();
        let (outcome, _) = starts(2, jobs, gang, 60 * MS);
        (outcome.tasks[1].2.wakeups, outcome.vms[0].ready_waits.max())
    };
    let (urgent, longest) = handed(Gang::Demand(Boost::default()));
    let (without, _) = handed(Gang::None);
    assert!(urgent >= 290 && longest < 4 * MS, "{urgent}, {longest} ns");
    assert!(without < urgent * 9 / 10, "{without} of {urgent}");
}

/// The kernel does not call select_cpu for a task that may run on one pCPU only: the waker is known
/// nevertheless.
#[test]
fn demand_lets_the_woken_that_are_bound_start_at_once() {
    let others = (0..2).map(|n| from(0, 1 + n, 0).on("0"));
    let handed = |gang| {
        let pair = (0..2).map(|n| asking(100 * US, n).on("0"));
        let (outcome, _) = starts(1, pair.chain(others.clone()).collect(), gang, 60 * MS);
        outcome.tasks[1].2.wakeups
    };
    let (urgent, without) = (handed(Gang::Demand(Boost::default())), handed(Gang::None));
    assert!(without < urgent * 9 / 10, "{without} of {urgent}");
}

/// Two pairs of vCPUs that wake each other all the time want all of two pCPUs, on each of which
/// another VM computes: being urgent gives them no more than their share in the long run.
#[test]
fn demand_keeps_shares() {
    let pairs = (0..4).map(|n| asking(50 * US, n).on(["0", "1"][n as usize % 2]));
    let others = (0..2).map(|n| from(MS, 1, n).on(["0", "1"][n as usize]));
    let jobs = pairs.chain(others).collect();
    let (outcome, _) = starts(2, jobs, Gang::Demand(Boost::default()), 2 * SEC);
    let shares = run_shares(&outcome);
    assert!(shares[4..].iter().all(|share| *share > 0.3), "{shares:?}");
}

/// Two vCPUs hand work to each other, each alone on its pCPU, until a hog comes to one of them: a
/// vCPU that was urgent while no task waited for its pCPU owes nothing.
#[test]
fn demand_charges_nobody_for_pcpus_that_nobody_wants() {
    let handed = |gang| {
        let pair = (0..2).map(|n| asking(MS, n).on(["0", "1"][n as usize]));
        let hog = from(SEC, 1, 0).on("0");
        let params = host("1n1l2c1t", 1000);
        let load = Jobs::new(pair.chain([hog]).collect(), 1);
        let (outcome, _) = run(&params, placed(&params, gang), load, SEC, SEC + 50 * MS);
        outcome.tasks[1].2.wakeups
    };
    let (urgent, without) = (handed(Gang::Demand(Boost::default())), handed(Gang::None));
    assert!(urgent >= without, "{urgent} times, {without} without");
}

/// Load-conscious placement puts siblings on one pCPU. If they are urgent, they take turns of their urgent time, and do
/// not take the pCPU from each other before either has made progress.
#[test]
fn demand_lets_stacked_siblings_run() {
    let asks = |n: u32| Does::Asks {
        work: 50 * US,
        to: n ^ 1,
        first: true,
    };
    let jobs = (0..4).map(|n| Job::new(asks(n)).vcpu(0, n)).collect();
    let params = host("1n1l2c1t", 1000);
    let dispatcher = Dispatcher::new(DispatcherParams::default(), &params);
    let gang = Gang::Demand(Boost::default());
    let placed = Placed(dispatcher, Placement::LoadConscious, gang);
    let (outcome, runs) = run(&params, placed, Jobs::new(jobs, 1), 0, SEC);
    let shares = run_shares(&outcome);
    assert!(shares.iter().all(|share| *share > 0.2), "{shares:?}");
    assert!(runs.len() < 100_000, "{} switches", runs.len());
}
