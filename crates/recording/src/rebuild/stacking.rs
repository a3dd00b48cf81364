// SPDX-License-Identifier: GPL-2.0-only
//! vCPU stacking: for how long sibling vCPUs shared a runqueue.
//!
//! Each vCPU's joinings and leavings of runqueues are put on one time line; between two of them,
//! each pCPU on which some VM has two or more vCPUs queued or running counts as stacked.

use corun_model::Nanos;
use std::collections::HashMap;

/// One vCPU: its VM and when it was on which runqueue.
pub(super) struct Vcpu<'a> {
    pub vm: usize,
    pub queue: &'a [(Nanos, Option<u32>)],
}

/// Stacked time summed over pCPUs until `end`, ns.
pub(super) fn stacked(vcpus: &[Vcpu<'_>], end: Nanos) -> Nanos {
    let mut moves: Vec<(Nanos, usize, Option<u32>)> = Vec::new();
    for (number, vcpu) in vcpus.iter().enumerate() {
        let first = moves.len();
        moves.extend(vcpu.queue.iter().map(|&(at, cpu)| (at, number, cpu)));
        // A runqueue may have become known only after the task had already left it.
        if let Some(own) = moves.get_mut(first..) {
            own.sort_by_key(|m| m.0);
        }
    }
    moves.sort_by_key(|m| m.0);
    let mut place = vec![None; vcpus.len()];
    let mut crowd = Crowd::default();
    let (mut total, mut last) = (0, 0);
    for (at, number, cpu) in moves {
        let at = at.min(end);
        total += crowd.stacked * (at - last);
        last = at;
        let (Some(vcpu), Some(place)) = (vcpus.get(number), place.get_mut(number)) else {
            continue;
        };
        if let Some(old) = std::mem::replace(place, cpu) {
            crowd.leave(old, vcpu.vm);
        }
        if let Some(new) = cpu {
            crowd.join(new, vcpu.vm);
        }
    }
    total + crowd.stacked * end.saturating_sub(last)
}

/// How many vCPUs of each VM are on each runqueue.
#[derive(Default)]
struct Crowd {
    count: HashMap<(u32, usize), u32>,
    /// Stacked VMs per pCPU.
    vms: HashMap<u32, u32>,
    /// Number of pCPUs with at least one stacked VM.
    stacked: Nanos,
}

impl Crowd {
    fn join(&mut self, cpu: u32, vm: usize) {
        let count = self.count.entry((cpu, vm)).or_default();
        *count += 1;
        if *count == 2 {
            let vms = self.vms.entry(cpu).or_default();
            *vms += 1;
            self.stacked += Nanos::from(*vms == 1);
        }
    }

    fn leave(&mut self, cpu: u32, vm: usize) {
        let count = self.count.entry((cpu, vm)).or_default();
        *count = count.saturating_sub(1);
        if *count == 1 {
            let vms = self.vms.entry(cpu).or_default();
            *vms = vms.saturating_sub(1);
            self.stacked -= Nanos::from(*vms == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_on_one_runqueue_count() {
        let a = [(0, Some(0)), (60, Some(1)), (80, None)];
        let b = [(10, Some(0)), (40, None), (50, Some(0))];
        let other = [(0, Some(0))];
        let vcpu = |vm, queue| Vcpu { vm, queue };
        let vcpus = [vcpu(0, &a[..]), vcpu(0, &b[..]), vcpu(1, &other[..])];
        // Together on pCPU 0 during 10–40 and 50–60.
        assert_eq!(stacked(&vcpus, 100), 40);
    }

    #[test]
    fn until_the_end_and_not_beyond() {
        let a = [(0, Some(3))];
        let late = [(500, Some(3)), (20, Some(3))];
        let vcpus = [
            Vcpu { vm: 0, queue: &a },
            Vcpu {
                vm: 0,
                queue: &late,
            },
        ];
        assert_eq!(stacked(&vcpus, 100), 80);
    }

    #[test]
    fn two_stacked_vms_on_one_pcpu_count_once() {
        let q = [(0, Some(0))];
        let vcpus = [0, 0, 1, 1].map(|vm| Vcpu { vm, queue: &q });
        assert_eq!(stacked(&vcpus, 10), 10);
    }
}
