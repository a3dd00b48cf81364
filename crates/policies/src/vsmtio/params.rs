// SPDX-License-Identifier: GPL-2.0-only
//! What can be set of vSMT-IO, with defaults and where they come from.

use super::calibration::Calibration;
use super::ltcr::Bounds;
use super::symbiosis::Coefficients;
use super::{ltcr, rass, turns};
use crate::pmu::Events;
use corun_model::time::{MS, US};
use corun_model::{Nanos, Parameter, Value};

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VsmtIoParams {
    /// Length of a period, ns; 20 ms to 1 s.
    pub period: Nanos,
    /// Are contexts retained?
    pub retain: bool,
    /// Is the timeout adjusted (Algorithm 1)?
    pub adjust: bool,
    /// Has each class a hardware thread of its core (RASS)?
    pub rass: bool,
    /// Does symbiosis choose among vCPUs that compute? Not without `rass`.
    pub symbiosis: bool,
    /// Are vCPUs swapped between cores (workload adjuster)? Not without `rass`.
    pub adjuster: bool,
    /// Are weights compensated for retention?
    pub compensate: bool,
    /// Do guests retain their contexts by themselves, for as long as they are told?
    pub guests: bool,
    /// Does a retention end for a vCPU that wants to run there?
    pub give_way: bool,
    /// The time in which vCPUs that share a hardware thread have a turn each, ns.
    pub latency: Nanos,
    /// The least slice, ns.
    pub slice_least: Nanos,
    /// The timeout that cores begin with, ns.
    pub timeout: Nanos,
    /// The range in which it moves.
    pub bounds: Bounds,
    /// A core is homogeneous if the standard deviation of its retention rates is below this, percentage points.
    pub homogeneous: u32,
    /// Periods between two swaps.
    pub cooldown: u32,
    /// How threads slow each other down.
    pub coefficients: Coefficients,
    /// The events by which hosts divide cycles; `None`: those that they know for their processor.
    pub events: Option<Events>,
}

impl Default for VsmtIoParams {
    fn default() -> Self {
        Self {
            period: 100 * MS,
            retain: true,
            adjust: true,
            rass: true,
            symbiosis: true,
            adjuster: true,
            compensate: false,
            guests: false,
            give_way: true,
            latency: 24 * MS,
            slice_least: 3 * MS,
            timeout: 200 * US,
            bounds: Bounds {
                least: 50 * US,
                most: 5 * MS,
                step: 10,
                margin: 1,
            },
            homogeneous: 3,
            cooldown: 5,
            coefficients: Coefficients::default(),
            events: None,
        }
    }
}

const CODE: &str = "the published vSMT-IO code; the dissertation gives none";
const ONE: &str = "the default only";

impl VsmtIoParams {
    /// Takes over what a calibration says.
    pub fn calibrate(&mut self, found: &Calibration) {
        self.coefficients = found.coefficients;
        self.events = found.events;
    }

    /// These settings as a calibration.
    pub fn calibration(&self) -> Calibration {
        Calibration {
            coefficients: self.coefficients,
            events: self.events,
        }
    }

    /// Each with its unit, default and source.
    pub fn parameters() -> Vec<Parameter> {
        let default = Self::default();
        let mut all = parts(&default);
        all.extend(of_slices(&default));
        all.extend(of_timeouts(&default));
        all.extend(of_the_adjuster(&default));
        all.extend(of_symbiosis(&default.coefficients));
        all
    }
}

/// Its numbers that cannot be set.
pub fn constants() -> Vec<Parameter> {
    let of = Parameter::fixed_number;
    vec![
        of(
            "corun_policies::vsmtio::ltcr::FAILS",
            "after so many pairs of tests in a row that neither direction passed, a core's timeout is tested less often",
            u64::from(ltcr::FAILS),
            "pairs",
            "assumed; Algorithm 1 tests for ever, and each test costs those that share the core a period at a worse timeout",
        ),
        of(
            "corun_policies::vsmtio::ltcr::LONGEST_PAUSE",
            "the longest pause between such tests",
            u64::from(ltcr::LONGEST_PAUSE),
            "periods",
            "assumed: what runs on a core is noticed within seconds",
        ),
        of(
            "corun_policies::vsmtio::rass::RETAINS",
            "a vCPU whose guest was in retention for more than one part in so many of its run time retains by itself",
            rass::RETAINS,
            "as divisor",
            "assumed: a guest that idles now and then, in states of its own, is no such guest",
        ),
        of(
            "corun_policies::vsmtio::rass::STILL_RETAINS",
            "and goes on to count as one for more than one part in so many",
            rass::STILL_RETAINS,
            "as divisor",
            "assumed: turns as long as the timeout leave less of them to see",
        ),
        of(
            "corun_policies::vsmtio::turns::FADES",
            "what vCPUs have had, by which they take turns, is a moving sum over so many periods",
            turns::FADES,
            "periods",
            "assumed: enough to even out turns, few enough that what happened seconds ago decides nothing",
        ),
    ]
}

fn parts(default: &VsmtIoParams) -> Vec<Parameter> {
    let part = |key, meaning, on, source| {
        Parameter::new(
            key,
            meaning,
            Value::Switch(on),
            source,
            "on and off: experiments/vsmtio/fig3-6.toml",
        )
    };
    let all_on = "dissertation, §3.4: all parts are on";
    vec![
        Parameter::new(
            "policy.vsmtio.period",
            "length of a period",
            Value::Time(default.period),
            "the published code's `vsmtio_period_len`, read as ms; accepted: 20 ms to 1 s",
            "25 and 100 ms",
        ),
        part(
            "policy.vsmtio.retain",
            "are contexts retained?",
            default.retain,
            all_on,
        ),
        part(
            "policy.vsmtio.adjust",
            "is the timeout adjusted (LTCR, Algorithm 1)?",
            default.adjust,
            all_on,
        ),
        part(
            "policy.vsmtio.rass",
            "have CPU-bound and I/O-bound vCPUs a hardware thread of each core (RASS)?",
            default.rass,
            all_on,
        ),
        part(
            "policy.vsmtio.symbiosis",
            "is a vCPU that computes chosen by symbiosis (with `rass` only)?",
            default.symbiosis,
            all_on,
        ),
        part(
            "policy.vsmtio.adjuster",
            "are vCPUs swapped between cores (workload adjuster; with `rass` only)?",
            default.adjuster,
            all_on,
        ),
        part(
            "policy.vsmtio.compensate",
            "do vCPUs weigh more by their retention rates when classes are made?",
            default.compensate,
            "dissertation, §3.4.3: not necessary in most cases",
        ),
        part(
            "policy.vsmtio.guests",
            "do guests retain their contexts by themselves, for as long as they are told? Simulated only",
            default.guests,
            "dissertation, §3.5: a changed idle loop. Guests are not changed here, unless this is asked",
        ),
        Parameter::new(
            "policy.vsmtio.give_way",
            "does a retention end for any task that wants to run on its hardware thread?",
            Value::Switch(default.give_way),
            "on: a vCPU queued for a hardware thread does not wait for one that does nothing there. One that waits for \
             the SMT sibling is still not lent it meanwhile, which is what a retention costs. Off in the paper's \
             experiments: §3.5 leaves it to CFS, by which a vCPU that retains goes on until another one is owed more",
            "on and off: all of experiments/vsmtio",
        ),
    ]
}

fn of_slices(default: &VsmtIoParams) -> [Parameter; 2] {
    let time = |key, meaning, value| {
        Parameter::new(
            key,
            meaning,
            Value::Time(value),
            "dissertation, §3.5: CFS's policies are followed in most cases; its settings in Linux 4.x and 5.x \
             on hosts of 8 and more pCPUs, which the published scripts set, too",
            "slices of 3 and 12 ms",
        )
    };
    [
        time(
            "policy.vsmtio.latency",
            "in what time the vCPUs that share a hardware thread have a turn each",
            default.latency,
        ),
        time(
            "policy.vsmtio.slice_least",
            "the least slice",
            default.slice_least,
        ),
    ]
}

fn of_timeouts(default: &VsmtIoParams) -> Vec<Parameter> {
    let time = |key, meaning, value, source, tried| {
        Parameter::new(key, meaning, Value::Time(value), source, tried)
    };
    let percent = |key, meaning, value: u32, source| {
        Parameter::new(
            key,
            meaning,
            Value::Number(f64::from(value), "%"),
            source,
            ONE,
        )
    };
    vec![
        time(
            "policy.vsmtio.timeout",
            "retention timeout that cores begin with",
            default.timeout,
            "dissertation, §3.4.2, and its slides: low at first, but no less than the time to deschedule and \
             reschedule a vCPU; assumed: KVM's longest poll. The published code has 3 ms, from where \
             Algorithm 1 never comes down to waits of 0.1 ms: no step on the way gains anything",
            "50 us to 5 ms",
        ),
        time(
            "policy.vsmtio.least",
            "the least timeout",
            default.bounds.least,
            "dissertation, §3.4.2: at least the time to deschedule and reschedule a vCPU; ten times that \
             (`host.costs`), so that timers are not the larger part of it",
            ONE,
        ),
        time(
            "policy.vsmtio.most",
            "the longest timeout",
            default.bounds.most,
            "dissertation, §3.1.2: a few ms",
            ONE,
        ),
        percent(
            "policy.vsmtio.step",
            "by how much a step changes the timeout",
            default.bounds.step,
            "dissertation, Algorithm 1",
        ),
        percent(
            "policy.vsmtio.margin",
            "gains up to this are noise",
            default.bounds.margin,
            "assumed; the algorithm has none, and would drift",
        ),
    ]
}

fn of_the_adjuster(default: &VsmtIoParams) -> Vec<Parameter> {
    let number = |key, meaning, value: u32, unit, source| {
        Parameter::new(
            key,
            meaning,
            Value::Number(f64::from(value), unit),
            source,
            ONE,
        )
    };
    vec![
        number(
            "policy.vsmtio.homogeneous",
            "standard deviation of retention rates below which a core's vCPUs are alike; and vCPUs are swapped only \
             with a core whose mean rate is more than twice as many points away. A vCPU that is idle for no more of a \
             period only computes, and takes turns with others that do",
            default.homogeneous,
            "points",
            CODE,
        ),
        number(
            "policy.vsmtio.cooldown",
            "periods between two swaps",
            default.cooldown,
            "periods",
            "assumed: rates must show what the last swap has changed",
        ),
    ]
}

fn of_symbiosis(default: &Coefficients) -> Vec<Parameter> {
    let of = |key, meaning, value: u32| {
        Parameter::new(
            key,
            meaning,
            Value::Number(f64::from(value), "thousandths"),
            "the published vSMT-IO code (its authors' machine); `corun calibrate --symbiosis` finds a machine's own",
            "the default, and what it finds in the simulator",
        )
    };
    vec![
        of(
            "policy.vsmtio.base",
            "slowdown by cycles at work",
            default.base,
        ),
        of(
            "policy.vsmtio.wait",
            "slowdown by cycles of waiting for units of the core",
            default.wait,
        ),
        of(
            "policy.vsmtio.wait_wait",
            "the same, where both wait",
            default.wait_wait,
        ),
        of(
            "policy.vsmtio.miss",
            "slowdown by cycles on misses",
            default.miss,
        ),
        of(
            "policy.vsmtio.miss_miss",
            "the same, where both miss",
            default.miss_miss,
        ),
    ]
}
