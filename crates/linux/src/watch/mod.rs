// SPDX-License-Identifier: GPL-2.0-only
//! What each VM and vCPU gets, seen from outside: on any kernel, under any scheduler, touching nothing.
//!
//! [`sample`] adds up what the kernel counts for each thread (`schedstat`: time on a pCPU, time wanting one, turns) and
//! for each VM's cgroup (`cpu.stat`: time throttled); if `corun host` runs, also what that knows. [`rates`] turns two
//! samples into shares of time, in esxtop's terms; [`prometheus`] turns one into counters in seconds, with what
//! [`totals`] remembers of parts that have gone. docs/metrics.md defines them.

pub mod prometheus;
pub mod rates;
pub mod sample;
pub mod totals;

pub use corun_system::procfs::Counted;
pub use rates::{Order, Row, rows};
pub use sample::{Sample, Sampler};
pub use totals::Totals;
