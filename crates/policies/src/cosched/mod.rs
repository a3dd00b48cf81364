// SPDX-License-Identifier: GPL-2.0-only
//! Co-scheduling: the vCPUs of a VM run at the same time, more or less.
//!
//! A guest's threads wait for each other: for a lock, at a barrier, for an answer to an interrupt.
//! If the vCPU of the thread that is waited for has no pCPU, the others wait for the host. From the
//! strictest to the most lenient, after Sukwong & Kim (EuroSys 2011, §3, §5.2.2, §6) and Kim et al.
//! (ASPLOS 2013), there are [`strict`], [`relaxed`], [`dt`] and [`demand`]. Each VM has the same
//! mode at all times; the mechanisms are `dispatcher/gang_*.h`.

pub mod demand;
pub mod dt;
pub mod relaxed;
pub mod strict;

use corun_model::{Gang, Placement, Plan, Snapshot, VmPlan, VmSeen};

/// All VMs have the same placement and gang mode.
fn gang_all(seen: &Snapshot, plan: &mut Plan, placement: Placement, gang: Gang) {
    let wanted = |vm: &VmSeen| VmPlan {
        gang,
        ..VmPlan::placed(vm.vm, placement)
    };
    plan.vms.extend(seen.vms.iter().map(wanted));
}
