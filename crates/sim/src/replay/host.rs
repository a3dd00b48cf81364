// SPDX-License-Identifier: GPL-2.0-only
//! The recorded host as far as the recording shows it: size, clock, costs.

use crate::host::{Costs, HardwareParams, HostParams};
use corun_model::time::SEC;
use corun_model::{Nanos, Topology, TopologyError};
use corun_recording::{Burst, Recording, Role, WakeCause};

/// A host to replay a recording on.
#[derive(Clone, Debug)]
pub struct SuggestedHost {
    /// One LLC domain and one thread per core: recordings do not contain the topology.
    pub params: HostParams,
    /// Where `params.hz` comes from.
    pub hz: Source,
    /// Where the costs of waking an idle pCPU come from.
    pub costs: Source,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The recording shows it, by this many wake-ups.
    Seen(usize),
    /// Too little is recorded: a usual value is assumed.
    Assumed,
}

/// Tick rates that kernels are built with, the lowest first: a host with 100 Hz also wakes on
/// the grid of 1000 Hz.
const RATES: [u32; 4] = [100, 250, 300, 1000];
/// Assumed where nothing is seen: the rate of Debian's and Ubuntu's kernels up to 2024.
const USUAL_RATE: u32 = 250;
/// Fewer wake-ups than this show nothing.
const ENOUGH: usize = 30;
/// How many wake-ups of each task are used: a task that sleeps for many ticks each time shows a
/// slower grid.
const PER_TASK: usize = 10;
/// The chance of seeing a grid where there is none is e to the power of minus this (Rayleigh's
/// test).
const SURE: f64 = 14.0;
/// Below this share of idle time, wake-ups onto idle pCPUs cannot be identified among the others.
const IDLE_ENOUGH: f64 = 0.05;

/// The recorded host, with what the recording does not show set to usual values.
///
/// # Errors
/// [`TopologyError`] if the recording has more pCPUs than corun handles, or none.
pub fn suggested_host(recording: &Recording) -> Result<SuggestedHost, TopologyError> {
    let (hz, hz_source) = tick_rate(recording);
    let (costs, costs_source) = costs(recording);
    Ok(SuggestedHost {
        params: HostParams {
            topology: Topology::flat(recording.host.pcpus.value)?,
            hz,
            tick_skew: false,
            idle_states: Vec::new(),
            costs,
            // How tasks slowed each other down is already in the recorded times.
            hardware: HardwareParams::UNSHARED,
        },
        hz: hz_source,
        costs: costs_source,
    })
}

/// What scheduling costs in the replay of this recording, ns.
///
/// A switch costs nothing extra, nor does a migration: recorded CPU times begin with the switch to
/// the task and so already contain its cost. The cost of waking an idle pCPU is not in them; it is
/// estimated from the quickest wake-ups.
fn costs(recording: &Recording) -> (Costs, Source) {
    let usual = Costs {
        switch: 0,
        migration: 0,
        ..Costs::default()
    };
    let Some((latency, seen)) = idle_latency(recording) else {
        return (usual, Source::Assumed);
    };
    let ipi = usual.ipi.min(latency);
    let costs = Costs {
        ipi,
        idle_wake: latency - ipi,
        ..usual
    };
    (costs, Source::Seen(seen))
}

/// The median time from waking to running where the pCPU was idle, and how many such wake-ups
/// there were. Which wake-ups these are is not recorded; but their share of all wake-ups is at
/// least the idle share of time, and they are the quickest.
fn idle_latency(recording: &Recording) -> Option<(Nanos, usize)> {
    let pcpus = &recording.observed.pcpus;
    let idle: Nanos = pcpus.iter().map(|cpu| cpu.idle).sum();
    let all: Nanos = pcpus.iter().map(|cpu| cpu.idle + cpu.busy).sum();
    let share = idle as f64 / all.max(1) as f64;
    let mut waits: Vec<Nanos> = recording
        .tasks
        .iter()
        .flat_map(|task| task.observed.wake_to_run.iter().copied())
        .collect();
    let quickest = (waits.len() as f64 * share) as usize;
    if share < IDLE_ENOUGH || quickest < ENOUGH {
        return None;
    }
    waits.sort_unstable();
    waits.get(quickest / 2).map(|&median| (median, quickest))
}

/// Kernel threads that sleep for a number of ticks are woken on the grid of the ticks.
fn tick_rate(recording: &Recording) -> (u32, Source) {
    let woken = |burst: &&Burst| matches!(burst.wake, WakeCause::External { .. });
    let times: Vec<Nanos> = recording
        .tasks
        .iter()
        .filter(|task| task.role == Role::Host)
        .flat_map(|task| task.bursts.iter().filter(woken).take(PER_TASK))
        .map(|burst| recording.start.saturating_add(burst.woken_at))
        .collect();
    let follow = |hz: &u32| alignment(&times, SEC / Nanos::from(*hz)) >= SURE;
    match RATES.into_iter().find(follow) {
        Some(hz) if times.len() >= ENOUGH => (hz, Source::Seen(times.len())),
        _ => (USUAL_RATE, Source::Assumed),
    }
}

/// Rayleigh's statistic of the times' phases in `period`: about 1 for times that are independent of
/// it, up to their number for times that all have the same phase.
fn alignment(times: &[Nanos], period: Nanos) -> f64 {
    let (mut x, mut y) = (0.0, 0.0);
    for &time in times {
        let phase = (time % period) as f64 / period as f64 * std::f64::consts::TAU;
        x += libm::cos(phase);
        y += libm::sin(phase);
    }
    (x * x + y * y) / times.len().max(1) as f64
}
