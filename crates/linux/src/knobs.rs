// SPDX-License-Identifier: GPL-2.0-only
//! The host's knobs: `struct knobs` of the dispatcher, with defaults and their reasons.

use crate::skel::types;
use corun_model::time::MS;
use corun_model::{Nanos, PcpuSet, Placement};

/// What the dispatcher is told about the host as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// How long a task may run while others wait for its pCPU, unless the policy says otherwise.
    ///
    /// 3 ms is what the kernel's own scheduler gives on hosts of this size (`base_slice_ns`).
    pub slice: Nanos,
    /// Lead in virtual time that a waking task needs to take the pCPU at once.
    ///
    /// 1 ms, as CFS had it: below, tasks that wake in turn would only switch.
    pub wakeup_gran: Nanos,
    /// How far behind its pCPU's virtual time a task may start after waiting.
    ///
    /// One slice: who waited goes first once, and nobody hoards.
    pub sleeper_credit: Nanos,
    /// How far ahead of its pCPU's virtual time a task may be queued.
    ///
    /// 100 ms, some rounds of a crowded pCPU: who ran much elsewhere pays for it, but not for long.
    pub max_lead: Nanos,
    /// How often a busy pCPU looks for a busier one.
    ///
    /// 60 ms, what the papers' hosts did.
    pub balance_interval: Nanos,
    /// Mode of VMs the policy has not spoken about.
    pub placement: Placement,
    /// End slices by timer; without, they end at the kernel's tick (4 ms apart at HZ=250).
    pub slice_timer: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            slice: 3 * MS,
            wakeup_gran: MS,
            sleeper_credit: 3 * MS,
            max_lead: 100 * MS,
            balance_interval: 60 * MS,
            placement: Placement::Free,
            slice_timer: true,
        }
    }
}

impl Knobs {
    /// As the dispatcher reads them, for a host with these pCPUs.
    pub(crate) fn raw(&self, online: &PcpuSet) -> types::knobs {
        let mut raw = types::knobs {
            slice: self.slice,
            wakeup_gran: self.wakeup_gran,
            sleeper_credit: self.sleeper_credit,
            max_lead: self.max_lead,
            balance_interval: self.balance_interval,
            placement: placement_number(self.placement),
            slice_timer: u32::from(self.slice_timer),
            ..types::knobs::default()
        };
        for cpu in online.iter() {
            raw.online[cpu.index() / 64] |= 1 << (cpu.0 % 64);
            raw.pcpus = raw.pcpus.max(cpu.0 + 1);
        }
        raw
    }
}

/// `enum placement_mode` of the dispatcher.
pub(crate) fn placement_number(placement: Placement) -> u32 {
    match placement {
        Placement::Free => 0,
        Placement::Fixed => 1,
        Placement::Balance => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcpus_go_to_their_bits() {
        let online: PcpuSet = "0,2,64-65".parse().unwrap();
        let raw = Knobs::default().raw(&online);
        assert_eq!((raw.online[0], raw.online[1], raw.pcpus), (0b101, 0b11, 66));
    }
}
