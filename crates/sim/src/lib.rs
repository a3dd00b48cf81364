// SPDX-License-Identifier: GPL-2.0-only
//! corun's simulator: a modelled KVM host in virtual time.
//!
//! A [`Simulation`] brings three things together: a [`host`] (facts: pCPUs, tasks, time), a
//! [`sched`] (which task runs where: corun's dispatcher or a model of another scheduler) and a
//! [`load`] (what tasks want: modelled guests or a recorded host's demand). Same input and seed,
//! same output.

pub mod alone;
pub mod bench;
pub mod complexity;
mod control;
pub mod device;
mod event_queue;
pub mod guest;
pub mod host;
pub mod load;
mod parameters;
pub mod replay;
pub mod rng;
pub mod sched;
mod simulation;
#[cfg(test)]
mod testing;
mod waits;
mod watch;
pub mod workload;

pub use parameters::parameters;
pub use simulation::{Outcome, Simulation, VmOutcome};
pub use waits::Waits;
pub use watch::Recognition;
