// SPDX-License-Identifier: GPL-2.0-only
//! The advice in sentences. Each names what it compares with, and which differences mean nothing.

use super::judge::{Spun, fair_enough, margin, ready_share, verdict};
use super::{Overcommit, PolicyAdvice, Verdict, VmAdvice};
use crate::format::{amount, percent};
use crate::results::round;

/// Which policy to try, what it would bring, and which VMs would pay for it.
pub(super) fn host(
    policies: &[PolicyAdvice],
    recommended: Option<&PolicyAdvice>,
    error: f64,
) -> Vec<String> {
    let Some(own) = policies
        .iter()
        .find(|policy| policy.verdict == Verdict::Own)
    else {
        return Vec::new();
    };
    if policies.len() == 1 {
        return vec![format!(
            "{} is the host's own scheduler, and no other policy was asked for: vCPUs lack a pCPU {} of \
             their time.",
            own.policy,
            percent(own.ready_share.median),
        )];
    }
    let Some(best) = recommended else {
        return vec![format!(
            "No policy makes vCPUs wait less than {} does ({} of their time) by more than the error, and \
             treats VMs as alike.",
            own.policy,
            percent(own.ready_share.median),
        )];
    };
    let mut words = vec![gain(best, own, error)];
    words.extend(as_good(policies, best, own, error));
    words.extend(losers(best, own));
    words
}

/// What the recommended policy would bring.
fn gain(best: &PolicyAdvice, own: &PolicyAdvice, error: f64) -> String {
    format!(
        "Try {}: vCPUs would lack a pCPU {} of their time instead of {} (differences below {:.1} percentage \
         points say nothing); work done: {} instead of {} s/s.",
        best.policy,
        percent(best.ready_share.median),
        percent(own.ready_share.median),
        margin(best.ready_share, own.ready_share, error) * 100.0,
        amount(best.work.median),
        amount(own.work.median),
    )
}

/// The policies that are no worse than the recommended one, within the error; `None` if there are none.
fn as_good(
    policies: &[PolicyAdvice],
    best: &PolicyAdvice,
    own: &PolicyAdvice,
    error: f64,
) -> Option<String> {
    let as_good = |policy: &&PolicyAdvice| {
        policy.verdict == Verdict::Better
            && policy.policy != best.policy
            && fair_enough(policy, Some(own))
            && verdict(policy.ready_share, best.ready_share, error) == Verdict::Same
    };
    let names = policies.iter().filter(as_good).map(|p| p.policy.as_str());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| {
        format!(
            "No different from it within the error: {}.",
            names.join(", ")
        )
    })
}

/// The VMs that would wait more under the recommended policy, a sentence each.
fn losers(best: &PolicyAdvice, own: &PolicyAdvice) -> Vec<String> {
    let loses = |vm: &&VmAdvice| vm.verdict == Verdict::Worse;
    let told = |vm: &VmAdvice| {
        let before = own.vms.iter().find(|own| own.name == vm.name);
        format!(
            "{} would wait more: {} instead of {}.",
            vm.name,
            percent(vm.ready_share.median),
            percent(before.map_or(0.0, |own| own.ready_share.median)),
        )
    };
    best.vms.iter().filter(loses).map(told).collect()
}

/// The other extreme of what vCPUs did.
pub(super) fn spinning(spun: &Spun) -> String {
    format!(
        "That takes all CPU time for work. At most {} of the vCPUs' CPU time can have been spinning for a \
         sibling that was kept from running; were all of that so, and saved, they would lack a pCPU \
         {} of their time under {} and {} under {}.",
        percent(spun.share),
        percent(ready_share(&spun.best)),
        spun.best.policy,
        percent(ready_share(&spun.own)),
        spun.own.policy
    )
}

/// How many more VMs.
pub(super) fn overcommit(overcommit: &Overcommit) -> String {
    let target = percent(overcommit.target);
    let policy = &overcommit.policy;
    let Some(more) = overcommit.holds_with else {
        let worst = overcommit.steps.first();
        return format!(
            "Under {policy} no VM more fits: {} is above the target of {target} already ({}).",
            worst.map_or("a VM", |step| &step.worst_vm),
            percent(worst.map_or(0.0, |step| step.worst_ready_share.median)),
        );
    };
    let at = overcommit.steps.get(more as usize);
    let ratio = at.map_or(0.0, |step| step.vcpus_per_pcpu);
    let least = if overcommit.more_may_fit {
        "at least "
    } else {
        ""
    };
    let (vms, verb) = if more == 1 {
        ("VM", "keeps")
    } else {
        ("VMs", "keep")
    };
    match more {
        0 => format!(
            "Under {policy} no VM more fits: the next one brings a VM's ready time above {target}."
        ),
        _ => format!(
            "Under {policy} {least}{more} more {vms} ({} vCPUs per pCPU) {verb} every VM's ready \
             time within {target}.",
            amount(round(ratio))
        ),
    }
}
