// SPDX-License-Identifier: GPL-2.0-only
//! What scheduling costs on the modelled hardware.

use corun_model::Nanos;
use corun_model::time::US;

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
    /// How late ticks and the timers that end slices may come, evenly from 0. It matters little but
    /// where tasks compute all the time: there it decides who is behind, and so, who is next.
    pub timer: Nanos,
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
            // Punctual, unless it was measured.
            timer: 0,
        }
    }
}
