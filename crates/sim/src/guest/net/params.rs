// SPDX-License-Identifier: GPL-2.0-only
//! What a guest kernel's network path is like and costs.

use corun_model::{Nanos, Parameter, Value};

/// A guest kernel's network path and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetParams {
    /// The vCPU that takes the first receive queue's interrupt, the next one the second queue's and
    /// so on, modulo the number of vCPUs. 0: where Linux puts it without irqbalance.
    pub irq: u32,
    /// Receive queues, 1–512; connections are spread over them. 1: virtio-net's default.
    pub queues: u32,
    /// Kernel work for a packet, received or sent. 3 us: some 8000 cycles for driver, IP, TCP and
    /// socket at 2.6 GHz, the order that profiles of Linux's stack show.
    pub packet: Nanos,
    /// Copying a KiB between kernel and program. 250 ns: 4 GB/s, one core's copy from memory.
    pub copy: Nanos,
    /// The exit that tells the host about packets. 2 us: an I/O exit handled in the kernel (ioeventfd),
    /// kvm-unit-tests `vmexit` `pci-io-eventfd`, 3000–5000 cycles.
    pub kick: Nanos,
}

impl Default for NetParams {
    fn default() -> Self {
        Self {
            irq: 0,
            queues: 1,
            packet: 3_000,
            copy: 250,
            kick: 2_000,
        }
    }
}

/// The guest network path's parameters, for the table of all parameters.
pub fn parameters() -> Vec<Parameter> {
    let default = NetParams::default();
    let parameter = Parameter::new;
    vec![
        parameter(
            "vm.*.guest.net_irq",
            "vCPU that takes the first receive queue's interrupt",
            Value::Number(f64::from(default.irq), ""),
            "Linux without irqbalance",
            "0 and 1 in tests",
        ),
        parameter(
            "vm.*.guest.net_queues",
            "receive queues, each with its own interrupt",
            Value::Number(f64::from(default.queues), ""),
            "virtio-net without mq",
            "1 and 2 in tests",
        ),
        parameter(
            "vm.*.guest.net_packet",
            "kernel work for a packet, received or sent",
            Value::Time(default.packet),
            "assumed: 8000 cycles at 2.6 GHz, the order that profiles of Linux's stack show",
            "0 and 3 us in tests",
        ),
        parameter(
            "vm.*.guest.net_copy",
            "copying a KiB between kernel and program",
            Value::Time(default.copy),
            "assumed: 4 GB/s, one core's copy from memory",
            "0 and 250 ns in tests",
        ),
        parameter(
            "vm.*.guest.net_kick",
            "the exit that tells the host of packets",
            Value::Time(default.kick),
            "kvm-unit-tests `vmexit`, its `pci-io-eventfd`: 3000–5000 cycles (an exit alone: `host.costs.exit`)",
            "0 and 2 us in tests",
        ),
    ]
}

impl NetParams {
    /// What copying so many bytes costs.
    pub(super) fn copying(&self, bytes: u64) -> Nanos {
        (u128::from(bytes) * u128::from(self.copy) / 1024) as Nanos
    }
}
