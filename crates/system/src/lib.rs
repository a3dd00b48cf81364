// SPDX-License-Identifier: GPL-2.0-only
//! What corun's daemons need of the Linux they run on, in a host ([corun-linux]) and in a guest
//! ([corun-guest]) alike: what /proc says of threads ([`procfs`]), their affinity ([`affinity`]), files that
//! outlive a crash ([`files`]), the kernel's clocks ([`clock`]), signals that ask to end ([`signals`]).
//!
//! To a guest's kernel a vCPU is a CPU; this crate speaks of CPUs, and of sets of them as [`PcpuSet`]s.
//!
//! [corun-linux]: ../corun_linux/index.html
//! [corun-guest]: ../corun_guest/index.html
//! [`PcpuSet`]: corun_model::PcpuSet

pub mod affinity;
pub mod clock;
pub mod files;
pub mod procfs;
pub mod signals;
