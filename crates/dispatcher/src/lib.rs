// SPDX-License-Identifier: GPL-2.0-only
//! The native build of corun's C dispatcher (`dispatcher/`).
//!
//! The same source runs in the kernel as BPF. Here it is linked into the process: [`Native`] drives
//! it on behalf of a [`Services`] implementation (the simulator's sched_ext model), and [`lockstep`]
//! plays recordings of a real kernel back through it.

#[cfg(test)]
mod cgroup_table;
mod conf;
mod layout;
pub mod lockstep;
mod native;
#[cfg(test)]
mod queued;
#[cfg(test)]
mod races;

pub use conf::{GROUP_IDLE, GROUP_NEUTRAL, GroupConf, Knobs, PcpuConf, PoolConf, TaskConf, VmConf};
pub use layout::{
    CpuCtx, GANG_VCPUS, GROUP_LEVELS, GangCtx, GangVcpu, GroupCtx, HoldCounters, MAX_GROUPS,
    MAX_PCPUS, MAX_VMS, NO_VM, TASK_READY, TASK_RUNNING, TASK_THROTTLED, TaskCounters, TaskCtx,
    TaskStruct, VmCtx, WAKERS,
};
pub use native::{Build, Callback, Kick, Native, Services, passes};
