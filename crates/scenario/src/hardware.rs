// SPDX-License-Identifier: GPL-2.0-only
//! What tasks that share hardware do to each other: caches, `[host.smt]`, and what things cost.

use crate::host::COST;
use crate::reader::Reader;
use crate::settings::{Costs, HaltPoll, Hardware, Smt};
use corun_model::Nanos;
use std::ops::RangeInclusive;

/// From a page, which is less than the first-level caches of hosts that run KVM have, to far more than any cache has.
/// With caches of a few lines, a run would follow each line.
pub(crate) const CACHE: RangeInclusive<u64> = 4096..=1 << 30;
/// Nothing that takes longer is memory.
const LATENCY: RangeInclusive<Nanos> = 0..=10_000;
/// Speeds while the SMT sibling works; nothing is sped up or stopped.
const SPEED: RangeInclusive<u32> = 1..=100;
/// What two threads of a core do, relative to one: no machine has less than half of one.
const YIELD: RangeInclusive<u32> = 50..=200;

pub(crate) fn hardware(table: &Reader<'_>) -> Hardware {
    let hardware = Hardware {
        l2: table.size("l2", CACHE),
        llc: table.size("llc", CACHE),
        llc_adaptive: table.flag("llc_adaptive"),
        smt: table.table("smt").map(smt).unwrap_or_default(),
    };
    if let (Some(l2), Some(llc)) = (hardware.l2, hardware.llc)
        && llc < l2
    {
        let (l2, llc) = (corun_model::size::show(l2), corun_model::size::show(llc));
        table.problem("llc", format!("found {llc}, expected at least an L2: {l2}"));
    }
    hardware
}

fn smt(table: Reader<'_>) -> Smt {
    let smt = Smt {
        switching: table.whole("switching", SPEED),
        halt_polling: table.whole("halt_polling", SPEED),
        idle_polling: table.whole("idle_polling", SPEED),
        spinning: table.whole("spinning", SPEED),
        yields: table.whole("yield", YIELD),
    };
    table.finish();
    smt
}

pub(crate) fn halt_poll(table: Reader<'_>) -> HaltPoll {
    let halt_poll = HaltPoll {
        most: table.duration("most", COST),
        grow: table.whole("grow", 1..=1000),
        grow_start: table.duration("grow_start", COST),
        shrink: table.whole("shrink", 0..=1000),
        shared: table.flag("shared"),
        to_end: table.flag("to_end"),
    };
    table.finish();
    halt_poll
}

pub(crate) fn costs(table: Reader<'_>) -> Costs {
    let costs = Costs {
        switch: table.duration("switch", COST),
        ipi: table.duration("ipi", COST),
        idle_wake: table.duration("idle_wake", COST),
        migration: table.duration("migration", COST),
        exit: table.duration("exit", COST),
        preemption: table.duration("preemption", COST),
        timer: table.duration("timer", COST),
        llc: table.duration("llc", LATENCY),
        memory: table.duration("memory", LATENCY),
    };
    table.finish();
    costs
}
