// SPDX-License-Identifier: GPL-2.0-only
//! From replays to advice: ranges, verdicts, what is recommended.

use super::confidence::{Basis, confidence};
use super::{
    Advice, LeftOut, Overcommit, PolicyAdvice, Range, Ranks, Verdict, VmAdvice, open, rank, words,
};
use crate::results::{ReplayCheck, Run, VmResult};

/// Differences below half a point of ready time do not count, however exact the replays.
const LEAST_DIFFERENCE: f64 = 0.005;

/// A VM does not count as getting less done if it loses no more of its work than this, however exact the replays.
const LEAST_WORK_LOST: f64 = 0.02;

/// Waits of a VM multiply if their 99th percentile is more than this many times as long …
const WAITS_MULTIPLY: f64 = 2.0;

/// … and longer by this many microseconds: twice of next to nothing is still next to nothing.
const LEAST_LONGER_WAIT: f64 = 1000.0;

/// A policy that loses more fairness than this is not recommended, however little vCPUs wait under it.
const MOST_FAIRNESS_LOST: f64 = 0.05;

/// What was tried on a recorded host.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The recording's name.
    pub recording: String,
    /// How complete the recording is.
    pub basis: Basis,
    /// The replay under the own scheduler, compared with the recording.
    pub replay: ReplayCheck,
    /// Policies with all their replays; the first is the host's own scheduler.
    pub policies: Vec<(String, Vec<Replayed>)>,
    /// Policies about which replays would say nothing.
    pub left_out: Vec<LeftOut>,
    /// How far a policy goes beyond fair order; among equals, the one that goes least far is recommended.
    pub reach: fn(&str) -> u32,
    /// The other extreme of what vCPUs may have done while they ran, if it was tried.
    pub spinning: Option<Spun>,
    /// How many more VMs fit.
    pub overcommit: Vec<Overcommit>,
}

/// A replay and its assumption.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Do VMs go on as before when their recorded demand is used up?; otherwise they have nothing more to do.
    pub goes_on: bool,
    /// What it showed.
    pub run: Run,
}

/// Replays that take all that can have been spinning for spinning, none of which occurs again.
#[derive(Clone, Debug)]
pub struct Spun {
    /// The share of spinning in the vCPUs' CPU time, 0–1.
    pub share: f64,
    /// Under the host's own scheduler.
    pub own: Run,
    /// Under the policy compared with it, see [`Advice::rival`].
    pub best: Run,
}

/// The error of the replay under the host's own scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errors {
    pub ready: f64,
    run: f64,
}

/// The policy to try.
pub(super) struct Choice<'a> {
    pub policy: &'a PolicyAdvice,
    /// Those that are equally good, within the error.
    pub as_good: Vec<&'a PolicyAdvice>,
}

/// Considers the policies that may be recommended and differ from the best of them by no more than the error, and
/// chooses the one that goes least far; if several go equally far, the one with the least ready time.
fn choose<'a>(
    policies: &'a [PolicyAdvice],
    own: Option<&PolicyAdvice>,
    error: f64,
    reach: fn(&str) -> u32,
) -> Option<Choice<'a>> {
    let fit = |policy: &&PolicyAdvice| {
        policy.verdict == Verdict::Better && policy.costs.is_empty() && fair_enough(policy, own)
    };
    let best = policies.iter().find(fit)?;
    let equals = || {
        let fit = policies.iter().filter(fit);
        fit.filter(|it| verdict(it.ready_share, best.ready_share, error) == Verdict::Same)
    };
    let policy = equals().min_by_key(|it| reach(&it.policy))?;
    Some(Choice {
        policy,
        as_good: equals().filter(|it| it.policy != policy.policy).collect(),
    })
}

/// Ranks what was tried.
pub fn advice(tried: Tried) -> Advice {
    let errors = Errors {
        ready: tried.replay.ready_error.unwrap_or(0.0),
        run: tried.replay.run_error.unwrap_or(0.0),
    };
    let all = tried.policies.iter();
    let figured: Vec<_> = all.map(|(name, runs)| figures(name, runs)).collect();
    let own = figured.first().cloned();
    let mut policies: Vec<PolicyAdvice> = figured
        .into_iter()
        .map(|policy| beside(policy, own.as_ref(), errors))
        .collect();
    policies.sort_by(|a, b| a.ready_share.median.total_cmp(&b.ready_share.median));
    rank::among(&mut policies);
    let choice = choose(&policies, own.as_ref(), errors.ready, tried.reach);
    let mut summary = words::host(&policies, choice.as_ref(), &tried.left_out, errors.ready);
    summary.extend(words::left_out(&tried.left_out));
    let mut advice = Advice {
        version: env!("CARGO_PKG_VERSION").to_string(),
        recording: tried.recording,
        confidence: confidence(&tried.replay, &tried.basis),
        notes: Vec::new(),
        summary,
        recommended: choice.map(|choice| choice.policy.policy.clone()),
        next: Vec::new(),
        left_out: tried.left_out,
        vms: rank::vms(&policies),
        replay: tried.replay,
        policies,
        open: Vec::new(),
        overcommit: tried.overcommit,
    };
    advice.open = open::questions(&advice, &tried.policies, tried.spinning.as_ref());
    let spinning = tried.spinning.as_ref().map(words::spinning);
    let open = [spinning, open::words(&advice)].into_iter().flatten();
    let more = advice.overcommit.iter().map(words::overcommit);
    let further: Vec<String> = open.chain(more).collect();
    advice.summary.extend(further);
    advice
}

/// A policy's figures, without a verdict yet.
fn figures(policy: &str, replays: &[Replayed]) -> PolicyAdvice {
    let runs: Vec<&Run> = replays.iter().map(|replay| &replay.run).collect();
    let vms = runs.first().map_or(0, |run| run.vms.len());
    let of = |measure: fn(&Run) -> f64| Range::of(runs.iter().map(|run| measure(run)));
    let beyond = runs.iter().flat_map(|run| &run.vms);
    let beyond = beyond.filter_map(|vm| vm.beyond_recording_share);
    PolicyAdvice {
        policy: policy.to_string(),
        kernel: runs.first().and_then(|run| run.kernel.clone()),
        verdict: Verdict::Own,
        ranks: Ranks::default(),
        ready_share: of(ready_share),
        work: of(work),
        fairness: of(fairness),
        beyond_recording_share: beyond.fold(0.0, f64::max),
        costs: Vec::new(),
        vms: (0..vms).map(|vm| vm_figures(&runs, vm)).collect(),
    }
}

fn vm_figures(runs: &[&Run], vm: usize) -> VmAdvice {
    let all = || runs.iter().filter_map(move |run| run.vms.get(vm));
    let first = all().next();
    VmAdvice {
        name: first.map_or_else(String::new, |vm| vm.name.clone()),
        vcpus: first.map_or(0, |vm| vm.vcpus),
        verdict: Verdict::Own,
        work_verdict: Verdict::Own,
        waits_multiply: false,
        ready_share: Range::of(all().map(|vm| vm.ready_share)),
        work: Range::of(all().map(vm_work)),
        ready_wait_p99_us: Range::of(all().map(|vm| vm.ready_wait_p99_us.unwrap_or(0.0))),
    }
}

fn vm_work(vm: &VmResult) -> f64 {
    vm.run_share * f64::from(vm.vcpus)
}

fn work(run: &Run) -> f64 {
    run.vms.iter().map(vm_work).sum()
}

/// The share of the time of all vCPUs.
pub(super) fn ready_share(run: &Run) -> f64 {
    let vcpus: f64 = run.vms.iter().map(|vm| f64::from(vm.vcpus)).sum();
    let ready = |vm: &VmResult| vm.ready_share * f64::from(vm.vcpus);
    run.vms.iter().map(ready).sum::<f64>() / vcpus.max(1.0)
}

/// Jain, Chiu and Hawe, "A Quantitative Measure of Fairness", 1984, over the VMs that wanted anything.
fn fairness(run: &Run) -> f64 {
    let wanted = |vm: &&VmResult| vm.run_share + vm.ready_share > 0.0;
    let got = |vm: &VmResult| vm.run_share / (vm.run_share + vm.ready_share);
    let got: Vec<f64> = run.vms.iter().filter(wanted).map(got).collect();
    let sum: f64 = got.iter().sum();
    let squares: f64 = got.iter().map(|x| x * x).sum();
    match squares > 0.0 {
        true => sum * sum / (got.len() as f64 * squares),
        false => 1.0,
    }
}

/// A policy with verdicts, for the host and VM by VM.
fn beside(mut policy: PolicyAdvice, own: Option<&PolicyAdvice>, errors: Errors) -> PolicyAdvice {
    let Some(own) = own.filter(|own| own.policy != policy.policy) else {
        return policy;
    };
    policy.verdict = verdict(policy.ready_share, own.ready_share, errors.ready);
    for (vm, own) in policy.vms.iter_mut().zip(&own.vms) {
        vm.verdict = verdict(vm.ready_share, own.ready_share, errors.ready);
        vm.work_verdict = work_verdict(vm.work, own.work, errors.run);
        vm.waits_multiply = multiply(vm.ready_wait_p99_us, own.ready_wait_p99_us);
        policy.costs.extend(words::costs(vm, own));
    }
    policy
}

/// Does a VM get more done, or less?
fn work_verdict(work: Range, own: Range, error: f64) -> Verdict {
    let noise = work.half().max(own.half());
    let margin = noise.max(error.max(LEAST_WORK_LOST) * own.median);
    match work.median - own.median {
        more if more > margin => Verdict::Better,
        less if less < -margin => Verdict::Worse,
        _ => Verdict::Same,
    }
}

/// Are waits several times as long?
fn multiply(wait: Range, own: Range) -> bool {
    let longer = wait.median - own.median;
    let noise = wait.half().max(own.half());
    wait.median > WAITS_MULTIPLY * own.median && longer > noise.max(LEAST_LONGER_WAIT)
}

pub(super) fn verdict(ready: Range, own: Range, error: f64) -> Verdict {
    let margin = margin(ready, own, error);
    match ready.median - own.median {
        less if less < -margin => Verdict::Better,
        more if more > margin => Verdict::Worse,
        _ => Verdict::Same,
    }
}

/// Does it treat VMs about as alike as the host's own scheduler does?
pub(super) fn fair_enough(policy: &PolicyAdvice, own: Option<&PolicyAdvice>) -> bool {
    let lost = |own: &PolicyAdvice| own.fairness.median - policy.fairness.median;
    own.is_none_or(|own| lost(own) <= MOST_FAIRNESS_LOST)
}

/// By how much two ready shares must differ.
pub(super) fn margin(ready: Range, own: Range, error: f64) -> f64 {
    let noise = ready.half().max(own.half()).max(error * own.median);
    noise.max(LEAST_DIFFERENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Level;
    use crate::results::HostResult;

    /// VMs by run and ready share, with two vCPUs each.
    fn run(vms: &[(f64, f64)]) -> Run {
        let vm = |(n, &(run_share, ready_share)): (usize, &(f64, f64))| VmResult {
            name: format!("vm{n}"),
            vcpus: 2,
            run_share,
            ready_share,
            ..VmResult::default()
        };
        Run {
            policy: String::new(),
            case: String::new(),
            seed: 0,
            kernel: None,
            host: HostResult::default(),
            vms: vms.iter().enumerate().map(vm).collect(),
            tasks: Vec::new(),
            disks: Vec::new(),
            clients: Vec::new(),
            detail: Default::default(),
        }
    }

    fn replays(runs: &[Run]) -> Vec<Replayed> {
        let replay = |run: &Run| Replayed {
            goes_on: true,
            run: run.clone(),
        };
        runs.iter().map(replay).collect()
    }

    fn tried(own: &[Run], other: &[Run], ready_error: f64) -> Advice {
        advice(tried_of(own, other, ready_error))
    }

    fn tried_of(own: &[Run], other: &[Run], ready_error: f64) -> Tried {
        Tried {
            recording: "test".to_string(),
            basis: Basis {
                seconds: 8.0,
                gaps: Vec::new(),
            },
            replay: ReplayCheck {
                scheduler: "eevdf".to_string(),
                scheduler_is_recorded: true,
                ready_error: Some(ready_error),
                switches_error: Some(0.1),
                ..ReplayCheck::default()
            },
            policies: vec![
                ("eevdf".into(), replays(own)),
                ("balance".into(), replays(other)),
            ],
            left_out: Vec::new(),
            reach: |_| 0,
            spinning: None,
            overcommit: Vec::new(),
        }
    }

    #[test]
    fn less_waiting_beyond_the_error_is_better() {
        let own = [run(&[(0.5, 0.5), (0.5, 0.1)])];
        let other = [run(&[(0.505, 0.2), (0.495, 0.2)])];
        let found = tried(&own, &other, 0.05);
        assert_eq!(found.recommended.as_deref(), Some("balance"));
        assert_eq!(found.policies[0].policy, "balance");
        assert_eq!(found.policies[0].ready_share.median, 0.2);
        assert_eq!(found.policies[0].work.median, 2.0);
        assert_eq!(found.policies[0].vms[0].verdict, Verdict::Better);
        assert_eq!(found.policies[0].vms[1].verdict, Verdict::Worse);
        assert_eq!(found.confidence.level, Level::High);
        let words = found.summary.join("\n");
        assert!(words.contains("Try balance"), "{words}");
        assert!(
            words.contains("vm1 would wait more: 20.0 % instead of 10.0 %"),
            "{words}"
        );
    }

    #[test]
    fn within_the_error_nothing_is_recommended() {
        let own = [run(&[(0.5, 0.30)])];
        let other = [run(&[(0.5, 0.27)])];
        // The replay is off by 15 %: 0.045.
        let found = tried(&own, &other, 0.15);
        assert_eq!(found.recommended, None);
        assert_eq!(found.policies[0].verdict, Verdict::Same);
        assert_eq!(found.confidence.level, Level::Medium);
        assert!(
            found.summary[0].starts_with("Stay with"),
            "{:?}",
            found.summary
        );
        // Replays that differ by more than the policies do.
        let spread = [
            run(&[(0.5, 0.20)]),
            run(&[(0.5, 0.27)]),
            run(&[(0.5, 0.34)]),
        ];
        assert_eq!(tried(&own, &spread, 0.0).policies[0].verdict, Verdict::Same);
        assert_eq!(tried(&own, &other, 0.4).confidence.level, Level::Low);
    }

    #[test]
    fn less_waiting_at_the_cost_of_one_is_not_recommended() {
        let own = [run(&[(0.5, 0.5), (0.5, 0.5)])];
        let other = [run(&[(0.9, 0.1), (0.3, 0.7)])];
        let found = tried(&own, &other, 0.05);
        assert_eq!(found.policies[0].verdict, Verdict::Better);
        assert_eq!(found.said(&found.policies[0]), "less, but unfair");
        assert_eq!(found.recommended, None);
    }

    #[test]
    fn what_makes_a_vm_get_less_done_is_not_recommended() {
        let own = [run(&[(0.5, 0.5), (0.5, 0.4)])];
        // All VMs wait less, and the second gets a twentieth less done.
        let other = [run(&[(0.6, 0.4), (0.475, 0.35)])];
        let found = tried(&own, &other, 0.02);
        let policy = &found.policies[0];
        assert_eq!(policy.verdict, Verdict::Better);
        assert_eq!(policy.vms[0].work_verdict, Verdict::Better);
        assert_eq!(policy.vms[1].verdict, Verdict::Better);
        assert_eq!(policy.vms[1].work_verdict, Verdict::Worse);
        assert!(!found.vms[1].gains);
        assert_eq!(found.recommended, None);
        assert_eq!(found.said(policy), "less, but VMs lose");
        let words = found.summary.join("\n");
        let said = "vm1 would get less done: 0.950 instead of 1.00 s/s";
        assert!(words.contains(said), "{words}");
        // A loss within a fiftieth, or within the replays' own error, does not count.
        let little = [run(&[(0.6, 0.4), (0.492, 0.35)])];
        assert!(tried(&own, &little, 0.02).recommended.is_some());
        assert_eq!(work_verdict(just(0.475), just(0.5), 0.06), Verdict::Same);
    }

    fn just(value: f64) -> Range {
        Range::of([value])
    }

    #[test]
    fn waits_of_several_times_the_length_are_a_cost() {
        let with_wait = |ready, wait| {
            let mut run = run(&[(0.5, ready)]);
            run.vms[0].ready_wait_p99_us = Some(wait);
            [run]
        };
        let own = with_wait(0.5, 12_000.0);
        let found = tried(&own, &with_wait(0.4, 40_000.0), 0.02);
        assert!(found.policies[0].vms[0].waits_multiply);
        assert_eq!(found.recommended, None);
        let words = found.summary.join("\n");
        assert!(words.contains("40.0 ms instead of 12.0 ms"), "{words}");
        let found = tried(&own, &with_wait(0.4, 20_000.0), 0.02);
        assert_eq!(found.recommended.as_deref(), Some("balance"));
        assert!(!multiply(just(900.0), just(100.0)), "next to nothing");
    }

    #[test]
    fn of_equals_the_one_that_goes_least_far_is_recommended() {
        let own = [run(&[(0.5, 0.5)])];
        let mut three = tried_of(&own, &[run(&[(0.5, 0.30)])], 0.05);
        three
            .policies
            .push(("fair".into(), replays(&[run(&[(0.5, 0.31)])])));
        let first = advice(three.clone());
        assert_eq!(first.recommended.as_deref(), Some("balance"));
        three.reach = |name| u32::from(name != "fair");
        let found = advice(three.clone());
        assert_eq!(found.recommended.as_deref(), Some("fair"));
        assert_eq!(found.policies[0].policy, "balance");
        assert!(found.summary[1].contains("balance"), "{:?}", found.summary);
        // A policy that is worse is no equal, however little it does.
        three.policies[2].1 = replays(&[run(&[(0.5, 0.4)])]);
        assert_eq!(advice(three).recommended.as_deref(), Some("balance"));
    }

    #[test]
    fn what_was_left_out_is_said_with_the_reason() {
        let own = [run(&[(0.5, 0.5)])];
        let mut tried = tried_of(&own, &own, 0.0);
        tried.policies.truncate(1);
        tried.left_out = ["aql", "vturbo"].map(left_out).to_vec();
        let words = advice(tried).summary.join("\n");
        assert!(words.contains("Left out: aql, vturbo: why."), "{words}");
        assert!(!words.contains("no other policy was asked for"), "{words}");
    }

    fn left_out(policy: &str) -> LeftOut {
        LeftOut {
            policy: policy.to_string(),
            why: "why".to_string(),
        }
    }

    #[test]
    fn fairness_is_jains() {
        assert_eq!(fairness(&run(&[(0.2, 0.2), (0.4, 0.4)])), 1.0);
        assert_eq!(fairness(&run(&[(0.5, 0.0), (0.0, 0.5)])), 0.5);
        assert_eq!(fairness(&run(&[(0.0, 0.0)])), 1.0);
        assert_eq!(fairness(&run(&[])), 1.0);
    }
}
