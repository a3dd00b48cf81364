// SPDX-License-Identifier: GPL-2.0-only
//! Masks that the kernel has widened, because the vCPU of a moved thread was unplugged or taken from its
//! cpuset.
//!
//! Such a thread may use all of its cpuset, as if it had been given back. But if what the cpuset contains has changed
//! (when a vCPU goes, that changes for every cpuset but the root's), the kernel keeps the mask that was asked for last
//! (`user_cpus_ptr`, kernel/sched/core.c), and binds the thread to its vCPU again when that comes back, even if this
//! daemon has ended by then (seen with Linux 7.2). So it is set free, which changes nothing else: it may already use
//! all that there is. If somebody has bound it, since its last move, to exactly what is left, that is what they meant.

use super::{Before, is_settable};
use crate::system::Sys;
use corun_model::PcpuSet;
use corun_system::affinity;
use corun_system::procfs::{Proc, ThreadKey};
use std::io;

/// May a thread with this mask use all that it could if it were free? `all`: what its cpuset has.
fn is_widest(mask: &PcpuSet, all: Option<PcpuSet>, online: &PcpuSet) -> bool {
    let most = all.map_or(*online, |all| all.and(online));
    !mask.is_empty() && mask.and(&most) == most
}

/// Makes the kernel forget where a thread was pinned, if its mask is as wide as can be.
///
/// # Errors
/// If its mask cannot be set.
pub(crate) fn loosen(proc: &Proc, key: &ThreadKey, before: &Before) -> io::Result<()> {
    let sys = Sys::default();
    let (Some(online), Ok(mask)) = (sys.online(), affinity::get(key.tid)) else {
        return Ok(());
    };
    let cpuset = sys.cpuset(&proc.thread(key.tgid, key.tid).cgroups());
    if !before.free || !is_settable(proc, key) || !is_widest(&mask, cpuset, &online) {
        return Ok(());
    }
    match affinity::free(key.tid) {
        Err(error) if affinity::is_gone(&error) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_wide_as_can_be_is_all_of_what_is_online_in_a_cpuset() {
        let set = |list: &str| -> PcpuSet { list.parse().unwrap() };
        for (mask, cpuset, online, expected) in [
            ("0,2", None, "0,2", true),
            ("0,2-3", None, "0,2", true),
            ("0,2", Some("0-3"), "0,2", true),
            ("0,2", Some("0,2"), "0-3", true),
            ("2", Some("0,2"), "0-3", false),
            ("2", None, "0,2", false),
            ("0", Some("0"), "0-1", true),
        ] {
            let got = is_widest(&set(mask), cpuset.map(set), &set(online));
            assert_eq!(got, expected, "{mask} of {cpuset:?} of {online}");
        }
        assert!(!is_widest(&PcpuSet::default(), None, &set("0")));
    }
}
