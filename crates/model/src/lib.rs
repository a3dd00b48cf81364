// SPDX-License-Identifier: GPL-2.0-only
//! The types that corun's crates share.
//!
//! Everything here is plain data: what a host looks like ([`Topology`]), what runs on it ([`VmId`],
//! [`TaskId`]), how time is written ([`time`]), what a policy sees ([`Snapshot`]) and what it asks
//! for ([`Plan`]). It depends on no other crate of corun, and has no I/O and no clock.

mod counted;
mod dispatcher;
mod gang;
pub mod guests;
mod harmless;
mod idle_state;
mod ids;
mod nearest;
mod parameter;
mod pcpu_set;
mod plan;
mod presence;
mod sharing;
mod signals;
pub mod size;
pub mod time;
mod topology;

pub use counted::counted;
pub use dispatcher::DispatcherParams;
pub use gang::{Allotments, Boost, Gang, Skew, Slots};
pub use harmless::harmless;
pub use idle_state::IdleState;
pub use ids::{PcpuId, TaskId, VmId};
pub use nearest::nearest;
pub use parameter::{Parameter, Value};
pub use pcpu_set::PcpuSet;
pub use plan::{
    AwaitedHidden, Claim, Demand, Doing, HostSeen, NEUTRAL_WEIGHT, PcpuPlan, Placement, Plan, Pool,
    Quota, SmtOrder, Snapshot, Status, TaskPlan, TaskSeen, Turns, VcpuStatus, VmPlan, VmSeen,
    VmStatus, Wakers,
};
pub use presence::Presence;
pub use sharing::Sharing;
pub use signals::{CyclesSeen, LlcSeen, Signals, UnhaltedSeen};
pub use time::Nanos;
pub use topology::{Topology, TopologyError};
