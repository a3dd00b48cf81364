// SPDX-License-Identifier: GPL-2.0-only
//! vCPU stacking: siblings on one pCPU's runqueue (balance-scheduling paper, §2.2 and Table 1).
//!
//! The paper looked into every runqueue each 700 µs and counted samples with two, three or four
//! siblings of one VM. Virtual time needs no sampling: the share of (runqueue × time) is what the
//! paper's count converges to.

use corun_model::{Nanos, PcpuId, VmId};

/// Numbers of siblings are counted separately up to this; larger ones count as this.
pub const MOST: usize = 8;

/// Integrates, over all runqueues, the time with each number of siblings.
#[derive(Debug)]
pub struct Stacking {
    /// vCPUs per VM and pCPU, ready or running.
    here: Vec<Vec<u16>>,
    /// Per pCPU: number of VMs with 0, 1, … vCPUs here.
    vms_with: Vec<[u16; MOST + 1]>,
    /// Per pCPU: since when this holds.
    since: Vec<Nanos>,
    /// Time × runqueues, by the largest number of siblings; index 0 and 1 are unstacked.
    time: [u128; MOST + 1],
}

impl Stacking {
    pub(super) fn new(pcpus: usize) -> Self {
        Self {
            here: Vec::new(),
            vms_with: vec![[0; MOST + 1]; pcpus],
            since: vec![0; pcpus],
            time: [0; MOST + 1],
        }
    }

    fn count(&mut self, vm: VmId, cpu: PcpuId) -> &mut u16 {
        let pcpus = self.since.len();
        if self.here.len() <= vm.index() {
            self.here.resize(vm.index() + 1, vec![0; pcpus]);
        }
        &mut self.here[vm.index()][cpu.index()]
    }

    /// Books the time up to now under the present number of siblings on `cpu`.
    fn settle(&mut self, cpu: usize, now: Nanos) {
        let most = (2..=MOST)
            .rev()
            .find(|&n| self.vms_with[cpu][n] > 0)
            .unwrap_or(0);
        self.time[most] += u128::from(now.saturating_sub(self.since[cpu]));
        self.since[cpu] = now;
    }

    /// A vCPU joined (`joined`) or left the runqueue of `cpu`.
    pub(super) fn change(&mut self, vm: VmId, cpu: PcpuId, joined: bool, now: Nanos) {
        let count = self.count(vm, cpu);
        let old = *count;
        *count = if joined {
            old.saturating_add(1)
        } else {
            old.saturating_sub(1)
        };
        let (old, new) = (usize::from(old).min(MOST), usize::from(*count).min(MOST));
        if old >= 2 || new >= 2 {
            self.settle(cpu.index(), now);
        }
        let vms_with = &mut self.vms_with[cpu.index()];
        vms_with[old] = vms_with[old].saturating_sub(1);
        vms_with[new] += 1;
    }

    /// Runqueues with two siblings or more at present.
    pub(super) fn stacked(&self) -> u64 {
        let stacked = |vms_with: &&[u16; MOST + 1]| vms_with[2..].iter().any(|vms| *vms > 0);
        self.vms_with.iter().filter(stacked).count() as u64
    }

    /// Forgets the past: the warm-up is over.
    pub(super) fn reset(&mut self, now: Nanos) {
        self.time = [0; MOST + 1];
        self.since.fill(now);
    }

    /// Shares of runqueue time with exactly n siblings (n = 0 and 1 together at index 0), up to
    /// now. They add up to 1; all zero if no time has passed.
    pub fn shares(&mut self, now: Nanos) -> [f64; MOST + 1] {
        (0..self.since.len()).for_each(|cpu| self.settle(cpu, now));
        let total: u128 = self.time.iter().sum();
        self.time.map(|time| {
            if total == 0 {
                0.0
            } else {
                time as f64 / total as f64
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_siblings_count() {
        let mut stacking = Stacking::new(2);
        let (a, b) = (VmId(0), VmId(1));
        let cpu = PcpuId(0);
        stacking.change(a, cpu, true, 0);
        stacking.change(b, cpu, true, 0); // two VMs, no siblings
        stacking.change(a, cpu, true, 100); // two of a
        stacking.change(a, cpu, true, 200); // three of a
        stacking.change(a, cpu, false, 250);
        stacking.change(a, cpu, false, 300);
        let shares = stacking.shares(400); // 800 ns of two runqueues
        assert_eq!(shares[2], 150.0 / 800.0);
        assert_eq!(shares[3], 50.0 / 800.0);
        assert_eq!(shares[0], 600.0 / 800.0);
    }
}
