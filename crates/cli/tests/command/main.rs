// SPDX-License-Identifier: GPL-2.0-only
//! The `corun` command as users meet it: run as they run it, on files as they have them, and looked at for
//! what it prints. One program, since each file of tests at the top would be linked on its own; a name
//! (`cargo test -p corun --test command vsmtio`) runs one file of them.

// Helpers of tests, too, say what they expect by panicking.
#![allow(clippy::unwrap_used)]

mod common;

mod advise;
mod bench;
mod book;
mod calibrate;
mod compare;
mod cosched;
mod emergence;
mod guest;
mod half_loaded;
mod host;
mod in_step;
mod jupiter;
mod lock_latency;
mod options;
mod outputs;
mod placement;
mod policy;
mod record;
mod recordings;
mod reference;
mod reproduce;
mod rtapp;
mod sensitivity;
mod top;
mod vsmtio;
mod watch;
mod workloads;
