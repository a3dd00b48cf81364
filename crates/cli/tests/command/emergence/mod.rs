// SPDX-License-Identifier: GPL-2.0-only
//! Phenomena that papers and kernel developers report, each from mechanism alone.
//!
//! Problem: a simulator may show what it was tuned to show. Each phenomenon here is run from a scenario with the
//! paper's setting (`experiments/emergence/`), through the command that users have; a test asserts the outcome, and
//! `docs/emergence.md` is written from the same runs, with the papers' values beside ours and what does not fit.
//! Choices that papers leave open are run in several ways.

mod burst;
mod cyclictest;
mod disk;
mod flushes;
mod hackbench;
mod idle_groups;
mod imbalance;
mod locks;
mod page;
mod parity;
mod pings;
mod polling;
mod polls;
mod run;
mod sleepers;
mod slices;
mod small_quotas;
mod smt;

use crate::common;

/// `CORUN_UPDATE=1 cargo test -p corun --test command emergence` writes it anew.
#[test]
fn the_page_is_fresh() {
    let sections = [
        smt::section(),
        slices::section(),
        locks::section(),
        disk::section(),
        polling::section(),
        pings::section(),
        sleepers::section(),
        flushes::crowd(),
        flushes::idle(),
        polls::section(),
        burst::section(),
        imbalance::section(),
        cyclictest::section(),
        idle_groups::section(),
        small_quotas::section(),
        hackbench::section(),
        parity::section(),
    ];
    common::is_fresh("docs/emergence.md", &page::page(&sections), "emergence");
}
