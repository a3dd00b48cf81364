// SPDX-License-Identifier: GPL-2.0-only
//! What scheduling costs on the modelled hardware.

use corun_model::time::{HOST_HZ, US};
use corun_model::{Nanos, Parameter, Value};

/// Costs in ns. They are properties of the machine, the same for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A switch from one task to another on a pCPU, until the new one makes progress: scheduler,
    /// register and VM state, exit and entry.
    pub switch: Nanos,
    /// From asking another pCPU to schedule until it does.
    pub ipi: Nanos,
    /// What an idle pCPU needs to get going, on top of the IPI.
    pub idle_wake: Nanos,
    /// On top of a switch, to a task that ran on another pCPU last: the kernel's part of a
    /// migration. What it costs in the caches is modelled separately.
    pub migration: Nanos,
    /// One VM exit with the entry after it, if the host does nothing in between.
    pub exit: Nanos,
    /// What a preempted task loses in addition to the switch: from leaving its guest until the
    /// switch it counts as running but does nothing. Charged when it runs again.
    pub preemption: Nanos,
    /// How late ticks and the timers that end slices may come, evenly distributed from 0. It
    /// matters little, except if tasks compute all the time: then it decides which task is behind,
    /// and thus which is next.
    pub timer: Nanos,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            switch: 2_500,
            ipi: US,
            idle_wake: 2 * US,
            migration: 2 * US,
            exit: 700,
            // Part of `switch`, unless it was measured separately.
            preemption: 0,
            // Timers are punctual, unless their lateness was measured.
            timer: 0,
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
        preemption: 0,
        timer: 0,
    };
}

/// The machine's parameters: its ticks and what scheduling costs.
pub fn parameters() -> Vec<Parameter> {
    let costs = Costs::default();
    let cost = |key, meaning, value, source, tried| {
        Parameter::new(key, meaning, Value::Time(value), source, tried)
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
            "C1 exit latency in the tables of Linux' intel_idle driver; deeper states: `host.idle_states`",
            "0.5 to 50 µs on experiments/example.toml",
        ),
        Parameter {
            key: "host.idle_states",
            meaning: "states that idle cores sleep in, with the time to leave each",
            value: Value::None,
            source: "none: `host.costs.idle_wake`. Of a machine: the tables of Linux' intel_idle driver, \
                     whose exit latencies are maxima (Sandy Bridge: 2, 10, 80 and 104 µs)",
            tried: "none and Sandy Bridge's on experiments/jupiter/fig4-1.toml",
        },
        cost(
            "host.costs.migration",
            "starting on another pCPU than last time, on top of the switch; without caches",
            costs.migration,
            "assumed: KVM has the last pCPU clear the VMCS by IPI (vmx.c, loaded_vmcs_clear) and \
             waits for it, an IPI there and an answer back at 1 us each",
            "not varied",
        ),
        cost(
            "host.costs.exit",
            "a VM exit and the entry after it",
            costs.exit,
            "kvm-unit-tests vmexit, 2000 cycles at 2.6-3 GHz",
            "not varied",
        ),
        cost(
            "host.costs.preemption",
            "what a preempted task loses on top of the switch, still counting as running",
            costs.preemption,
            "part of the switch, unless it was measured apart (docs/validation.md)",
            "0 and what the testbed showed",
        ),
        cost(
            "host.costs.timer",
            "how late ticks and the timers that end slices may come, evenly from 0",
            costs.timer,
            "punctual, unless it was measured (docs/validation.md)",
            "0 and what the testbed showed",
        ),
    ]
}
