// SPDX-License-Identifier: GPL-2.0-only
//! Which events of a performance monitoring unit (PMU) tell how cycles divide into work, waiting and misses.
//! Policies that pair vCPUs on a core want to see that of each of them (vSMT-IO, dissertation §3.4.3).
//!
//! Three are counted: all cycles, those in which a thread stalls for any reason, and those in which it stalls on
//! misses. Cycles without a stall are base (B), stalls on misses are M, other stalls W. Processors differ in all three
//! events, so an event is named as the kernel's `perf_event_open()` takes it: by a type and a number, or by the
//! kernel's generic names. Here events are data only; `corun host` opens them.

use std::fmt;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Its type, `perf_event_attr.type`.
    pub kind: u32,
    /// Its number there, `perf_event_attr.config`.
    pub config: u64,
}

/// The events that divide cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// All cycles.
    pub cycles: Event,
    /// Of these, those in which nothing went on, for whatever reason.
    pub stalls: Event,
    /// Of these, stalls on misses. `None`: these are not told apart, and all stalls count as waiting.
    pub misses: Option<Event>,
}

/// By which events a host is to divide cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By those that it knows for its processor.
    OfHost,
    /// By these.
    These(Events),
}

/// Types with names of their own (linux/perf_event.h, `enum perf_type_id`).
pub const KINDS: [(&str, u32); 4] = [
    ("hardware", HARDWARE),
    ("software", SOFTWARE),
    ("hw-cache", 3),
    ("raw", RAW),
];
/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;
/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;
/// Types that do not count a processor's time: `PERF_TYPE_TRACEPOINT`, `PERF_TYPE_BREAKPOINT`.
const NO_TIME: [u32; 2] = [2, 5];

/// `enum perf_hw_id`, as `perf list` writes it.
const OF_HARDWARE: [(&str, u64); 10] = [
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// `enum perf_sw_ids`, without what carries other programs' output.
const OF_SOFTWARE: [(&str, u64); 11] = [
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("context-switches", 3),
    ("cpu-migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("dummy", 9),
    ("cgroup-switches", 11),
];

impl Event {
    /// One of the kernel's generic events: `PERF_COUNT_HW_CPU_CYCLES`.
    pub const CYCLES: Self = Self {
        kind: HARDWARE,
        config: 0,
    };
    /// `PERF_COUNT_HW_STALLED_CYCLES_BACKEND`.
    pub const STALLED_BACKEND: Self = Self {
        kind: HARDWARE,
        config: 8,
    };

    /// An event by the processor's own number: `config` as `perf stat -e rNNN` takes it.
    pub const fn raw(config: u64) -> Self {
        Self { kind: RAW, config }
    }

    /// The type of this name.
    pub fn kind_named(name: &str) -> Option<u32> {
        let mut known = KINDS.iter();
        known.find(|(is, _)| *is == name).map(|(_, kind)| *kind)
    }

    /// May an event be of this type?
    pub fn is_kind(kind: u32) -> bool {
        !NO_TIME.contains(&kind)
    }

    /// The generic events of a type, by name; where there are none, any number is accepted.
    pub fn generic(kind: u32) -> &'static [(&'static str, u64)] {
        match kind {
            HARDWARE => &OF_HARDWARE,
            SOFTWARE => &OF_SOFTWARE,
            _ => &[],
        }
    }

    /// Its type as a calibration file has it.
    pub fn kind_text(self) -> String {
        let named = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        named.map_or(self.kind.to_string(), |(name, _)| format!("\"{name}\""))
    }

    /// Its number as a calibration file has it.
    pub fn config_text(self) -> String {
        let mut generic = Self::generic(self.kind).iter();
        let named = generic.find(|(_, config)| *config == self.config);
        named.map_or(format!("{:#x}", self.config), |(name, _)| {
            format!("\"{name}\"")
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, config) = (self.kind_text(), self.config_text());
        write!(f, "{} {}", kind.trim_matches('"'), config.trim_matches('"'))
    }
}

impl Events {
    /// The events, each with what it counts.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Event)> {
        let misses = self.misses.map(|event| ("misses", event));
        [("cycles", self.cycles), ("stalls", self.stalls)]
            .into_iter()
            .chain(misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_by_its_names_or_by_numbers() {
        assert_eq!(Event::CYCLES.to_string(), "hardware cpu-cycles");
        assert_eq!(Event::raw(0x0400_04a3).to_string(), "raw 0x40004a3");
        let of_a_pmu = Event {
            kind: 17,
            config: 3,
        };
        assert_eq!(of_a_pmu.to_string(), "17 0x3");
        assert_eq!(Event::kind_named("software"), Some(SOFTWARE));
        assert_eq!(Event::kind_named("tracepoint"), None);
        assert!(!Event::is_kind(2) && Event::is_kind(17));
    }

    #[test]
    fn numbers_are_the_kernels() {
        for names in [&OF_HARDWARE[..], &OF_SOFTWARE[..]] {
            let rising = names.windows(2).all(|pair| pair[0].1 < pair[1].1);
            assert!(rising, "{names:?}");
        }
        assert_eq!(Event::generic(HARDWARE)[8].0, "stalled-cycles-backend");
        assert_eq!(Event::STALLED_BACKEND.config, Event::generic(HARDWARE)[8].1);
    }
}
