// SPDX-License-Identifier: GPL-2.0-only
//! `[policy.vsmtio]`: what vSMT-IO is told.

use crate::reader::Reader;
use corun_model::time::{MS, SEC, US};
use corun_model::{Nanos, time};
use std::ops::RangeInclusive;

/// What may be said; percentages are whole numbers, coefficients thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct VsmtIoKeys {
    /// Length of a period.
    pub period: Option<Nanos>,
    /// Are contexts retained?
    pub retain: Option<bool>,
    /// Is the timeout adjusted?
    pub adjust: Option<bool>,
    /// Has each class a hardware thread?
    pub rass: Option<bool>,
    /// Is chosen by symbiosis?
    pub symbiosis: Option<bool>,
    /// Are vCPUs swapped between cores?
    pub adjuster: Option<bool>,
    /// Are weights compensated?
    pub compensate: Option<bool>,
    /// Do guests retain by themselves?
    pub guests: Option<bool>,
    /// The timeout that cores begin with.
    pub timeout: Option<Nanos>,
    /// The least.
    pub least: Option<Nanos>,
    /// The longest.
    pub most: Option<Nanos>,
    /// Change of a timeout.
    pub step: Option<u32>,
    /// Gains that are noise.
    pub margin: Option<u32>,
    /// Standard deviation of a homogeneous core.
    pub homogeneous: Option<u32>,
    /// Periods between two swaps.
    pub cooldown: Option<u32>,
    /// Coefficient of cycles at work.
    pub base: Option<u32>,
    /// Of cycles of waiting.
    pub wait: Option<u32>,
    /// Where both wait.
    pub wait_wait: Option<u32>,
    /// Of cycles on misses.
    pub miss: Option<u32>,
    /// Where both miss.
    pub miss_miss: Option<u32>,
}

/// What a timeout may be.
const TIMEOUT: RangeInclusive<Nanos> = 10 * US..=100 * MS;
/// The least timeout, that which cores begin with, and the longest, if nothing is said.
const TIMEOUTS: [Nanos; 3] = [50 * US, 3 * MS, 5 * MS];

pub(crate) fn keys(table: Reader<'_>) -> VsmtIoKeys {
    let coefficient = |key| table.whole(key, 0..=10_000);
    let timeout = |key| table.duration(key, TIMEOUT);
    let keys = VsmtIoKeys {
        period: table.duration("period", 20 * MS..=SEC),
        retain: table.flag("retain"),
        adjust: table.flag("adjust"),
        rass: table.flag("rass"),
        symbiosis: table.flag("symbiosis"),
        adjuster: table.flag("adjuster"),
        compensate: table.flag("compensate"),
        guests: table.flag("guests"),
        timeout: timeout("timeout"),
        least: timeout("least"),
        most: timeout("most"),
        step: table.whole("step", 1..=50),
        margin: table.whole("margin", 0..=100),
        homogeneous: table.whole("homogeneous", 0..=100),
        cooldown: table.whole("cooldown", 0..=1000),
        base: coefficient("base"),
        wait: coefficient("wait"),
        wait_wait: coefficient("wait_wait"),
        miss: coefficient("miss"),
        miss_miss: coefficient("miss_miss"),
    };
    check_order(&table, &keys);
    table.finish();
    keys
}

/// The least timeout is no longer than that which cores begin with, and the longest no shorter.
fn check_order(table: &Reader<'_>, keys: &VsmtIoKeys) {
    let said = [keys.least, keys.timeout, keys.most];
    let [least, begin, most] = [0, 1, 2].map(|at| said[at].unwrap_or(TIMEOUTS[at]));
    if least <= begin && begin <= most {
        return;
    }
    let names = ["least", "timeout", "most"];
    let key = (0..3).find(|&at| said[at].is_some());
    table.problem(
        key.map_or(names[1], |at| names[at]),
        format!(
            "found least {}, timeout {} and most {}, expected them in rising order",
            time::show(least),
            time::show(begin),
            time::show(most)
        ),
    );
}
