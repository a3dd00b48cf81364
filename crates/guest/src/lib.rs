// SPDX-License-Identifier: GPL-2.0-only
//! corun inside a guest: keeps I/O-bound threads on vCPUs that run.
//!
//! Problem: where VMs share pCPUs, a thread that waits for a disk sits, every few milliseconds, on a
//! vCPU that its host has descheduled; it issues no request then, although its VM has other vCPUs that
//! run. The guest cannot change its host, but it can move the thread (vMigrater; the decisions are in
//! [`corun_policies::vmigrater`], the same as in the simulator).
//!
//! [`run`] is the daemon. Its parts, in the order in which they matter to it: heart (timer threads, one
//! for each vCPU), migrater (beats and requests → decisions → moves), detector (who does I/O), selection
//! (who may be moved), state (what is given back), sharing and pace (whether it is worth anything, and
//! how fast to beat), [`Status`].
//!
//! Whatever becomes of it, masks are given back: by itself when it ends, else by [`restore`] or the next
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
pub use status::Status;
