// SPDX-License-Identifier: GPL-2.0-only
//! The native build of corun's C dispatcher (`dispatcher/`).
//!
//! The same source runs in the kernel as BPF. Here it is linked into the process: [`Native`] drives
//! it on behalf of a [`Services`] implementation (the simulator's sched_ext model), and [`lockstep`]
//! plays recordings of a real kernel back through it.

mod layout;
pub mod lockstep;
mod native;

pub use layout::{
    CpuCtx, GANG_VCPUS, GROUP_IDLE, GROUP_LEVELS, GROUP_NEUTRAL, GangCtx, GangVcpu, GroupConf,
    GroupCtx, Knobs, MAX_GROUPS, MAX_PCPUS, MAX_VMS, PcpuConf, PoolConf, TASK_READY, TASK_RUNNING,
    TASK_THROTTLED, TaskConf, TaskCounters, TaskCtx, TaskStruct, VmConf, VmCtx, WAKERS,
};
pub use native::{Kick, Native, Services};
