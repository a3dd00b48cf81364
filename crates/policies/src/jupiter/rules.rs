// SPDX-License-Identifier: GPL-2.0-only
//! Jupiter's rules one by one, as its parts carry them out: for a reader who checks them against
//! the dissertation's text. Nothing here decides anything.

use super::dasl::{self, Limits, Went};
use super::dats::{self, Bounds};
use super::elb::{Bank, VmUse};
use super::params::JupiterParams;
use super::rcr::{self, Layout, Placed};
use crate::parts::Part;
use corun_model::time::MS;
use corun_model::{Doing, Nanos, PcpuId, PcpuSet, TaskId, VmId};

/// DATS: these weights of a VM's vCPUs after a period in which the first used up its slice.
pub fn weights_after(weights: [u64; 3]) -> [u64; 3] {
    let mut after = weights;
    let step = JupiterParams::default().weight_step;
    // A VM whose entitlement is not known yet, so that no weight gives a whole period.
    let bounds = weights.map(|weight| Bounds::new(weight, weights.iter().sum(), 0, 1));
    dats::adjust(&mut after, &bounds, &[true, false, false], false, step);
    after
}

/// DASL: a vCPU's latency in the next period, by what it did at the end of the last one and whether it had used up its
/// slice; and that of a sibling with `latency` that woke it. If the vCPU was early, its VM is taken to have its share
/// while others lack theirs: then it was early at their cost.
pub fn latencies_after(latency: Nanos, doing: Doing, consumed: bool) -> [Nanos; 2] {
    let params = JupiterParams::default();
    let limits = Limits {
        least: params.latency_least,
        neutral: params.latency,
        most: params.latency_most,
        step: params.latency_step,
    };
    let went = |doing, consumed, wakers: &[usize]| Went {
        doing,
        consumed,
        hidden: false,
        wakers: wakers.to_vec(),
    };
    let mut latencies = [latency, params.latency];
    let all = [
        went(doing, consumed, &[1]),
        went(Doing::Waiting, false, &[]),
    ];
    match doing == Doing::Waiting && consumed {
        true => dasl::relax(&mut latencies, &all, &limits, true),
        false => dasl::adjust(&mut latencies, &all, &limits),
    }
    latencies
}

/// RCR: do these slices conflict on a pCPU?
pub fn slices_conflict(period: Nanos, slices: &[Nanos]) -> bool {
    rcr::exceed(slices.iter().sum(), period)
}

fn placed(task: u32, cpu: u32, slice: Nanos, allowed: &PcpuSet) -> Placed<'_> {
    Placed {
        task: TaskId(task),
        vm: task as usize,
        cpu: PcpuId(cpu),
        allowed,
        slice,
        low: false,
        conflicts: 0,
    }
}

/// RCR: how many vCPUs are moved where the slices of two on a pCPU add up to `most` and those of two on another to
/// `least`, with a period of 100 ms.
pub fn moved_for_slices(most: Nanos, least: Nanos) -> usize {
    let shares = [
        (most * 2 / 3, 0),
        (most - most * 2 / 3, 0),
        (least / 2, 1),
        (least / 2, 1),
    ];
    let both = PcpuSet::first(2);
    let mut vcpus: Vec<Placed> = (0..)
        .zip(shares)
        .map(|(task, (slice, cpu))| placed(task, cpu, slice, &both))
        .collect();
    let percent = JupiterParams::default().slice_conflict;
    Layout::new(&mut vcpus, &[Part::of(both)], 100 * MS)
        .even_out_slices(percent)
        .len()
}

/// RCR: how many vCPUs are moved where `low` vCPUs with low latencies are on a pCPU with `most` conflicts, and as many
/// with high latencies, and one with a low one, are on another pCPU with `fewest`.
pub fn moved_for_latencies(low: u32, most: u64, fewest: u64) -> usize {
    let both = PcpuSet::first(2);
    let mut vcpus: Vec<Placed> = (0..2 * low)
        .map(|n| placed(n, n / low.max(1), MS, &both))
        .collect();
    vcpus.push(placed(2 * low, 1, MS, &both));
    for vcpu in &mut vcpus {
        vcpu.low = vcpu.cpu.0 == 0 || vcpu.task.0 == 2 * low;
    }
    if let Some(first) = vcpus.first_mut() {
        first.conflicts = most;
    }
    if let Some(last) = vcpus.last_mut() {
        last.conflicts = fewest;
    }
    let times = JupiterParams::default().latency_conflict;
    Layout::new(&mut vcpus, &[Part::of(both)], 100 * MS)
        .spread_low_latencies(times)
        .len()
}

/// ELB: a lender's loan, period by period, thousandths of its entitlement: for `growing` periods it
/// uses `before` percent of that, in the last one `then`. The borrower is the first of two that
/// suffers the fewest conflicts, `conflicts` each.
pub fn loans(growing: u32, before: u64, then: u64, conflicts: [u64; 2]) -> Vec<(VmId, u64)> {
    let vm = |vm, used, wants, conflicts| VmUse {
        vm: VmId(vm),
        on: true,
        allowed: PcpuSet::first(4),
        entitled: 100 * MS,
        most: 400 * MS,
        used: used * MS,
        halted: 400 * MS,
        wants,
        conflicts,
    };
    let mut bank = Bank::default();
    let mut all = Vec::new();
    for period in 0..=growing {
        let used = if period < growing { before } else { then };
        let vms = [
            vm(0, used, false, 0),
            vm(1, 100, true, conflicts[0]),
            vm(2, 100, true, conflicts[1]),
        ];
        let agreed = bank.settle(&vms, &JupiterParams::default());
        all.extend(agreed.iter().map(|t| (t.to, t.amount / (MS / 10))));
    }
    all
}
