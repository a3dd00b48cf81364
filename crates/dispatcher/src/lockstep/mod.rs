// SPDX-License-Identifier: GPL-2.0-only
//! Lockstep: what the kernel decided, decided again by the native build.
//!
//! `corun host --record` writes down every callback of the BPF dispatcher: all inputs and all
//! decisions (`dispatcher/platform/tap.h`). [`replay()`] runs the native build through the same
//! callbacks with the same inputs, and compares every decision. That is why simulations can stand
//! for the kernel.
//!
//! A callback depends on its task's own state, which the native build carries along itself, and on
//! tapped values. So the order of callbacks on different CPUs does not matter, except among those
//! for one task, which the kernel serialises and the dispatcher numbers.

mod format;
mod replay;

pub use format::{Entry, FormatError, Record, Recording, Writer};
pub use replay::{Divergence, Outcome, UnderPolicy, replay};
