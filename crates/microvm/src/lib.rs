// SPDX-License-Identifier: GPL-2.0-only
//! A tiny KVM virtual machine monitor.
//!
//! Problem: tests of schedulers, and calibration, need vCPUs that do one thing each, at once and dependably; a Linux
//! guest takes seconds to boot, under emulation sometimes for ever, and does other things, too.
//! How: a guest is a few instructions that count their rounds in memory that the VMM reads. [`machine`] makes VMs with
//! KVM's interface (Documentation/virt/kvm/api.rst) and runs them, a thread per vCPU, named as QEMU names them. There
//! are two sets of guests: [`image`] is what the testbed's `corun-microvm` runs, on the bare processor with interrupts;
//! [`native`] has the programs of `corun calibrate --here`, which need no kernel.

mod error;
pub mod guest;
pub mod image;
pub mod machine;
mod memory;
pub mod native;

pub use error::MachineError;
