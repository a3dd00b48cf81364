// SPDX-License-Identifier: GPL-2.0-only
//! The sections about the machine, the run and the schedulers.

use crate::hardware::{costs, halt_poll, hardware};
use crate::reader::Reader;
use crate::settings::{CfsKeys, CorunKeys, CreditKeys, EevdfKeys, Host, RrKeys, Run, Schedulers};
use corun_model::time::{HOST_HZ, LONGEST, MS, SEC, US};
use corun_model::{DispatcherParams, IdleState, Nanos, Topology};
use std::ops::RangeInclusive;

/// Lengths of runs: beyond a day of virtual time something is wrong.
const LENGTH: RangeInclusive<Nanos> = MS..=LONGEST;
/// Scheduler parameters: a shorter one would be all overhead, a longer one is no schedule.
const PARAMETER: RangeInclusive<Nanos> = US..=10 * SEC;
/// Parameters that may be switched off.
const PARAMETER_OR_OFF: RangeInclusive<Nanos> = 0..=10 * SEC;
/// Wake-ups of the kernel's own threads per second: more would be a load, which is what tasks are for.
const HOUSEKEEPING: u32 = 1000;
/// Costs of the machine; 0 is a machine without that cost.
pub(crate) const COST: RangeInclusive<Nanos> = 0..=SEC;

pub(crate) fn host(table: Reader<'_>) -> Option<Host> {
    let topology = topology(&table);
    let idle_states = idle_states(&table);
    let costs = table.table("costs").map(costs).unwrap_or_default();
    if costs.idle_wake.is_some() && !idle_states.is_empty() {
        let message = "costs.idle_wake is given, too: expected one of them";
        table.problem("idle_states", message);
    }
    let host = Host {
        topology: topology.or(Topology::flat(1).ok())?,
        housekeeping: table.whole("housekeeping", 0..=HOUSEKEEPING),
        hz: table.whole("hz", 100..=10_000).unwrap_or(HOST_HZ),
        tick_skew: table.flag("tick_skew").unwrap_or(false),
        costs,
        idle_states,
        hardware: hardware(&table),
        halt_poll: table.table("halt_poll").map(halt_poll).unwrap_or_default(),
    };
    table.finish();
    topology.map(|topology| Host { topology, ..host })
}

/// As many states as Linux' cpuidle has (`CPUIDLE_STATE_MAX`).
const IDLE_STATES: usize = 10;

fn idle_states(table: &Reader<'_>) -> Vec<IdleState> {
    let key = "idle_states";
    let said = table.texts(key, "[\"2us/2us\", \"104us/345us\"]");
    let said = said.unwrap_or_default();
    if said.len() > IDLE_STATES {
        let found = said.len();
        table.problem(
            key,
            format!("found {found} states, expected {IDLE_STATES} at most"),
        );
    }
    let mut states: Vec<IdleState> = Vec::new();
    for text in &said {
        let state = match text.value.parse::<IdleState>() {
            Ok(state) => state,
            Err(message) => {
                table.add(text.problem(message));
                continue;
            }
        };
        let is_deeper =
            |last: &IdleState| last.exit <= state.exit && last.residency <= state.residency;
        if !states.last().is_none_or(is_deeper) {
            let message = format!(
                "found {:?} after a deeper state, expected the shallowest first",
                text.value
            );
            table.add(text.problem(message));
        }
        states.push(state);
    }
    states
}

fn topology(table: &Reader<'_>) -> Option<Topology> {
    let accepted = "<nodes>n<llcs>l<cores>c<threads>t such as \"1n2l4c2t\"";
    let written: Option<Topology> = table.parsed("topology", accepted);
    let pcpus = table.whole("pcpus", 1..=Topology::MAX_PCPUS);
    match (table.has("topology"), table.has("pcpus")) {
        (true, true) => {
            table.problem("pcpus", "topology is given, too: expected one of them");
            None
        }
        (false, false) => {
            table.missing("topology", &format!("{accepted}, or pcpus = 4"));
            None
        }
        (true, false) => written,
        (false, true) => Topology::flat(pcpus?).ok(),
    }
}

pub(crate) fn run(table: Option<Reader<'_>>) -> Option<Run> {
    let mut run = Run {
        duration: 10 * SEC,
        warm_up: SEC,
        stagger: None,
        seeds: vec![1],
        policies: None,
    };
    let Some(table) = table else {
        return Some(run);
    };
    run.duration = table.duration("duration", LENGTH).unwrap_or(run.duration);
    run.warm_up = table
        .duration("warm_up", 0..=*LENGTH.end())
        .unwrap_or(run.warm_up);
    run.stagger = table.duration("stagger", 0..=run.warm_up);
    if table.has("seed") && table.has("seeds") {
        table.problem("seeds", "seed is given, too: expected one of them");
    }
    let seeds = table.wholes("seed").or(table.wholes("seeds"));
    run.seeds = seeds.unwrap_or(run.seeds);
    let mut sorted = run.seeds.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        let key = if table.has("seed") { "seed" } else { "seeds" };
        let message = format!("found {:?}, expected each seed once", run.seeds);
        table.problem(key, message);
    }
    run.policies = table.texts("policies", "[\"cfs\", \"balance\"]");
    for (at, policy) in run.policies.iter().flatten().enumerate() {
        let mut before = run.policies.iter().flatten().take(at);
        if before.any(|other| other.value == policy.value) {
            let message = format!("found {:?} twice, expected each policy once", policy.value);
            table.add(policy.problem(message));
        }
    }
    table.finish();
    Some(run)
}

pub(crate) fn schedulers(table: Option<Reader<'_>>) -> Schedulers {
    let Some(table) = table else {
        return Schedulers::default();
    };
    let schedulers = Schedulers {
        cfs: table.table("cfs").map(cfs).unwrap_or_default(),
        eevdf: table.table("eevdf").map(eevdf).unwrap_or_default(),
        rr: table.table("rr").map(rr).unwrap_or_default(),
        credit: table.table("credit").map(credit).unwrap_or_default(),
        corun: table.table("corun").map(corun).unwrap_or_default(),
        ..Schedulers::default()
    };
    table.finish();
    schedulers
}

fn cfs(table: Reader<'_>) -> CfsKeys {
    let keys = CfsKeys {
        preset: table.located("preset"),
        latency: table.duration("latency", PARAMETER),
        min_granularity: table.duration("min_granularity", PARAMETER),
        idle_min_granularity: table.located_duration("idle_min_granularity", PARAMETER),
        wakeup_granularity: table.duration("wakeup_granularity", PARAMETER_OR_OFF),
        balance_interval: table.duration("balance_interval", PARAMETER),
        migration_cost: table.duration("migration_cost", PARAMETER_OR_OFF),
        search_cost: table.located_duration("search_cost", 0..=MS),
        gentle_fair_sleepers: table.flag("gentle_fair_sleepers"),
        sleeper_credit: table.duration("sleeper_credit", PARAMETER_OR_OFF),
        start_debit: table.flag("start_debit"),
        wakeup_preemption: table.flag("wakeup_preemption"),
    };
    table.finish();
    keys
}

fn eevdf(table: Reader<'_>) -> EevdfKeys {
    let keys = EevdfKeys {
        preset: table.located("preset"),
        base_slice: table.duration("base_slice", PARAMETER),
        balance_interval: table.duration("balance_interval", PARAMETER),
        migration_cost: table.duration("migration_cost", PARAMETER_OR_OFF),
        place_lag: table.flag("place_lag"),
        place_deadline_initial: table.flag("place_deadline_initial"),
        run_to_parity: table.flag("run_to_parity"),
        preempt_short: table.flag("preempt_short"),
        delay_dequeue: table.flag("delay_dequeue"),
        wakeup_preemption: table.flag("wakeup_preemption"),
        hrtick: table.flag("hrtick"),
        protect_shortest: table.flag("protect_shortest"),
        slice_at_switch: table.flag("slice_at_switch"),
        timer_stays: table.flag("timer_stays"),
        pick_buddy: table.flag("pick_buddy"),
        forfeits_on_yield: table.flag("forfeits_on_yield"),
        lazy_preemption: table.flag("lazy_preemption"),
        ni_random: table.flag("ni_random"),
        newidle_cost: table.duration("newidle_cost", PARAMETER_OR_OFF),
    };
    table.finish();
    keys
}

fn rr(table: Reader<'_>) -> RrKeys {
    let keys = RrKeys {
        runtime: table.duration("runtime", MS..=10 * SEC),
        period: table.duration("period", MS..=10 * SEC),
        slice: table.duration("slice", MS..=SEC),
    };
    if table.has("runtime") != table.has("period") {
        let said = if table.has("period") {
            "period"
        } else {
            "runtime"
        };
        table.problem(said, "expected runtime and period, both or neither");
    }
    if keys
        .period
        .is_some_and(|period| keys.runtime > Some(period))
    {
        table.problem(
            "runtime",
            "found more than the period, expected at most that",
        );
    }
    table.finish();
    keys
}

fn credit(table: Reader<'_>) -> CreditKeys {
    let keys = CreditKeys {
        // Xen's own bounds.
        slice: table.duration("slice", MS..=SEC),
        boot_slice: table.duration("boot_slice", MS..=SEC),
        ratelimit: table.duration("ratelimit", 0..=500 * MS),
        boost: table.flag("boost"),
    };
    if keys
        .ratelimit
        .is_some_and(|limit| (1..100 * US).contains(&limit))
    {
        table.problem(
            "ratelimit",
            "found less than 100us, expected \"0us\" (off) or 100us to 500ms",
        );
    }
    table.finish();
    keys
}

fn corun(table: Reader<'_>) -> CorunKeys {
    let keys = CorunKeys {
        slice: table.duration("slice", DispatcherParams::LEAST_SLICE..=SEC),
        wakeup_granularity: table.duration("wakeup_granularity", PARAMETER_OR_OFF),
        sleeper_credit: table.duration("sleeper_credit", PARAMETER_OR_OFF),
        max_lead: table.duration("max_lead", PARAMETER),
        balance_interval: table.duration("balance_interval", PARAMETER_OR_OFF),
        slice_timer: table.flag("slice_timer"),
    };
    table.finish();
    keys
}
