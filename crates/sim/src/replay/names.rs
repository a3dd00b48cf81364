// SPDX-License-Identifier: GPL-2.0-only
//! What the names of kernel threads tell about their affinity and weight.
//!
//! The recording's model contains neither. For most tasks the usual values suffice; for the
//! kernel's own threads they are far off: `khugepaged` is always at nice 19, and if it scanned all
//! the time at nice 0 it would take a third of a pCPU that it never had.

use corun_model::NEUTRAL_WEIGHT;

/// The pCPU in the name of a per-CPU kernel thread such as `kworker/1:2H` or `ksoftirqd/0`.
pub(super) fn bound_to(comm: &str) -> Option<u32> {
    const BOUND: [&str; 6] = [
        "ksoftirqd",
        "migration",
        "cpuhp",
        "irq_work",
        "rcuc",
        "idle_inject",
    ];
    let (kind, rest) = comm.split_once('/')?;
    let number = match kind {
        // `kworker/u4:1` is not bound.
        "kworker" => rest.split_once(':')?.0,
        kind if BOUND.contains(&kind) => rest,
        _ => return None,
    };
    number.parse().ok()
}

/// The weight of a host task: that of the nice value which the kernel gives its threads
/// (`sched_prio_to_weight`, 100 for nice 0).
pub(super) fn weight(comm: &str) -> u32 {
    match comm {
        // Nice 19 (mm/khugepaged.c): 15 of 1024.
        "khugepaged" => 1,
        // Nice 5 (mm/ksm.c): 335 of 1024.
        "ksmd" => 33,
        // Highest-priority workers, nice -20: 88761 of 1024.
        _ if is_urgent_worker(comm) => 8668,
        _ => NEUTRAL_WEIGHT,
    }
}

/// `kworker/0:1H`, with or without what it works on.
fn is_urgent_worker(comm: &str) -> bool {
    let Some((_, id)) = comm
        .strip_prefix("kworker/")
        .and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let id = id.split(['-', '+']).next().unwrap_or(id);
    id.ends_with('H')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn per_cpu_kernel_threads() {
        assert_eq!(bound_to("kworker/1:2H"), Some(1));
        assert_eq!(bound_to("kworker/1:2-events"), Some(1));
        assert_eq!(bound_to("kworker/u8:2"), None);
        assert_eq!(bound_to("ksoftirqd/3"), Some(3));
        assert_eq!(bound_to("jbd2/sda1-8"), None);
        assert_eq!(bound_to("CPU 0/KVM"), None);
    }

    #[test]
    fn weights_of_kernel_threads() {
        assert_eq!(weight("khugepaged"), 1);
        assert_eq!(weight("kworker/0:1H-kblockd"), 8668);
        assert_eq!(weight("kworker/0:1-Host"), 100);
        assert_eq!(weight("qemu-system-x86"), 100);
    }
}
