// SPDX-License-Identifier: GPL-2.0-only
//! Names of slices and instants.

use corun_report::timeline::{NameId, Timeline};
use corun_sim::host::{Span, VcpuActivity};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// Names that need no number or text from the scenario.
pub struct Names {
    pub ready: NameId,
    pub waiting: NameId,
    pub idle: NameId,
    pub pause_loop_exit: NameId,
    pub device_interrupt: NameId,
    pub policy_decision: NameId,
    /// By what spans are about.
    spans: BTreeMap<Span, HashMap<String, NameId>>,
}

impl Names {
    pub fn new<W: Write>(timeline: &mut Timeline<W>) -> Self {
        Self {
            ready: timeline.name("ready"),
            waiting: timeline.name("waiting"),
            idle: timeline.name("idle"),
            pause_loop_exit: timeline.name("PLE exit"),
            device_interrupt: timeline.name("device interrupt"),
            policy_decision: timeline.name("policy decision"),
            spans: BTreeMap::new(),
        }
    }

    /// The name of a span about `name`.
    pub fn span<W: Write>(&mut self, timeline: &mut Timeline<W>, kind: Span, name: &str) -> NameId {
        let known = self.spans.entry(kind).or_default();
        if let Some(id) = known.get(name) {
            return *id;
        }
        let id = timeline.name(&text(kind, name));
        known.insert(name.to_string(), id);
        id
    }
}

fn text(kind: Span, name: &str) -> String {
    let what = match kind {
        Span::Runnable => "runnable",
        Span::SpinWait => "wait: spin lock",
        Span::SpinHold => "hold: spin lock",
        Span::MutexWait => "wait: mutex",
        Span::MutexHold => "hold: mutex",
        Span::BarrierWait => "wait: barrier",
        Span::SpinBarrierWait => "wait: spin barrier",
        Span::ConditionBarrierWait => "wait: condition barrier",
        Span::SendWait => "wait: place in queue",
        Span::ReceiveWait => "wait: item of queue",
        Span::ConditionWait => "wait: condition",
        Span::Sleep => "sleep",
        Span::IoWait => "wait: I/O of",
        Span::IpiWait => "wait: IPI answers",
        Span::Request => "request",
        Span::Queued => "queued",
        Span::Device => "device",
        Span::Delivery => "delivery",
    };
    match name {
        "" => what.to_string(),
        name => format!("{what} {name}"),
    }
}

/// The name of a vCPU's activity.
pub fn activity(activity: VcpuActivity) -> &'static str {
    match activity {
        VcpuActivity::Guest => "guest",
        VcpuActivity::Spinning => "spinning",
        VcpuActivity::Polling => "polling",
        VcpuActivity::Retention => "retention",
        VcpuActivity::Kernel => "guest kernel",
    }
}
