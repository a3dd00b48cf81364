// SPDX-License-Identifier: GPL-2.0-only
//! What each VM and vCPU gets, seen from outside: on any kernel, under any scheduler, touching nothing.
//!
//! [`sample`] adds up what the kernel counts of each thread (`schedstat`: time on a pCPU, time wanting
//! one, turns) and of each VM's cgroup (`cpu.stat`: time throttled); if `corun host` runs, what it knows
//! beside. [`rates`] turns two samples into shares of time, in the words of esxtop; [`prometheus`]
//! turns one into counters in seconds, with what [`totals`] remembers of those that went. docs/metrics.md defines them.

pub mod prometheus;
pub mod rates;
pub mod sample;
pub mod totals;

pub use corun_system::procfs::Counted;
pub use rates::{Order, Row, rows};
pub use sample::{Sample, Sampler};
pub use totals::Totals;
