// SPDX-License-Identifier: GPL-2.0-only
//! `[policy.jupiter]`: what Jupiter is told.

use crate::reader::Reader;
use corun_model::time::{MS, SEC, US};
use corun_model::{Nanos, time};

/// What may be said; percentages are whole numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct JupiterKeys {
    /// Length of a period.
    pub period: Option<Nanos>,
    /// Are weights adjusted?
    pub dats: Option<bool>,
    /// Are latencies adjusted?
    pub dasl: Option<bool>,
    /// Are conflicts resolved?
    pub rcr: Option<bool>,
    /// Do VMs lend and borrow?
    pub elb: Option<bool>,
    /// Growth of a weight.
    pub weight_step: Option<u32>,
    /// The latency that vCPUs begin with.
    pub latency: Option<Nanos>,
    /// The least latency.
    pub latency_least: Option<Nanos>,
    /// The longest.
    pub latency_most: Option<Nanos>,
    /// Change of a latency.
    pub latency_step: Option<u32>,
    /// Difference of aggregated slices that is a conflict.
    pub slice_conflict: Option<u32>,
    /// How many times as many conflicts are too many.
    pub latency_conflict: Option<u32>,
    /// Growth of a loan.
    pub loan_step: Option<u32>,
    /// Fall of its use that harms a lender.
    pub loan_harm: Option<u32>,
    /// Depth of a bucket.
    pub bucket: Option<u32>,
    /// Most that a borrower repays in a period.
    pub repayment: Option<u32>,
    /// Error of a right prediction.
    pub error: Option<u32>,
    /// Wrong predictions until it is off.
    pub wrong: Option<u32>,
    /// Right ones until it is on again.
    pub right: Option<u32>,
    /// Differences that mean nothing.
    pub grain: Option<Nanos>,
}

/// The latency that vCPUs begin with, and the bounds, if nothing is said.
const LATENCIES: [Nanos; 3] = [500 * US, 4 * MS, 24 * MS];

pub(crate) fn keys(table: Reader<'_>) -> JupiterKeys {
    let percent = |key| table.whole(key, 0..=100);
    let latency = |key| table.duration(key, 100 * US..=100 * MS);
    let keys = JupiterKeys {
        period: table.duration("period", 20 * MS..=SEC),
        dats: table.flag("dats"),
        dasl: table.flag("dasl"),
        rcr: table.flag("rcr"),
        elb: table.flag("elb"),
        weight_step: percent("weight_step"),
        latency: latency("latency"),
        latency_least: latency("latency_least"),
        latency_most: latency("latency_most"),
        latency_step: percent("latency_step"),
        slice_conflict: percent("slice_conflict"),
        latency_conflict: table.whole("latency_conflict", 1..=100),
        loan_step: percent("loan_step"),
        loan_harm: percent("loan_harm"),
        bucket: table.whole("bucket", 0..=10_000),
        repayment: percent("repayment"),
        error: percent("error"),
        wrong: table.whole("wrong", 0..=1000),
        right: table.whole("right", 1..=1000),
        grain: table.duration("grain", 0..=100 * MS),
    };
    check_order(&table, &keys);
    table.finish();
    keys
}

/// The least latency is no longer than that which vCPUs begin with, and the longest no shorter.
fn check_order(table: &Reader<'_>, keys: &JupiterKeys) {
    let said = [keys.latency_least, keys.latency, keys.latency_most];
    let [least, begin, most] = [0, 1, 2].map(|at| said[at].unwrap_or(LATENCIES[at]));
    if least <= begin && begin <= most {
        return;
    }
    let names = ["latency_least", "latency", "latency_most"];
    let key = (0..3).find(|&at| said[at].is_some());
    table.problem(
        key.map_or(names[1], |at| names[at]),
        format!(
            "found latency_least {}, latency {} and latency_most {}, expected them in rising order",
            time::show(least),
            time::show(begin),
            time::show(most)
        ),
    );
}
