// SPDX-License-Identifier: GPL-2.0-only
//! What happened in an interval, for people and for programs.
//!
//! %RUN, %RDY and %WAIT are shares of the time of a VM's vCPUs and add up to 100: running, wanting a
//! pCPU (what the guest sees as steal), halted. `stacked` is a sample, not a measurement: the share
//! of pCPUs that had two or more ready or running vCPUs of one VM at the moments when the daemon
//! looked, which it does every period of the policy.

use crate::control::{Reading, Stacking};
use crate::counters::Counters;
use crate::discovery::Vm;
use crate::holds::{Holds, HoldsNow};
use corun_model::Nanos;
use corun_model::time::seconds;
use serde::Serialize;
use std::fmt;

/// One interval of the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// Seconds since the daemon began, at the interval's end.
    pub time_s: f64,
    /// Its length, seconds.
    pub interval_s: f64,
    /// The policy's name.
    pub policy: String,
    /// How often a pCPU was given to a task, per second.
    pub switches_per_s: f64,
    /// Share of pCPUs with siblings stacked, among those looked at; a sample.
    pub stacked_share: f64,
    /// How many pCPUs were looked at.
    pub stacked_samples: u64,
    /// Tasks ready or running at the interval's end, by the dispatcher's books.
    pub occupied: u64,
    /// pCPUs held for vCPUs that had halted, and how that ended (vSMT-IO).
    pub holds: HoldsNow,
    /// Its VMs.
    pub vms: Vec<VmStats>,
}

/// One interval of a VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmStats {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Number of its vCPUs.
    pub vcpus: usize,
    /// `cpu.weight` of its own cgroup.
    pub weight: Option<u32>,
    /// Share of its vCPUs' time spent running.
    pub run_share: f64,
    /// … wanting a pCPU.
    pub ready_share: f64,
    /// … halted.
    pub wait_share: f64,
    /// Share of its vCPUs' time in which a pCPU was held for one that had halted (vSMT-IO).
    pub held_share: f64,
    /// How often one came back to a pCPU that was held for it, per second.
    pub kept_per_s: f64,
    /// How often one of its vCPUs was given a pCPU, per second.
    pub switches_per_s: f64,
    /// vCPUs ready or running at the interval's end, by the dispatcher's books.
    pub occupied: u64,
    /// Sum of their weights.
    pub active_weight: u64,
}

/// What was counted when the interval began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    pub(crate) at: Nanos,
    pub(crate) switches: u64,
    pub(crate) occupied: u64,
    pub(crate) holds: Holds,
    pub(crate) vcpus: Reading,
}

impl Stats {
    /// The interval from `then` to `now`.
    pub(crate) fn between(
        then: &Mark,
        now: &Mark,
        began: Nanos,
        stacking: Stacking,
        policy: &str,
        vms: &[Vm],
    ) -> Self {
        let interval_s = seconds(now.at.saturating_sub(then.at));
        let did = |vm: &Vm| {
            let of = |mark: &Mark, task| mark.vcpus.get(task).copied();
            let each = vm.vcpus.iter().filter_map(|vcpu| {
                let sum = of(now, vcpu.task)?;
                // A task that was not there then has started since: counters begin with the task.
                Some(sum.since(&of(then, vcpu.task).unwrap_or_default()))
            });
            each.fold(Counters::default(), |mut all, one| {
                all.run += one.run;
                all.ready += one.ready;
                all.wait += one.wait;
                all.switches += one.switches;
                all.retained += one.retained;
                all.kept += one.kept;
                all
            })
        };
        Self {
            time_s: seconds(now.at.saturating_sub(began)),
            interval_s,
            policy: policy.to_string(),
            switches_per_s: ratio(
                now.switches.saturating_sub(then.switches) as f64,
                interval_s,
            ),
            stacked_share: ratio(stacking.stacked as f64, stacking.seen as f64),
            stacked_samples: stacking.seen,
            occupied: now.occupied,
            holds: now.holds.since(&then.holds).into(),
            vms: vms
                .iter()
                .map(|vm| VmStats::new(vm, did(vm), interval_s))
                .collect(),
        }
    }
}

impl VmStats {
    fn new(vm: &Vm, did: Counters, interval_s: f64) -> Self {
        let all = (did.run + did.ready + did.wait) as f64;
        Self {
            name: vm.name.clone(),
            pid: vm.key.tgid,
            vcpus: vm.vcpus.len(),
            weight: vm.weight,
            run_share: ratio(did.run as f64, all),
            ready_share: ratio(did.ready as f64, all),
            wait_share: ratio(did.wait as f64, all),
            held_share: ratio(did.retained as f64, all),
            kept_per_s: ratio(did.kept as f64, interval_s),
            switches_per_s: ratio(did.switches as f64, interval_s),
            occupied: vm.counts.occupied,
            active_weight: vm.counts.active_weight,
        }
    }
}

/// A share of nothing is 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:.1} s  policy {}  {:.0} switches/s  stacked {:.2} % (of {} samples)",
            self.time_s,
            self.policy,
            self.switches_per_s,
            100.0 * self.stacked_share,
            self.stacked_samples
        )?;
        if self.holds.begun > 0 {
            writeln!(f, "  {}", self.holds)?;
        }
        writeln!(
            f,
            "  {:<24} {:>5} {:>6} {:>6} {:>6} {:>6} {:>10}",
            "VM", "vCPUs", "weight", "%RUN", "%RDY", "%WAIT", "switches/s"
        )?;
        for vm in &self.vms {
            let weight = vm
                .weight
                .map_or("-".to_string(), |weight| weight.to_string());
            writeln!(
                f,
                "  {:<24} {:>5} {:>6} {:>6.1} {:>6.1} {:>6.1} {:>10.0}",
                vm.name,
                vm.vcpus,
                weight,
                100.0 * vm.run_share,
                100.0 * vm.ready_share,
                100.0 * vm.wait_share,
                vm.switches_per_s
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corun_model::time::{MS, SEC};

    #[test]
    fn a_vms_vcpus_are_summed() {
        let (vms, _) = crate::apply::tests::host();
        let mut ctx = crate::skel::types::task_ctx::default();
        (ctx.sum.run, ctx.sum.wait) = (200 * MS, 300 * MS);
        (ctx.sum.held, ctx.sum.kept, ctx.sum.switches) = (100 * MS, 4, 7);
        let did = Counters::of(&ctx, 2 * SEC);
        let vcpus = vms[0].vcpus.iter().map(|vcpu| (vcpu.task, did));
        let now = Mark {
            at: 2 * SEC,
            vcpus: Reading::of(vcpus.collect()),
            ..Mark::default()
        };
        let stacking = Stacking::default();
        let stats = Stats::between(&Mark::default(), &now, 0, stacking, "vsmtio", &vms);
        let [vm, other, _] = &stats.vms[..] else {
            panic!("three VMs: {stats:?}")
        };
        assert_eq!(
            (vm.run_share, vm.wait_share, vm.switches_per_s),
            (0.4, 0.6, 7.0)
        );
        assert_eq!((vm.held_share, vm.kept_per_s), (0.2, 4.0));
        assert_eq!((other.run_share, other.held_share), (0.0, 0.0));
    }

    #[test]
    fn a_host_without_vms_divides_by_nothing() {
        let mark = Mark::default();
        let stats = Stats::between(&mark, &mark, 0, Stacking::default(), "fair", &[]);
        assert_eq!(stats.switches_per_s, 0.0);
        assert_eq!(stats.stacked_share, 0.0);
        let text = stats.to_string();
        assert!(
            text.starts_with("0.0 s  policy fair  0 switches/s"),
            "{text}"
        );
        assert!(!text.contains("holds"), "{text}");
    }

    #[test]
    fn holds_of_the_interval_are_told() {
        let mut cpu = crate::skel::types::cpu_ctx::default();
        (cpu.holds.begun, cpu.holds.woke) = (5, 5);
        let then = Mark {
            holds: Holds::default().plus(&cpu),
            ..Mark::default()
        };
        (cpu.holds.begun, cpu.holds.woke, cpu.holds.length) = (9, 9, 8 * MS);
        let now = Mark {
            holds: Holds::default().plus(&cpu),
            ..Mark::default()
        };
        let stats = Stats::between(&then, &now, 0, Stacking::default(), "vsmtio", &[]);
        assert_eq!((stats.holds.begun, stats.holds.mean_s), (4, 0.002));
        let text = stats.to_string();
        assert!(text.contains("\n  holds: 4 begun; 4 until"), "{text}");
    }
}
