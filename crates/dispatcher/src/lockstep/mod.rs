// SPDX-License-Identifier: GPL-2.0-only
//! Lockstep: what the kernel decided, decided again by the native build.
//!
//! `corun host --record` writes down every callback of the BPF dispatcher: all it was told and all
//! it did (`dispatcher/platform/tap.h`). [`replay()`] runs the native build through the same
//! callbacks, tells it the same, and compares every decision. That is what entitles the simulator
//! to speak for the kernel.
//!
//! A callback depends on its task's own state, which the native build carries along itself, and on
//! tapped values. The order of callbacks on different CPUs therefore does not matter, except for
//! each task, whose callbacks the kernel serialises and numbers.

mod format;
mod replay;

pub use format::{Entry, FormatError, Record, Recording, Writer};
pub use replay::{Divergence, Outcome, UnderPolicy, replay};
