// SPDX-License-Identifier: GPL-2.0-only
//! The `corun` command as users meet it: run as they run it, on files such as theirs, and judged by what it prints. One
//! program, since each file of tests at the top level would be linked separately; a name (`cargo test -p corun --test
//! command vsmtio`) runs one file of them.

// Test helpers, too, panic when an expectation fails.
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
