// SPDX-License-Identifier: GPL-2.0-only
//! What scheduling costs on the modelled hardware.

use corun_model::time::{HOST_HZ, US};
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
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            // lmbench-style switches of x86 servers take 1.5-2 µs; a VM exit and entry adds ~1 µs.
            switch: 2_500,
            // Cross-core reschedule IPIs on x86: about 1 µs to delivery.
            ipi: US,
            // C1 exit latency as the kernel's intel_idle tables state it: 2 µs.
            idle_wake: 2 * US,
        }
    }
}

/// The machine's parameters: its ticks and what scheduling costs.
pub fn parameters() -> Vec<Parameter> {
    let costs = Costs::default();
    let cost = |key, meaning, value, source, tried| Parameter {
        key,
        meaning,
        value: Value::Time(value),
        source,
        tried,
    };
    vec![
        Parameter {
            key: "host.hz",
            meaning: "scheduler ticks of a busy pCPU; an idle one has none",
            value: Value::Number(f64::from(HOST_HZ), "/s"),
            source: "`CONFIG_HZ` of Debian and Ubuntu; Fedora and RHEL have 1000",
            tried: "100, 250, 1000 on experiments/example.toml",
        },
        Parameter {
            key: "host.tick_skew",
            meaning: "are the pCPUs' ticks spread over half a period?",
            value: Value::Switch(false),
            source: "Linux did so until 2.6.38 (kernel/time/tick-sched.c), today with skew_tick=1 only",
            tried: "both",
        },
        cost(
            "host.costs.switch",
            "from one task to another until the new one makes progress",
            costs.switch,
            "lmbench-style switches of x86 servers take 1.5-2 µs; a VM exit and entry adds about 1 µs",
            "0.5 to 10 µs on experiments/example.toml",
        ),
        cost(
            "host.costs.ipi",
            "from asking another pCPU to schedule until it does",
            costs.ipi,
            "cross-core reschedule IPIs on x86: about 1 µs to delivery",
            "0.25 to 4 µs on experiments/example.toml",
        ),
        cost(
            "host.costs.idle_wake",
            "what an idle pCPU needs to get going, on top of the IPI",
            costs.idle_wake,
            "C1 exit latency in the tables of Linux' intel_idle driver",
            "0.5 to 50 µs on experiments/example.toml",
        ),
    ]
}
