// SPDX-License-Identifier: GPL-2.0-only
//! Comma-separated values: the same columns for VMs and vCPUs, and both ways to give %RUN and %RDY, because readers mix
//! them up: percent of a VM's vCPUs' time, and of one pCPU's (esxtop's sums).

use corun_linux::watch::{Row, Sample};
use corun_model::time::SEC;
use corun_report::csv;
use std::io;

const COLUMNS: [&str; 27] = [
    "uptime_s",
    "interval_s",
    "domain",
    "uuid",
    "manager",
    "pid",
    "vcpu",
    "tid",
    "vcpus",
    "weight",
    "run_percent",
    "ready_percent",
    "costop_percent",
    "throttled_percent",
    "wait_percent",
    "run_sum_percent",
    "ready_sum_percent",
    "switches_per_s",
    "latency_ms",
    "class",
    "slice_ms",
    "pool",
    "under_policy",
    "helpers_percent",
    "enforced",
    "loan_percent",
    "wakers",
];

/// The first line, its end included.
pub(super) fn head() -> String {
    COLUMNS.join(",") + "\n"
}

/// A line, its end included; unknown values are empty.
pub(super) fn line(row: &Row, then: &Sample, now: &Sample) -> io::Result<String> {
    let seconds = |time: u64| format!("{:.3}", time as f64 / SEC as f64);
    let percent = |share: f64| format!("{:.3}", 100.0 * share);
    let count = if row.vcpu.is_some() {
        1.0
    } else {
        row.vcpus as f64
    };
    let cells: [String; 27] = [
        seconds(now.at),
        seconds(now.at.saturating_sub(then.at)),
        row.name.clone(),
        row.uuid.clone().unwrap_or_default(),
        row.manager.to_string(),
        row.pid.to_string(),
        maybe(row.vcpu),
        maybe(row.tid),
        row.vcpus.to_string(),
        maybe(row.weight),
        percent(row.run),
        percent(row.ready),
        row.costop.map_or_else(String::new, percent),
        row.throttled.map_or_else(String::new, percent),
        percent(row.wait),
        percent(row.run * count),
        percent(row.ready * count),
        format!("{:.1}", row.switches_per_s),
        format!("{:.3}", row.latency_ms),
        maybe(row.class.as_deref()),
        maybe(row.slice_ms),
        maybe(row.pool),
        maybe(row.under_policy),
        row.helpers.map_or_else(String::new, percent),
        maybe(row.enforced),
        maybe(row.loan_percent),
        maybe(row.wakers),
    ];
    csv::line(cells)
}

fn maybe<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_no_commas() {
        assert_eq!(head().split(',').count(), COLUMNS.len());
    }
}
