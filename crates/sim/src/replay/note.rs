// SPDX-License-Identifier: GPL-2.0-only
//! What a recording cannot show, and what the replay therefore assumes.

use super::Spinning;
use super::demand::Demand;
use corun_model::counted;
use corun_recording::{Recording, Role, WakeCause};
use std::fmt;

/// A limit of a replay. `Display` states it in a sentence for users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplayNote {
    /// What goes on inside guests is not recorded.
    GuestScheduling,
    /// Spinning is treated as work.
    Spinning {
        /// Known to be halt polling, share of the vCPUs' CPU time, 0–1.
        polled: f64,
        /// Spent while a sibling vCPU wanted a pCPU and had none: the most that spinning for siblings
        /// can have taken. Share of the vCPUs' CPU time, 0–1.
        contested: f64,
    },
    /// Interrupt handlers are treated as work of the task they interrupted.
    InterruptTime,
    /// Affinity and weights are not recorded.
    AffinityAndWeights,
    /// On which runqueues tasks waited at the beginning is not recorded.
    FirstPlaces,
    /// Wake-ups from outside keep their recorded distance in time from the task's last block.
    External {
        /// Their share of all wake-ups of vCPUs, 0–1.
        share: f64,
    },
    /// Tasks were busy when the recording ended; how much more they wanted is not known.
    Cut {
        /// How many.
        tasks: u64,
    },
    /// Wakers that never ran in the recording.
    UnknownWakers {
        /// Wake-ups concerned.
        wakeups: u64,
    },
}

impl fmt::Display for ReplayNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GuestScheduling => f.write_str(
                "guests' own scheduling is not recorded: each vCPU does the same work as then, even \
                 where its guest would have moved work to a sibling",
            ),
            Self::Spinning { polled, contested } => write!(
                f,
                "spinning counts as work: a policy that shortens lock waits does better than shown. Of the vCPUs' CPU \
                 time {:.1} % is known to be halt polling, and at most {:.1} % can have been spinning for siblings: \
                 for that long, one of these was kept from running",
                polled * 100.0,
                contested * 100.0
            ),
            Self::InterruptTime => {
                f.write_str("time in interrupt handlers counts as work of the task they interrupted")
            }
            Self::AffinityAndWeights => f.write_str(
                "affinity and weights are not recorded: every task may use every pCPU and has the \
                 usual weight, but for the kernel's own threads, whose names tell",
            ),
            Self::FirstPlaces => f.write_str(
                "on which pCPUs tasks waited when the recording began is not recorded: where tasks \
                 seldom move, stacking in a short replay depends on it",
            ),
            Self::External { share } => write!(
                f,
                "{:.0} % of the vCPUs' wake-ups came from outside: they are replayed as long after \
                 the block as recorded",
                share * 100.0
            ),
            Self::Cut { tasks } => write!(
                f,
                "busy when the recording ended: {}; how much more they wanted is assumed",
                counted(*tasks, "task")
            ),
            Self::UnknownWakers { wakeups } => write!(
                f,
                "{wakeups} wake-ups name a waker that never ran: replayed as coming from outside"
            ),
        }
    }
}

/// What to know about any replay of this recording.
pub fn limits(recording: &Recording) -> Vec<ReplayNote> {
    let demand = Demand::of(recording, recording.host.pcpus.value, Spinning::Work);
    let (mut run, mut polled, mut contested) = (0u64, 0u64, 0u64);
    let (mut external, mut wakeups) = (0u64, 0u64);
    let vcpus = recording.tasks.iter();
    for task in vcpus.filter(|task| matches!(task.role, Role::Vcpu { .. })) {
        run = run.saturating_add(task.observed.run);
        polled = polled.saturating_add(task.kvm.polled);
        contested = contested.saturating_add(task.observed.contested);
        for burst in &task.bursts {
            wakeups += u64::from(burst.wake != WakeCause::AtStart);
            external += u64::from(matches!(burst.wake, WakeCause::External { .. }));
        }
    }
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let mut notes = vec![
        ReplayNote::GuestScheduling,
        ReplayNote::Spinning {
            polled: share(polled, run),
            contested: share(contested, run),
        },
        ReplayNote::InterruptTime,
        ReplayNote::AffinityAndWeights,
        ReplayNote::FirstPlaces,
        ReplayNote::External {
            share: share(external, wakeups),
        },
    ];
    if demand.cut > 0 {
        notes.push(ReplayNote::Cut { tasks: demand.cut });
    }
    if demand.unknown_wakers > 0 {
        notes.push(ReplayNote::UnknownWakers {
            wakeups: demand.unknown_wakers,
        });
    }
    notes
}
