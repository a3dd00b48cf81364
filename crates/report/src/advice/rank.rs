// SPDX-License-Identifier: GPL-2.0-only
//! Ranks of policies: for the host by ready time, work and fairness, and for each VM.

use super::{PolicyAdvice, Ranks, Verdict, VmAdvice, VmRanking};

/// Gives each policy its ranks.
pub(super) fn among(policies: &mut [PolicyAdvice]) {
    let places = |better: fn(&PolicyAdvice) -> f64| -> Vec<u32> {
        let values: Vec<f64> = policies.iter().map(better).collect();
        let place = |value: &f64| 1 + values.iter().filter(|other| *other > value).count() as u32;
        values.iter().map(place).collect()
    };
    let ready = places(|policy| -policy.ready_share.median);
    let work = places(|policy| policy.work.median);
    let fairness = places(|policy| policy.fairness.median);
    for (at, policy) in policies.iter_mut().enumerate() {
        policy.ranks = Ranks {
            ready: ready[at],
            work: work[at],
            fairness: fairness[at],
        };
    }
}

/// The policies VM by VM; equals stay in the order of the host's ranking.
pub(super) fn vms(policies: &[PolicyAdvice]) -> Vec<VmRanking> {
    let vms = policies.first().map_or(&[][..], |policy| &policy.vms[..]);
    let ranking = |(at, vm): (usize, &VmAdvice)| {
        let sorted = |worse: fn(&VmAdvice) -> f64| {
            let all = policies.iter();
            let mut all: Vec<_> = all.filter_map(|it| Some((it, it.vms.get(at)?))).collect();
            all.sort_by(|(_, a), (_, b)| worse(a).total_cmp(&worse(b)));
            all
        };
        let names = |sorted: &[(&PolicyAdvice, &VmAdvice)]| -> Vec<String> {
            sorted.iter().map(|(it, _)| it.policy.clone()).collect()
        };
        let by_ready = sorted(|vm| vm.ready_share.median);
        let gains = |vm: &VmAdvice| {
            let loses = vm.waits_multiply || vm.work_verdict == Verdict::Worse;
            vm.verdict == Verdict::Better && !loses
        };
        VmRanking {
            name: vm.name.clone(),
            gains: by_ready.first().is_some_and(|(_, vm)| gains(vm)),
            by_ready: names(&by_ready),
            by_work: names(&sorted(|vm| -vm.work.median)),
        }
    };
    vms.iter().enumerate().map(ranking).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::Range;

    fn policy(name: &str, ready: f64, work: f64, vm: (f64, Verdict)) -> PolicyAdvice {
        let just = |value| Range::of([value]);
        PolicyAdvice {
            policy: name.to_string(),
            kernel: None,
            verdict: vm.1,
            ranks: Ranks::default(),
            ready_share: just(ready),
            work: just(work),
            fairness: just(1.0),
            beyond_recording_share: 0.0,
            costs: Vec::new(),
            vms: vec![VmAdvice {
                name: "web".to_string(),
                vcpus: 2,
                verdict: vm.1,
                work_verdict: Verdict::Same,
                waits_multiply: false,
                ready_share: just(vm.0),
                work: just(work),
                ready_wait_p99_us: Range::default(),
            }],
        }
    }

    #[test]
    fn each_measure_has_its_own_order() {
        let mut all = [
            policy("balance", 0.1, 1.0, (0.4, Verdict::Worse)),
            policy("eevdf", 0.2, 1.5, (0.3, Verdict::Own)),
            policy("jupiter", 0.2, 1.2, (0.1, Verdict::Better)),
        ];
        among(&mut all);
        let ranks = |at: usize| {
            [
                all[at].ranks.ready,
                all[at].ranks.work,
                all[at].ranks.fairness,
            ]
        };
        assert_eq!(ranks(0), [1, 3, 1]);
        assert_eq!(ranks(1), [2, 1, 1]);
        assert_eq!(ranks(2), [2, 2, 1]);
        let vms = vms(&all);
        assert_eq!(vms[0].by_ready, ["jupiter", "eevdf", "balance"]);
        assert_eq!(vms[0].by_work, ["eevdf", "jupiter", "balance"]);
        assert!(vms[0].gains);
        // A gain within the error does not count.
        all[2].vms[0].verdict = Verdict::Same;
        assert!(!super::vms(&all)[0].gains);
    }
}
