// SPDX-License-Identifier: GPL-2.0-only
//! Weights: of tasks among themselves, and of VMs that have one (`cpu.weight`).
//!
//! A task of weight 100 is one of nice 0: 2^20 in the kernel's fixed-point unit. Where a VM has a
//! weight, Linux schedules a group entity per pCPU whose share of the group's weight follows the
//! group's load there (`update_cfs_group()`). Flattened, that gives each vCPU its part of the VM's
//! weight among the vCPUs that want to run; as in Linux a vCPU learns of its new part when it is
//! queued and at the ticks it is on a pCPU. Unlike Linux, the hierarchy costs no extra slice level.

use corun_model::Nanos;

/// The weight of a task of nice 0 (`NICE_0_LOAD` on 64 bits).
pub(crate) const NICE_0: u64 = 1 << 20;

/// The least a group's part may be (`MIN_SHARES`).
const LEAST: u64 = 2 << 10;

/// A task's or VM's weight in the kernel's unit.
pub(crate) fn scaled(weight: u32) -> u64 {
    (u64::from(weight) * NICE_0 / 100).max(LEAST)
}

/// How far the virtual time of a task of `weight` goes in `time`.
pub(crate) fn virtual_time(time: Nanos, weight: u64) -> i64 {
    if weight == NICE_0 {
        return time as i64;
    }
    (u128::from(time) * u128::from(NICE_0) / u128::from(weight.max(1))) as i64
}

/// The time a task of `weight` needs to go `delta` in virtual time, rounded up; 0 if it is over.
pub(crate) fn real_time(delta: i64, weight: u64) -> Nanos {
    let delta = u128::from(delta.max(0) as u64);
    (delta * u128::from(weight)).div_ceil(u128::from(NICE_0)) as Nanos
}

/// A VM as a scheduling group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// Its weight; `None`: its vCPUs count one by one.
    pub(crate) weight: Option<u64>,
    /// The sum of the own weights of its vCPUs that are ready or running.
    pub(crate) active: u64,
}

impl Group {
    /// What a vCPU of weight `own`, which is among the active ones, counts.
    pub(crate) fn part(&self, own: u64) -> u64 {
        match self.weight {
            Some(weight) => {
                let part =
                    u128::from(weight) * u128::from(own) / u128::from(self.active.max(own).max(1));
                (part as u64).max(LEAST)
            }
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_by_weight() {
        assert_eq!(virtual_time(1000, scaled(100)), 1000);
        assert_eq!(virtual_time(1000, scaled(200)), 500);
        assert_eq!(real_time(500, scaled(200)), 1000);
        assert_eq!(real_time(-5, scaled(200)), 0);
    }

    #[test]
    fn a_group_shares_its_weight() {
        let own = scaled(100);
        let group = Group {
            weight: Some(scaled(200)),
            active: 4 * own,
        };
        assert_eq!(group.part(own), own / 2);
        assert_eq!(Group::default().part(own), own);
    }
}
