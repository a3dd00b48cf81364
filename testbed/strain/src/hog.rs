// SPDX-License-Identifier: GPL-2.0-only
//! A real-time thread that takes a whole pCPU: no ordinary task, and none of sched_ext's, runs there, except in the
//! time that the kernel keeps for them (sched_rt_runtime_us).

use anyhow::{Context, ensure};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Above the kernel's threads that are real-time by default, except for the stopper.
const PRIORITY: libc::c_int = 50;

/// Computes for this many seconds and prints for how much of that it had a pCPU, nanoseconds.
pub fn run(seconds: u32) -> anyhow::Result<()> {
    let wanted = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `wanted` is readable; the calling thread only.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) };
    ensure!(
        status == 0,
        "cannot become a real-time thread: {}",
        io::Error::last_os_error()
    );
    let end = Instant::now() + Duration::from_secs(u64::from(seconds));
    let before = ran()?;
    while Instant::now() < end {}
    println!("hog\t{}", ran()? - before);
    Ok(())
}

/// Time that this thread had a pCPU so far, nanoseconds.
fn ran() -> anyhow::Result<u64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat")?;
    let ran = stat.split(' ').next().and_then(|word| word.parse().ok());
    ran.with_context(|| format!("/proc/thread-self/schedstat says {stat:?}"))
}
