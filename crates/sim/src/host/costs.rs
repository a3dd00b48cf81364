// SPDX-License-Identifier: GPL-2.0-only
//! What scheduling costs on the modelled hardware.

use corun_model::time::US;
use corun_model::{Nanos, Parameter, Value};

/// Costs in ns. They are properties of the machine, the same for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From one task to another on a pCPU, until the new one makes progress: scheduler, register
    /// and VM state, exit and entry.
    pub switch: Nanos,
    /// From asking another pCPU to schedule until it does.
    pub ipi: Nanos,
    /// What an idle pCPU needs to get going, on top of the IPI.
    pub idle_wake: Nanos,
    /// On top of a switch, to a task that ran on another pCPU last: the kernel's part of a
    /// migration. What it costs the caches is modelled apart.
    pub migration: Nanos,
    /// One VM exit with the entry after it, where the host does nothing in between.
    pub exit: Nanos,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            switch: 2_500,
            ipi: US,
            idle_wake: 2 * US,
            migration: 2 * US,
            exit: 700,
        }
    }
}

impl Costs {
    /// Nothing costs anything.
    pub const NONE: Costs = Costs {
        switch: 0,
        ipi: 0,
        idle_wake: 0,
        migration: 0,
        exit: 0,
    };

    /// The costs with their sources.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let of = |key, meaning, value, source| Parameter {
            key,
            meaning,
            value: Value::Time(value),
            source,
            tried: "not varied",
        };
        vec![
            of(
                "host.costs.switch",
                "from one task to another, until the new one makes progress",
                default.switch,
                "lmbench lat_ctx on x86 servers, 1.5-2 us, and a VM exit and entry",
            ),
            of(
                "host.costs.ipi",
                "from asking another pCPU to schedule until it does",
                default.ipi,
                "assumed: cross-core reschedule IPIs on x86 take about 1 us to delivery",
            ),
            of(
                "host.costs.idle_wake",
                "what an idle pCPU needs on top of the IPI",
                default.idle_wake,
                "Linux drivers/idle/intel_idle.c: exit latency of C1, 2 us",
            ),
            of(
                "host.costs.migration",
                "starting on another pCPU than last time, on top of the switch; without caches",
                default.migration,
                "assumed: KVM has the last pCPU clear the VMCS by IPI (vmx.c, loaded_vmcs_clear) and \
                 waits for it, an IPI there and an answer back at 1 us each",
            ),
            of(
                "host.costs.exit",
                "a VM exit and the entry after it",
                default.exit,
                "kvm-unit-tests vmexit, 2000 cycles at 2.6-3 GHz",
            ),
        ]
    }
}
