// SPDX-License-Identifier: GPL-2.0-only
//! The host's knobs as the dispatcher reads them: `struct knobs`.
//!
//! All are set before it is loaded, and stay as they are, except for those that depend on the policy: [`Parts`].

use crate::skel::types;
use corun_dispatcher::Knobs;
use corun_model::{DispatcherParams, Gang, PcpuSet, Plan, Sharing};
use std::sync::atomic::{AtomicU16, Ordering};

/// Parts of the dispatcher that only some policies need. Each that is looked at costs every decision, and
/// gangs and cores have orders of their own, without turns (`dispatcher/turn.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Are VMs' gang modes looked at?
    pub(crate) gangs: bool,
    /// Are pCPUs looked at as hardware threads of SMT cores?
    pub(crate) cores: bool,
    /// Are the settings of single tasks looked up?
    pub(crate) tasks: bool,
    /// Have any tasks micro slices?
    pub(crate) micro: bool,
}

impl Parts {
    /// What a plan needs, as in the simulator.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            gangs: plan.vms.iter().any(|vm| vm.gang != Gang::None),
            cores: !plan.pcpus.is_empty(),
            tasks: !plan.tasks.is_empty(),
            micro: plan.tasks.iter().any(|task| task.micro),
        }
    }

    /// What either of the two needs.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            gangs: self.gangs || other.gangs,
            cores: self.cores || other.cores,
            tasks: self.tasks || other.tasks,
            micro: self.micro || other.micro,
        }
    }
}

/// [`Parts`] in the `struct knobs` that a loaded dispatcher reads.
#[derive(Clone, Copy)]
pub(crate) struct Live<'a> {
    gangs: &'a AtomicU16,
    cores: &'a AtomicU16,
    tasks: &'a AtomicU16,
    micro: &'a AtomicU16,
}

impl<'a> Live<'a> {
    /// # Safety
    /// `knobs` points to the dispatcher's, mapped and writable for as long as `'a`; nobody holds a
    /// reference to them.
    pub(crate) unsafe fn new(knobs: *mut types::knobs) -> Self {
        // SAFETY: by the contract above; they are aligned integers, which the kernel only reads, and
        // this process only accesses as whole words.
        unsafe {
            Self {
                gangs: AtomicU16::from_ptr(&raw mut (*knobs).gangs),
                cores: AtomicU16::from_ptr(&raw mut (*knobs).cores),
                tasks: AtomicU16::from_ptr(&raw mut (*knobs).tasks),
                micro: AtomicU16::from_ptr(&raw mut (*knobs).micro),
            }
        }
    }

    /// From now on these parts are needed.
    pub(crate) fn set(&self, parts: Parts) {
        self.gangs.store(parts.gangs.into(), Ordering::Release);
        self.cores.store(parts.cores.into(), Ordering::Release);
        self.tasks.store(parts.tasks.into(), Ordering::Release);
        self.micro.store(parts.micro.into(), Ordering::Release);
    }
}

/// [`Knobs::of`] as what a loaded dispatcher reads. Tasks of a real host have cgroups.
pub(crate) fn raw(params: &DispatcherParams, online: &PcpuSet, sharing: &Sharing) -> types::knobs {
    let knobs = Knobs::of(params, online, sharing);
    types::knobs {
        slice: knobs.slice,
        wakeup_gran: knobs.wakeup_gran,
        sleeper_credit: knobs.sleeper_credit,
        max_lead: knobs.max_lead,
        balance_interval: knobs.balance_interval,
        online: *knobs.online.words(),
        pcpus: knobs.pcpus,
        placement: knobs.placement,
        slice_timer: knobs.slice_timer,
        groups: 1,
        gangs: knobs.gangs,
        cores: knobs.cores,
        tasks: knobs.tasks,
        micro: knobs.micro,
        llcs: knobs.llcs,
        online_pcpus: knobs.online_pcpus,
        pad: knobs.pad,
        sibling: knobs.sibling,
        llc: knobs.llc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcpus_go_to_their_bits() {
        let online: PcpuSet = "0,2,64-65".parse().unwrap();
        let raw = raw(&DispatcherParams::default(), &online, &Sharing::default());
        assert_eq!((raw.online[0], raw.online[1], raw.pcpus), (0b101, 0b11, 66));
    }

    #[test]
    fn no_slice_is_shorter_than_the_least() {
        let params = DispatcherParams {
            slice: 1,
            ..DispatcherParams::default()
        };
        let raw = raw(&params, &PcpuSet::first(1), &Sharing::default());
        assert_eq!(raw.slice, DispatcherParams::LEAST_SLICE);
    }
}
