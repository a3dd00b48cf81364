// SPDX-License-Identifier: GPL-2.0-only
//! What happened to VMs under the kernel's own scheduler, at an interval.

use super::find::Vm;
use super::thread;
use corun_model::{Nanos, PcpuSet, TaskId, counted};
use corun_system::affinity;
use corun_system::procfs::Counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A VM in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Line {
    vm: String,
    vcpus: usize,
    /// Shares of its vCPUs' time.
    run_share: f64,
    ready_share: f64,
    /// Mean length of a turn on a pCPU.
    turn_mean_ms: Option<f64>,
    /// Slices that its vCPUs ask for, each once.
    slices_ms: Vec<f64>,
    /// pCPUs that some of them may use.
    pcpus: String,
}

/// When the next report is due, and what was counted at the last.
pub(crate) struct Report {
    interval: Option<Nanos>,
    due: Nanos,
    last: Nanos,
    before: BTreeMap<TaskId, Counted>,
}

impl Report {
    pub(crate) fn new(interval: Option<Nanos>, now: Nanos) -> Self {
        Self {
            interval,
            due: now.saturating_add(interval.unwrap_or(0)),
            last: now,
            before: BTreeMap::new(),
        }
    }

    /// A vCPU is there, with this on its counters: reports begin to count here.
    pub(crate) fn there(&mut self, task: TaskId, counted: Counted) {
        if self.interval.is_some() {
            self.before.entry(task).or_insert(counted);
        }
    }

    /// The report, if it is due.
    pub(crate) fn due(
        &mut self,
        now: Nanos,
        vms: &[Vm],
        counted: impl Fn(TaskId) -> Option<Counted>,
    ) -> Option<Vec<Line>> {
        let interval = self.interval.filter(|_| now >= self.due)?;
        let elapsed = now - self.last;
        (self.due, self.last) = (now.saturating_add(interval), now);
        let before = std::mem::take(&mut self.before);
        let mut line = |vm: &Vm| {
            let mut sum = Counted::default();
            for vcpu in &vm.vcpus {
                let at = counted(vcpu.task).unwrap_or_default();
                let did = at.since(before.get(&vcpu.task).copied().unwrap_or(at));
                self.before.insert(vcpu.task, at);
                sum = sum.plus(did);
            }
            line(vm, &sum, elapsed)
        };
        Some(vms.iter().map(&mut line).collect())
    }
}

fn line(vm: &Vm, sum: &Counted, elapsed: Nanos) -> Line {
    let whole = (elapsed * vm.vcpus.len() as u64).max(1) as f64;
    let mut slices: Vec<Nanos> = Vec::new();
    let mut pcpus = PcpuSet::default();
    for vcpu in &vm.vcpus {
        slices.extend(thread::slice(vcpu.key.tid).ok().flatten());
        let allowed = affinity::get(vcpu.key.tid).unwrap_or_default();
        allowed.iter().for_each(|cpu| pcpus.insert(cpu));
    }
    slices.sort_unstable();
    slices.dedup();
    Line {
        vm: vm.name.clone(),
        vcpus: vm.vcpus.len(),
        run_share: sum.run as f64 / whole,
        ready_share: sum.ready as f64 / whole,
        turn_mean_ms: (sum.turns > 0).then(|| sum.run as f64 / sum.turns as f64 / 1e6),
        slices_ms: slices.into_iter().map(|slice| slice as f64 / 1e6).collect(),
        pcpus: pcpus.to_string(),
    }
}

/// A report as it is printed: a line per VM.
pub(crate) fn printed(lines: &[Line], json: bool) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if json {
        serde_json::to_writer(&mut out, lines)?;
        writeln!(out)?;
        return Ok(out);
    }
    for line in lines {
        let slices: Vec<String> = line.slices_ms.iter().map(|ms| format!("{ms:.1}")).collect();
        let turn = line
            .turn_mean_ms
            .map_or("–".to_string(), |ms| format!("{ms:.2}"));
        writeln!(
            out,
            "{:16} {:>9}  run {:5.1} %  ready {:5.1} %  turn {turn} ms  slice {} ms  pCPUs {}",
            line.vm,
            counted(line.vcpus, "vCPU"),
            line.run_share * 100.0,
            line.ready_share * 100.0,
            slices.join(", "),
            line.pcpus
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service prints none, and runs for weeks.
    #[test]
    fn without_reports_nothing_is_kept_for_them() {
        for (interval, kept) in [(None, 0), (Some(1), 3)] {
            let mut report = Report::new(interval, 0);
            (0..3).for_each(|task| report.there(TaskId(task), Counted::default()));
            assert_eq!(report.before.len(), kept);
        }
    }
}
