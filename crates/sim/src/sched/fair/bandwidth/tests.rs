// SPDX-License-Identifier: GPL-2.0-only
//! The accounts of CFS bandwidth control, followed by hand.

use super::*;
use crate::load::Cgroup;
use crate::sched::fair::throttle_tests::limited;

const CPU: PcpuId = PcpuId(0);
const OTHER: PcpuId = PcpuId(1);
const VM: usize = 0;

/// VM 0 in its own group, which is the last of these.
fn bandwidth(all: Vec<Cgroup>) -> Bandwidth {
    let of_vms = vec![Some(all.len() - 1)];
    let cgroups = Cgroups {
        all,
        of_vms,
        ..Cgroups::default()
    };
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

/// 20 ms in 100: taken in slices of 5 ms, then nothing is left until the period is over. It owes nothing then, so that
/// it gets 1 ns, and takes a slice when that is used up.
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

/// 10 ms with ticks of 4 ms: the third tick finds 2 ms too many, which come off the next period. So the cgroup runs for
/// 12 and 8 ms alternately.
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

/// Debts beyond a whole period: the cgroup gets the whole period's runtime, and stays throttled.
#[test]
fn a_cgroup_that_owes_more_than_a_period_waits_for_another() {
    let mut all = bandwidth(vec![limited(10 * MS, 0, None)]);
    all.enter(VM, CPU, 0);
    all.charge(VM, CPU, 25 * MS, 25 * MS);
    assert_eq!(all.check(VM, CPU, 25 * MS), [0]);
    assert_eq!(all.period_over(0), []);
    assert_eq!(left(&all, 0, CPU), (-5_000_000, 0));
    assert_eq!(all.period_over(0), [CPU]);
    assert_eq!(left(&all, 0, CPU), (1, 5 * MS - 1));
}

/// On two pCPUs 8 ms are a slice and 3 ms; the pCPU that was throttled first is served first.
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

/// When no task is left on a pCPU, that keeps 1 ms. Others have the rest 5 ms later, if it is more than a slice.
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

/// This does not happen shortly before a period ends.
#[test]
fn slack_is_not_worth_it_at_the_end_of_a_period() {
    let mut all = bandwidth(vec![limited(12 * MS, 0, None)]);
    for cpu in 0..4 {
        all.enter(VM, PcpuId(cpu), 0);
    }
    // The third pCPU has 2 ms, the last nothing: it is throttled before it began.
    assert!(all.is_throttled(VM, PcpuId(3)));
    all.asks();
    all.leave(VM, CPU, 94 * MS);
    all.leave(VM, OTHER, 94 * MS);
    assert_eq!((all.asks(), left(&all, 0, CPU).1), (vec![], 8 * MS));
}

/// What is left at the end of a period is saved up to the burst. If no task came, the timer fills the pool once more
/// and stops; it goes on in its old phase.
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

/// A VM with 30 ms in a slice with 20: the slice's runtime ends first. The VM's cgroup is not throttled then, nor does
/// it lose what it has.
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
    // It is kept out by the outer cgroup; the inner one's counts go on.
    assert_eq!(all.enter(VM, CPU, 21 * MS), Some(0));
    assert_eq!(all.accounts[1].local[0].members, 2);
}

/// First the inner cgroup is throttled, which leaves the outer one empty there; then both.
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
        ..Cgroups::default()
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
