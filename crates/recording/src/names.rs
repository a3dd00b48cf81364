// SPDX-License-Identifier: GPL-2.0-only
//! What thread names give away: vCPU threads, a VM's other threads, the VM's own name.
//!
//! Virtual machine monitors name their vCPU threads, and that name is all that most recordings
//! have. KVM's own events, where traced, are surer and take precedence elsewhere.

use crate::model::VmThread;

/// More vCPUs than any VM has; a larger number in a thread name is not a vCPU's.
const MAX_VCPUS: u32 = 4096;

/// The vCPU number in a thread name of QEMU, Firecracker, cloud-hypervisor or crosvm.
pub(crate) fn vcpu_index(comm: &str) -> Option<u32> {
    let number = comm
        .strip_prefix("CPU ")
        .and_then(|rest| rest.strip_suffix("/KVM"))
        .or_else(|| comm.strip_prefix("fc_vcpu "))
        .or_else(|| comm.strip_prefix("crosvm_vcpu"))
        .or_else(|| comm.strip_prefix("vcpu"))?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().filter(|&n| n < MAX_VCPUS)
}

/// The process that a kernel thread named after its owner works for (`vhost-1234`).
pub(crate) fn owner(comm: &str) -> Option<u32> {
    let (kind, tgid) = comm.rsplit_once(['-', '/'])?;
    matches!(kind, "vhost" | "kvm-pit").then(|| tgid.parse().ok())?
}

/// Whether a thread of this name belongs to a virtual machine monitor, going by the name alone.
pub(crate) fn is_monitor_thread(comm: &str) -> bool {
    const PREFIXES: [&str; 8] = [
        "qemu",
        "kvm",
        "IO ",
        "vhost-",
        "firecracker",
        "fc_",
        "cloud-hyp",
        "crosvm",
    ];
    !comm.starts_with("kvm-nx") && PREFIXES.iter().any(|p| comm.starts_with(p)) || comm == "worker"
}

/// Whether the kernel or a virtual machine monitor gives threads this name by itself, so that it tells
/// their part and nothing of whom they serve.
pub(crate) fn is_usual(comm: &str) -> bool {
    const PREFIXES: [&str; 24] = [
        "CPU ",
        "kworker",
        "ksoftirqd/",
        "migration/",
        "rcu",
        "kthreadd",
        "cpuhp/",
        "idle_inject/",
        "irq/",
        "kswapd",
        "kcompactd",
        "khugepaged",
        "ksmd",
        "oom_reaper",
        "writeback",
        "watchdog",
        "kvm-",
        "vhost-",
        "qemu",
        "firecracker",
        "fc_",
        "cloud-hyp",
        "crosvm",
        "swapper",
    ];
    let only = ["worker", "vnc_worker", "call_rcu", "corun"];
    vcpu_index(comm).is_some()
        || only.contains(&comm)
        || PREFIXES.iter().any(|prefix| comm.starts_with(prefix))
}

/// What a VM's thread that is not a vCPU does; `main` if its thread id is the process id.
pub(crate) fn vm_thread(comm: &str, main: bool) -> VmThread {
    if main {
        VmThread::Emulator
    } else if comm.starts_with("IO ") {
        VmThread::Iothread
    } else if comm == "worker" {
        VmThread::Worker
    } else if comm.starts_with("vhost-") {
        VmThread::Vhost
    } else {
        VmThread::Other
    }
}

/// The VM's name on a command line: QEMU's `-name NAME` or `-name guest=NAME,…`, or `--id NAME`.
pub(crate) fn vm_name(cmdline: &str) -> Option<String> {
    let mut words = cmdline.split_whitespace();
    while let Some(word) = words.next() {
        let value = match word {
            "-name" | "--name" | "--id" => words.next()?,
            _ => match word.strip_prefix("--id=") {
                Some(value) => value,
                None => continue,
            },
        };
        let named = value
            .split(',')
            .find_map(|part| part.strip_prefix("guest="));
        let name = named.or_else(|| value.split(',').next())?;
        return (!name.is_empty()).then(|| name.to_string());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpu_threads_of_every_monitor() {
        assert_eq!(vcpu_index("CPU 0/KVM"), Some(0));
        assert_eq!(vcpu_index("CPU 117/KVM"), Some(117));
        assert_eq!(vcpu_index("fc_vcpu 3"), Some(3));
        assert_eq!(vcpu_index("vcpu12"), Some(12));
        assert_eq!(vcpu_index("crosvm_vcpu1"), Some(1));
    }

    #[test]
    fn what_only_looks_like_one() {
        for comm in [
            "CPU 0/TCG",
            "CPU /KVM",
            "vcpu",
            "vcpu-1",
            "vcpu99999",
            "cpuhp/0",
        ] {
            assert_eq!(vcpu_index(comm), None, "{comm}");
        }
    }

    #[test]
    fn names_on_command_lines() {
        let name = |line: &str| vm_name(line);
        assert_eq!(
            name("qemu -name guest=web,debug-threads=on -M pc").as_deref(),
            Some("web")
        );
        assert_eq!(
            name("qemu -name debug-threads=on,guest=db").as_deref(),
            Some("db")
        );
        assert_eq!(
            name("kvm -id 100 -name mail -smp 2").as_deref(),
            Some("mail")
        );
        assert_eq!(
            name("firecracker --id vm-7 --api-sock x").as_deref(),
            Some("vm-7")
        );
        assert_eq!(name("firecracker --id=vm-7").as_deref(), Some("vm-7"));
        assert_eq!(name("qemu -name"), None);
        assert_eq!(name("qemu -M pc"), None);
    }

    #[test]
    fn owners_of_kernel_threads() {
        assert_eq!(owner("vhost-1234"), Some(1234));
        assert_eq!(owner("kvm-pit/99"), Some(99));
        assert_eq!(owner("kworker/0-1"), None);
    }
}
