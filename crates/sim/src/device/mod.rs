// SPDX-License-Identifier: GPL-2.0-only
//! What is attached to VMs from outside: the network and its clients.

pub mod net;
