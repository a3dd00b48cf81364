// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of Jupiter, with defaults and where they come from.
//!
//! The dissertation states few numbers; what it leaves open is marked as assumed, with the reason
//! for the value.

use super::{dasl, dats, elb, vm};
use corun_model::time::{MS, US};
use corun_model::{DispatcherParams, Nanos, Parameter, Value};

/// The settings. Percentages are whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JupiterParams {
    /// Length of a period, ns; 20 ms to 1 s.
    pub period: Nanos,
    /// Are weights adjusted (DATS)?
    pub dats: bool,
    /// Are rescheduling latencies adjusted (DASL)?
    pub dasl: bool,
    /// Are conflicts resolved (RCR)?
    pub rcr: bool,
    /// Do VMs lend and borrow (ELB)?
    pub elb: bool,
    /// By how much the weight of a depleted vCPU grows, percent.
    pub weight_step: u32,
    /// The latency that vCPUs begin with, ns.
    pub latency: Nanos,
    /// The least latency, ns; at most `latency`.
    pub latency_least: Nanos,
    /// The longest, ns; at least `latency`.
    pub latency_most: Nanos,
    /// By how much a latency changes, percent.
    pub latency_step: u32,
    /// Which part of its entitlement a VM must leave unused to lack its share, percent.
    pub lack: u32,
    /// By how much the largest aggregated slice may exceed the smallest, percent.
    pub slice_conflict: u32,
    /// How many times the fewest conflicts the most may be.
    pub latency_conflict: u32,
    /// By how much a loan grows, percent of the lender's entitlement.
    pub loan_step: u32,
    /// A lender whose use falls by this much or more is harmed, percent.
    pub loan_harm: u32,
    /// How much may be owed to a VM, percent of its entitlement in a period.
    pub bucket: u32,
    /// How much of a borrower's entitlement may go into repayment, percent.
    pub repayment: u32,
    /// A prediction with an error up to this is right, percent of the slices.
    pub error: u32,
    /// After how many wrong predictions in a row Jupiter is off for a VM; 0: never.
    pub wrong: u32,
    /// After how many right predictions in a row it is on again.
    pub right: u32,
    /// Differences of run time up to this mean nothing, ns.
    pub grain: Nanos,
}

impl Default for JupiterParams {
    fn default() -> Self {
        Self {
            period: 100 * MS,
            dats: true,
            dasl: true,
            rcr: true,
            elb: true,
            weight_step: 10,
            latency: 4 * MS,
            latency_least: 500 * US,
            latency_most: 24 * MS,
            latency_step: 10,
            lack: 5,
            slice_conflict: 10,
            latency_conflict: 2,
            loan_step: 1,
            loan_harm: 5,
            bucket: 1000,
            repayment: 50,
            error: 10,
            wrong: 5,
            right: 5,
            grain: DispatcherParams::default().slice,
        }
    }
}

impl JupiterParams {
    /// Each with its unit, default and source.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let mut all = parts(&default);
        all.extend(of_vcpus(&default));
        all.extend(of_conflicts_and_loans(&default));
        all.extend(of_predictions(&default));
        all
    }
}

/// Its numbers that cannot be set.
pub fn constants() -> Vec<Parameter> {
    let of = Parameter::fixed_number;
    vec![
        of(
            "corun_policies::jupiter::dats::FLOOR",
            "by which factor at most the weight of a vCPU falls below the mean of its VM; and, as divisor, the part of \
             a period that a vCPU may not have out of turn",
            dats::FLOOR,
            "times",
            "assumed: a vCPU that idled for long is not to starve when it wakes, nor one that shares a pCPU with a \
             hurried vCPU; the dissertation has no bound",
        ),
        of(
            "corun_policies::jupiter::dats::CEILING",
            "a vCPU's weight grows to at most so many times what it weighs by itself",
            dats::CEILING,
            "times",
            "the dispatcher bounds shares to that (`SHARE_RANGE`); reached by VMs of 74 vCPUs and more. What a VM has \
             borrowed comes on top, and is lost beyond it",
        ),
        of(
            "corun_policies::jupiter::dats::GIVES_BACK",
            "a vCPU that wants what it gave to its siblings has one part in so many of it back in a period, if its VM \
             lacks its share",
            dats::GIVES_BACK,
            "periods",
            "assumed, as for ELB's debts (`repayment`): a VM whose other vCPUs begin to compute has its share soon; the \
             dissertation does not have it",
        ),
        of(
            "corun_policies::jupiter::dasl::LOW",
            "a latency is low if it is at most the one that vCPUs begin with, divided by this",
            dasl::LOW,
            "as divisor",
            "assumed: the dissertation (§4.4) has two groups and no border",
        ),
        of(
            "corun_policies::jupiter::elb::USUAL",
            "what a VM uses as a rule is a moving average in which the latest period counts as one part in so many",
            elb::USUAL,
            "periods",
            "assumed: a lender is not to be judged by less than a second",
        ),
        of(
            "corun_policies::jupiter::vm::LATELY",
            "for so many periods after siblings woke each other a VM counts as one whose vCPUs do",
            u64::from(vm::LATELY),
            "periods",
            "assumed: a second; VMs that do so at all do it seldom in some periods. For reports only: nothing is \
             decided by it",
        ),
    ]
}

const ALONE: &str = "on and off: experiments/jupiter/fig4-13.toml";
const ONE: &str = "the default only";

fn parts(default: &JupiterParams) -> Vec<Parameter> {
    let part = |key, meaning, on| {
        let source = "dissertation, §4.4: all parts are on";
        Parameter::new(key, meaning, Value::Switch(on), source, ALONE)
    };
    vec![
        Parameter::new(
            "policy.jupiter.period",
            "length of a period",
            Value::Time(default.period),
            "inferred from the dissertation, §4.5.5: clients change \"at the beginning of each time \
             period (i.e., 100ms)\"; accepted: 20 ms to 1 s",
            ONE,
        ),
        part(
            "policy.jupiter.dats",
            "are weights adjusted (DATS)?",
            default.dats,
        ),
        part(
            "policy.jupiter.dasl",
            "are rescheduling latencies adjusted (DASL)?",
            default.dasl,
        ),
        part(
            "policy.jupiter.rcr",
            "are vCPUs moved where their claims conflict (RCR)?",
            default.rcr,
        ),
        part(
            "policy.jupiter.elb",
            "do VMs lend and borrow CPU time (ELB)?",
            default.elb,
        ),
    ]
}

/// A percentage.
fn percent(
    key: &'static str,
    meaning: &'static str,
    value: u32,
    source: &'static str,
) -> Parameter {
    let value = Value::Number(f64::from(value), "%");
    Parameter::new(key, meaning, value, source, ONE)
}

fn time(key: &'static str, meaning: &'static str, value: Nanos, source: &'static str) -> Parameter {
    Parameter::new(key, meaning, Value::Time(value), source, ONE)
}

fn of_vcpus(default: &JupiterParams) -> Vec<Parameter> {
    vec![
        percent(
            "policy.jupiter.weight_step",
            "by how much the weight of a vCPU that used up its slice grows, unless its siblings together would lose \
             more of theirs; and how far weights come back in a VM that has its share where none has, or all have",
            default.weight_step,
            "dissertation, §4.4.1, of the growth; of the bound and of coming back, on which it is silent, assumed alike",
        ),
        time(
            "policy.jupiter.latency",
            "rescheduling latency that vCPUs begin with; only lower ones are promises",
            default.latency,
            "Linux 4.19, `sched_wakeup_granularity_ns` on hosts of 8 and more pCPUs",
        ),
        time(
            "policy.jupiter.latency_least",
            "least rescheduling latency",
            default.latency_least,
            "assumed: the dissertation has a minimum without its value; some times what a vCPU \
             switch costs",
        ),
        time(
            "policy.jupiter.latency_most",
            "longest rescheduling latency",
            default.latency_most,
            "Linux 4.19, `sched_latency_ns` on hosts of 8 and more pCPUs: by then everybody has had a turn",
        ),
        percent(
            "policy.jupiter.latency_step",
            "by how much a rescheduling latency changes",
            default.latency_step,
            "dissertation, §4.4.1, of the decrease; of the increase, assumed alike",
        ),
        percent(
            "policy.jupiter.lack",
            "which part of its entitlement a VM must leave unused to lack its share: only then are \
             its vCPUs hurried",
            default.lack,
            "assumed: what the dissertation takes for harm to a lender (§4.4.2)",
        ),
    ]
}

fn of_conflicts_and_loans(default: &JupiterParams) -> Vec<Parameter> {
    vec![
        percent(
            "policy.jupiter.slice_conflict",
            "by how much the largest aggregated slice of a pCPU may exceed the smallest",
            default.slice_conflict,
            "dissertation, §4.4.1",
        ),
        Parameter::new(
            "policy.jupiter.latency_conflict",
            "by how many times the conflicts on a pCPU may exceed those on another",
            Value::Number(f64::from(default.latency_conflict), ""),
            "dissertation, §4.4.1",
            ONE,
        ),
        percent(
            "policy.jupiter.loan_step",
            "by how much a loan grows in a period, of the lender's entitlement",
            default.loan_step,
            "assumed: the dissertation has \"gradually\"; small against `loan_harm`",
        ),
        percent(
            "policy.jupiter.loan_harm",
            "the fall of the lender's use from which on its loan does not grow, but is halved, and ends below a step",
            default.loan_harm,
            "dissertation, §4.4.2 (that it is halved, and ends: assumed)",
        ),
        percent(
            "policy.jupiter.bucket",
            "how much may be owed to a VM, of its entitlement in a period",
            default.bucket,
            "assumed: a second's worth, ten periods; the dissertation has none",
        ),
        percent(
            "policy.jupiter.repayment",
            "how much of its entitlement a borrower repays in a period at most",
            default.repayment,
            "assumed: half, so that a VM that repays is not starved",
        ),
    ]
}

fn of_predictions(default: &JupiterParams) -> Vec<Parameter> {
    let count = |key, meaning, value: u32| {
        let source = "inferred from the dissertation, §4.5.5: off 500 ms after predictions fail, \
                      on again after 500 ms of right ones";
        let value = Value::Number(f64::from(value), "periods");
        Parameter::new(key, meaning, value, source, ONE)
    };
    vec![
        percent(
            "policy.jupiter.error",
            "up to which error a prediction is right, of the VM's slices",
            default.error,
            "assumed: the step by which slices are adjusted",
        ),
        count(
            "policy.jupiter.wrong",
            "wrong predictions in a row after which a VM is left to plain balance; 0: never",
            default.wrong,
        ),
        count(
            "policy.jupiter.right",
            "right ones after which it no longer is",
            default.right,
        ),
        time(
            "policy.jupiter.grain",
            "differences of run time up to this, or up to an eighth of the slice where that is less, mean nothing",
            default.grain,
            "the dispatcher's slice: it deals time out in such pieces",
        ),
    ]
}
