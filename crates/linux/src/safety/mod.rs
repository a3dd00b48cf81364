// SPDX-License-Identifier: GPL-2.0-only
//! What keeps a host safe from its scheduler, beyond what the kernel's watchdog sees.
//!
//! The kernel throws out a scheduler that leaves a task waiting for 5 s, and goes back to its own when the daemon's
//! process ends. [`guard`] is for what the watchdog does not see: a promise that is broken although every task runs now
//! and then; the daemon then hands the host back and says why. [`runs`] remembers how runs ended: a daemon that keeps
//! failing is not started again and again. [`postmortem`] writes down what was known when a run ended. A daemon that
//! hangs is the dispatcher's business (dispatcher/platform/lease.h).

pub mod guard;
pub mod postmortem;
pub mod pressure;
pub mod runs;

pub use guard::{Breach, Limits};

/// Where runs are remembered by default.
pub const STATE_DIR: &str = "/var/lib/corun";
