// SPDX-License-Identifier: GPL-2.0-only
//! vTurbo: some pCPUs serve I/O only, in very short slices (Xu et al., "vTurbo: accelerating virtual machine I/O
//! processing using designated turbo-sliced core", USENIX ATC 2013).
//!
//! The paper gives each VM an additional vCPU on the turbo pCPUs, to which a changed guest kernel
//! binds its interrupts. Guests are not changed here: as in AQL_Sched's comparison (EuroSys 2016,
//! §4.2), the vCPUs that do I/O go to the turbo pCPUs, and AQL's recognition says which vCPUs these are.
//! While there are none, all vCPUs may use all pCPUs.

use crate::Policy;
use crate::aql::recognise::Recogniser;
use crate::aql::vtrs::PERIOD;
use crate::aql::{Kind, Limits, cluster::Member, members, pooled};
use corun_model::time::MS;
use corun_model::{Nanos, Parameter, PcpuSet, Plan, Snapshot, Status, TaskId, Value};

/// Its pools.
#[derive(Clone, Copy, Debug)]
pub struct VTurboPools {
    /// Slice of the turbo pCPUs, ns.
    pub slice: Nanos,
    /// Slice of the others, ns.
    pub default: Nanos,
    /// How many turbo pCPUs, as long as one is left for the others.
    pub pcpus: u32,
}

impl Default for VTurboPools {
    fn default() -> Self {
        Self {
            slice: MS,
            default: 30 * MS,
            pcpus: 1,
        }
    }
}

/// Turbo pCPUs.
#[derive(Clone, Debug, Default)]
pub struct VTurbo {
    pools: VTurboPools,
    limits: Limits,
    recogniser: Recogniser,
}

impl VTurbo {
    /// With these pools and these limits between AQL's types.
    pub fn new(pools: VTurboPools, limits: Limits) -> Self {
        Self {
            pools,
            limits,
            ..Self::default()
        }
    }

    /// Its parameters.
    pub fn parameters() -> Vec<Parameter> {
        let default = VTurboPools::default();
        let tried = "the default only; accepted: 100 µs to 1 s";
        vec![
            Parameter::new(
                "policy.vturbo.slice",
                "slice of the turbo pCPUs",
                Value::Time(default.slice),
                "AQL_Sched, EuroSys 2016, §4.2: 1 ms",
                tried,
            ),
            Parameter::new(
                "policy.vturbo.default",
                "slice of the other pCPUs",
                Value::Time(default.default),
                "Xen's Credit scheduler: 30 ms",
                tried,
            ),
            Parameter::new(
                "policy.vturbo.pcpus",
                "number of turbo pCPUs, as long as one is left",
                Value::Number(f64::from(default.pcpus), ""),
                "vTurbo, USENIX ATC 2013: a designated core",
                "the default only; accepted: 1 to 511",
            ),
        ]
    }
}

impl Policy for VTurbo {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn decide(&mut self, seen: &Snapshot, plan: &mut Plan) {
        self.recogniser.look(seen, &self.limits);
        let all = members(seen, |task| (self.recogniser.of(task), true));
        let (turbo, others): (Vec<Member>, Vec<Member>) =
            all.iter().partition(|member| member.of.kind == Kind::IoInt);
        let count = self
            .pools
            .pcpus
            .min(seen.host.topology.pcpus().saturating_sub(1));
        if turbo.is_empty() || count == 0 {
            let everywhere = PcpuSet::first(seen.host.topology.pcpus());
            let one = [(self.pools.default, everywhere, &all[..])];
            return pooled(seen, plan, &one, |_| None);
        }
        let (first, rest): (Vec<_>, Vec<_>) =
            seen.host.topology.all().partition(|cpu| cpu.0 < count);
        let first: PcpuSet = first.into_iter().collect();
        let rest: PcpuSet = rest.into_iter().collect();
        pooled(
            seen,
            plan,
            &[
                (self.pools.slice, first, &turbo[..]),
                (self.pools.default, rest, &others[..]),
            ],
            |_| None,
        );
    }

    fn wants_signals(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        self.recogniser.status()
    }

    fn recognised(&self, task: TaskId) -> Option<&'static str> {
        Some(self.recogniser.name(task))
    }
}
