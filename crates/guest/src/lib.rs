// SPDX-License-Identifier: GPL-2.0-only
//! corun inside a guest: keeps I/O-bound threads on vCPUs that run.
//!
//! Problem: where VMs share pCPUs, the host deschedules each vCPU every few milliseconds. A thread on it that
//! does I/O can issue no request during that time, although its VM has other vCPUs that run. The guest cannot
//! change its host, but it can move the thread (vMigrater; the decisions are in
//! [`corun_policies::vmigrater`], the same as in the simulator).
//!
//! [`run`] is the daemon. Its parts, in the order in which they come into play:
//!
//! - heart: timer threads, one for each vCPU
//! - migrater: beats and requests → decisions → moves
//! - detector: which threads do I/O
//! - selection: which threads may be moved
//! - state: what has to be set back
//! - sharing and pace: whether there is anything to gain, and how fast to beat
//! - [`Status`]: what it tells others
//!
//! Affinity masks are set back whatever happens: by the daemon when it ends, else by [`restore`] or the next
//! start.

mod counts;
mod daemon;
mod detector;
mod guest;
mod heart;
mod migrater;
mod pace;
mod pins;
mod selection;
mod sharing;
mod state;
mod status;
mod system;
#[cfg(test)]
mod testing;

pub use counts::{Moves, VcpuCounts};
pub use guest::{Cause, GuestError, GuestOptions, STATE, STATUS, Source, is_running, restore, run};
pub use heart::Priority;
pub use selection::{Selection, user_number};
pub use state::Stuck;
pub use status::{METRICS_BEGIN, STATUS_BEGINS, Status};
