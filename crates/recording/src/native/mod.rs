// SPDX-License-Identifier: GPL-2.0-only
//! corun's own recordings, as `corun record` writes them (docs/recording-format.md).
//!
//! Problem: text of ftrace is large, names no VM, and a tool that writes it is not on every host; and
//! whatever ends a recording (a full disk, a signal, a crash) must leave what was recorded until then.
//! How: a file is a header and blocks. A block has a checksum and can be read without any other, so that a file is good
//! up to its last whole block. Within a block are [`Entry`]s: events in the order
//! of their time, encoded as differences, and whatever else is known: names of threads, VMs, the host.
//!
//! [`Encoder`] makes blocks, [`Blocks`] decodes them, [`Anonymiser`] leaves out names.

mod anonymise;
mod block;
mod code;
mod decode;
mod encode;
mod entry;
pub(crate) mod import;

pub use anonymise::{Anonymiser, Copied, anonymise};
pub use block::{Blocks, Damage, HEADER, MAGIC};
pub use encode::Encoder;
pub use entry::{Cause, Entry, Left, Thread};
