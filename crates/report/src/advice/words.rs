// SPDX-License-Identifier: GPL-2.0-only
//! The advice in sentences. Each names what it compares with, and which differences mean nothing.

use super::judge::{Choice, Spun, fair_enough, margin, ready_share};
use super::{LeftOut, Overcommit, PolicyAdvice, Verdict, VmAdvice};
use crate::format::{amount, micros, percent};
use crate::results::round;

/// For how many policies passed over the summary says why; for others the tables do.
const PASSED_OVER: usize = 2;

/// Which policy to try, what it would bring, and which VMs would pay for it.
pub(super) fn host(
    policies: &[PolicyAdvice],
    choice: Option<&Choice<'_>>,
    left_out: &[LeftOut],
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
            "{} is the host's own scheduler, and no other policy was {}: vCPUs lack a pCPU {} of their time.",
            own.policy,
            if left_out.is_empty() {
                "asked for"
            } else {
                "tried"
            },
            percent(own.ready_share.median),
        )];
    }
    let Some(choice) = choice else {
        let mut words = vec![format!(
            "Stay with {}, under which vCPUs wait for {} of their time: what makes them wait less does so by no more than \
             the error, or at the cost of some VM.",
            own.policy,
            percent(own.ready_share.median),
        )];
        words.extend(passed_over(policies, own, f64::INFINITY));
        return words;
    };
    let mut words = vec![gain(choice.policy, own, error)];
    words.extend(as_good(choice));
    words.extend(losers(choice.policy, own));
    words.extend(passed_over(policies, own, choice.policy.ready_share.median));
    words
}

/// What a policy costs a VM, compared with the host's own scheduler: work, and longer waits.
pub(super) fn costs(vm: &VmAdvice, own: &VmAdvice) -> Vec<String> {
    let less = (vm.work_verdict == Verdict::Worse).then(|| {
        format!(
            "{} would get less done: {} instead of {} s/s",
            vm.name,
            amount(vm.work.median),
            amount(own.work.median),
        )
    });
    let longer = vm.waits_multiply.then(|| {
        format!(
            "{} would wait up to {} instead of {} (99th percentile)",
            vm.name,
            micros(vm.ready_wait_p99_us.median),
            micros(own.ready_wait_p99_us.median),
        )
    });
    [less, longer].into_iter().flatten().collect()
}

/// The policies under which vCPUs would wait less than `ready`, but some VMs lose; a sentence each.
fn passed_over(policies: &[PolicyAdvice], own: &PolicyAdvice, ready: f64) -> Vec<String> {
    let passed = |policy: &&PolicyAdvice| {
        policy.verdict == Verdict::Better
            && fair_enough(policy, Some(own))
            && !policy.costs.is_empty()
            && policy.ready_share.median < ready
    };
    let said = |policy: &PolicyAdvice| {
        format!(
            "Not {}, though vCPUs would lack a pCPU only {} of their time: {}.",
            policy.policy,
            percent(policy.ready_share.median),
            policy.costs.join("; "),
        )
    };
    let passed = policies.iter().filter(passed);
    passed.take(PASSED_OVER).map(said).collect()
}

/// The policies that were not tried, by reason.
pub(super) fn left_out(all: &[LeftOut]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in all {
        match reasons.iter_mut().find(|(why, _)| *why == one.why) {
            Some((_, policies)) => policies.push(&one.policy),
            None => reasons.push((&one.why, vec![&one.policy])),
        }
    }
    let said =
        |(why, policies): &(&str, Vec<&str>)| format!("Left out: {}: {why}.", policies.join(", "));
    reasons.iter().map(said).collect()
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

/// The policies that are equally good as the recommended one; `None` if there are none.
fn as_good(choice: &Choice<'_>) -> Option<String> {
    let names: Vec<&str> = choice.as_good.iter().map(|it| it.policy.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "No different from it within the error: {}. Of equals, the one is named that goes least far \
             beyond fair order.",
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

/// The other extreme of what vCPUs may have done.
pub(super) fn spinning(spun: &Spun) -> String {
    format!(
        "That counts all CPU time as work. At most {} of the vCPUs' CPU time can have been spinning for a sibling that \
         was kept from running; if all of that was, and is saved, they would lack a pCPU {} of their time under {} and \
         {} under {}.",
        percent(spun.share),
        percent(ready_share(&spun.best)),
        spun.best.policy,
        percent(ready_share(&spun.own)),
        spun.own.policy
    )
}

/// How many more VMs fit.
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
    let chosen = overcommit.chosen();
    let like = chosen.map_or_else(String::new, |names| format!(" like {names}"));
    match more {
        0 => format!(
            "Under {policy} no other VM{like} fits: the next one brings a VM's ready time above {target}."
        ),
        _ => format!(
            "Under {policy} {least}{more} more {vms}{like} ({} vCPUs per pCPU) {verb} every VM's ready \
             time within {target}.",
            amount(round(ratio))
        ),
    }
}
