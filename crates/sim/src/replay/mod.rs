// SPDX-License-Identifier: GPL-2.0-only
//! A recorded host's demand, replayed under any scheduler.
//!
//! A recording says what every task did; it does not say what it would have done under another
//! scheduler. The replay keeps what belongs to the *demand* and computes anew what belongs to the
//! *scheduler*:
//!
//! * the CPU time of each burst is kept, waiting for a pCPU is not;
//! * a wake-up by a task happens when that task has done as much work as when it was recorded,
//!   however long that takes now;
//! * a wake-up from outside (device, timer, the network) comes as long after the task blocked as
//!   it was recorded;
//! * a wake-up that comes before the task has blocked is remembered: the task then goes on with
//!   its next burst without blocking (unless siblings [meet](Options::meeting)).
//!
//! A burst waits for exactly the wake-up it was recorded with, so that no policy can do work whose
//! cause has not happened. As causes come before effects in a recording, these dependencies form no
//! cycle; in a contradictory recording they might, and such a cycle is broken and counted
//! ([`ReplayReport::released`]).
//!
//! A faster policy runs out of recorded demand before the replay ends. [`Beyond`] says what happens
//! then; in either case the time that depends on this choice is reported per VM
//! ([`VmReplay::exhausted`]).
//!
//! ```no_run
//! use corun_sim::replay::{Options, Replay, fidelity, suggested_host};
//! use corun_model::DispatcherParams;
//! use corun_sim::sched::dispatcher::Dispatcher;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recording = corun_recording::read("host.ftrace.gz".as_ref())?.recording;
//! let host = suggested_host(&recording)?;
//! let sched = Dispatcher::new(DispatcherParams::default(), &host.params);
//! let replay = Replay::new(&recording, host.params.topology.pcpus(), Options::default());
//! let simulation =
//!     corun_sim::Simulation::new(host.params, Box::new(sched), Box::new(replay.clone()), None);
//! let outcome = simulation.run(0, recording.duration(), |_| {});
//! println!("{:?}", fidelity(&recording, &outcome).overall);
//! println!("{:?}", replay.report().vms);
//! # Ok(())
//! # }
//! ```

mod demand;
mod fidelity;
mod host;
mod ledger;
mod load;
mod meeting;
mod names;
mod note;
#[cfg(test)]
mod tests;

pub use demand::replay_order;
pub use fidelity::{Compared, Fidelity, Figures, Overall, fidelity};
pub use host::{Source, SuggestedHost, suggested_host};
pub use ledger::{ReplayReport, VmReplay};
pub use load::Replay;
pub use meeting::{can_meet, seem_to_meet};
pub use note::{ReplayNote, limits};

use corun_model::VmId;
use std::collections::BTreeSet;

/// What a task does after it has used up its recorded demand before the replay ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// It starts again with its first burst: more of the same. Work that needs a sibling still
    /// needs the sibling, in the same turn. Right for a host whose load goes on after the
    /// recording, and the default.
    #[default]
    Repeat,
    /// It waits. A VM then never gets more work done than was recorded, and the time it does not
    /// use goes to others. Only tasks that wanted a pCPU during the whole second half of the
    /// recording and did not get enough of it go on.
    Wait,
}

/// What vCPUs did while a sibling was kept from running, which a recording does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spinning {
    /// Work, like all other CPU time: the default.
    #[default]
    Work,
    /// Nothing but spinning for that sibling, and none of it recurs: each burst of a vCPU is shortened by the share of
    /// such time in the vCPU's run time ([`corun_recording::TaskObserved::contested`]). The other extreme: no policy
    /// can leave less to do.
    Waste,
}

/// How to replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What follows the recorded demand.
    pub beyond: Beyond,
    /// What part of the recorded CPU time was work.
    pub spinning: Spinning,
    /// VMs whose siblings meet when one wakes the other, as at a barrier: the one that gets there first waits for the
    /// other, and the one that comes last wakes it. So no vCPU runs further ahead of a sibling than when it was
    /// recorded. In other VMs the waker goes on, as when it hands work over, and a sibling that comes later will not
    /// wait. A recording does not show which of the two is right, but [work between wake-ups](seem_to_meet) hints at
    /// it.
    pub meeting: BTreeSet<VmId>,
}
