// SPDX-License-Identifier: GPL-2.0-only
//! corun on a Linux host: the dispatcher as a sched_ext scheduler, and a policy in a daemon.
//!
//! [`host::run`] is the whole daemon. Its parts, in the order in which they come into play:
//!
//! - [`preflight`]: may it start?
//! - loader: loads the dispatcher into the kernel, and takes it out again
//! - discovery and helpers: which VMs there are, and which other threads serve them
//! - control: counters → policy → plan
//! - apply: plan → the dispatcher's tables
//! - [`safety`]: whether promises are kept, and what to do if not
//! - [`stats`], recorder, [`socket`]: what it reports
//!
//! [`stock::run`] is the daemon for kernels without sched_ext. It serves policies that can be carried out by setting
//! slices and affinities of threads.
//!
//! [`record`] writes down what pCPUs and vCPUs do, for replays; it changes nothing.
//!
//! Whatever becomes of the daemon, the kernel goes on scheduling by the last plan. When the daemon's process
//! ends, for whatever reason, the kernel goes back to its own scheduler.

mod apply;
mod awaited;
mod books;
mod by_id;
mod cgroup;
mod confine;
mod control;
mod cookies;
mod counters;
mod cycles;
mod daemon;
#[cfg(test)]
mod depth_tests;
mod descriptors;
mod discovery;
mod halt_poll;
mod helpers;
mod holds;
pub mod host;
mod inventory;
mod ipis;
mod knobs;
#[cfg(test)]
mod layout_tests;
mod loader;
mod log;
pub mod machine;
mod mapping;
mod namespaces;
mod object;
pub mod observe;
mod output;
mod outside;
mod perf;
mod pidfd;
pub mod preflight;
mod priority;
pub mod record;
mod recorder;
pub mod safety;
mod sched_ext;
mod skel;
mod smt;
pub mod socket;
mod stats;
pub mod status;
pub mod stock;
mod tables;
mod tags;
pub mod trial;
mod vcpu_own;
mod vm_table;
pub mod watch;

pub use confine::ConfineError;
pub use loader::{ExitInfo, LoadError};
