// SPDX-License-Identifier: GPL-2.0-only
//! What a policy must know before vCPUs of several VMs share a core: how the hardware threads of cores are numbered
//! (sysfs), and which threads the administrator lets share a core (core scheduling, `prctl(2)`).

use corun_model::{PcpuId, PcpuSet, SmtOrder};
use std::{fs, io};

/// `prctl()` takes what follows the first number as longs.
pub(crate) const PR_SCHED_CORE_GET: libc::c_ulong = libc::PR_SCHED_CORE_GET as libc::c_ulong;

/// How the hardware threads of these pCPUs are numbered; `None`: not all cores have two, or the order is not a known
/// one.
pub(crate) fn order(online: &PcpuSet) -> Option<SmtOrder> {
    let siblings = |cpu: PcpuId| {
        let path = format!(
            "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list",
            cpu.0
        );
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    order_of(online, siblings)
}

fn order_of(online: &PcpuSet, siblings: impl Fn(PcpuId) -> Option<PcpuSet>) -> Option<SmtOrder> {
    let count = online.len();
    let all = *online == PcpuSet::first(count);
    let half = count / 2;
    let fits = |partner: &dyn Fn(PcpuId) -> u32| {
        let pair = |cpu: PcpuId| [cpu, PcpuId(partner(cpu))].into_iter().collect::<PcpuSet>();
        all && half > 0
            && count == 2 * half
            && online.iter().all(|cpu| siblings(cpu) == Some(pair(cpu)))
    };
    if fits(&|cpu| cpu.0 ^ 1) {
        return Some(SmtOrder::Neighbours);
    }
    let across = |cpu: PcpuId| {
        if cpu.0 < half {
            cpu.0 + half
        } else {
            cpu.0 - half
        }
    };
    fits(&across).then_some(SmtOrder::Halves)
}

/// The core-scheduling cookie of a thread; 0: none, or the kernel or the machine has no core scheduling.
///
/// # Errors
/// It cannot be read: the kernel answers only processes that may trace the thread
/// (`sched_core_share_pid()` in kernel/sched/core_sched.c), and EPERM does not show whether there
/// is a cookie. Or the thread [has gone](is_gone).
pub(crate) fn cookie(tid: u32) -> io::Result<u64> {
    ask(libc::c_ulong::from(tid)).or_else(none_of)
}

fn ask(tid: libc::c_ulong) -> io::Result<u64> {
    const THREAD: libc::c_ulong = 0;
    let mut cookie = 0u64;
    // SAFETY: with these arguments prctl writes eight bytes to where the last one points.
    let result = unsafe {
        libc::prctl(
            libc::PR_SCHED_CORE,
            PR_SCHED_CORE_GET,
            tid,
            THREAD,
            &raw mut cookie,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Can any task have a cookie here? Not without SMT, and not in a kernel built without core
/// scheduling.
pub(crate) fn has_core_scheduling() -> bool {
    const MYSELF: libc::c_ulong = 0;
    ask(MYSELF).map_or_else(|why| none_of(why).is_err(), |_| true)
}

/// What an error says about a cookie: without SMT (ENODEV), or in a kernel built without core
/// scheduling (EINVAL), no thread has any.
fn none_of(error: io::Error) -> io::Result<u64> {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::EINVAL) => Ok(0),
        _ => Err(error),
    }
}

/// Is there no cookie because the thread has gone?
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_by(count: u32, partner: impl Fn(u32) -> u32) -> Option<SmtOrder> {
        let siblings = |cpu: PcpuId| Some([cpu, PcpuId(partner(cpu.0))].into_iter().collect());
        order_of(&PcpuSet::first(count), siblings)
    }

    #[test]
    fn the_numbering_of_desktops_and_servers_is_known() {
        assert_eq!(order_by(8, |cpu| cpu ^ 1), Some(SmtOrder::Neighbours));
        let across = |cpu| if cpu < 4 { cpu + 4 } else { cpu - 4 };
        assert_eq!(order_by(8, across), Some(SmtOrder::Halves));
        // Two pCPUs are both.
        assert_eq!(order_by(2, |cpu| cpu ^ 1), Some(SmtOrder::Neighbours));
    }

    #[test]
    fn cores_of_one_thread_and_gaps_are_not() {
        assert_eq!(order_by(4, |cpu| cpu), None);
        assert_eq!(order_by(3, |cpu| cpu ^ 1), None);
        let online: PcpuSet = "0,2-4".parse().unwrap();
        assert_eq!(order_of(&online, |_| Some(online)), None);
        assert_eq!(order_of(&PcpuSet::first(4), |_| None), None);
    }

    #[test]
    fn a_process_without_a_cookie_has_none() {
        assert_eq!(cookie(std::process::id()).unwrap(), 0);
    }

    #[test]
    fn a_cookie_that_may_not_be_read_is_not_none() {
        let told = |errno| none_of(io::Error::from_raw_os_error(errno));
        assert_eq!(told(libc::ENODEV).unwrap(), 0);
        assert_eq!(told(libc::EINVAL).unwrap(), 0);
        assert!(!is_gone(&told(libc::EPERM).unwrap_err()));
        assert!(is_gone(&told(libc::ESRCH).unwrap_err()));
    }
}
