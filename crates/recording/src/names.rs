// SPDX-License-Identifier: GPL-2.0-only
//! What thread names give away: vCPU threads, a VM's other threads, the VM's own name.
//!
//! Virtual machine monitors name their vCPU threads, and that name is all that most recordings
//! have. KVM's own events, where traced, are more reliable; where both exist they take precedence.

use crate::model::VmThread;

/// More vCPUs than any VM has; a larger number in a thread name is not a vCPU's.
const MAX_VCPUS: u32 = 4096;

/// The vCPU number in a thread name of QEMU, Firecracker, cloud-hypervisor or crosvm.
pub fn vcpu_index(comm: &str) -> Option<u32> {
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

/// Names that the kernel and virtual machine monitors give threads of their own accord: they show a thread's role but
/// not which VM it serves. `#` is a number.
const USUAL: &[&str] = &[
    // QEMU, on the architectures that have KVM, and its threads.
    "qemu-kvm",
    "kvm",
    "qemu-system-x#_#",
    "qemu-system-i#",
    "qemu-system-aarch#",
    "qemu-system-arm",
    "qemu-system-loongarch#",
    "qemu-system-ppc#",
    "qemu-system-riscv#",
    "qemu-system-s#x",
    "CPU #/KVM",
    "CPU #/TCG",
    "worker",
    "vnc_worker",
    "call_rcu",
    // Firecracker, cloud-hypervisor, crosvm.
    "firecracker",
    "fc_api",
    "fc_vmm",
    "fc_vcpu #",
    "cloud-hypervisor",
    "vcpu#",
    "crosvm",
    "crosvm_vcpu#",
    // What KVM and vhost run for a VM.
    "kvm-nx-lpage-recovery-#",
    "kvm-pit/#",
    "vhost-#",
    // The kernel, for all.
    "swapper",
    "swapper/#",
    "kthreadd",
    "ksoftirqd/#",
    "migration/#",
    "cpuhp/#",
    "idle_inject/#",
    "irq_work/#",
    "irq/#",
    "kworker/#:#",
    "kworker/#:#H",
    "kworker/u#:#",
    "kworker/u#:#H",
    "kworker/R",
    "kworker/dying",
    "rcu_bh",
    "rcu_gp",
    "rcu_par_gp",
    "rcu_preempt",
    "rcu_sched",
    "rcu_exp_gp_kthread_worker",
    "rcu_exp_par_gp_kthread_worker/#",
    "rcu_tasks_kthread",
    "rcu_tasks_rude_kthread",
    "rcu_tasks_trace_kthread",
    "rcub/#",
    "rcuc/#",
    "rcuog/#",
    "rcuop/#",
    "rcuos/#",
    "kswapd#",
    "kcompactd#",
    "khugepaged",
    "ksmd",
    "oom_reaper",
    "watchdog/#",
];

/// Where the kernel cuts off names, bytes.
const LONGEST: usize = 15;

/// The part of a name that the kernel or a virtual machine monitor gives of its own accord: mostly all of it; for a
/// kernel thread only what precedes the thing it works on (`kworker/1:2H-xfs-conv/sda1`, `irq/24-eth0`). `None`: the
/// name may have been chosen by somebody else.
pub(crate) fn usual(comm: &str) -> Option<&str> {
    let part = match comm.split_once('/') {
        Some(("kworker" | "irq", _)) => comm.split(['-', '+']).next()?,
        _ => comm,
    };
    let form = without_numbers(part);
    let cut = part.len() == LONGEST;
    let known = |usual: &&str| form == *usual || cut && usual.starts_with(&form);
    USUAL.iter().any(known).then_some(part)
}

/// The name with `#` for each number in it.
fn without_numbers(name: &str) -> String {
    let mut form = String::new();
    for letter in name.chars() {
        if !letter.is_ascii_digit() {
            form.push(letter);
        } else if !form.ends_with('#') {
            form.push('#');
        }
    }
    form
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

/// The VM's name on a command line: QEMU's `-name NAME` or `-name guest=NAME,…`, or `--id NAME`. After `guest=`, which
/// libvirt writes, the name may contain spaces: it goes on to the next comma or option.
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
        if value.split(',').any(|part| part.starts_with("guest=")) {
            let rest = words.take_while(|word| !word.starts_with('-'));
            let value: Vec<&str> = std::iter::once(value).chain(rest).collect();
            let value = value.join(" ");
            let named = value
                .split(',')
                .find_map(|part| part.strip_prefix("guest="));
            return named
                .filter(|name| !name.is_empty())
                .map(ToString::to_string);
        }
        let name = value.split(',').next()?;
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
        for line in [
            "qemu -name guest=web 2,debug-threads=on -M pc,accel=kvm",
            "qemu -name debug-threads=on,guest=web 2 -M pc,accel=kvm",
            "qemu -name guest=web 2 -M pc",
            "simulated -name guest=web 2",
        ] {
            assert_eq!(name(line).as_deref(), Some("web 2"), "{line}");
        }
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

    #[test]
    fn usual_names_are_known_whole() {
        for comm in [
            "qemu-system-x86",
            "qemu-system-i38",
            "qemu-system-aar",
            "qemu-system-s39",
            "qemu-kvm",
            "CPU 3/KVM",
            "fc_vcpu 0",
            "fc_api",
            "cloud-hyperviso",
            "vcpu7",
            "kvm-nx-lpage-re",
            "kvm-nx-lpage-recovery-4711",
            "kvm-pit/4711",
            "vhost-4711",
            "rcu_preempt",
            "rcu_tasks_rude_",
            "rcuop/12",
            "kworker/0:1H",
            "kworker/u8:2",
            "kswapd0",
            "watchdog/1",
        ] {
            assert_eq!(usual(comm), Some(comm));
        }
    }

    #[test]
    fn names_that_only_begin_as_usual_ones_do() {
        for comm in [
            "qemu:secretvm",
            "qemu-acme",
            "qemu-system-acm",
            "qemu-system-",
            "watchdog-acme",
            "watchdog",
            "rcustomer-db",
            "rcu_customer",
            "fc_acmecorp",
            "fc_vcpu acme",
            "kvm-acme",
            "vhost-acme",
            "vhost-12-acme",
            "firecracker-acm",
            "crosvm-acme",
            "CPU 0/acme",
            "CPU acme",
            "kworker-acme",
            "kworker/acme",
            "irq/acme",
            "ksoftirqd/acme",
            "writeback-acme",
            "swapper-acme",
            "workers",
            "",
        ] {
            assert_eq!(usual(comm), None, "{comm}");
        }
    }

    #[test]
    fn what_kernel_threads_work_at_is_not_usual() {
        for (comm, part) in [
            ("kworker/1:2H-xfs-conv/sda1", "kworker/1:2H"),
            ("kworker/u9:0+wg-crypt-acme", "kworker/u9:0"),
            ("kworker/R-wg-crypt-acme", "kworker/R"),
            ("irq/24-acme0-tx", "irq/24"),
        ] {
            assert_eq!(usual(comm), Some(part));
        }
    }
}
