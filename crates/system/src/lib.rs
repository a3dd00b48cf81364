// SPDX-License-Identifier: GPL-2.0-only
//! The interface to Linux that both of corun's daemons need, the one on a host ([corun-linux]) and the one in a guest
//! ([corun-guest]): what /proc shows of threads ([`procfs`]), their affinity ([`affinity`]) and cpusets ([`cpusets`]),
//! files that survive a crash ([`files`]), the kernel's clocks ([`clock`]), signals that ask a daemon to end
//! ([`signals`]), what to tell people who lack a right ([`rights`]); and whether a process was given a standard output
//! ([`closed`]).
//!
//! This crate speaks of CPUs, which in a guest are its vCPUs, and uses [`PcpuSet`] for sets of either.
//!
//! [corun-linux]: ../corun_linux/index.html
//! [corun-guest]: ../corun_guest/index.html
//! [`PcpuSet`]: corun_model::PcpuSet

pub mod affinity;
pub mod clock;
pub mod closed;
pub mod cpusets;
pub mod files;
pub mod procfs;
pub mod rights;
pub mod signals;
