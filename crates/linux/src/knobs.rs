// SPDX-License-Identifier: GPL-2.0-only
//! The host's knobs as the dispatcher reads them: `struct knobs`.

use crate::skel::types;
use corun_model::{DispatcherParams, PcpuSet, Placement};

/// `params` for a host with these pCPUs. VMs that the policy has not spoken about yet are placed
/// freely.
pub(crate) fn raw(params: &DispatcherParams, online: &PcpuSet) -> types::knobs {
    let mut raw = types::knobs {
        slice: params.slice,
        wakeup_gran: params.wakeup_granularity,
        sleeper_credit: params.sleeper_credit,
        max_lead: params.max_lead,
        balance_interval: params.balance_interval,
        placement: Placement::Free.number(),
        slice_timer: u16::from(params.slice_timer),
        groups: 1,
        cores: 1,
        gangs: 1, // policies are exchanged while it runs, and a recording has one set of knobs
        online: *online.words(),
        ..types::knobs::default()
    };
    raw.pcpus = online.iter().map(|cpu| cpu.0 + 1).max().unwrap_or(0);
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcpus_go_to_their_bits() {
        let online: PcpuSet = "0,2,64-65".parse().unwrap();
        let raw = raw(&DispatcherParams::default(), &online);
        assert_eq!((raw.online[0], raw.online[1], raw.pcpus), (0b101, 0b11, 66));
    }
}
