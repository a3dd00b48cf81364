// SPDX-License-Identifier: GPL-2.0-only
//! What both sides need from the kernel.

use corun_model::PcpuId;
use corun_system::affinity;
use std::io;

pub use corun_system::clock::{now, sleep_until};

/// Ties the calling thread to one CPU.
pub fn pin(cpu: u64) -> io::Result<()> {
    let cpu = u32::try_from(cpu).map_err(io::Error::other)?;
    affinity::pin(0, PcpuId(cpu))
}

/// Gives the calling thread the least weight.
pub fn be_nice() -> io::Result<()> {
    // SAFETY: three integers; on Linux 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many CPUs the calling thread may use.
pub fn allowed() -> io::Result<u32> {
    Ok(affinity::get(0)?.len())
}
