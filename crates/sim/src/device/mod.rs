// SPDX-License-Identifier: GPL-2.0-only
//! The host's devices, which its VMs share, and what is at the other end of its network.
//!
//! A device knows nothing about VMs' insides or the host's tasks: requests go in, and it says when
//! it wants to be asked again. Its owner ([`crate::guest::Guests`]) sets the timers and brings
//! completions to vCPUs.

pub mod disk;
pub mod net;
