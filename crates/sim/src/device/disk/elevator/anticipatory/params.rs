// SPDX-License-Identifier: GPL-2.0-only
//! CFQ's settings.

use corun_model::Nanos;
use corun_model::time::{MS, US};

/// Settings; the defaults are the kernel's. Times are rounded up to whole ticks, as `/sys` takes
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnticipatoryParams {
    /// CFQ's clock counts timer ticks of the host (`jiffies`; until Linux 4.8), at least 1 us. 4 ms:
    /// 250 ticks per second, as `host.hz`.
    pub tick: Nanos,
    /// How long to wait for the next request of a queue; 0: not at all, and a solid-state disk is
    /// shared by requests instead of time (`iops_mode`). 8 ms.
    pub slice_idle: Nanos,
    /// How long to wait for the next request of a VM whose queue is not waited for; 0: not at all.
    /// 8 ms.
    pub group_idle: Nanos,
    /// How long one queue is served: 100 ms, `slice_sync`.
    pub slice: Nanos,
    /// Slices are shortened so that each VM is served within this time, but not below two idle
    /// windows. 300 ms: `target_latency`.
    pub target_latency: Nanos,
    /// A request that has waited so long goes first in its queue's slice. 125 ms:
    /// `fifo_expire_sync`.
    pub expire: Nanos,
    /// Requests of one VM that the disk has at once while other VMs wait, 1–1024. 8: `quantum`.
    pub quantum: u32,
}

impl Default for AnticipatoryParams {
    fn default() -> Self {
        Self {
            tick: 4 * MS,
            slice_idle: 8 * MS,
            group_idle: 8 * MS,
            slice: 100 * MS,
            target_latency: 300 * MS,
            expire: 125 * MS,
            quantum: 8,
        }
    }
}

impl AnticipatoryParams {
    /// The kernel's defaults for solid-state disks, which it does not wait for
    /// (`cfq_registered_queue`).
    pub fn solid() -> Self {
        Self {
            slice_idle: 0,
            ..Self::default()
        }
    }
}

/// The settings in ticks, which the scheduler's clock counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    tick: Nanos,
    pub slice_idle: u64,
    pub group_idle: u64,
    pub slice: u64,
    pub target_latency: u64,
    pub expire: u64,
    pub quantum: u32,
}

impl Ticks {
    pub fn of(params: &AnticipatoryParams) -> Self {
        let tick = params.tick.max(US);
        let ticks = |time: Nanos| time.div_ceil(tick);
        Self {
            tick,
            slice_idle: ticks(params.slice_idle),
            group_idle: ticks(params.group_idle),
            slice: ticks(params.slice),
            target_latency: ticks(params.target_latency),
            expire: ticks(params.expire),
            quantum: params.quantum,
        }
    }

    /// Ticks that have passed.
    pub fn at(&self, now: Nanos) -> u64 {
        now / self.tick
    }

    /// When this tick is.
    pub fn time(&self, tick: u64) -> Nanos {
        tick.saturating_mul(self.tick)
    }
}
