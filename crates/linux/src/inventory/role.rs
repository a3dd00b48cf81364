// SPDX-License-Identifier: GPL-2.0-only
//! What a thread of a VMM is for, by its name.
//!
//! QEMU names its threads with `-name …,debug-threads=on`, which libvirt and Proxmox always give
//! (`CPU n/KVM`, `IO <id>`, `worker`, `vnc_worker`, `call_rcu`); cloud-hypervisor (`vcpu<n>`, and one
//! thread per device queue, `_disk0_q0`, `_net1_qp0`), Firecracker (`fc_vcpu <n>`) and crosvm (`crosvm_vcpu<n>`) always do. The
//! kernel's vhost workers have the VMM's process number in their name (`vhost-<pid>`), and are threads
//! of the VMM since Linux 6.4 (kernel/vhost_task.c).

use serde::Serialize;

/// What a thread is for. vCPUs come first, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs a vCPU: its number.
    Vcpu(u32),
    /// Serves devices: QEMU's I/O threads, the queues of cloud-hypervisor's devices.
    Io,
    /// The kernel's part of a device.
    Vhost,
    /// Everything else the VMM does.
    Emulator,
}

impl Role {
    /// By a thread's name.
    pub fn of(name: &str) -> Self {
        if let Some(number) = vcpu_number(name) {
            return Self::Vcpu(number);
        }
        let queue = name.starts_with('_') && name.contains("_q");
        match name {
            _ if name.starts_with("IO ") || name.starts_with("iothread") || queue => Self::Io,
            _ if name.starts_with("vhost-") => Self::Vhost,
            _ => Self::Emulator,
        }
    }

    /// As shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vcpu(_) => "vcpu",
            Self::Io => "io",
            Self::Vhost => "vhost",
            Self::Emulator => "emulator",
        }
    }

    /// Is it a vCPU?
    pub fn is_vcpu(self) -> bool {
        matches!(self, Self::Vcpu(_))
    }
}

/// The number in a vCPU thread's name: `CPU 3/KVM` (QEMU), `fc_vcpu 3` (Firecracker), `vcpu3`
/// (cloud-hypervisor), `crosvm_vcpu3`.
pub(crate) fn vcpu_number(thread: &str) -> Option<u32> {
    let qemu = thread
        .strip_prefix("CPU ")
        .and_then(|rest| rest.strip_suffix("/KVM"));
    let number = qemu
        .or_else(|| thread.strip_prefix("fc_vcpu "))
        .or_else(|| thread.strip_prefix("crosvm_vcpu"))
        .or_else(|| thread.strip_prefix("vcpu"))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_by_their_names() {
        let roles = [
            ("CPU 12/KVM", Role::Vcpu(12)),
            ("fc_vcpu 0", Role::Vcpu(0)),
            ("vcpu3", Role::Vcpu(3)),
            ("crosvm_vcpu2", Role::Vcpu(2)),
            ("IO mon_iothread", Role::Io),
            ("IO iothread1", Role::Io),
            ("_disk0_q0", Role::Io),
            ("_net1_qp0", Role::Io),
            ("vhost-1234", Role::Vhost),
            ("qemu-system-x86", Role::Emulator),
            ("worker", Role::Emulator),
            ("CPU 0/TCG", Role::Emulator),
            ("vcpu", Role::Emulator),
        ];
        for (name, role) in roles {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }

    #[test]
    fn vcpus_come_first_and_in_order() {
        let mut roles = [Role::Emulator, Role::Vcpu(10), Role::Io, Role::Vcpu(2)];
        roles.sort_unstable();
        let wanted = [Role::Vcpu(2), Role::Vcpu(10), Role::Io, Role::Emulator];
        assert_eq!(roles, wanted);
    }
}
