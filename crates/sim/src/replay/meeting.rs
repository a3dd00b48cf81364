// SPDX-License-Identifier: GPL-2.0-only
//! Which VMs' siblings meet when one wakes the other, as at a barrier.
//!
//! A recording shows which vCPU woke which and how much each had done by then. It does not show whether the waker would
//! have waited, had it come first: the woken vCPU had always been there before. Where siblings meet, the waker would
//! have waited; where one hands work or a lock to the other, it would not
//! ([`Options::meeting`](super::Options::meeting)).
//!
//! But siblings that meet do a round each between two wake-ups: one does as much as the other, and about the same each
//! time. Siblings that share a lock or a queue wake each other when it happens to be taken or empty. So two numbers
//! distinguish them, computed from the work of two siblings between two wake-ups among them, each relative to its mean:
//! by how much the two differ, and by how much each varies (standard deviations). On two and four pCPUs shared with two
//! VMs that compute (simulated, 3 s under `eevdf`), rounds of barriers ±20 % had 0.1 to 0.2 and 0.1 to 0.9, mutexes 0.2
//! to 0.7 and 0.8 to 3.3, queues 0.6 to 0.9 and 0.8 to 1.3, requests and replies 2.1 and 1.1; in the testbed a barrier
//! had 0.3 and 0.4 to 0.5, a guest's futexes 2.0 and 2.0. Rounds that differ by more than half are not recognised.

use corun_model::{Nanos, TaskId, VmId};
use corun_recording::{Recording, Role, WakeCause};
use std::collections::{BTreeMap, BTreeSet};

/// Two siblings that meet differ by less (a choice, see above).
const ALIKE: f64 = 1.0 / 3.0;
/// Each of two siblings that meet varies by less (a choice, see above).
const STEADY: f64 = 1.0;
/// Fewer wake-ups between two siblings show nothing.
const FEW: usize = 20;

/// A wake-up of one of two siblings by the other: the work that both had done by then, ns, the one with the lower
/// number first.
type Work = [Nanos; 2];

/// VMs in which at least two siblings wake each other more than a few times.
pub fn can_meet(recording: &Recording) -> BTreeSet<VmId> {
    pairs(recording).into_iter().map(|(vm, _)| vm).collect()
}

/// VMs whose siblings seem to meet: most of the pairs that wake each other do.
pub fn seem_to_meet(recording: &Recording) -> BTreeSet<VmId> {
    let mut votes: BTreeMap<VmId, i64> = BTreeMap::new();
    for (vm, wakeups) in pairs(recording) {
        *votes.entry(vm).or_default() += if go_round(&wakeups) { 1 } else { -1 };
    }
    let most = votes.into_iter().filter(|(_, votes)| *votes > 0);
    most.map(|(vm, _)| vm).collect()
}

/// For each pair of siblings that wake each other more than a few times, their wake-ups in order of
/// time.
fn pairs(recording: &Recording) -> Vec<(VmId, Vec<Work>)> {
    let mut found: BTreeMap<(VmId, TaskId, TaskId), Vec<(Nanos, Work)>> = BTreeMap::new();
    let vm = |task: TaskId| match recording.task(task)?.role {
        Role::Vcpu { vm, .. } => Some(vm),
        _ => None,
    };
    for (at, task) in recording.tasks.iter().enumerate() {
        let (wakee, mut done) = (TaskId::from(at), 0);
        for burst in &task.bursts {
            if let WakeCause::Task { waker, waker_work } = burst.wake
                && let Some(vm) = vm(wakee).filter(|of| waker != wakee && vm(waker) == Some(*of))
            {
                let (pair, work) = match waker < wakee {
                    true => ((vm, waker, wakee), [waker_work, done]),
                    false => ((vm, wakee, waker), [done, waker_work]),
                };
                found.entry(pair).or_default().push((burst.woken_at, work));
            }
            done += burst.work;
        }
    }
    let enough = found.into_iter().filter(|(_, wakeups)| wakeups.len() > FEW);
    let in_order = |mut wakeups: Vec<(Nanos, Work)>| {
        wakeups.sort_by_key(|(at, _)| *at);
        wakeups.into_iter().map(|(_, work)| work).collect()
    };
    enough
        .map(|((vm, ..), wakeups)| (vm, in_order(wakeups)))
        .collect()
}

/// Between these wake-ups, does each of two siblings do as much as the other, and about the same
/// each time?
fn go_round(wakeups: &[Work]) -> bool {
    let between = |of: usize| {
        let done = wakeups
            .windows(2)
            .map(move |two| two[1][of].saturating_sub(two[0][of]) as f64);
        let mean = done.clone().sum::<f64>() / done.len().max(1) as f64;
        done.map(move |work| work / mean.max(1.0))
    };
    let differ = deviation(between(0).zip(between(1)).map(|(one, other)| one - other));
    let varies = (0..2).map(|of| deviation(between(of))).fold(0.0, f64::max);
    differ < ALIKE && varies < STEADY
}

/// The standard deviation of these numbers.
fn deviation(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = numbers.clone().count().max(1) as f64;
    let mean = numbers.clone().sum::<f64>() / count;
    let off = numbers.map(|number| number - mean);
    let squares = off.map(|off| off * off).sum::<f64>();
    (squares / count).sqrt()
}
