// SPDX-License-Identifier: GPL-2.0-only
//! The events that divide cycles, on processors that corun knows: all cycles, stalls, stalls on misses.
//!
//! *Intel*, Sandy Bridge to Granite Rapids: CYCLE_ACTIVITY.STALLS_TOTAL (0xA3, umask 04, cmask 4; up to
//! Broadwell CYCLES_NO_EXECUTE or CYCLES_NO_DISPATCH) and .STALLS_L2_MISS (05, cmask 5; up to Haswell
//! STALLS_L2_PENDING), Software Developer's Manual, volume 3B, "Performance-monitoring events", and the
//! kernel's tools/perf/pmu-events/arch/x86. Both count cycles in which nothing is executed, the second a part of the
//! first. RESOURCE_STALLS.ANY (0xA2/01), which the published vSMT-IO code counts, does not include the second as a
//! part, and Ice Lake and later do not have it.
//!
//! *AMD*, Zen 4 and later (the first with `perfmon_v2`): ex_no_retire.all (0xD6, umask 1B) and
//! .load_not_complete (A2), Processor Programming Reference and the kernel's amdzen4/core.json: cycles in
//! which nothing retires, and those in which the oldest operation waits for a load, hits of the L1 included.
//!
//! *Others*: the kernel's generic event for stalls, if it has one (Zen 1; not Zen 2 and 3), and none for misses.

use corun_policies::pmu::{Event, Events};
use std::fs;
use std::path::Path;

const INTEL: Events = Events {
    cycles: Event::CYCLES,
    stalls: Event::raw(0x0400_04a3),
    misses: Some(Event::raw(0x0500_05a3)),
};
const ZEN_4: Events = Events {
    cycles: Event::CYCLES,
    stalls: Event::raw(0x1bd6),
    misses: Some(Event::raw(0xa2d6)),
};
const GENERIC: Events = Events {
    cycles: Event::CYCLES,
    stalls: Event::STALLED_BACKEND,
    misses: None,
};

/// What the kernel calls the PMUs that have Intel's two (arch/x86/events/intel/core.c).
const INTEL_PMUS: [&str; 8] = [
    "sandybridge",
    "ivybridge",
    "haswell",
    "broadwell",
    "skylake",
    "icelake",
    "sapphire_rapids",
    "granite_rapids",
];

/// The events of the processor described below `root`; whether it has them shows when they are opened.
pub(crate) fn of_host(root: &Path) -> Events {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (info, pmu) = (
        read("proc/cpuinfo"),
        read("sys/bus/event_source/devices/cpu/caps/pmu_name"),
    );
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim() == name);
        found.map_or("", |(_, value)| value.trim())
    };
    let flagged = |flag: &str| field("flags").split(' ').any(|has| has == flag);
    match field("vendor_id") {
        "GenuineIntel" if INTEL_PMUS.contains(&pmu.trim()) => INTEL,
        "AuthenticAMD" if flagged("perfmon_v2") => ZEN_4,
        _ => GENERIC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(vendor: &str, flags: &str, pmu: Option<&str>) -> Events {
        let root = tempfile::tempdir().unwrap();
        let info = format!("processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\n");
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/cpuinfo"), info).unwrap();
        if let Some(pmu) = pmu {
            let caps = root.path().join("sys/bus/event_source/devices/cpu/caps");
            fs::create_dir_all(&caps).unwrap();
            fs::write(caps.join("pmu_name"), format!("{pmu}\n")).unwrap();
        }
        of_host(root.path())
    }

    #[test]
    fn processors_are_told_apart() {
        assert_eq!(host("GenuineIntel", "fpu", Some("skylake")), INTEL);
        assert_eq!(host("GenuineIntel", "fpu", Some("nehalem")), GENERIC);
        assert_eq!(host("GenuineIntel", "fpu", None), GENERIC, "a guest");
        assert_eq!(host("AuthenticAMD", "fpu perfmon_v2 sse", None), ZEN_4);
        assert_eq!(host("AuthenticAMD", "fpu perfmon_v20", None), GENERIC);
        assert_eq!(host("", "", None), GENERIC);
    }

    /// Event in bits 0 to 7, umask 8 to 15, cmask 24 to 31.
    #[test]
    fn numbers_are_the_manuals() {
        let of = |event: u64, umask: u64, cmask: u64| event | umask << 8 | cmask << 24;
        assert_eq!(INTEL.stalls, Event::raw(of(0xa3, 0x04, 4)));
        assert_eq!(INTEL.misses, Some(Event::raw(of(0xa3, 0x05, 5))));
        assert_eq!(ZEN_4.stalls, Event::raw(of(0xd6, 0x1b, 0)));
        assert_eq!(ZEN_4.misses, Some(Event::raw(of(0xd6, 0xa2, 0))));
    }
}
