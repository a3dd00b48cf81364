// SPDX-License-Identifier: GPL-2.0-only
//! What the papers derive by arithmetic: their formulas as plain functions.
//!
//! Problem: some claims of a paper are arithmetic, not measurement; to check them, or to compare the
//! simulator with them, the arithmetic has to be there as code, with its assumptions. Nothing
//! here decides anything, so floating point is fine. All times are ns, as `f64`.
//!
//! Of Sukwong & Kim, "Is Co-scheduling Too Expensive for SMP VMs?", EuroSys 2011: the expected
//! lock latency ([`lock_latency`], §4.4 and Appendix A) and what decides how its equations are to be
//! read ([`placements`]); CFS's slice, the TCP example and the latency of co-scheduling
//! ([`synchronisation`], §2.2, 4.4, 5.2); its pseudo code ([`algorithms`], §4.3). Of Jupiter's
//! dissertation: two gangs in conflict ([`figure_4_2`], §4.3).

pub mod algorithms;
pub mod figure_4_2;
pub mod lock_latency;
pub mod placements;
pub mod synchronisation;
