// SPDX-License-Identifier: GPL-2.0-only
//! Traces of Perfetto with ftrace events (`linux.ftrace` data source), in its own protobuf form.
//!
//! Problem: Perfetto keeps the kernel's events pCPU by pCPU, switches and wake-ups possibly as arrays of
//! differences, all of it possibly packed.
//! How: a file is one packet after the other ([`packets`]); each is decoded by itself, and its events take the path of
//! all others, but through a larger window, since events read from one pCPU after the other are far out of order.
//! Perfetto's x86 traces lack the reasons of guest exits, and only arrays show whether an interrupt was under way.

mod events;
mod packets;
mod proto;
#[cfg(test)]
mod tests;

pub(crate) use packets::{import, looks_like};
