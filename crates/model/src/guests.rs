// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of guests that more than one crate must agree on: what a scenario may say is what the simulator accepts.

use crate::Nanos;

/// The shortest window in which pause-loop exits are looked for: a few PAUSEs; with a shorter one, a simulation would do
/// nothing but exits.
pub const SHORTEST_PLE: Nanos = 100;

/// Size of a VM's image unless said otherwise, bytes. Assumed: what small servers are given; it decides how far apart two
/// VMs' data are.
pub const IMAGE: u64 = 32 << 30;

/// The least size of a VM's image, bytes.
pub const SMALLEST_IMAGE: u64 = 1 << 20;
