// SPDX-License-Identifier: GPL-2.0-only
//! Does virtual time go on?
//!
//! Problem: events may call for each other without any time going by. Costs can be set to nothing, and
//! then a client and a server whose packets take no time answer each other for ever in one moment; a
//! scheduler that asks for itself again at once would do the same. Such a run would never end and never say why.
//!
//! So what happens within one moment is counted: events, orders of loads, and statements of guests'
//! programs. After [`MOST`] of them their causes are recorded; a little later the run is given up
//! with [`Standstill`], which names them. Everything is counted in the order in which it happens,
//! so the same run stops at the same place.

use super::{Event, Host, Order};
use corun_model::time::SEC;
use corun_model::{Nanos, PcpuId, TaskId};
use std::collections::BTreeMap;
use std::fmt;

/// How much may happen in one moment. The largest hosts (4096 vCPUs that all start, are woken or look around at the
/// same time) need some tens of thousands.
pub const MOST: u64 = 10_000_000;
/// For how many more of them causes are recorded.
const WITNESSED: u64 = 1_000;
/// How many causes are named.
const NAMED: usize = 3;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A pCPU schedules.
    Schedules(PcpuId),
    Tick(PcpuId),
    Switched(PcpuId),
    /// A task has finished what it was doing.
    Step(TaskId),
    Wakes(TaskId),
    Blocks(TaskId),
    /// A task spins, polls or is waited for.
    Notices(TaskId),
    /// A vCPU's guest goes on: a statement of a program, a thread switch, kernel work.
    Guest(TaskId),
    LoadTimer(u64),
    SchedTimer(u64),
    Run,
}

impl From<&Event> for Happening {
    fn from(event: &Event) -> Self {
        match *event {
            Event::Resched(cpu) => Self::Schedules(cpu),
            Event::Tick(cpu) => Self::Tick(cpu),
            Event::Switched(cpu) => Self::Switched(cpu),
            Event::Step(task) => Self::Step(task),
            Event::LoadTimer(token) => Self::LoadTimer(token),
            Event::SchedTimer(token) => Self::SchedTimer(token),
            Event::Policy | Event::WarmUpOver => Self::Run,
        }
    }
}

impl From<&Order> for Happening {
    fn from(order: &Order) -> Self {
        match *order {
            Order::Wake { task, .. } => Self::Wakes(task),
            Order::Block(task) => Self::Blocks(task),
            Order::PauseExit(task) | Order::Crowded(task) | Order::FlushIpi(task) => {
                Self::Notices(task)
            }
        }
    }
}

/// What happened in the present moment.
#[derive(Debug, Default)]
pub(super) struct Moment {
    happened: u64,
    witnessed: BTreeMap<Happening, u64>,
}

impl Moment {
    #[inline]
    fn count(&mut self, what: Happening) -> bool {
        self.happened += 1;
        self.happened > MOST && self.witness(what)
    }

    #[cold]
    fn witness(&mut self, what: Happening) -> bool {
        *self.witnessed.entry(what).or_insert(0) += 1;
        self.is_endless()
    }

    fn is_endless(&self) -> bool {
        self.happened >= MOST + WITNESSED
    }
}

/// A run that was given up because virtual time did not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Standstill {
    /// When that was, ns since the run began.
    pub at: Nanos,
    /// What happened there in the end and because of what, and how often out of
    /// [`Standstill::witnessed`] times.
    pub busiest: Vec<(String, u64)>,
    /// How many of the last things that happened were looked at.
    pub witnessed: u64,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "virtual time stands still {}.{:09} s after the run began: more than {MOST} things happened in that \
             moment, of the last {} mostly these: ",
            self.at / SEC,
            self.at % SEC,
            self.witnessed
        )?;
        for (at, (what, times)) in self.busiest.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{what} ({times} times)")?;
        }
        f.write_str("; what is done over and over there takes no time, or next to none: see costs that are 0, and periods")
    }
}

impl Host {
    /// Counts something that happens now. Is it so much by now that virtual time stands still?
    #[inline]
    pub(crate) fn happens(&mut self, what: Happening) -> bool {
        self.moment.count(what)
    }

    /// Has virtual time been standing still for so long that the run is to be given up?
    #[inline]
    pub(crate) fn stands_still(&self) -> bool {
        self.moment.is_endless()
    }

    /// Another moment begins.
    #[inline]
    pub(super) fn moment_over(&mut self) {
        self.moment.happened = 0;
        if !self.moment.witnessed.is_empty() {
            self.moment.witnessed.clear();
        }
    }

    /// Why the run is given up. `timer` names a timer of the load.
    pub(crate) fn standstill(&self, timer: impl Fn(u64) -> String) -> Standstill {
        let task = |id: TaskId| &self.tasks[id.index()].spec.name;
        let name = |what: Happening| match what {
            Happening::Schedules(cpu) => format!("pCPU {} schedules", cpu.0),
            Happening::Tick(cpu) => format!("the tick of pCPU {}", cpu.0),
            Happening::Switched(cpu) => format!("pCPU {} ends a switch", cpu.0),
            Happening::Step(id) => format!("{} is done with what it was at", task(id)),
            Happening::Wakes(id) => format!("{} wakes", task(id)),
            Happening::Blocks(id) => format!("{} waits", task(id)),
            Happening::Notices(id) => format!("{} spins, polls or is waited for", task(id)),
            Happening::Guest(id) => format!("{} goes on with its programs", task(id)),
            Happening::LoadTimer(token) => timer(token),
            Happening::SchedTimer(token) => {
                format!("a timer of the scheduler (its number {token})")
            }
            Happening::Run => "the policy decides".to_string(),
        };
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (&what, &times) in &self.moment.witnessed {
            *sums.entry(name(what)).or_insert(0) += times;
        }
        let mut busiest: Vec<(String, u64)> = sums.into_iter().collect();
        busiest.sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        busiest.truncate(NAMED);
        Standstill {
            at: self.now,
            busiest,
            witnessed: WITNESSED,
        }
    }
}
